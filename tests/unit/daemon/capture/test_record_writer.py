"""The records of a trace line are written in order of time, whatever comes late."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from hpcd.bpf.wire import SwitchEvent
from hpcd.daemon.capture.loop.record_writer import RecordWriter
from hpcd.daemon.capture.records.record_batch import RecordBatch
from hpcd.daemon.capture.threads.thread_times import ThreadTimes
from tests.support.report_streams import records_of

FIRST = 1


class WrittenRecords:
    """Stands for the writer: keeps what it is given."""

    def __init__(self) -> None:
        self.parts: list[tuple[Any, ...]] = []

    def add_records(self, *columns: Any) -> None:
        self.parts.append(columns)


class Paths:
    """Stands for paths of which those with these nodes are not finished."""

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


def writing() -> tuple[RecordWriter, ThreadTimes, Paths, WrittenRecords]:
    """A writer of the records of line 0, which runs; paths are finished late."""
    thread_times = ThreadTimes(FIRST, 50_000_000)
    thread_times.begin(0, 0, SwitchEvent.SWITCHED_IN, 1)
    written, paths = WrittenRecords(), Paths()
    cct: Any = SimpleNamespace(count=1)
    writer: Any = written
    stand_ins: Any = paths
    return RecordWriter(writer, cct, stand_ins), thread_times, paths, written


def test_sums_of_short_waits_come_after_what_their_line_has_written() -> None:
    records, thread_times, paths, writer = writing()
    # The wait of the node that is summed first is the later one.
    columns = reports(
        (1_000_000, SwitchEvent.OUT_SLEEPING, 0, 7),
        (2_000_000, SwitchEvent.SWITCHED_IN, 0, 0),
        (9_000_000, SwitchEvent.OUT_SLEEPING, 0, 3),
        (9_500_000, SwitchEvent.SWITCHED_IN, 0, 0),
    )
    records_of(thread_times, *columns)
    records.write_short_waits(thread_times.drain_short_waits())
    # A path that is not finished holds the line; the sum that follows is written before it.
    paths.unfinished.add(5)
    line, time, event, value, node = reports((10_000_000, FIRST, 100_000, 5))
    records.write(RecordBatch(line, time, node, event, value))
    columns = reports(
        (9_600_000, SwitchEvent.OUT_SLEEPING, 0, 3), (9_700_000, SwitchEvent.SWITCHED_IN, 0, 0)
    )
    records_of(thread_times, *columns)
    records.write_short_waits(thread_times.drain_short_waits())
    times = [int(time) for part in writer.parts for time in part[1]]
    assert len(times) == 3
    assert times == sorted(times)


def test_a_wait_stays_behind_a_sample_whose_path_is_not_finished() -> None:
    records, thread_times, paths, writer = writing()
    paths.unfinished.add(5)
    columns = reports(
        (10_000_000, 0, 1000, 5),
        (20_000_000, SwitchEvent.OUT_SLEEPING, 0, 7),
        (200_000_000, SwitchEvent.SWITCHED_IN, 0, 0),
    )
    records.write(records_of(thread_times, *columns))
    assert not writer.parts
    paths.unfinished.clear()
    records.write_held()
    times = [int(time) for part in writer.parts for time in part[1]]
    assert times == [10_000_000, 20_000_000]
