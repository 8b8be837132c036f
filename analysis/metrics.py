"""Metrics of a database: what each context cost, in total and on each trace line.

Stored sparse, both ways round, with one pattern for all metrics: by line (which contexts did it
run?) and by context (which lines ran it?). A cell is a (line, node) pair with records of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hpcd.analysis.columns import open_bounds, open_column, save_column
from hpcd.analysis.sparse import Cells, sum_by
from hpcd.errors import FormatError, UsageError
from hpcd.model.cct import CCT
from hpcd.model.identity import Event

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
U32 = npt.NDArray[np.uint32]

SAMPLES = "samples"

_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def metric_table(events: Sequence[Event]) -> list[tuple[str, str]]:
    """(name, unit) of the metrics that ``events`` give: samples, then by name; times in s."""
    units = {
        (event.metric, "s" if event.unit in _SECONDS else event.unit)
        for event in events
        if event.metric and event.metric != SAMPLES
    }
    table = [(SAMPLES, "")]
    seen = {SAMPLES}
    for name, unit in sorted(units):
        # Two units under one name would add up apples and pears.
        table.append((name if name not in seen else f"{name} ({unit})", unit))
        seen.add(name)
    return table


def _values(cells: Cells, events: Sequence[Event], name: str, unit: str) -> F64:
    """What each (line, node, event) cell adds to a metric."""
    if name == SAMPLES:
        return cells.records.astype(np.float64)
    scale = np.zeros(max((event.id for event in events), default=0) + 1)
    for event in events:
        event_unit = "s" if event.unit in _SECONDS else event.unit
        if name in (event.metric, f"{event.metric} ({unit})") and event_unit == unit:
            scale[event.id] = event.scale * _SECONDS.get(event.unit, 1.0)
    return cells.value * scale[cells.event]


def write_metrics(
    folder: Path, cells: Cells, events: Sequence[Event], lines: int, nodes: int
) -> tuple[int, list[F64], list[F64]]:
    """Write both sparse forms and the totals.

    ``cells`` are sorted by line, node, event. Returns the number of (line, node) cells and, per
    metric, the totals ``float64[nodes]`` and ``float64[lines]``. Raises :class:`StorageError`.
    """
    new = np.ones(len(cells), bool)
    new[1:] = (cells.line[1:] != cells.line[:-1]) | (cells.node[1:] != cells.node[:-1])
    starts = np.flatnonzero(new)
    line, node = cells.line[starts], cells.node[starts]
    save_column(folder / "line_start.npy", np.searchsorted(line, np.arange(lines + 1)))
    save_column(folder / "line_node.npy", node)
    by_node = np.argsort(node, kind="stable")
    save_column(folder / "node_start.npy", np.searchsorted(node[by_node], np.arange(nodes + 1)))
    save_column(folder / "node_line.npy", line[by_node])
    node_totals, line_totals = [], []
    for number, (name, unit) in enumerate(metric_table(events)):
        each = _values(cells, events, name, unit)
        value = np.add.reduceat(each, starts) if len(starts) else np.zeros(0)
        save_column(folder / f"line_value-{number}.npy", value)
        save_column(folder / f"node_value-{number}.npy", value[by_node])
        node_totals.append(sum_by(node, value, nodes))
        line_totals.append(sum_by(line, value, lines))
        save_column(folder / f"total-{number}.npy", node_totals[-1])
    return len(starts), node_totals, line_totals


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
        self._node_line = open_column(folder / "node_line.npy", np.uint32, cells)
        count = range(len(table))
        self._line_value = [
            open_column(folder / f"line_value-{k}.npy", np.float64, cells) for k in count
        ]
        self._node_value = [
            open_column(folder / f"node_value-{k}.npy", np.float64, cells) for k in count
        ]
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
        if int(self._line_node.max(initial=0)) >= len(self._cct):
            raise FormatError("metrics name nodes that do not exist")
        return sum_by(self._line_node, self._line_value[self.number(metric)], len(self._cct))

    def node_sums(self, metric: str | int) -> F64:
        """``float64[nodes]``: :meth:`exclusive` again, added up from the form by context."""
        node = np.repeat(np.arange(len(self._cct)), np.diff(self._node_start))
        return sum_by(node, self._node_value[self.number(metric)], len(self._cct))

    def by_line(self, metric: str | int, line: int) -> tuple[U32, F64]:
        """Nodes with records on ``line``, ascending, and their exclusive cost there."""
        part = slice(int(self._line_start[line]), int(self._line_start[line + 1]))
        return self._line_node[part], self._line_value[self.number(metric)][part]

    def by_node(self, metric: str | int, node: int) -> tuple[U32, F64]:
        """Lines with records at ``node`` itself, ascending, and its exclusive cost there."""
        part = slice(int(self._node_start[node]), int(self._node_start[node + 1]))
        return self._node_line[part], self._node_value[self.number(metric)][part]
