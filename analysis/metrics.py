"""Metrics of a database: what each context cost, in total and on each trace line.

Stored sparse, both ways round, with one pattern for all metrics: by line (which contexts did it
run?) and by context (which lines ran it?). A cell is a (line, node) pair with records of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hpcd.analysis.columns import (
    ColumnWriter,
    create_column,
    map_column,
    open_bounds,
    open_column,
    open_value,
    save_column,
    storage_error,
)
from hpcd.analysis.modules import translate
from hpcd.analysis.scan import load_cells, load_tree
from hpcd.analysis.sparse import EMPTY_CELLS, Cells, add_cells, sum_by
from hpcd.analysis.union import load_canonical, locate
from hpcd.errors import FormatError, UsageError
from hpcd.model.cct import CCT
from hpcd.model.identity import Event

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
U32 = npt.NDArray[np.uint32]
U16 = npt.NDArray[np.uint16]

SAMPLES = "samples"

# Cells handled at once where all of them are: bounds memory at some 100 MB.
_CHUNK_CELLS = 1 << 21

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


@dataclass(frozen=True, slots=True)
class CellTask:
    """One part's sums, to be told by the nodes and metrics of the database.

    ``module_map`` and ``event_map`` turn the part's ids into the database's, ``canonical`` is the
    database's tree; ``work`` is the file to leave the result in.
    """

    part: Path
    module_map: U32
    event_map: U16
    canonical: Path
    events: tuple[Event, ...]
    work: Path


def translate_cells(task: CellTask) -> tuple[I64, int]:
    """Leave (line, node) cells with their metrics in ``task.work``.

    Returns ``int64[rows]``, how many cells each line of the part has, and the most samples one
    has. Raises :class:`StorageError`.
    """
    node_map = locate(
        load_canonical(task.canonical), translate(load_tree(task.part), task.module_map)
    )
    cells = load_cells(task.part)
    rows = int(cells.line.max(initial=0)) + 1
    if int(cells.node.max(initial=0)) >= len(node_map) or len(task.event_map) <= int(
        cells.event.max(initial=0)
    ):
        raise FormatError(f"{task.part}: damaged")
    mapped = add_cells(
        [
            Cells(cells.line, node_map[cells.node], task.event_map[cells.event],
                  cells.records, cells.value),
            EMPTY_CELLS,
        ]
    )  # fmt: skip
    new = np.ones(len(mapped), bool)
    new[1:] = (mapped.line[1:] != mapped.line[:-1]) | (mapped.node[1:] != mapped.node[:-1])
    starts = np.flatnonzero(new)
    line, node = mapped.line[starts], mapped.node[starts]
    columns: dict[str, Any] = {"map": node_map, "line": line, "node": node}
    most = 0
    for number, (name, unit) in enumerate(metric_table(task.events)):
        each = _values(mapped, task.events, name, unit)
        value = np.add.reduceat(each, starts) if len(starts) else np.zeros(0)
        columns[f"value-{number}"] = value
        if number == 0:
            most = int(value.max(initial=0))
    try:
        with task.work.open("wb") as file:
            np.savez(file, **columns)
    except OSError as error:
        raise storage_error(task.work, error) from None
    return np.bincount(line, minlength=rows).astype(np.int64), most


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


@dataclass(frozen=True, slots=True)
class PlaceTask:
    """Cells of one part (``work``) to be put where its lines' cells are.

    ``place`` ``int64[rows]``: where the cells of each line of the part go in ``folder``'s columns.
    """

    work: Path
    folder: Path
    place: I64
    metrics: int


def place_cells(task: PlaceTask) -> None:
    """Write the cells of a part. Raises :class:`StorageError`."""
    with np.load(task.work, allow_pickle=False) as arrays, ExitStack() as stack:
        line = arrays["line"]
        names = {"line_node": "node"} | {
            f"line_value-{k}": f"value-{k}" for k in range(task.metrics)
        }
        starts = np.flatnonzero(np.diff(line, prepend=np.uint32(0xFFFFFFFF)) != 0)
        target = task.place[line[starts]]
        length = np.diff(starts, append=len(line))
        # Lines of a part mostly follow one another in the database too: one write for all.
        runs = np.flatnonzero(np.append(True, target[1:] != target[:-1] + length[:-1]))
        if not len(starts):
            return
        begin = starts[runs]
        end = np.append(begin[1:], len(line))
        for name, source in names.items():
            column = stack.enter_context(ColumnWriter(task.folder / f"{name}.npy"))
            values = arrays[source]
            for at, a, b in zip(target[runs].tolist(), begin.tolist(), end.tolist(), strict=True):
                column.write(at, values[a:b])


def create_cells(folder: Path, line_start: I64, metrics: int, most: int) -> None:
    """Reserve the columns by line of ``line_start[-1]`` cells. Raises :class:`StorageError`."""
    cells = int(line_start[-1])
    save_column(folder / "line_start.npy", line_start)
    create_column(folder / "line_node.npy", np.uint32, cells)
    for number in range(metrics):
        # Counts of samples take half the room, as long as they fit.
        small = number == 0 and most < 1 << 32
        kind = np.uint32 if small else np.float64
        create_column(folder / f"line_value-{number}.npy", kind, cells)


def write_contexts(
    folder: Path, line_start: I64, metrics: int, nodes: int
) -> tuple[list[F64], list[F64]]:
    """Write the form by context, and totals, from that by line.

    Returns per metric the totals ``float64[nodes]`` and ``float64[lines]``. O(cells · log chunk);
    memory for a few million cells, however many there are. Raises :class:`StorageError`.
    """
    cells = int(line_start[-1])
    line_node = open_column(folder / "line_node.npy", np.uint32, cells)
    counts = np.zeros(nodes, np.int64)
    node_totals = [np.zeros(nodes) for _ in range(metrics)]
    line_totals = []
    chunks = [slice(at, min(at + _CHUNK_CELLS, cells)) for at in range(0, cells, _CHUNK_CELLS)]
    for part in chunks:
        counts += np.bincount(line_node[part], minlength=nodes)
    for number in range(metrics):
        value = open_value(folder / f"line_value-{number}.npy", cells)
        sums = np.zeros(len(line_start) - 1)
        for part in chunks:
            node_totals[number] += sum_by(line_node[part], value[part].astype(np.float64), nodes)
            first = int(np.searchsorted(line_start, part.start, side="right")) - 1
            last = int(np.searchsorted(line_start, part.stop))
            bounds = np.clip(line_start[first : last + 1], part.start, part.stop) - part.start
            line = np.repeat(np.arange(last - first), np.diff(bounds))
            sums[first:last] += sum_by(line, value[part].astype(np.float64), last - first)
        line_totals.append(sums)
        save_column(folder / f"total-{number}.npy", node_totals[number])
    node_start = np.concatenate(([0], np.cumsum(counts)))
    save_column(folder / "node_start.npy", node_start)
    kind = np.dtype(np.uint32 if cells < 1 << 32 else np.int64)
    create_column(folder / "node_cell.npy", kind, cells)
    order = map_column(folder / "node_cell.npy")
    following = node_start[:-1].copy()
    for part in chunks:
        node = line_node[part]
        by_node = np.argsort(node, kind="stable")
        ranked = node[by_node]
        starts = np.flatnonzero(np.diff(ranked, prepend=np.uint32(0xFFFFFFFF)) != 0)
        length = np.diff(starts, append=len(ranked))
        within = np.arange(len(ranked)) - np.repeat(starts, length)
        order[following[ranked] + within] = by_node + part.start
        following[ranked[starts]] += length
    return node_totals, line_totals


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
        if int(self._line_node.max(initial=0)) >= len(self._cct):
            raise FormatError("metrics name nodes that do not exist")
        return sum_by(self._line_node, self._line_value[self.number(metric)], len(self._cct))

    def node_sums(self, metric: str | int) -> F64:
        """``float64[nodes]``: :meth:`exclusive` again, added up from the form by context."""
        node = np.repeat(np.arange(len(self._cct)), np.diff(self._node_start))
        return sum_by(node, self._cells(self._node_cell, metric), len(self._cct))

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
        found = np.searchsorted(self._line_start, cells, side="right") - 1
        return found.astype(np.uint32)

    def _cells(self, cells: U32, metric: str | int) -> F64:
        value = self._line_value[self.number(metric)]
        if int(cells.max(initial=0)) >= max(len(value), 1):
            raise FormatError("metrics name cells that do not exist")
        return value[cells].astype(np.float64, copy=False)
