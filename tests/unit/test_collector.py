"""The records of a trace line are written in order of time, whatever comes late."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from hpcd.bpf.layouts import Switch
from hpcd.daemon.capture.collector import Collector
from hpcd.daemon.capture.thread_times import Records, ThreadTimes

FIRST = 1


class WrittenRecords:
    """Stands for the writer: keeps what it is given."""

    def __init__(self) -> None:
        self.parts: list[tuple[Any, ...]] = []

    def add_records(self, *columns: Any) -> None:
        self.parts.append(columns)


class Paths:
    """Stands for paths of which those with these nodes are not finished."""

    any_known = True

    def __init__(self) -> None:
        self.unfinished: set[int] = set()

    def translate(self, node: Any) -> tuple[Any, Any]:
        return node, np.isin(node, list(self.unfinished))


def reports(*rows: tuple[int, int, int, int]) -> tuple[Any, ...]:
    """Columns of (time, kind, value, node) of line 0."""
    time, kind, value, node = zip(*rows, strict=True)
    return (
        np.zeros(len(rows), np.uint32),
        np.array(time, np.uint64),
        np.array(kind, np.uint16),
        np.array(value, np.uint64),
        np.array(node, np.uint32),
    )


def collecting() -> tuple[Collector, ThreadTimes, Paths, WrittenRecords]:
    """A collector of line 0, which runs; paths are finished late."""
    thread_times = ThreadTimes(FIRST, 50_000_000)
    thread_times.begin(0, 0, Switch.IN, 1)
    writer, paths = WrittenRecords(), Paths()
    stacks: Any = SimpleNamespace(cct=SimpleNamespace(count=1))
    parts: list[Any] = [None, None, stacks, None, writer]
    collector = Collector(*parts, [1000], thread_times, paths)  # type: ignore[arg-type]
    return collector, thread_times, paths, writer


def test_sums_of_short_waits_come_after_what_their_line_has_written() -> None:
    collector, thread_times, paths, writer = collecting()
    # The wait of the node that is summed first is the later one.
    thread_times.advance(
        *reports(
            (1_000_000, Switch.SLEEPING, 0, 7),
            (2_000_000, Switch.IN, 0, 0),
            (9_000_000, Switch.SLEEPING, 0, 3),
            (9_500_000, Switch.IN, 0, 0),
        )
    )
    collector.settle_waits()
    # A path that is not finished holds the line; the sum that follows is written before it.
    paths.unfinished.add(5)
    collector._write(thread_times._waits(*held_wait()))
    thread_times.advance(*reports((9_600_000, Switch.SLEEPING, 0, 3), (9_700_000, Switch.IN, 0, 0)))
    collector.settle_waits()
    times = [int(time) for part in writer.parts for time in part[1]]
    assert len(times) == 3
    assert times == sorted(times)


def test_a_wait_stays_behind_a_sample_whose_path_is_not_finished() -> None:
    collector, _, paths, writer = collecting()
    paths.unfinished.add(5)
    columns = reports(
        (10_000_000, 0, 1000, 5),
        (20_000_000, Switch.SLEEPING, 0, 7),
        (200_000_000, Switch.IN, 0, 0),
    )
    line, time, event, value, node = columns
    collector._write_samples(Records(line, time, node, event, value))
    paths.unfinished.clear()
    collector._write_held()
    times = [int(time) for part in writer.parts for time in part[1]]
    assert times == [10_000_000, 20_000_000]


def held_wait() -> tuple[Any, ...]:
    """A long wait of line 0 by a path that is not finished, as columns of ``_waits``."""
    start = np.array([10_000_000])
    end = start + 100_000_000
    kind = np.array([Switch.SLEEPING], np.uint16)
    return np.array([0]), start, end, np.array([0]), kind, np.array([5], np.uint32)
