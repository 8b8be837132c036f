"""What is exported of a database: some trace lines, contexts, metrics, or windows of time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.database import Database
from hpcd.analysis.database.metrics import SAMPLES
from hpcd.analysis.profile.filters import Filter, apart
from hpcd.analysis.trace.records import Records
from hpcd.analysis.trace.trace_lines import Line
from hpcd.array_types import F64, I64, U16, U32, Mask
from hpcd.errors import UsageError
from hpcd.interchange.context_table import Contexts, Detail, contexts
from hpcd.interchange.event_metrics import Events, read_events
from hpcd.interchange.exported_phases import ExportedPhases

Progress = Callable[[str, int, int], None]
"""Called with the stage, the amount done, and the total."""

# Blocks of a line read at once: 65,536 records, some 10 MB with all that is made of them.
_BLOCKS_AT_ONCE = 64
_LINES_AT_ONCE = 1024


@dataclass(frozen=True)
class TraceBlock:
    """Records of one trace line in time order, cut to the windows of time that were chosen.

    ``time`` ``int64[n]``: ns since the origin; ``node`` ``uint32[n]``: the CCT node, 0 where the
    record's does not fit the filter; ``event`` ``uint16[n]``; ``duration`` ``int64[n]``: ns that an
    interval lasts, 0 for moments; ``end`` ``bool[n]``: entries that only mark where an interval
    ended; ``cost`` ``float64[metrics, n]`` in the order of the selection's metrics.
    """

    time: I64
    node: U32
    event: U16
    duration: I64
    end: Mask
    cost: F64

    def __len__(self) -> int:
        return len(self.time)

    @property
    def recorded(self) -> Mask:
        """``bool[n]``: the records that fit the filter; no ends of intervals."""
        fits: Mask = ~self.end & ((self.node != 0) | np.asarray(self.cost.any(axis=0)))
        return fits


@dataclass(frozen=True)
class LineCosts:
    """What contexts cost themselves on one trace line: ``context`` ``uint32[n]``, ascending, each
    once; ``cost`` ``float64[metrics, n]``."""

    context: U32
    cost: F64


class Selection:
    """What of a database is exported.

    ``metrics`` are numbers of the database's metrics, ``lines`` ``int64[n]`` numbers of its trace
    lines. Raises :class:`UsageError` where nothing can fit.
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
        self.only = only or Filter()
        if self.only.phases:
            raise UsageError("exports take no filter phase=; hpcd report does, exports time=")
        if depth is not None and depth < 1:
            raise UsageError("--depth must be at least 1")
        self.depth = depth
        every = range(len(db.metrics.names))
        self.chosen = [db.metrics.number(name) for name in metrics]
        self.metrics = list(dict.fromkeys(self.chosen)) or list(every)
        self.lines: I64 = np.flatnonzero(self.only.lines(db))
        self.windows = apart(self.only.windows)
        fits = self.only.contexts(db) if self.only.procedures or self.only.modules else None
        self._fits = fits
        self.phases = ExportedPhases(db, self.only, phases)
        """Phases that traces show beside what was recorded."""
        self._progress = progress or (lambda stage, done, total: None)
        self._at: tuple[str, int, int, int] | None = None
        self.notes: list[str] = list(self.phases.notes)
        """What whoever writes it has to say of what is left out."""

    @property
    def names(self) -> list[str]:
        """Names of the metrics."""
        return [self.db.metrics.names[number] for number in self.metrics]

    @property
    def units(self) -> list[str]:
        """Units of the metrics: ``s``, that of a counter, or empty."""
        return [self.db.metrics.units[number] for number in self.metrics]

    @property
    def main(self) -> int:
        """The place among the metrics of the one that matters where there can be only one: the
        first that was asked for, else CPU time."""
        if self.chosen:
            return 0
        return self.names.index("cpu_time") if "cpu_time" in self.names else len(self.names) - 1

    @property
    def times(self) -> list[int]:
        """The places among the metrics of those that records carry as time: the first that was
        asked for, else all in seconds, else the one that matters."""
        if self.chosen:
            return [number for number, unit in enumerate(self.units) if unit == "s"] or [0]
        return [number for number, unit in enumerate(self.units) if unit == "s"] or [self.main]

    @cached_property
    def events(self) -> Events:
        """The events that records have."""
        return read_events(self.db)

    @cached_property
    def span(self) -> tuple[int, int]:
        """Begin and end of what is exported, ns since the origin."""
        if not self.windows:
            return 0, self.db.duration_ns
        return self.windows[0][0], min(self.windows[-1][1], self.db.duration_ns)

    def takes(self, line: I64, begin: I64, end: I64, node: I64) -> Mask:
        """``bool[n]``: calls that are exported: of the lines and call paths chosen, those that lie
        within a window from begin to end."""
        chosen = np.zeros(len(self.db.lines), bool)
        chosen[self.lines] = True
        taken: Mask = chosen[line]
        if self.windows:
            windows = [(begin >= low) & (end <= high) for low, high in self.windows]
            taken &= np.logical_or.reduce(windows)
        return taken if self._fits is None else taken & self._fits[node]

    def contexts(self, detail: Detail) -> Contexts:
        """The table of contexts."""
        return contexts(self.db, detail, self.depth)

    def each_line(self, stage: str = "export") -> Iterator[Line]:
        """The trace lines; tells how far it has come, by records."""
        records = self.db.lines.records[self.lines]
        # A line without records is a step, too.
        before = np.concatenate(([0], np.cumsum(records + 1))).tolist()
        for at in range(0, len(self.lines), _LINES_AT_ONCE):
            for number, line in enumerate(
                self.db.lines.rows(self.lines[at : at + _LINES_AT_ONCE].tolist()), start=at
            ):
                self._at = (stage, before[number], before[number + 1], before[-1])
                self._report(0)
                yield line
        self._progress(stage, before[-1], before[-1])

    def _report(self, read: int) -> None:
        """Tell of ``read`` records of the present line."""
        if self._at is not None:
            stage, begin, end, total = self._at
            self._progress(stage, min(begin + read, end), total)

    def line_costs(self, line: int, table: Contexts) -> LineCosts:
        """What the contexts of ``table`` cost on trace line ``line``, those that cost any.

        O(cells of the line); with windows of time O(its records in them + contexts).
        """
        if self.windows:
            total = np.zeros((len(self.metrics), len(table)))
            for block in self.trace(line):
                context = table.of_node[block.node]
                for row, cost in zip(total, block.cost, strict=True):
                    row += sum_by(context, cost, len(table))
            used = np.flatnonzero(total.any(axis=0))
            return LineCosts(used.astype(np.uint32), total[:, used])
        node = self.db.metrics.by_line(self.metrics[0], line)[0]
        cost = np.stack([self.db.metrics.by_line(number, line)[1] for number in self.metrics])
        if self._fits is not None:
            inside = self._fits[node]
            node, cost = node[inside], cost[:, inside]
        distinct, place = np.unique(table.of_node[node], return_inverse=True)
        sums = np.array([sum_by(place, row, len(distinct)) for row in cost]).reshape(len(cost), -1)
        kept = sums.any(axis=0)
        return LineCosts(distinct[kept], sums[:, kept])

    def total_costs(self, table: Contexts) -> F64:
        """``float64[metrics, contexts]``: what contexts cost themselves on all lines chosen."""
        if not self.windows and len(self.lines) == len(self.db.lines):
            exclusive = [self.db.metrics.exclusive(number) for number in self.metrics]
            cost = np.stack(exclusive) if self._fits is None else np.stack(exclusive) * self._fits
            return np.stack([sum_by(table.of_node, row, len(table)) for row in cost])
        total = np.zeros((len(self.metrics), len(table)))
        for line in self.each_line("sum"):
            costs = self.line_costs(line.number, table)
            total[:, costs.context] += costs.cost
        return total

    def trace(self, line: int) -> Iterator[TraceBlock]:
        """The records of trace line ``line``, some ten thousand at a time."""
        windows: Sequence[tuple[int | None, int | None]] = self.windows or [(None, None)]
        for begin, end in windows:
            for records in self._read(line, begin, end):
                block = self._block(records, begin, end)
                if len(block):
                    yield block

    def _read(self, line: int, begin: int | None, end: int | None) -> Iterator[Records]:
        """Records from the last before ``begin``, which may last into the window, to ``end``."""
        trace = self.db.trace
        starts = trace.block_times(line)
        first = 0 if begin is None else max(int(np.searchsorted(starts, begin)) - 1, 0)
        last = len(starts) if end is None else int(np.searchsorted(starts, end))
        cuts = [*range(first, last, _BLOCKS_AT_ONCE), last]
        part = trace.part(trace.measurements([line])[0]) if len(starts) else None
        read = 0
        for low, high in pairwise(cuts):
            # Blocks that begin at the same moment are not divided by time.
            low_time = int(starts[low]) if low > first or begin is not None else None
            high_time = int(starts[high]) if high < last else end
            records = self.db.records(line, low_time, high_time)
            read += len(records)
            yield records
            self._report(read)
            if part is not None:
                part.release()

    def _block(self, records: Records, begin: int | None, end: int | None) -> TraceBlock:
        time, node, event = records.time, records.node, records.event
        value = records.value.astype(np.float64)
        length = self.events.duration_ns[event]
        lasting = length > 0
        length = length * value
        is_end = lasting & (value == 0)
        counted = np.where(is_end, 0.0, 1.0)
        if begin is not None and end is not None:
            inside = np.minimum(time + length, end) - np.maximum(time, begin)
            part = np.divide(inside, length, out=np.ones(len(time)), where=length > 0)
            part[(length == 0) & (time < begin)] = 0
            part = np.clip(part, 0, 1)
            kept = (part > 0) & (time < end)
            time, node, event = np.maximum(time[kept], begin), node[kept], event[kept]
            value, counted = value[kept] * part[kept], counted[kept] * part[kept]
            length, is_end = length[kept] * part[kept], is_end[kept]
        if self._fits is not None:
            fits = self._fits[node]
            node = np.where(fits, node, np.uint32(0))
            value, counted = value * fits, counted * fits
        metric = self.events.metric[event]
        weighed = value * self.events.weight[event]
        cost = np.empty((len(self.metrics), len(time)))
        for row, number in zip(cost, self.metrics, strict=True):
            is_samples = self.db.metrics.names[number] == SAMPLES
            row[:] = counted if is_samples else np.where(metric == number, weighed, 0.0)
        return TraceBlock(time, node, event, np.round(length).astype(np.int64), is_end, cost)
