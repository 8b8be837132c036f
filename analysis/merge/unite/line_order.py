"""The order of a database's trace lines, from the identities of all measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpcd.analysis.arrays.bounds import bounds_of
from hpcd.analysis.trace.part_contents import MeasurementContents
from hpcd.array_types import I64, U32, Array
from hpcd.masks import positions
from hpcd.measurement.identity_columns import IdentityColumns, arrays_of
from hpcd.model.identity import MOST_RANKS, Process, Thread


@dataclass(frozen=True, slots=True)
class LineOrder:
    """Trace lines in database order: job, rank, host, process, thread.

    All arrays have one entry per line: ``measurement`` and ``source`` say which measurement's
    which line it is, ``process`` its row in the process table.
    """

    measurement: U32
    source: U32
    process: U32

    def rows(self, measurements: int) -> list[I64]:
        """The trace lines of each measurement, in the order its part has them."""
        ranked = np.lexsort((self.source, self.measurement))
        bounds = np.searchsorted(self.measurement[ranked], np.arange(1, measurements))
        return np.split(ranked, bounds)


@dataclass(frozen=True, slots=True)
class TextColumn:
    """Texts, or tuples of them, by row: ``number`` ``int64[n]`` is the place of each in ``texts``,
    which has each once."""

    number: I64
    texts: list[Any]

    @staticmethod
    def of(tables: Sequence[IdentityColumns[Any]], name: str) -> TextColumn:
        """A field of all ``tables``, concatenated."""
        known: dict[Any, int] = {}
        numbers: list[int] = []
        times: list[int] = []
        for table in tables:
            column = table.constant(name) or table.column(name)
            numbers += [known.setdefault(text, len(known)) for text in column]
            times += [1] * len(column) if len(column) == len(table) else [len(table)]
        return TextColumn(np.repeat(np.array(numbers, np.int64), times), list(known))

    def places(self) -> I64:
        """``int64[n]``: the rank of each text among the distinct texts."""
        return _places(self.texts)[self.number]

    def of_rows(self, rows: I64) -> TextColumn:
        """Return the column of the texts of ``rows``, in their order."""
        return TextColumn(self.number[rows], self.texts)


@dataclass(frozen=True, slots=True)
class ProcessTable:
    """Processes in database order, by column.

    ``measurement`` ``int64[n]`` is each process's measurement; numbers are ``int64[n]``, NO_NUMBER
    if unknown. Processes still running at the end of the recording have no ``end_ns``; ``cpu_ns``
    is the CPU time that each had used in the end, ``cpu_before_ns`` before it was recorded.
    """

    measurement: I64
    pid: I64
    parent_pid: I64
    uid: I64
    start_ns: I64
    rank: I64
    size: I64
    end_ns: I64
    cpu_before_ns: I64
    cpu_ns: I64
    name: TextColumn
    exe: TextColumn
    command: TextColumn
    job: TextColumn


@dataclass(frozen=True, slots=True)
class ThreadTable:
    """The threads of trace lines in database order, by column, as measurements describe them.

    Numbers are ``int64[n]``, in monotonic ns if the name ends in ``_ns``, NO_NUMBER if there is
    none.
    """

    tid: I64
    start_ns: I64
    end_ns: I64
    attached_ns: I64
    asleep_since_ns: I64
    name: TextColumn


NO_NUMBER = -(1 << 62)
"""In place of None; numbers of measurements are within 2^60 of 0."""


def order_lines(
    measurements: Sequence[MeasurementContents],
) -> tuple[LineOrder, ProcessTable, ThreadTable]:
    """The lines of all measurements in order, and processes and threads likewise.

    The order depends on the lines' contents, not on the order of the measurements.
    """
    # By column: a million lines as objects would be hundreds of megabytes.
    of_threads = [_threads(contents) for contents in measurements]
    of_processes = [IdentityColumns.of(Process, contents.processes) for contents in measurements]
    looked_up = [
        number
        for number, tables in enumerate(zip(of_threads, of_processes, strict=True))
        if not _one_each(*tables)
    ]
    for number in looked_up:
        of_processes[number] = _processes(of_processes[number], of_threads[number])
    threads, processes = list(map(len, of_threads)), list(map(len, of_processes))
    lines_at, processes_at = bounds_of(threads), bounds_of(processes)
    owner = np.arange(lines_at[-1]) + np.repeat((processes_at - lines_at)[:-1], threads)
    for number in looked_up:
        place = {id: at for at, id in enumerate(of_processes[number], int(processes_at[number]))}
        named = of_threads[number].column("process")
        owner[lines_at[number] : lines_at[number + 1]] = [place[id] for id in named]
    processes_of = np.repeat(np.arange(len(measurements)), processes)
    process, thread, texts = _columns(of_processes, of_threads, processes_of, owner)
    order = _process_order(measurements, process, texts)
    row = positions(len(order), order)
    measurement = np.repeat(np.arange(len(measurements)), threads)
    source = np.concatenate([contents.lines for contents in measurements])
    other = thread["tid"] != process["pid"][owner]
    placed = _order((measurement, source, thread["start_ns"], thread["tid"], other, row[owner]))
    names = TextColumn.of(of_threads, "name")
    numbers: dict[str, Any] = {name: process[name][order] for name in _PROCESS_COLUMNS}
    for name, text in texts.items():
        numbers[name] = text.of_rows(order)
    return (
        LineOrder(
            measurement[placed].astype(np.uint32),
            source[placed].astype(np.uint32),
            row[owner][placed].astype(np.uint32),
        ),
        ProcessTable(**numbers),
        ThreadTable(
            **{name: thread[name][placed] for name in _THREAD_COLUMNS},
            name=names.of_rows(placed),
        ),
    )


def _columns(
    of_processes: Sequence[IdentityColumns[Process]], of_threads: Sequence[IdentityColumns[Thread]],
    measurement: I64, owner: I64,
) -> tuple[dict[str, I64], dict[str, I64], dict[str, TextColumn]]:  # fmt: skip
    """Return the numbers of all processes and threads and the texts of processes, by column.

    ``measurement`` is the measurement of each process, ``owner`` the process of each thread.
    """
    thread = {name: arrays_of(of_threads, name, NO_NUMBER) for name in _OF_THREADS}
    process = {name: arrays_of(of_processes, name, NO_NUMBER) for name in _OF_PROCESSES}
    for name in ("rank", "size"):
        impossible = (process[name] < 0) | (process[name] >= MOST_RANKS)
        process[name] = np.where(impossible, NO_NUMBER, process[name])
    process["measurement"] = measurement
    process["end_ns"], process["cpu_before_ns"], process["cpu_ns"] = _lives(owner, thread, process)
    texts = {name: TextColumn.of(of_processes, name) for name in _TEXTS_OF_PROCESSES}
    return process, thread, texts


def _process_order(
    measurements: Sequence[MeasurementContents],
    process: Mapping[str, I64],
    texts: Mapping[str, TextColumn],
) -> I64:
    """Return the processes in database order ``int64[n]``, which depends on their contents only."""
    ranked = np.argsort(np.array([contents.id for contents in measurements], object))
    by_id = positions(len(measurements), ranked)
    hosts = _places([contents.host.hostname for contents in measurements])
    owners, ranks = process["measurement"], process["rank"]
    return _order(
        (process["id"], by_id[owners], process["start_ns"], process["pid"], hosts[owners],
         np.where(ranks == NO_NUMBER, 0, ranks), ranks == NO_NUMBER, texts["job"].places())
    )  # fmt: skip


_OF_PROCESSES = ("id", "pid", "parent_pid", "uid", "start_ns", "rank", "size", "cpu_before_ns")
_TEXTS_OF_PROCESSES = ("name", "exe", "command", "job")
_OF_THREADS = (
    "tid", "start_ns", "end_ns", "attached_ns", "asleep_since_ns", "cpu_ns", "cpu_before_ns",
)  # fmt: skip

_PROCESS_COLUMNS = (
    "measurement", "pid", "parent_pid", "uid", "start_ns", "rank", "size", "end_ns",
    "cpu_before_ns", "cpu_ns",
)  # fmt: skip
_THREAD_COLUMNS = ("tid", "start_ns", "end_ns", "attached_ns", "asleep_since_ns")

_MOST_CPU_NS = 1 << 58
"""Nine years; more is damage."""


def _lives(
    owner: I64, thread: Mapping[str, I64], process: Mapping[str, I64]
) -> tuple[I64, I64, I64]:
    """Return when each process ended, the CPU time it had used before it was recorded and in the
    end, ``int64[n]`` each; ``owner`` is the process of each thread."""
    count = len(process["id"])

    def summed(name: str) -> I64:
        total, unknown = np.zeros(count, np.int64), np.ones(count, bool)
        np.add.at(total, owner, np.clip(thread[name], 0, _MOST_CPU_NS))
        unknown[owner] = False
        unknown[owner[thread[name] == NO_NUMBER]] = True
        return np.where(unknown, NO_NUMBER, total)

    ended = np.full(count, NO_NUMBER)
    np.maximum.at(ended, owner, thread["end_ns"])
    ended[owner[thread["end_ns"] == NO_NUMBER]] = NO_NUMBER
    before, used = summed("cpu_before_ns"), summed("cpu_ns")
    before = np.where(process["cpu_before_ns"] == NO_NUMBER, before, process["cpu_before_ns"])
    known = (before != NO_NUMBER) & (used != NO_NUMBER)
    return ended, before, np.where(known, before + used, NO_NUMBER)


def _threads(contents: MeasurementContents) -> IdentityColumns[Thread]:
    """The thread of each of a measurement's lines."""
    known = IdentityColumns.of(Thread, contents.threads)
    # Mostly all are known, which numbers of the same bytes tell.
    if len(known) == len(contents.lines) and known.columns[_LINE] == contents.lines.tobytes():
        return known
    lines = contents.lines.tolist()
    if list(known) == lines:
        return known
    rows = dict(known.items())
    return IdentityColumns.of(
        Thread, {line: rows.get(line) or Thread(line, -1, 0, "unknown", 0) for line in lines}
    )


def _one_each(threads: IdentityColumns[Thread], processes: IdentityColumns[Process]) -> bool:
    """Whether each process has one thread, in the same order."""
    same = threads.columns[_PROCESS] == processes.columns[_ID]
    return same and len(threads) == len(processes)


def _processes(
    known: IdentityColumns[Process], threads: IdentityColumns[Thread]
) -> IdentityColumns[Process]:
    """The processes of a measurement, and unknown ones for ids that occur in its threads only."""
    lost = set(threads.column("process")) - set(known)
    if not lost:
        return known
    # The reports of these were lost.
    unknown = {id: Process(id, 0, 0, "unknown", "", (), 0, 0) for id in sorted(lost)}
    return IdentityColumns.of(Process, {**dict(known.items()), **unknown})


_LINE, _PROCESS = Thread.__slots__.index("line"), Thread.__slots__.index("process")
_ID = Process.__slots__.index("id")


def _order(keys: Sequence[Array]) -> I64:
    """``np.lexsort`` of processes or lines; usually one column distinguishes all of them."""
    several = [key for key in keys if len(key) and key.min() != key.max()]
    if not several:
        return np.arange(len(keys[0]))
    order = np.argsort(several[-1])
    ordered = several[-1][order]
    if (ordered[1:] != ordered[:-1]).all():
        return order
    return np.lexsort(several)


def _places(texts: Sequence[str]) -> I64:
    """The place of each of ``texts`` among all that differ, in order."""
    place = {text: number for number, text in enumerate(sorted(set(texts)))}
    return np.array([place[text] for text in texts], np.int64)
