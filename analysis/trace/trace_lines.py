"""Trace lines of a database: their order, their columns, their labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hpcd.analysis.arrays.column_files import open_bounds, open_column, save_column
from hpcd.analysis.trace.line_names import LineNames, QueryRows
from hpcd.array_types import I32, I64, U32, Array
from hpcd.errors import UsageError
from hpcd.masks import positions

NO_RANK = -1
# Number of lines whose names are read together when iterating over all lines.
_BATCH = 4096


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
    ``int32``, -1 if none; ``process`` ``uint32``: row of the process table; ``pid``,
    ``tid`` ``int64``.
    """

    start: I64
    end: I64
    first: I64
    rank: I32
    process: U32
    pid: I64
    tid: I64

    def save(self, folder: Path) -> None:
        """Write one column file each."""
        for field in fields(LineColumns):
            save_column(folder / f"{field.name}.npy", getattr(self, field.name))

    @staticmethod
    def load(folder: Path, lines: int, records: int) -> LineColumns:
        """Map the columns of :meth:`save`. Raises :class:`FormatError`."""

        def column(name: str, kind: npt.DTypeLike = np.int64) -> Array:
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
    :class:`LineColumns`). Names are read when first requested: drawing a million lines
    needs none. Indexing and iterating give :class:`Line` rows.
    """

    def __init__(
        self, columns: LineColumns, rows: QueryRows,
        functions: Callable[[Sequence[int]], dict[int, str]],
    ) -> None:  # fmt: skip
        """``rows`` answers SQL queries to the database's tables; ``functions`` says what threads
        do, where that is known."""
        self._functions = functions
        processes = int(columns.process.max()) + 1 if len(columns.process) else 0
        self._names = LineNames(rows, processes, len(columns.process))
        self.start, self.end, self.rank = columns.start, columns.end, columns.rank
        self.pid, self.tid, self.process = columns.pid, columns.tid, columns.process
        self.records: I64 = np.diff(columns.first)

    def __len__(self) -> int:
        return len(self.start)

    def __iter__(self) -> Iterator[Line]:
        for first in range(0, len(self), _BATCH):
            yield from self.rows(range(first, min(first + _BATCH, len(self))))

    def __getitem__(self, number: int) -> Line:
        return self.rows([range(len(self))[number]])[0]

    def rows(self, lines: Sequence[int]) -> list[Line]:
        """Everything about ``lines``."""
        selected = np.asarray(lines, np.int64)
        names = self._names.processes(self.process[selected].tolist())
        columns = (self.rank, self.pid, self.tid, self.start, self.end, self.records)
        return [
            Line(
                number=number,
                label=label,
                job=name.job,
                rank=None if rank == NO_RANK else rank,
                host=name.host,
                pid=pid,
                tid=tid,
                process=name.process,
                thread=thread,
                start=start,
                end=end,
                records=records,
            )
            for number, label, name, thread, rank, pid, tid, start, end, records in zip(
                selected.tolist(),
                self.labels(lines),
                names,
                self._names.threads(selected.tolist()),
                *(column[selected].tolist() for column in columns),
                strict=True,
            )
        ]

    def texts(self, field: str) -> tuple[list[str], U32]:
        """Different values of ``field`` (process, thread, job, host), and each line's, by number.

        Few of a million lines differ: work on the distinct values costs little.
        """
        column = self._names.column(field)
        return column.word, column.code if field == "thread" else column.code[self.process]

    @cached_property
    def job(self) -> list[str]:
        """Job of each line, empty for none."""
        return self._of_lines("job")

    @cached_property
    def host(self) -> list[str]:
        """Host name of each line."""
        return self._of_lines("host")

    def _of_lines(self, field: str) -> list[str]:
        words, codes = self.texts(field)
        return [words[code] for code in codes.tolist()]

    def groups(self, by: str) -> tuple[I64, Sequence[str]]:
        """The ``rank``, ``job`` or ``host`` of each line: ``int64[n]`` into the names, -1 without.

        Ranks are distinguished by job, and named "job rank" if there are several jobs.
        Raises :class:`UsageError`.
        """
        if by == "node":
            by = "host"  # the former word, which means a CCT node elsewhere
        if by not in ("rank", "job", "host"):
            raise UsageError(f"lines are grouped by rank, job or host, not by {by}")
        column = self._names.column("host" if by == "host" else "job")
        order = sorted(range(len(column.word)), key=column.word.__getitem__)
        place = positions(len(order), order, 0)
        key = place[column.code][self.process]
        words = [column.word[code] for code in order]
        if by != "rank":
            used, index = np.unique(key, return_inverse=True)
            return index, [words[code] for code in used.tolist()]
        ranked = np.flatnonzero(self.rank != NO_RANK)
        spread = int(self.rank.max(initial=0)) + 1
        used, place_of_rank = np.unique(
            key[ranked] * spread + self.rank[ranked], return_inverse=True
        )
        index = np.full(len(self), -1, np.int64)
        index[ranked] = place_of_rank
        several = len(np.unique(used // spread)) > 1
        names = [
            f"{words[job]} {rank}".strip() if several else str(rank)
            for job, rank in zip((used // spread).tolist(), (used % spread).tolist(), strict=True)
        ]
        return index, names

    @cached_property
    def label(self) -> list[str]:
        """:meth:`labels` of all lines."""
        return self.labels(range(len(self)))

    def labels(self, lines: Sequence[int]) -> list[str]:
        """Return the labels of ``lines`` on an axis: the rank, or process (what
        :mod:`.process_titles` calls it) and pid; then the thread, unless the first.

        Job and host are in it only where there are several of them.
        """
        selected = np.asarray(lines, np.int64)
        names = self._names.processes(self.process[selected].tolist())
        further = selected[self.tid[selected] != self.pid[selected]].tolist()
        threads = dict(zip(further, self._names.threads(further), strict=True))
        programs = dict(zip(selected.tolist(), (name.process for name in names), strict=True))
        # A thread that is called as its process has no name of its own.
        nameless = [line for line, thread in threads.items() if thread == programs[line]]
        functions = self._functions(nameless)
        labels = []
        for line, rank, pid, tid, (process, job, host, title) in zip(
            selected.tolist(),
            self.rank[selected].tolist(),
            self.pid[selected].tolist(),
            self.tid[selected].tolist(),
            names,
            strict=True,
        ):
            label = f"{title} {pid}" if rank == NO_RANK else f"rank {rank}"
            if rank == NO_RANK and self._names.several_hosts:
                label = f"{host} {label}"
            if job and self._names.several_jobs:
                label = f"{job} {label}"
            if line in threads:
                named = rank != NO_RANK or threads[line] != process
                thread = f"{threads[line]} {tid}" if named else str(tid)
                label += f" · {functions.get(line, thread)}"
            labels.append(label)
        return labels
