"""Records that last: from a measurement to a database's trace."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import hpcd.analysis
from hpcd.analysis.database.check import check_database
from hpcd.analysis.merge.stages import merge
from hpcd.analysis.trace.intervals import Intervals
from hpcd.analysis.trace.states import nodes_of, states_of
from hpcd.measurement.codec import RecordChunk
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.codes import State
from hpcd.model.frame import module_frame
from hpcd.model.identity import Event, Host, Module, ModuleKind, Process, Thread

CPU = Event(0, "cpu-clock", "s", 1e-3, "cpu_time", 1000)
BLOCKED = Event(1, "blocked", "s", 1e-6, "blocked_time", interval=True)


def chunk(rows: list[tuple[int, int, int, int, int]]) -> RecordChunk:
    """From (line, time in µs, node, event, value), sorted."""
    line, time, node, event, value = (np.array(column) for column in zip(*rows, strict=True))
    lines, counts = np.unique(line, return_counts=True)
    return RecordChunk(
        lines.astype(np.uint32),
        np.concatenate(([0], np.cumsum(counts))),
        time.astype(np.uint64) * np.uint64(1000),
        node.astype(np.uint32),
        event.astype(np.uint16),
        value.astype(np.uint64),
    )


def test_an_interval_becomes_its_beginning_and_its_end() -> None:
    part = chunk([(0, 10, 5, 0, 1), (0, 20, 6, 1, 70), (0, 95, 5, 0, 1), (3, 1, 6, 1, 4)])
    expanded = Intervals([CPU, BLOCKED]).expand(part)
    assert expanded.start.tolist() == [0, 4, 6]
    assert expanded.time.tolist() == [10, 20, 90, 95, 1, 5]
    assert expanded.node.tolist() == [5, 6, 6, 5, 6, 6]
    assert expanded.value is not None
    assert expanded.value.tolist() == [1, 70, 0, 1, 4, 0]


def test_an_end_never_passes_the_next_record() -> None:
    part = chunk([(0, 10, 5, 1, 100), (0, 50, 6, 0, 1)])
    assert Intervals([BLOCKED]).expand(part).time.tolist() == [10, 50, 50]


def test_a_length_beyond_reason_does_not_overflow() -> None:
    part = chunk([(0, 10, 5, 1, (1 << 63) - 1)])
    expanded = Intervals([BLOCKED]).expand(part)
    assert int(expanded.time[1]) == (10_000 + (1 << 60)) // 1000


def test_without_intervals_nothing_changes() -> None:
    part = chunk([(0, 10, 5, 0, 1), (0, 12, 6, 0, 1)])
    expanded = Intervals([CPU]).expand(part)
    assert expanded.time.tolist() == [10, 12]
    assert expanded.event is None and expanded.value is None


def test_intervals_that_are_the_only_event_end(tmp_path: Path) -> None:
    only = Event(0, "wait", "us", 1.0, "wait", interval=True)
    part = chunk([(0, 10, 5, 0, 1), (0, 20, 6, 0, 1)])
    expanded = Intervals([only]).expand(part)
    assert expanded.time.tolist() == [10, 11, 20, 21]
    assert expanded.value is not None and expanded.value.tolist() == [1, 0, 1, 0]
    assert checked(tmp_path, only, 1) == 4


def test_a_record_of_no_length_is_no_end(tmp_path: Path) -> None:
    assert checked(tmp_path, Event(0, "wait", "us", 1.0, "wait", interval=True), 0) == 2


def test_an_interval_in_no_unit_of_time_is_none(tmp_path: Path) -> None:
    assert checked(tmp_path, Event(0, "wait", "pages", 1.0, "wait", interval=True), 0) == 2


def checked(folder: Path, event: Event, value: int) -> int:
    """Merge two records of ``event``: the number of entries of a database that is sound."""
    writer = MeasurementWriter(folder / "m", Host("h", "b", "6", "x86_64", 1), options={})
    writer.add_event(event)
    writer.add_process(Process(1, 10, 1, "p", "/p", (), 0, 0))
    writer.add_module(Module(1, ModuleKind.ELF, "/p", "ab"))
    writer.add_thread(Thread(0, 1, 10, "p", 0, 1_100_000_000))
    node = writer.add_nodes(np.zeros(1, np.uint32), np.array([module_frame(1, 16)], np.uint64))
    times = np.array([10, 20], np.uint64) * np.uint64(1_000_000)
    zeros, nodes = np.zeros(2, np.uint16), np.full(2, node, np.uint32)
    writer.add_records(zeros.astype(np.uint32), times, nodes, zeros, np.full(2, value, np.uint64))
    writer.close()
    merge([folder / "m"], folder / "db")
    assert check_database(folder / "db") == []
    with hpcd.analysis.open(folder / "db") as db:
        return len(db.trace)


def test_a_wait_is_drawn_for_as_long_as_it_lasts_and_counted_once(tmp_path: Path) -> None:
    writer = MeasurementWriter(tmp_path / "m", Host("h", "b", "6", "x86_64", 1), options={})
    for event in (CPU, BLOCKED):
        writer.add_event(event)
    writer.add_process(Process(1, 10, 1, "p", "/p", (), 0, 0))
    writer.add_module(Module(1, ModuleKind.ELF, "/p", "ab"))
    writer.add_thread(Thread(0, 1, 10, "p", 0, 1_100_000_000))
    first = writer.add_nodes(
        np.zeros(2, np.uint32), np.array([module_frame(1, 16), module_frame(1, 32)], np.uint64)
    )
    writer.add_records(
        np.zeros(3, np.uint32),
        np.array([10, 20, 1_030], np.uint64) * np.uint64(1_000_000),
        np.array([first, first + 1, first], np.uint32),
        np.array([0, 1, 0], np.uint16),
        np.array([10, 1_000_000, 10], np.uint64),
    )
    writer.add_clock_pair(0, 0)
    writer.close()
    merge([tmp_path / "m"], tmp_path / "db")
    assert check_database(tmp_path / "db") == []
    with hpcd.analysis.open(tmp_path / "db") as db:
        grid = db.sample_grid(None, 0, 1_040_000_000, 1, 104)[0]
        waiting = int(nodes_of(grid)[50])
        # Pixels are 10 ms wide, and show what is in their middle; a wait has its own time.
        assert np.flatnonzero(grid == grid[50]).tolist() == list(range(2, 102))
        assert states_of(grid).tolist() == [0] * 2 + [State.BLOCKED] * 100 + [0] * 2
        assert db.metrics.exclusive("records").sum() == 3
        assert db.metrics.exclusive("blocked_time")[waiting] == 1.0
        assert np.isclose(db.metrics.exclusive("cpu_time").sum(), 0.02)
