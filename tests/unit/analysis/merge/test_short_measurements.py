"""Short measurements are made parts together: the parts are those that each would have alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcd.analysis.merge import ingest as merge_ingest
from hpcd.analysis.merge import short_measurements
from hpcd.analysis.merge.executors import together
from hpcd.analysis.merge.ingest import IngestTask, ingest, ingest_several
from hpcd.analysis.merge.stages import merge
from hpcd.analysis.trace.part_contents import PartContents
from hpcd.analysis.trace.shared_companion import SUFFIX, SharedCompanion, members_in
from hpcd.errors import FormatError, HpcdError, NotFoundError
from hpcd.measurement.synthetic import Shape, Synthesizer, built_in_source, recorded_source
from tests.support.paths import ROOT

RECORDINGS = ROOT / "tests/data/recordings"


def made(folder: Path) -> list[Path]:
    """Measurements with and without waits, of one line with an overview and of many without."""
    paths = []
    shapes = [
        ("mpi", Shape(6, 700, ranks_per_node=3)),
        ("openmp", Shape(2, 5000, ranks_per_node=1)),
        ("build", Shape(90, 20, ranks_per_node=30)),
        ("server", Shape(4, 4000, ranks_per_node=2)),
        ("", Shape(8, 300, contexts=50, ranks_per_node=4)),
    ]
    for name, shape in shapes:
        source = recorded_source(RECORDINGS / name) if name else built_in_source(50)
        synthesizer = Synthesizer(shape, source)
        for number in range(shape.measurements):
            paths.append(folder / f"{name}-{number}")
            synthesizer.write(paths[-1], number)
    return paths


def ingested(paths: list[Path], folder: Path) -> list[PartContents | HpcdError]:
    folder.mkdir()
    return ingest_several([IngestTask(path, folder, None, 1 << 30) for path in paths])


def test_parts_are_those_made_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = made(tmp_path)
    together = ingested(paths, tmp_path / "together")
    # Nothing is short: each is read by itself.
    monkeypatch.setattr(short_measurements, "_MOST_RECORDS", -1)
    alone = ingested(paths, tmp_path / "alone")
    for one, other in zip(together, alone, strict=True):
        assert isinstance(one, PartContents)
        assert isinstance(other, PartContents)
        assert one.part.read_bytes() == other.part.read_bytes()
        for name in ("lines", "counts", "first_ns", "last_ns"):
            assert getattr(one, name).tolist() == getattr(other, name).tolist()
        for name in ("path", "size", "id", "threads", "events_used", "nodes", "damage", "symbols"):
            assert getattr(one, name) == getattr(other, name)


def few(folder: Path) -> list[Path]:
    """Short ones whose modules are no files that a merge reads."""
    synthesizer = Synthesizer(Shape(20, 300, contexts=50, ranks_per_node=4), built_in_source(50))
    paths = [folder / f"m{number}" for number in range(5)]
    for number, path in enumerate(paths):
        synthesizer.write(path, number)
    return paths


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes()
            for path in folder.rglob("*") if path.is_file()}  # fmt: skip


def test_a_killed_merge_goes_on_with_companions_that_parts_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where one of those that share it is not merged any more, or has grown."""
    paths = few(tmp_path)
    left = tmp_path / ".db.merging" / "parts"
    left.parent.mkdir()
    ingested(paths, left)
    assert {path.suffix for path in left.iterdir()} == {".part", SUFFIX}
    merge(paths[1:], tmp_path / "fresh", workers=1)
    with monkeypatch.context() as patch:
        patch.setattr(merge_ingest, "make_parts", None)
        merge(paths[1:], tmp_path / "db", workers=1)
    assert files(tmp_path / "db") == files(tmp_path / "fresh")
    assert not left.exists()
    # What was read of a measurement before it grew is not what there is now.
    left.parent.mkdir()
    ingested(paths, left)
    with next(paths[2].iterdir()).open("ab") as segment:
        segment.write(bytes(8))
    merge(paths, tmp_path / "db", workers=1, force=True)
    merge(paths, tmp_path / "grown", workers=1)
    assert files(tmp_path / "db") == files(tmp_path / "grown")


def test_companions_that_are_damaged_are_not_used(tmp_path: Path) -> None:
    paths = few(tmp_path)[:4]
    ingested(paths, tmp_path / "parts")
    (shared,) = (tmp_path / "parts").glob(f"*{SUFFIX}")
    whole = shared.read_bytes()
    assert len(members_in(tmp_path / "parts")) == 4
    for content in (b"", whole[:7], whole[:100], b"\xff" * 100, whole[:8] + b"[" + whole[9:]):
        shared.write_bytes(content)
        assert members_in(tmp_path / "parts") == {}
    shared.write_bytes(whole[:-100])
    with pytest.raises(FormatError, match="damaged"):
        SharedCompanion(shared).cells(3)
    with pytest.raises(FormatError, match="damaged"):
        SharedCompanion(shared).node(4)


def test_one_that_cannot_be_read_is_named_and_the_others_are_made(tmp_path: Path) -> None:
    paths = made(tmp_path)[:4]
    segment = next(paths[1].iterdir())
    segment.write_bytes(b"?" * 100)
    answers = ingested([*paths, tmp_path / "none"], tmp_path / "parts")
    assert [type(answer) for answer in answers] == [
        PartContents, FormatError, PartContents, PartContents, NotFoundError,
    ]  # fmt: skip
    with pytest.raises(FormatError, match=str(paths[1])):
        ingest(IngestTask(paths[1], tmp_path / "parts", None, 1 << 30))


def test_small_things_are_put_together() -> None:
    groups = together([5, 1, 900, 3] + [1] * 2000, 300)
    assert sorted(number for group in groups for number in group) == list(range(2004))
    assert groups[0] == [2]
    assert max(map(len, groups)) <= 64
    # With few there is work for many workers, and nothing to share out is no mistake.
    assert len(together([1] * 16, 300)) == 16
    assert together([], 300) == []
    assert sorted(map(len, together([0, 0, 0], 300))) == [1, 1, 1]
