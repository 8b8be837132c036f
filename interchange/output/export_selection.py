"""The part of a database that is exported: trace lines, contexts, metrics, windows of time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.database import Database
from hpcd.analysis.profile.filters import Filter, apart
from hpcd.analysis.profile.groups import command_lines
from hpcd.analysis.profile.marked_phases import MarkedPhases
from hpcd.analysis.profile.time_segments import TimeSegments
from hpcd.analysis.trace.trace_lines import Line
from hpcd.array_types import F64, I64, U32, Mask
from hpcd.errors import FormatError, UsageError
from hpcd.interchange.output.context_table import ContextTable, Detail, build_context_table
from hpcd.interchange.output.trace_blocks import Events, TraceBlock, TraceReader
from hpcd.masks import marked

Progress = Callable[[str, int, int], None]
"""Called with the stage, the amount done, and the total."""

_LINES_AT_ONCE = 1024
# Characters of a process's name: viewers show the beginning.
_MOST_NAME = 100


def whole_numbers(costs: F64) -> I64:
    """Return ``costs``, rounded. Raises :class:`FormatError` where 63 bits do not hold them."""
    if float(costs.max(initial=0.0)) >= 2.0**63:
        raise FormatError(f"a cost of {costs.max():.3g} is more than this format can hold")
    rounded: I64 = np.rint(costs).astype(np.int64)
    return rounded


@dataclass(frozen=True)
class LineCosts:
    """Exclusive costs of contexts on one trace line: ``context`` uint32[n], ascending, each once;
    ``cost`` float64[metrics, n]."""

    context: U32
    cost: F64


class ExportSelection:
    """The part of ``db`` that matches ``only``, in ``metrics`` (names or numbers; all if empty).

    Call paths are cut after ``depth`` frames. ``phases`` marks phases as ``hpcd report --by
    phase=`` takes them. The attribute ``metrics`` has numbers of the database's metrics, ``lines``
    int64[n] numbers of its trace lines. Raises UsageError where nothing can match.
    """

    def __init__(
        self,
        db: Database,
        only: Filter | None = None,
        metrics: Sequence[str | int] = (),
        depth: int | None = None,
        progress: Progress | None = None,
        phases: str = "",
    ) -> None:
        self.db = db
        only = only or Filter()
        if only.phases:
            raise UsageError("exports take no filter phase=; hpcd report does, exports time=")
        if depth is not None and depth < 1:
            raise UsageError("--depth must be at least 1")
        self._depth = depth
        self._requested = [db.metrics.number(name) for name in metrics]
        self.metrics = list(dict.fromkeys(self._requested)) or list(range(len(db.metrics.names)))
        self.names = [db.metrics.names[number] for number in self.metrics]
        """Names of the metrics."""
        self.units = [db.metrics.units[number] for number in self.metrics]
        """Units of the metrics: ``s``, a counter's unit, or empty."""
        self.lines: I64 = np.flatnonzero(only.lines(db))
        self._windows = apart(only.windows)
        self._matching: Mask | None = only.contexts(db) if only.procedures or only.modules else None
        self.phases = ExportedPhases(db, only, phases)
        """Phases that traces show in addition to the records."""
        self._progress = progress or (lambda stage, done, total: None)
        self._step: tuple[str, int, int, int] | None = None
        self.notes: list[str] = list(self.phases.notes)
        """Sentences for the user on data that is left out."""

    @property
    def main_row(self) -> int:
        """The row of the metric for formats with one: the first requested, else CPU time."""
        if self._requested:
            return 0
        return self.names.index("cpu_time") if "cpu_time" in self.names else len(self.names) - 1

    @property
    def time_rows(self) -> list[int]:
        """The rows of the metrics that records have as time: all in seconds, else
        :attr:`main_row`."""
        return [row for row, unit in enumerate(self.units) if unit == "s"] or [self.main_row]

    @property
    def events(self) -> Events:
        """The events that records have."""
        return self._trace.events

    @cached_property
    def span(self) -> tuple[int, int]:
        """Begin and end of the exported time, ns since the origin."""
        if not self._windows:
            return 0, self.db.duration_ns
        return self._windows[0][0], min(self._windows[-1][1], self.db.duration_ns)

    def select_calls(self, line: I64, begin: I64, end: I64, node: I64) -> Mask:
        """Return bool[n]: calls of the selected lines and call paths that are entirely within a
        window."""
        is_selected = marked(len(self.db.lines), self.lines)
        selected: Mask = is_selected[line]
        if self._windows:
            windows = [(begin >= low) & (end <= high) for low, high in self._windows]
            selected &= np.logical_or.reduce(windows)
        return selected if self._matching is None else selected & self._matching[node]

    def contexts(self, detail: Detail) -> ContextTable:
        """Return the table of contexts."""
        return build_context_table(self.db, detail, self._depth)

    def iterate_lines(self, stage: str = "export") -> Iterator[Line]:
        """Yield the trace lines; progress is reported in records."""
        records = self.db.lines.records[self.lines]
        # A line without records is a step, too.
        before = np.concatenate(([0], np.cumsum(records + 1))).tolist()
        for at in range(0, len(self.lines), _LINES_AT_ONCE):
            for number, line in enumerate(
                self.db.lines.rows(self.lines[at : at + _LINES_AT_ONCE].tolist()), start=at
            ):
                self._step = (stage, before[number], before[number + 1], before[-1])
                self._report(0)
                yield line
        self._progress(stage, before[-1], before[-1])

    def _report(self, read: int) -> None:
        """Report that ``read`` records of the present line are done."""
        if self._step is not None:
            stage, begin, end, total = self._step
            self._progress(stage, min(begin + read, end), total)

    def line_costs(self, line: int, table: ContextTable) -> LineCosts:
        """Return the exclusive costs on trace line ``line``, without contexts that cost nothing.

        O(cells of the line); with windows of time O(its records in them + contexts).
        """
        if self._windows:
            total = np.zeros((len(self.metrics), len(table)))
            for block in self.trace(line):
                context = table.of_node[block.node]
                for row, cost in zip(total, block.cost, strict=True):
                    row += sum_by(context, cost, len(table))
            used = np.flatnonzero(total.any(axis=0))
            return LineCosts(used.astype(np.uint32), total[:, used])
        node = self.db.metrics.by_line(self.metrics[0], line)[0]
        cost = np.stack([self.db.metrics.by_line(number, line)[1] for number in self.metrics])
        if self._matching is not None:
            inside = self._matching[node]
            node, cost = node[inside], cost[:, inside]
        distinct, place = np.unique(table.of_node[node], return_inverse=True)
        sums = sum_by(place, cost, len(distinct))
        kept = sums.any(axis=0)
        return LineCosts(distinct[kept], sums[:, kept])

    def dense_line_costs(self, line: int, table: ContextTable) -> F64:
        """Return float64[metrics, contexts]: the exclusive costs on trace line ``line``."""
        costs = self.line_costs(line, table)
        dense = np.zeros((len(self.metrics), len(table)))
        dense[:, costs.context] = costs.cost
        return dense

    def total_costs(self, table: ContextTable) -> F64:
        """Return float64[metrics, contexts]: exclusive costs on all selected lines."""
        if not self._windows and len(self.lines) == len(self.db.lines):
            cost = np.stack([self.db.metrics.exclusive(number) for number in self.metrics])
            if self._matching is not None:
                cost = cost * self._matching
            return sum_by(table.of_node, cost, len(table))
        total = np.zeros((len(self.metrics), len(table)))
        for line in self.iterate_lines("sum"):
            costs = self.line_costs(line.number, table)
            total[:, costs.context] += costs.cost
        return total

    def trace(self, line: int) -> Iterator[TraceBlock]:
        """Yield the records of trace line ``line``, some ten thousand at a time."""
        return self._trace.read(line, self._report)

    @cached_property
    def _trace(self) -> TraceReader:
        return TraceReader(self.db, self.metrics, self._windows, self._matching)


class ExportedPhases:
    """The phases that ``text`` marks (as ``hpcd report --by phase=`` takes it; empty: none), cut to
    the windows of ``only``. ``names`` are by group; group 0 is of no phase.

    Raises UsageError where no call marks any.
    """

    def __init__(self, db: Database, only: Filter, text: str) -> None:
        self._marked = MarkedPhases(db, text) if text else None
        self._windows = TimeSegments.of_windows(apart(only.windows)) if only.windows else None
        self.names = self._marked.name if self._marked else []
        self.notes = self._marked.notes if self._marked else []

    def __bool__(self) -> bool:
        return self._marked is not None

    def of_line(self, line: int) -> Iterator[tuple[int, int, int]]:
        """Yield begin and end (ns since the origin) and group of each phase of trace line ``line``,
        in order of time; of phases within one another the innermost at any moment."""
        if self._marked is None:
            return
        segments = self._marked.segments(line)
        if self._windows is not None:
            segments = segments.within(self._windows)
        yield from zip(
            segments.begin.tolist(), segments.end.tolist(), segments.group.tolist(), strict=True
        )


class ProcessNames:
    """Distinct names of processes, for formats that identify processes by name."""

    def __init__(self, selection: ExportSelection) -> None:
        self._process = selection.db.lines.process
        self._command = command_lines(selection.db)

    def __call__(self, line: Line) -> str:
        """Return the name of the process of a line: its rank, else its command line."""
        if line.rank is not None:
            return f"rank {line.rank} {line.process}"
        return self._command[int(self._process[line.number])][:_MOST_NAME]


class ProcessIds:
    """Numbers of processes and threads that are unique even if several hosts have the same, for
    formats without hosts."""

    def __init__(self, selection: ExportSelection) -> None:
        lines, selected = selection.db.lines, selection.lines
        process, pid = lines.process[selected], lines.pid[selected]
        pid_of = dict(zip(process.tolist(), pid.tolist(), strict=True))
        self._pids_differ = len(set(pid_of.values())) == len(np.unique(process))
        both = np.stack([process.astype(np.int64), lines.tid[selected]])
        self._tids_differ = np.unique(both, axis=1).shape[1] == len(selected)
        self._process = lines.process

    def __call__(self, line: Line) -> tuple[int, int]:
        """Return the pid and the tid of a line: the real ones if all are unique."""
        pid = line.pid if self._pids_differ else int(self._process[line.number]) + 1
        return pid, line.tid if self._tids_differ else line.number + 1
