"""Trace lines of many measurements in order, by column."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hpcd.analysis.merge.unite.line_order import NO_NUMBER, TextColumn, order_lines
from hpcd.analysis.trace.part_contents import MeasurementContents, windows_of
from hpcd.measurement.identity_columns import IdentityColumns, arrays_of
from hpcd.model.identity import Host, Process, Thread

_NEVER = (1 << 63) - 1


def _contents(
    number: int, host: str, processes: Sequence[Process], threads: Sequence[Thread],
    lines: Sequence[int],
) -> MeasurementContents:  # fmt: skip
    counts = np.arange(len(lines))
    return MeasurementContents(
        path=Path(f"m{number}"), size=0, id=number,
        host=Host(host, "boot", "6.18", "x86_64", 2), options={},
        processes=IdentityColumns.of(Process, {row.id: row for row in processes}),
        threads=IdentityColumns.of(Thread, {row.line: row for row in threads}),
        modules={}, clock_pairs=np.array([[500, 0], [900, 0]])[: number % 3],
        summary=None, closed=True, damage=(), nodes=1, lines=np.array(lines, np.uint32),
        counts=counts, first_ns=np.where(counts, 400 + 10 * counts, _NEVER),
        last_ns=np.where(counts, 600 + 200 * counts, -_NEVER),
    )  # fmt: skip


def _process(id: int, pid: int, rank: int | None = None, job: str = "") -> Process:
    return Process(id, pid, 1, f"p{pid % 3}", "/bin/p", ("p", str(pid)), 0, pid << 33, job, rank)


def _measurements() -> list[MeasurementContents]:
    alone = [_process(n, 40 - n, 3 - n, "job") for n in range(3)]
    several = [_process(7, 5), _process(3, 5), _process(1 << 31, 4, 1, "other")]
    return [
        # A thread for each process; more threads than processes; threads and processes that nobody
        # announced; nothing at all.
        _contents(11, "b", alone, [Thread(n, n, 40 - n, "t", 9) for n in range(3)], range(3)),
        _contents(9, "a", several, [Thread(0, 3, 5, "x", 1), Thread(1, 7, 6, "y", 1 << 40, 7),
                                    Thread(4, 3, 5, "x", 1), Thread(5, 1 << 31, 4, "z", 2)],
                  [0, 1, 4, 5]),
        _contents(10, "a", [_process(2, 8)], [Thread(2, 2, 8, "t", 1), Thread(3, 99, 8, "t", 1)],
                  [2, 3, 6]),
        _contents(12, "a", [_process(0, 3)], [], []),
    ]  # fmt: skip


def test_lines_and_processes_are_in_order_of_what_they_are() -> None:
    measurements = _measurements()
    order, processes, threads = order_lines(measurements)
    known: list[tuple[tuple[object, ...], int, Process]] = []
    for number, measurement in enumerate(measurements):
        rows = dict(measurement.processes.items())
        for id in {row.process for row in measurement.threads.values()} - rows.keys():
            rows[id] = Process(id, 0, 0, "unknown", "", (), 0, 0)
        if number == 2:  # of the line that no thread is known of
            rows[-1] = Process(-1, 0, 0, "unknown", "", (), 0, 0)
        for id, row in rows.items():
            key = (row.job, row.rank is None, row.rank or 0, measurement.host.hostname, row.pid,
                   row.start_ns, measurement.id, id)  # fmt: skip
            known.append((key, number, row))
    known.sort(key=lambda item: item[0])
    rows_of = [row for _, _, row in known]
    assert processes.measurement.tolist() == [number for _, number, _ in known]
    assert processes.pid.tolist() == [row.pid for row in rows_of]
    assert processes.start_ns.tolist() == [row.start_ns for row in rows_of]
    ranks = [NO_NUMBER if row.rank is None else row.rank for row in rows_of]
    assert processes.rank.tolist() == ranks
    for name in ("name", "exe", "command", "job"):
        column: TextColumn = getattr(processes, name)
        texts = [column.texts[at] for at in column.number.tolist()]
        assert texts == [getattr(row, name) for row in rows_of], name
    lines = []
    for number, measurement in enumerate(measurements):
        announced = dict(measurement.threads.items())
        for line in measurement.lines.tolist():
            thread = announced.get(line, Thread(line, -1, 0, "unknown", 0))
            owner = next(at for at, (_, n, row) in enumerate(known)
                         if n == number and row.id == thread.process)  # fmt: skip
            key = (owner, thread.tid != rows_of[owner].pid, thread.tid, thread.start_ns, line,
                   number)  # fmt: skip
            lines.append((key, thread))
    lines.sort(key=lambda item: item[0])
    assert order.process.tolist() == [key[0] for key, _ in lines]
    assert order.source.tolist() == [key[4] for key, _ in lines]
    assert order.measurement.tolist() == [key[5] for key, _ in lines]
    assert threads.tid.tolist() == [thread.tid for _, thread in lines]
    ends = [NO_NUMBER if thread.end_ns is None else thread.end_ns for _, thread in lines]
    assert threads.end_ns.tolist() == ends
    names = [threads.name.texts[at] for at in threads.name.number.tolist()]
    assert names == [thread.name for _, thread in lines]


def test_columns_of_all_forms_are_joined() -> None:
    tables = [measurement.threads for measurement in _measurements()]
    kept = [table for table in tables if isinstance(table, IdentityColumns)]
    for name in ("line", "process", "tid", "start_ns", "end_ns"):
        values = [value for table in kept for value in table.column(name)]
        known = [NO_NUMBER if value is None else value for value in values]
        assert arrays_of(kept, name, NO_NUMBER).tolist() == known


def test_a_measurement_watches_from_its_first_clock_reading_or_record_to_the_last() -> None:
    # The second line is the first with records.
    assert windows_of(_measurements()).tolist() == [[410, 1000], [410, 1200], [410, 1000], [0, 0]]
    assert windows_of([]).tolist() == []
