"""Short measurements are made parts together: the parts are those that each would have alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcd.analysis.merge import short_measurements
from hpcd.analysis.merge.executors import together
from hpcd.analysis.merge.ingest import IngestTask, ingest, ingest_several
from hpcd.analysis.trace.part_contents import PartContents
from hpcd.errors import FormatError, HpcdError, NotFoundError
from hpcd.measurement.synthetic import Shape, Synthesizer, built_in_source, recorded_source

RECORDINGS = Path(__file__).parents[1] / "data/recordings"


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


@pytest.mark.parametrize("compiled", ["0", "1"])
def test_parts_are_those_made_one_by_one(
    tmp_path: Path, compiled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCD_COMPILED", compiled)
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
