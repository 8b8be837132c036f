"""Metrics of a database: what each context cost, in total and on each trace line.

Stored sparse, once, in compressed chunks of lines (:mod:`hpcd.analysis.arrays.cell_store`): a cell
is a (line, node) pair with records of its own, and has a sum for each event of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from hpcd.analysis.arrays.cell_store import CellStore, Contexts, EventSums
from hpcd.analysis.arrays.column_files import are_below, open_column
from hpcd.analysis.arrays.sparse_sums import Cells, sum_by
from hpcd.analysis.database.column_bounds import LEAST_COST, MOST_COST
from hpcd.array_types import F64, I64, U32, U64, Mask
from hpcd.distinct import begins_run
from hpcd.errors import FormatError, UsageError
from hpcd.masks import marked, positions
from hpcd.model.cct import CCT

RECORDS = "records"

# Sums of chunks kept by line, 40 bytes each: a request for one is followed by its neighbours'.
_KEPT_CELLS = 2 << 20


class Metrics:
    """The metrics of a database. A metric is named by its name or number.

    ``names`` and ``units`` are lists; the first metric is ``records``.
    """

    def __init__(
        self, folder: Path, cct: CCT, lines: int, cells: int, table: Sequence[tuple[str, str]]
    ) -> None:
        self.names = [name for name, _ in table]
        self.units = [unit for _, unit in table]
        self._cct, self._lines = cct, lines
        self._store = CellStore(folder, lines, cells, len(cct))
        self._line: U32 = open_column(folder / "line.npy", np.uint32, lines)
        """The trace line at each place of the sequence."""
        if not are_below(self._line, lines):
            raise FormatError(f"{folder}: damaged (trace lines that do not exist)")
        scale = open_column(folder / "scale.npy", np.float64)
        events = len(scale) // max(len(table), 1)
        if len(scale) != len(table) * events:
            raise FormatError(f"{folder}: damaged (scales of events)")
        if not are_below(self._store.event, events):
            raise FormatError(f"{folder}: damaged (sums of events that do not exist)")
        require_costs(scale, f"{folder}/scale.npy")
        self.events = events
        """The number of events."""
        self._scale = scale.reshape(len(table), events)
        count = range(len(table))
        self._total = [open_column(folder / f"total-{k}.npy", np.float64, len(cct)) for k in count]
        self._checked: set[int] = set()
        """Metrics whose totals are numbers."""
        self._inclusive: dict[int, F64] = {}
        self._kept: dict[int, tuple[Cells, I64]] = {}

    def use_tree(self, cct: CCT) -> None:
        """Add up costs over the subtrees of ``cct``, whose nodes have the same numbers."""
        self._cct = cct
        self._inclusive.clear()
        self.__dict__.pop("_preorder", None)

    def number(self, metric: str | int) -> int:
        """Number of a metric. Raises :class:`UsageError` naming those there are."""
        if isinstance(metric, int) and 0 <= metric < len(self.names):
            return metric
        if metric in self.names:
            return self.names.index(str(metric))
        raise UsageError(f"no metric {metric}; there are {', '.join(self.names)}")

    @property
    def knows_waits(self) -> bool:
        """Whether waits were recorded: where they were not, a thread that sleeps is not seen."""
        return "blocked_time" in self.names

    @property
    def main(self) -> int:
        """The number of the metric that is shown unless another is chosen: CPU time, else the first
        that was measured, else records."""
        return (
            self.names.index("cpu_time")
            if "cpu_time" in self.names
            else min(1, len(self.names) - 1)
        )

    @property
    def record_count(self) -> int:
        """The number of records, an interval once."""
        return int(self.exclusive(RECORDS).sum())

    def exclusive(self, metric: str | int) -> F64:
        """``float64[nodes]``: cost at each node itself, over all lines."""
        number = self.number(metric)
        if number not in self._checked:
            require_costs(self._total[number], f"metric {self.names[number]}")
            self._checked.add(number)
        return self._total[number]

    def inclusive(self, metric: str | int) -> F64:
        """``float64[nodes]``: cost of each node and all below it, over all lines."""
        number = self.number(metric)
        if number not in self._inclusive:
            self._inclusive[number] = self._cct.inclusive(self.exclusive(number))
        return self._inclusive[number]

    def recounted(self) -> tuple[list[F64], list[F64]]:
        """Per metric, from the cells: :meth:`exclusive` again, ``float64[nodes]``, and the sums of
        lines, ``float64[lines]``. O(all cells)."""
        # Every line is in the sequence, or this says so.
        _ = self._place
        nodes = [np.zeros(len(self._cct)) for _ in self.names]
        lines = [np.zeros(self._lines) for _ in self.names]
        for chunk in range(len(self._store)):
            mine = self._line[self._span(chunk)]
            for event, frame in self._store.frames(chunk):
                contexts = self._store.contexts(frame)
                sums = self._store.sums(frame, chunk, contexts)
                for number in range(len(self.names)):
                    amount, scale = self._amount(sums, number, event)
                    if scale == 0:
                        continue
                    own = np.add.reduceat(amount, contexts.start[:-1])
                    nodes[number][contexts.node] += own * scale
                    lines[number][mine] += sum_by(sums.line, amount, len(mine)) * scale
            self._store.release()
        return nodes, lines

    def by_line(self, metric: str | int, line: int) -> tuple[U32, F64]:
        """Nodes with records on ``line``, ascending, and their exclusive cost there."""
        number, place = self.number(metric), int(self._place[line])
        chunk = int(np.searchsorted(self._store.line_start, place, side="right")) - 1
        cells, bounds = self._by_line(chunk)
        at = place - int(self._store.line_start[chunk])
        own = slice(int(bounds[at]), int(bounds[at + 1]))
        return _added_up(cells.node[own], self._values(number, cells, own))

    def by_node(self, metric: str | int, node: int) -> tuple[U32, F64]:
        """Lines with records at ``node`` itself, ascending, and its exclusive cost there."""
        number = self.number(metric)
        lines: list[U32] = [np.zeros(0, np.uint32)]
        values: list[F64] = [np.zeros(0)]
        for chunk, event, frame, contexts in self._contexts():
            at = int(np.searchsorted(contexts.node, node))
            if at < len(contexts.node) and int(contexts.node[at]) == node:
                sums = self._store.sums(frame, chunk, contexts, np.array([at]))
                amount, scale = self._amount(sums, number, event)
                lines.append(self._line[self._span(chunk)][sums.line])
                values.append(amount * scale)
        line, value = np.concatenate(lines), np.concatenate(values)
        order = np.argsort(line, kind="stable")
        return _added_up(line[order], value[order])

    def over_lines(self, metric: str | int, node: int) -> F64:
        """``float64[lines]``: the inclusive cost of ``node`` on each line.

        O(cells of the subtree), and a look at the contexts of each chunk.
        """
        begin, end = self._preorder
        return self.over_contexts(metric, (begin >= begin[node]) & (begin < end[node]))

    def over_contexts(self, metric: str | int, inside: Mask) -> F64:
        """``float64[lines]``: what the nodes of ``inside`` ``bool[nodes]`` cost on each line.

        O(their cells), and a look at the contexts of each chunk.
        """
        number = self.number(metric)
        total = np.zeros(self._lines)
        for chunk, event, frame, contexts in self._contexts(number):
            selected = np.flatnonzero(inside[contexts.node])
            if not len(selected):
                continue
            all_of_them = len(selected) == len(contexts.node)
            sums = self._store.sums(frame, chunk, contexts, None if all_of_them else selected)
            amount, scale = self._amount(sums, number, event)
            span = self._span(chunk)
            total[span] += sum_by(sums.line, amount, span.stop - span.start) * scale
        by_trace_line = np.zeros(self._lines)
        by_trace_line[self._line] = total
        return by_trace_line

    def of_lines(self, metric: str | int, lines: I64) -> F64:
        """``float64[nodes]``: cost at each node itself, over ``lines`` alone. O(cells of the chunks
        these are in)."""
        if len(lines) == self._lines:
            return self.exclusive(metric)
        number = self.number(metric)
        total = np.zeros(len(self._cct))
        selected = marked(self._lines, self._place[lines])
        wanted = np.flatnonzero(np.add.reduceat(
            np.append(selected, False), self._store.line_start[:-1]
        )) if len(lines) else np.zeros(0, np.int64)  # fmt: skip
        for chunk, event, frame, contexts in self._contexts(number, wanted.tolist()):
            sums = self._store.sums(frame, chunk, contexts)
            amount, scale = self._amount(sums, number, event)
            own = amount * selected[self._span(chunk)][sums.line]
            total[contexts.node] += np.add.reduceat(own, contexts.start[:-1]) * scale
        return total

    def cells(self, metric: str | int) -> Iterator[tuple[int, U32, U32, F64]]:
        """Yield (event, lines, nodes, costs), each ``[n]``, of the cells of a metric, part by part.
        O(all cells)."""
        number = self.number(metric)
        for chunk, event, frame, contexts in self._contexts(number):
            sums = self._store.sums(frame, chunk, contexts)
            amount, scale = self._amount(sums, number, event)
            line = self._line[self._span(chunk)][sums.line]
            yield event, line, np.repeat(contexts.node, np.diff(contexts.start)), amount * scale

    def _contexts(
        self, metric: int | None = None, chunks: Sequence[int] | None = None
    ) -> Iterator[tuple[int, int, int, Contexts]]:
        """(chunk, event, frame, contexts) of ``chunks``, by default all; with ``metric`` of the
        events that it counts alone."""
        for chunk in range(len(self._store)) if chunks is None else chunks:
            for event, frame in self._store.frames(chunk):
                if metric is None or metric == 0 or self._scale[metric, event] != 0:
                    yield chunk, event, frame, self._store.contexts(frame)

    def _amount(self, sums: EventSums, metric: int, event: int) -> tuple[F64, float]:
        """Return the addend among ``sums`` of an event, and its scale in a metric."""
        if metric == 0:
            return sums.records.astype(np.float64), 1.0
        return sums.value.astype(np.float64), float(self._scale[metric, event])

    def _values(self, metric: int, cells: Cells, own: slice) -> F64:
        column: U64 = cells.records[own] if metric == 0 else cells.value[own]
        if metric == 0:
            return column.astype(np.float64)
        scale: F64 = self._scale[metric][cells.event[own]]
        return column.astype(np.float64) * scale

    def _by_line(self, chunk: int) -> tuple[Cells, I64]:
        by_line = self._kept.get(chunk)
        if by_line is None:
            held = sum(len(cells) for cells, _ in self._kept.values())
            if held + self._store.cells(chunk) > _KEPT_CELLS:
                self._kept = {}
            by_line = self._store.by_line(chunk)
            self._kept[chunk] = by_line
        return by_line

    def _span(self, chunk: int) -> slice:
        low, high = self._store.line_start[chunk : chunk + 2].tolist()
        return slice(low, high)

    @cached_property
    def _place(self) -> I64:
        """The position of each trace line in the sequence."""
        place = positions(self._lines, self._line)
        if int(place.min(initial=0)) < 0:
            raise FormatError("metrics: the sequence of trace lines has not every line")
        return place

    @cached_property
    def _preorder(self) -> tuple[I64, I64]:
        return self._cct.preorder()


def require_costs(costs: F64, name: str) -> None:
    """Raise :class:`FormatError`, which names ``name``, unless costs are numbers that can be
    computed with."""
    if not bool(((costs == 0) | ((costs >= LEAST_COST) & (costs < MOST_COST))).all()):
        raise FormatError(f"{name}: costs that are no numbers, or out of range")


def _added_up(number: U32, value: F64) -> tuple[U32, F64]:
    """Each of ``number``, which ascend, once, and the sum of its values."""
    starts = np.flatnonzero(begins_run(number))
    if not len(starts):
        return number, value
    return number[starts], np.add.reduceat(value, starts)
