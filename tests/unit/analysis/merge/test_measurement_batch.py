"""Short measurements share a part: what it says is what the part of each alone would say."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import hpcd.analysis
from hpcd.analysis.database.check import check_database
from hpcd.analysis.merge.read import ingest as merge_ingest
from hpcd.analysis.merge.read import measurement_reading
from hpcd.analysis.merge.read.ingest import IngestTask, MeasurementSource, ingest
from hpcd.analysis.merge.stages import merge
from hpcd.analysis.merge.tasks.executors import together
from hpcd.analysis.merge.unite.scratch import Scratch, scratch_path
from hpcd.errors import FormatError, NotFoundError
from hpcd.measurement.segments import identify_measurement
from hpcd.measurement.synthetic import Shape, Synthesizer
from hpcd.measurement.synthetic_source import built_in_source, recorded_source
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.identity import Event, Host, Process, Thread
from tests.support.alike import assert_alike
from tests.support.paths import ROOT

RECORDINGS = ROOT / "tests/data/recordings"


def mixed(folder: Path) -> list[Path]:
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


def few(folder: Path) -> list[Path]:
    """Short ones whose modules are no files that a merge reads."""
    synthesizer = Synthesizer(Shape(20, 300, contexts=50, ranks_per_node=4), built_in_source(50))
    paths = [folder / f"m{number}" for number in range(5)]
    for number, path in enumerate(paths):
        synthesizer.write(path, number)
    return paths


def odd(
    path: Path, *, announced: bool = True, time_ns: int = 10**15, event: int = 0, close: bool = True
) -> Path:
    """A measurement of three records of two lines, one of which may not be announced."""
    writer = MeasurementWriter(path, Host("odd", "b", "6", "x86_64", 1), options={})
    writer.add_event(Event(0, "cpu-clock", "ns", 1e6, "cpu_time", 997))
    writer.add_process(Process(1, 10, 1, "p", "/p", (), 0, 10**15))
    for line in (2, 5, 9) if announced else (5, 9):
        writer.add_thread(Thread(line, 1, 10 + line, "p", 10**15))
    writer.add_nodes(np.zeros(1, np.uint32), np.array([77], np.uint64))
    times = np.array([time_ns, time_ns + 1000, time_ns + 2000], np.uint64)
    writer.add_records(np.array([2, 5, 5], np.uint32), times, np.ones(3, np.uint32),
                       np.full(3, event, np.uint16), np.ones(3, np.uint64))  # fmt: skip
    if close:
        writer.close({})
    else:
        writer.flush()
    return path


@pytest.fixture
def one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small they are in all, short measurements are put into one batch."""
    monkeypatch.setattr(measurement_reading, "_FEWEST_BATCHES", 1)


def part_names(database: Path) -> list[str]:
    return sorted(path.name for path in (database / "trace").glob("*.part"))


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes()
            for path in folder.rglob("*") if path.is_file()}  # fmt: skip


@pytest.mark.usefixtures("one_batch")
def test_a_database_of_batches_answers_like_one_of_single_measurements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [
        *mixed(tmp_path), odd(tmp_path / "lost line", announced=False),
        odd(tmp_path / "lost event", event=7),
    ]  # fmt: skip
    merge(paths, tmp_path / "batches", workers=1)
    assert len(part_names(tmp_path / "batches")) == 1
    monkeypatch.setattr(measurement_reading, "_SHORT_BYTES", 0)
    merge(paths, tmp_path / "single", workers=1)
    assert len(part_names(tmp_path / "single")) == len(paths)
    assert_alike(tmp_path / "batches", tmp_path / "single")
    assert check_database(tmp_path / "batches") == []
    with hpcd.analysis.open(tmp_path / "batches") as db:
        odd_lines = [line for line in db.lines if line.host == "odd"]
        assert sorted(line.records for line in odd_lines) == [0, 0, 1, 1, 2, 2]


def test_the_order_of_measurements_does_not_matter(tmp_path: Path) -> None:
    paths = mixed(tmp_path)
    merge(paths, tmp_path / "one", workers=1)
    random.Random(1).shuffle(paths)
    merge(paths, tmp_path / "other", workers=2)
    assert files(tmp_path / "one") == files(tmp_path / "other")


@pytest.mark.usefixtures("one_batch")
def test_a_killed_merge_goes_on_with_the_parts_of_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not where one of a batch has grown since."""
    paths = few(tmp_path)
    left = left_parts(tmp_path)
    known = sorted(paths, key=lambda path: identify_measurement(path)[0] or 0)
    sources = tuple(MeasurementSource(path, identify_measurement(path)[1]) for path in known)
    (part,) = ingest(IngestTask(sources, left, 1 << 30)).parts
    assert set(left.iterdir()) == {part.path, scratch_path(part.path)}
    merge(paths, tmp_path / "fresh", workers=1)
    with monkeypatch.context() as patch:
        patch.setattr(merge_ingest, "MeasurementBatch", None)
        merge(paths, tmp_path / "db", workers=1)
    assert files(tmp_path / "db") == files(tmp_path / "fresh")
    assert not left.exists()
    left = left_parts(tmp_path)
    ingest(IngestTask(sources, left, 1 << 30))
    with next(paths[2].iterdir()).open("ab") as segment:
        segment.write(bytes(8))
    merge(paths, tmp_path / "db", workers=1, force=True)
    merge(paths, tmp_path / "grown", workers=1)
    assert files(tmp_path / "db") == files(tmp_path / "grown")


def left_parts(folder: Path) -> Path:
    """An empty directory of parts as a killed merge of ``folder``/db left it."""
    work = folder / ".db.merging"
    work.mkdir(mode=0o700)
    (work / "parts").mkdir()
    return work / "parts"


@pytest.mark.usefixtures("one_batch")
def test_one_that_is_still_written_has_a_part_of_its_own(tmp_path: Path) -> None:
    """So that what it was is not kept when it is added again."""
    paths = [*few(tmp_path), odd(tmp_path / "growing", close=False)]
    merge(paths, tmp_path / "db", workers=1)
    assert len(part_names(tmp_path / "db")) == 2
    batch = max((tmp_path / "db" / "trace").glob("*.part"), key=lambda path: path.stat().st_size)
    inode = batch.stat().st_ino
    with next(paths[-1].iterdir()).open("ab") as segment:
        segment.write(bytes(8))
    merge(paths, tmp_path / "db", workers=1, add=True)
    inodes = {path.stat().st_ino for path in (tmp_path / "db" / "trace").glob("*.part")}
    assert inode in inodes and len(inodes) == 2
    merge(paths, tmp_path / "fresh", workers=1)
    assert files(tmp_path / "db") == files(tmp_path / "fresh")


@pytest.mark.usefixtures("one_batch")
def test_what_a_kept_part_has_of_a_measurement_that_is_elsewhere_is_no_line(
    tmp_path: Path,
) -> None:
    paths = few(tmp_path)
    merge(paths, tmp_path / "db", workers=1)
    with next(paths[2].iterdir()).open("ab") as segment:
        segment.write(bytes(8))
    merge(paths, tmp_path / "db", workers=1, add=True)
    merge(paths, tmp_path / "fresh", workers=1)
    assert len(part_names(tmp_path / "db")) == 2
    assert_alike(tmp_path / "db", tmp_path / "fresh")
    assert check_database(tmp_path / "db") == []
    # And once more, from a database that has such a part.
    merge([odd(tmp_path / "later")], tmp_path / "db", workers=1, add=True)
    merge([*paths, tmp_path / "later"], tmp_path / "both", workers=1)
    assert_alike(tmp_path / "db", tmp_path / "both")
    assert check_database(tmp_path / "db") == []


@pytest.mark.usefixtures("one_batch")
def test_one_that_cannot_be_read_is_named_and_the_others_are_merged(tmp_path: Path) -> None:
    paths = [*few(tmp_path), odd(tmp_path / "late", time_ns=(1 << 60) + 1)]
    next(paths[1].iterdir()).write_bytes(b"?" * 100)
    result = merge([*paths, tmp_path / "none"], tmp_path / "db", workers=1)
    assert [path for path, _ in result.refused] == [
        str(path) for path in (paths[1], paths[-1], tmp_path / "none")
    ]
    assert "record times are out of range" in result.refused[1][1]
    merge([path for path in paths[:-1] if path != paths[1]], tmp_path / "others", workers=1)
    assert_alike(tmp_path / "db", tmp_path / "others")
    with pytest.raises(FormatError, match=str(paths[1])):
        merge([paths[1]], tmp_path / "no database", workers=1)
    with pytest.raises(NotFoundError, match="none"):
        merge([tmp_path / "none"], tmp_path / "no database", workers=1)


def test_scratch_files_that_are_damaged_are_not_used(tmp_path: Path) -> None:
    paths = few(tmp_path)
    folder = tmp_path / "parts"
    folder.mkdir()
    task = IngestTask(tuple(MeasurementSource(path, 0) for path in paths), folder, 1 << 30)
    (part,) = ingest(task).parts
    place = scratch_path(part.path)
    whole = place.read_bytes()
    for content in (b"", whole[:7], whole[:100], b"\xff" * 100, whole[:-100]):
        place.write_bytes(content)
        for read in (Scratch.tree, Scratch.sums, Scratch.modules, Scratch.symbols, Scratch.named):
            with pytest.raises(FormatError, match="damaged"):
                read(Scratch(part.path))
        (again,) = ingest(task).parts
        assert again.path == part.path
        assert place.read_bytes() == whole


def test_small_things_are_put_together() -> None:
    groups = together([5, 1, 900, 3] + [1] * 2000, 300)
    assert sorted(number for group in groups for number in group) == list(range(2004))
    assert groups[0] == [2]
    assert max(map(len, groups)) <= 64
    # With few there is work for many workers, and nothing to share out is no mistake.
    assert len(together([1] * 16, 300)) == 16
    assert together([], 300) == []
    assert sorted(map(len, together([0, 0, 0], 300))) == [1, 1, 1]
