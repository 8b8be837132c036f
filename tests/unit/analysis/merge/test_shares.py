"""Large measurements, read in shares by several workers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hpcd.analysis.merge.read import shares
from hpcd.analysis.merge.read.ingest import (
    Ingested,
    IngestTask,
    MeasurementSource,
    ingest,
    join_shares,
)
from hpcd.analysis.merge.read.shares import divide
from hpcd.analysis.merge.stages import merge
from hpcd.analysis.merge.unite.scratch import scratch_path
from hpcd.analysis.trace.part_contents import MeasurementContents, PartContents
from hpcd.array_types import U64
from hpcd.measurement.reader import open_measurement
from hpcd.measurement.segments import measurement_size
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model import frame
from hpcd.model.identity import Event, Host, Module, ModuleKind, Process, Thread
from tests.support.alike import assert_alike
from tests.support.ingested import ingest_one

START = 10**15


def put(writer: MeasurementWriter, line: int, time: U64, seed: int) -> None:
    """A chunk of samples and waits."""
    random = np.random.default_rng(seed)
    node = random.integers(1, 300, len(time)).astype(np.uint32)
    event = random.integers(0, 2, len(time)).astype(np.uint16)
    value = np.where(event == 1, random.integers(0, 900, len(time)), 1).astype(np.uint64)
    writer.add_records(np.full(len(time), line, np.uint32), time, node, event, value)
    writer.flush()


def written(path: Path, close: bool = True) -> MeasurementWriter:
    """Three lines in chunks; the last one's second half is earlier than its first."""
    writer = MeasurementWriter(path, Host("h", "b", "6", "x86_64", 1), options={})
    writer.add_event(Event(0, "cpu-clock", "ns", 1e6, "cpu_time", 997))
    writer.add_event(Event(1, "wait", "us", 1.0, "blocked", 0, interval=True))
    writer.add_module(Module(1, ModuleKind.ELF, "/lib/a.so"))
    writer.add_clock_pair(START, START)
    places = np.uint64(frame.module_frame(1, 0)) + np.arange(300, dtype=np.uint64)
    writer.add_nodes(np.zeros(300, np.uint32), places)
    random = np.random.default_rng(7)
    for line in range(3):
        writer.add_process(Process(line, 10 + line, 1, "p", "/p", (), 0, START, "j", line, 3))
        writer.add_thread(Thread(line, line, 10 + line, "p", START))
    time = START + np.cumsum(random.integers(900, 1100, 12_000) * 1000).astype(np.uint64)
    for number in range(8):
        part = slice(number * 1500, (number + 1) * 1500)
        put(writer, 0, time[part], number)
        if 2 <= number < 5:
            put(writer, 1, time[part], number + 100)
        back = slice((number + 4) % 8 * 1500, ((number + 4) % 8 + 1) * 1500)
        put(writer, 2, time[back], number + 200)
    if close:
        writer.close()
    return writer


def tasks_of(path: Path, parts: Path) -> list[IngestTask]:
    """A task for each share of a measurement."""
    parts.mkdir(exist_ok=True)
    size = measurement_size(path)
    return [
        IngestTask((MeasurementSource(path, size),), parts, 1 << 30, share)
        for share in divide(size)
    ]


def part_of(answer: Ingested) -> PartContents:
    (part,) = answer.parts
    return part


def joined(tasks: list[IngestTask]) -> MeasurementContents:
    """The contents of a measurement, read share by share."""
    assert all(ingest(task).share is not None for task in tasks)
    (contents,) = part_of(join_shares(tasks)).measurements
    return contents


def read_whole(path: Path, folder: Path) -> MeasurementContents:
    folder.mkdir()
    (contents,) = ingest_one(path, folder).measurements
    return contents


@pytest.fixture(autouse=True)
def small_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measurements of some hundred kilobytes are divided."""
    monkeypatch.setattr(shares, "_SHARE_BYTES", 20_000)


def test_a_divided_measurement_answers_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "m")
    assert len(divide(measurement_size(tmp_path / "m"))) >= 3
    merge([tmp_path / "m"], tmp_path / "divided")
    assert not list(tmp_path.glob("**/share-*"))
    monkeypatch.setattr(shares, "_SHARE_BYTES", 1 << 30)
    merge([tmp_path / "m"], tmp_path / "whole")
    assert_alike(tmp_path / "whole", tmp_path / "divided")


def test_shares_of_a_merge_that_was_killed_are_kept(tmp_path: Path) -> None:
    written(tmp_path / "m")
    tasks = tasks_of(tmp_path / "m", tmp_path / "parts")
    ingest(tasks[0])
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "parts").iterdir()}
    for task in tasks:
        ingest(task)
    assert before == {path: path.stat().st_mtime_ns for path in before}
    part = part_of(join_shares(tasks))
    left = set((tmp_path / "parts").iterdir())
    assert left == {part.path, scratch_path(part.path)}
    # A part that is there needs no shares.
    assert {part_of(ingest(task)).path for task in tasks} == {part.path}


def test_what_is_recorded_meanwhile_is_in_no_share(tmp_path: Path) -> None:
    writer = written(tmp_path / "m", close=False)
    tasks = tasks_of(tmp_path / "m", tmp_path / "parts")
    whole = read_whole(tmp_path / "m", tmp_path / "whole")
    ingest(tasks[0])
    writer.add_thread(Thread(3, 0, 13, "later", START))
    put(writer, 3, np.arange(2000, dtype=np.uint64) + np.uint64(START), 5)
    writer.close()
    contents = joined(tasks)
    assert contents.lines.tolist() == whole.lines.tolist()
    assert contents.counts.tolist() == whole.counts.tolist()
    assert not contents.closed
    assert contents.damage == ()


def test_damage_is_named_once(tmp_path: Path) -> None:
    written(tmp_path / "m")
    with open_measurement(tmp_path / "m") as measurement:
        places = [header.offset for _, header, _ in measurement._records]
    (segment,) = (tmp_path / "m").glob("segment-*")
    content = bytearray(segment.read_bytes())
    for place in (places[3], places[-2]):
        content[place + 5] ^= 0xFF
    segment.write_bytes(content)
    whole = read_whole(tmp_path / "m", tmp_path / "whole")
    contents = joined(tasks_of(tmp_path / "m", tmp_path / "parts"))
    assert len(whole.damage) == 2
    assert contents.damage == whole.damage
    assert contents.counts.tolist() == whole.counts.tolist()


def test_records_of_lines_without_a_thread_are_left_out_alike(tmp_path: Path) -> None:
    writer = written(tmp_path / "m", close=False)
    put(writer, 9, np.arange(2000, dtype=np.uint64) + np.uint64(START), 5)
    writer.close()
    whole = read_whole(tmp_path / "m", tmp_path / "whole")
    contents = joined(tasks_of(tmp_path / "m", tmp_path / "parts"))
    assert contents.lines.tolist() == whole.lines.tolist()
    assert contents.counts.tolist() == whole.counts.tolist()
