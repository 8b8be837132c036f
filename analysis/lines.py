"""Trace lines of a database: their order, their columns, their labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hpcd.analysis.columns import open_bounds, open_column, save_column
from hpcd.analysis.scan import Scan
from hpcd.errors import FormatError
from hpcd.model.identity import Process, Thread

NO_RANK = -1


@dataclass(frozen=True, slots=True)
class LineOrder:
    """Trace lines in database order: job, rank, host, process, thread.

    All arrays have one entry per line: ``measurement`` and ``source`` say which measurement's
    which line it is, ``process`` its row in the process table.
    """

    measurement: npt.NDArray[np.uint32]
    source: npt.NDArray[np.uint32]
    process: npt.NDArray[np.uint32]


def unknown_process(number: int) -> Process:
    """Stands for a process whose announcement was lost."""
    return Process(number, 0, 0, "unknown", "", (), 0, 0)


def unknown_thread(line: int) -> Thread:
    """Stands for a thread whose announcement was lost."""
    return Thread(line, -1, 0, "unknown", 0)


def order_lines(scans: Sequence[Scan]) -> tuple[LineOrder, list[tuple[int, Process]]]:
    """The lines of all measurements in order, and the processes (measurement, process) likewise.

    The order depends on what the lines are, not on the order of the measurements.
    """
    processes: list[tuple[int, Process]] = []
    for number, scan in enumerate(scans):
        table = dict(scan.processes)
        for line in scan.lines.tolist():
            owner = scan.threads.get(line, unknown_thread(line)).process
            table.setdefault(owner, unknown_process(owner))
        processes += [(number, process) for process in table.values()]

    def key(item: tuple[int, Process]) -> tuple[object, ...]:
        number, process = item
        rank = process.rank
        where = scans[number].node.hostname
        return (process.job, rank is None, rank or 0, where, process.pid, process.start_ns,
                scans[number].id, process.id)  # fmt: skip

    processes.sort(key=key)
    row = {(number, process.id): at for at, (number, process) in enumerate(processes)}
    lines = []
    for number, scan in enumerate(scans):
        for line in scan.lines.tolist():
            thread = scan.threads.get(line, unknown_thread(line))
            owner = row[number, thread.process]
            first = thread.tid != processes[owner][1].pid
            lines.append((owner, first, thread.tid, thread.start_ns, line, number))
    lines.sort()
    return (
        LineOrder(
            np.array([item[5] for item in lines], np.uint32),
            np.array([item[4] for item in lines], np.uint32),
            np.array([item[0] for item in lines], np.uint32),
        ),
        processes,
    )


class Line(NamedTuple):
    """One trace line. Times are nanoseconds since the database's origin."""

    number: int
    label: str
    job: str
    rank: int | None
    host: str
    pid: int
    tid: int
    process: str
    thread: str
    start: int
    end: int
    records: int


@dataclass(frozen=True)
class LineColumns:
    """The numbers of all lines, one array entry each.

    ``start``, ``end`` ``int64``: ns since the origin between which the line existed and was
    watched; ``first`` ``int64[n + 1]``: its first record, the next one's is its end; ``rank``
    ``int32``, -1 where there is none; ``process`` ``uint32``: row of the process table; ``pid``,
    ``tid`` ``int64``.
    """

    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    rank: npt.NDArray[np.int32]
    process: npt.NDArray[np.uint32]
    pid: npt.NDArray[np.int64]
    tid: npt.NDArray[np.int64]

    def save(self, folder: Path) -> None:
        """Write one column file each."""
        for field in fields(LineColumns):
            save_column(folder / f"{field.name}.npy", getattr(self, field.name))

    @staticmethod
    def load(folder: Path, lines: int, records: int) -> LineColumns:
        """Map what :meth:`save` wrote. Raises :class:`FormatError`."""

        def column(name: str, kind: npt.DTypeLike = np.int64) -> npt.NDArray[Any]:
            return open_column(folder / f"{name}.npy", kind, lines)

        return LineColumns(
            start=column("start"),
            end=column("end"),
            first=open_bounds(folder / "first.npy", lines, records),
            rank=column("rank", np.int32),
            process=column("process", np.uint32),
            pid=column("pid"),
            tid=column("tid"),
        )


class Lines:
    """The trace lines of a database, in display order.

    Arrays: ``start``, ``end``, ``rank``, ``pid``, ``tid``, ``process``, ``records`` (see
    :class:`LineColumns`). ``label`` is ``list[str]``, made when first asked for. Indexing and
    iterating give :class:`Line` rows.
    """

    def __init__(
        self,
        columns: LineColumns,
        process_rows: Sequence[tuple[str, str, str]],
        thread_names: Callable[[], list[str]],
    ) -> None:
        if int(columns.process.max(initial=0)) >= max(len(process_rows), 1):
            raise FormatError("a trace line's process does not exist")
        self._columns = columns
        self._processes = process_rows
        self._read_thread_names = thread_names
        self.start, self.end, self.rank = columns.start, columns.end, columns.rank
        self.pid, self.tid, self.process = columns.pid, columns.tid, columns.process
        self.records: npt.NDArray[np.int64] = np.diff(columns.first)

    def __len__(self) -> int:
        return len(self.start)

    def __iter__(self) -> Iterator[Line]:
        return (self[number] for number in range(len(self)))

    def __getitem__(self, number: int) -> Line:
        number = range(len(self))[number]
        name, job, host = self._processes[int(self.process[number])]
        rank = int(self.rank[number])
        return Line(
            number=number,
            label=self.label[number],
            job=job,
            rank=None if rank == NO_RANK else rank,
            host=host,
            pid=int(self.pid[number]),
            tid=int(self.tid[number]),
            process=name,
            thread=self._threads[number],
            start=int(self.start[number]),
            end=int(self.end[number]),
            records=int(self.records[number]),
        )

    @cached_property
    def _threads(self) -> list[str]:
        # Read when first needed: a picture of a million lines needs none of them.
        names = self._read_thread_names()
        if len(names) != len(self):
            raise FormatError("threads and trace lines do not agree")
        return names

    @cached_property
    def job(self) -> list[str]:
        """Job of each line, empty where there is none."""
        return [self._processes[row][1] for row in self.process.tolist()]

    @cached_property
    def host(self) -> list[str]:
        """Host name of each line."""
        return [self._processes[row][2] for row in self.process.tolist()]

    @cached_property
    def label(self) -> list[str]:
        """What an axis shows: the rank, or process and pid; then the thread, unless the first.

        Job and host are in it only where there are several of them.
        """
        jobs = len({row[1] for row in self._processes if row[1]}) > 1
        hosts = len({row[2] for row in self._processes}) > 1
        labels = []
        for rank, pid, tid, row, thread in zip(
            self.rank.tolist(),
            self.pid.tolist(),
            self.tid.tolist(),
            self.process.tolist(),
            self._threads,
            strict=True,
        ):
            name, job, host = self._processes[row]
            label = f"{name} {pid}" if rank == NO_RANK else f"rank {rank}"
            if hosts and rank == NO_RANK:
                label = f"{host} {label}"
            if jobs and job:
                label = f"{job} {label}"
            if tid != pid:
                label += f" · {thread} {tid}"
            labels.append(label)
        return labels
