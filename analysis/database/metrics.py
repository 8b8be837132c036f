"""Metrics of a database: what each context cost, in total and on each trace line.

Stored sparse, both ways round, with one pattern for all metrics: by line (which contexts did it
run?) and by context (which lines ran it?). A cell is a (line, node) pair with records of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hpcd.analysis.arrays.column_files import (
    gather,
    open_bounds,
    open_column,
    open_value,
    release,
)
from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.array_types import F64, I64, U32
from hpcd.errors import FormatError, UsageError
from hpcd.model.cct import CCT

SAMPLES = "samples"

# Cells handled at once where all of them are: bounds memory at some 50 MB.
_CHUNK_CELLS = 1 << 20


class Metrics:
    """The metrics of a database. A metric is named by its name or number.

    ``names`` and ``units`` are lists; the first metric is ``samples``.
    """

    def __init__(
        self, folder: Path, cct: CCT, lines: int, cells: int, table: Sequence[tuple[str, str]]
    ) -> None:
        self.names = [name for name, _ in table]
        self.units = [unit for _, unit in table]
        self._cct = cct
        nodes = len(cct)
        self._line_start = open_bounds(folder / "line_start.npy", lines, cells)
        self._line_node = open_column(folder / "line_node.npy", np.uint32, cells)
        self._node_start = open_bounds(folder / "node_start.npy", nodes, cells)
        kind = np.uint32 if cells < 1 << 32 else np.int64
        self._node_cell = open_column(folder / "node_cell.npy", kind, cells)
        count = range(len(table))
        self._line_value = [open_value(folder / f"line_value-{k}.npy", cells) for k in count]
        self._total = [open_column(folder / f"total-{k}.npy", np.float64, nodes) for k in count]
        self._inclusive: dict[int, F64] = {}

    def number(self, metric: str | int) -> int:
        """Number of a metric. Raises :class:`UsageError` naming those there are."""
        if isinstance(metric, int) and 0 <= metric < len(self.names):
            return metric
        if metric in self.names:
            return self.names.index(str(metric))
        raise UsageError(f"no metric {metric}; there are {', '.join(self.names)}")

    def exclusive(self, metric: str | int) -> F64:
        """``float64[nodes]``: cost at each node itself, over all lines."""
        return self._total[self.number(metric)]

    def inclusive(self, metric: str | int) -> F64:
        """``float64[nodes]``: cost of each node and all below it, over all lines."""
        number = self.number(metric)
        if number not in self._inclusive:
            self._inclusive[number] = self._cct.inclusive(self._total[number])
        return self._inclusive[number]

    def line_sums(self, metric: str | int) -> F64:
        """``float64[nodes]``: :meth:`exclusive` again, added up from the form by line."""
        value, nodes = self._line_value[self.number(metric)], len(self._cct)
        total = np.zeros(nodes)
        for at in range(0, len(value), _CHUNK_CELLS):
            node = self._line_node[at : at + _CHUNK_CELLS]
            if int(node.max()) >= nodes:
                raise FormatError("metrics name nodes that do not exist")
            total += sum_by(node, value[at : at + _CHUNK_CELLS], nodes)
            release(value)
            release(node)
        return total

    def node_sums(self, metric: str | int) -> F64:
        """``float64[nodes]``: :meth:`exclusive` again, added up from the form by context."""
        value = self._line_value[self.number(metric)]
        total = np.zeros(len(self._cct))
        for at in range(0, len(self._node_cell), _CHUNK_CELLS):
            cells = self._node_cell[at : at + _CHUNK_CELLS]
            if int(cells.max()) >= max(len(value), 1):
                raise FormatError("metrics name cells that do not exist")
            # The nodes whose cells these are; the first and the last may have more elsewhere.
            end = at + len(cells)
            low = int(np.searchsorted(self._node_start, at, side="right")) - 1
            high = int(np.searchsorted(self._node_start, end, side="left"))
            bounds: I64 = np.clip(self._node_start[low : high + 1], at, end)
            owner = np.repeat(np.arange(high - low), bounds[1:] - bounds[:-1])
            total[low:high] += sum_by(owner, gather(value, cells), high - low)
            release(value)
            release(cells)
        return total

    def by_line(self, metric: str | int, line: int) -> tuple[U32, F64]:
        """Nodes with records on ``line``, ascending, and their exclusive cost there."""
        part = slice(int(self._line_start[line]), int(self._line_start[line + 1]))
        value = self._line_value[self.number(metric)][part]
        return self._line_node[part], value.astype(np.float64, copy=False)

    def by_node(self, metric: str | int, node: int) -> tuple[U32, F64]:
        """Lines with records at ``node`` itself, ascending, and its exclusive cost there."""
        cells = self._node_cell[int(self._node_start[node]) : int(self._node_start[node + 1])]
        return self._lines(cells), self._cells(cells, metric)

    def over_lines(self, metric: str | int, node: int, *, inclusive: bool = True) -> F64:
        """``float64[lines]``: what ``node`` cost on each line, by default with all below it.

        O(cells of the subtree).
        """
        nodes = self._subtree(node) if inclusive else [slice(node, node + 1)]
        total = np.zeros(len(self._line_start) - 1)
        bounds = self._node_start
        count = sum(int(bounds[part.stop] - bounds[part.start]) for part in nodes)
        if count > len(self._line_node) // 8:
            inside = np.zeros(len(self._cct), bool)
            for part in nodes:
                inside[part] = True
            return self.over_contexts(metric, inside)
        for part in nodes:
            span = slice(int(self._node_start[part.start]), int(self._node_start[part.stop]))
            for at in range(span.start, span.stop, _CHUNK_CELLS):
                cells = self._node_cell[at : min(at + _CHUNK_CELLS, span.stop)]
                total += sum_by(self._lines(cells), self._cells(cells, metric), len(total))
        return total

    def over_contexts(self, metric: str | int, inside: npt.NDArray[np.bool_]) -> F64:
        """``float64[lines]``: what the nodes of ``inside`` ``bool[nodes]`` cost on each line.

        O(all cells): reading all in order beats half of it in disorder.
        """
        value = self._line_value[self.number(metric)]
        lines = len(self._line_start) - 1
        total = np.zeros(lines)
        first = 0
        while first < lines:
            last = int(np.searchsorted(self._line_start, self._line_start[first] + _CHUNK_CELLS))
            last = min(max(last, first + 1), lines)
            start = self._line_start[first : last + 1]
            span = slice(int(start[0]), int(start[-1]))
            own = value[span] * inside[self._line_node[span]]
            filled = np.flatnonzero(np.diff(start))
            total[first + filled] = np.add.reduceat(own, start[filled] - start[0])
            release(value)
            release(self._line_node)
            first = last
        return total

    def of_lines(self, metric: str | int, lines: I64) -> F64:
        """``float64[nodes]``: cost at each node itself, over ``lines`` alone. O(their cells)."""
        if len(lines) == len(self._line_start) - 1:
            return self.exclusive(metric)
        value = self._line_value[self.number(metric)]
        total = np.zeros(len(self._cct))
        lines = np.sort(lines)
        # Lines that follow one another are read at once, and added up when there are enough.
        breaks = np.flatnonzero(np.diff(lines) != 1) + 1
        begin = self._line_start[lines[np.concatenate(([0], breaks))]] if len(lines) else lines
        end = (
            self._line_start[lines[np.append(breaks, len(lines)) - 1] + 1] if len(lines) else lines
        )
        waiting: list[slice] = []
        held = 0
        for low, high in zip(begin.tolist(), end.tolist(), strict=True):
            for at in range(low, high, _CHUNK_CELLS):
                waiting.append(slice(at, min(at + _CHUNK_CELLS, high)))
                held += waiting[-1].stop - at
                if held >= _CHUNK_CELLS:
                    total += self._sum(value, waiting)
                    waiting, held = [], 0
        return total + self._sum(value, waiting) if waiting else total

    def _sum(self, value: npt.NDArray[Any], spans: Sequence[slice]) -> F64:
        node = np.concatenate([self._line_node[span] for span in spans])
        cost = np.concatenate([value[span] for span in spans])
        return sum_by(node, cost.astype(np.float64, copy=False), len(self._cct))

    def _subtree(self, node: int) -> list[slice]:
        """A node and all below it: one range of nodes for each level of the tree."""
        parent = self._cct.parent
        ranges = []
        low, high = node, node + 1
        while low < high:
            ranges.append(slice(low, high))
            begin, end = np.searchsorted(parent, [low, high]).tolist()
            # The root is its own parent, not a child.
            low, high = max(begin, 1), end
        return ranges

    def _lines(self, cells: U32) -> U32:
        lines = np.searchsorted(self._line_start, cells, side="right") - 1
        return lines.astype(np.uint32)

    def _cells(self, cells: U32, metric: str | int) -> F64:
        value = self._line_value[self.number(metric)]
        if int(cells.max(initial=0)) >= max(len(value), 1):
            raise FormatError("metrics name cells that do not exist")
        return value[cells].astype(np.float64, copy=False)
