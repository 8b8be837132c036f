"""Metrics of a database as they are merged: every part's sums, translated and put in place."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hpcd.analysis.arrays.column_files import (
    ColumnWriter,
    create_column,
    map_column,
    open_column,
    open_value,
    save_column,
    storage_error,
)
from hpcd.analysis.arrays.sparse_sums import EMPTY_CELLS, Cells, add_cells, sum_by
from hpcd.analysis.database.metrics import SAMPLES
from hpcd.analysis.merge.part_groups import located_nodes
from hpcd.analysis.trace import compiled
from hpcd.analysis.trace.part_contents import load_sums
from hpcd.array_types import F64, I64, U16
from hpcd.errors import FormatError
from hpcd.model.identity import Event

# Cells handled at once where all of them are: bounds memory at some 100 MB.
_CHUNK_CELLS = 1 << 21
# With fewer, numpy has sorted them in the time that loading numba takes.
_WORTH_CELLS = 8 << 20


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
    """The sums of ``parts``, to be translated to the database's node ids and metrics.

    ``rows`` are how many lines each has, ``event_maps`` turn the parts' ids into the database's,
    ``group`` is the file of their trees (:mod:`hpcd.analysis.merge.part_groups`), ``canonical`` the
    database's tree; ``work`` is the file to leave the result in.
    """

    parts: tuple[Path, ...]
    rows: tuple[int, ...]
    event_maps: tuple[U16, ...]
    group: Path
    canonical: Path
    events: tuple[Event, ...]
    work: Path


def translate_cells(task: CellTask) -> tuple[I64, int]:
    """Leave (line, node) cells with their metrics in ``task.work``, and the parts' nodes' places in
    the canonical tree.

    Returns ``int64[rows]``, how many cells each line of the parts has, one part after another, and
    the most samples one has. Raises :class:`StorageError`.
    """
    node_maps = located_nodes(task.group, task.canonical)
    trace_maps = []
    cells = []
    first = 0
    for part, rows, node_map, event_map in zip(
        task.parts, task.rows, node_maps, task.event_maps, strict=True
    ):
        order, own = load_sums(part, len(node_map))
        if (
            int(own.node.max(initial=0)) >= len(node_map)
            or len(event_map) <= int(own.event.max(initial=0))
            or int(own.line.max(initial=0)) >= max(rows, 1)
        ):
            raise FormatError(f"{part}: damaged (sums of nodes or events that do not exist)")
        trace_maps.append(node_map[order])
        cells.append(
            Cells(own.line + np.uint32(first), trace_maps[-1][own.node], event_map[own.event],
                  own.records, own.value)
        )  # fmt: skip
        first += rows
    mapped = add_cells([*cells, EMPTY_CELLS])
    new = np.ones(len(mapped), bool)
    new[1:] = (mapped.line[1:] != mapped.line[:-1]) | (mapped.node[1:] != mapped.node[:-1])
    starts = np.flatnonzero(new)
    line, node = mapped.line[starts], mapped.node[starts]
    columns: dict[str, Any] = {
        "map": np.concatenate(node_maps), "trace": np.concatenate(trace_maps),
        "line": line, "node": node,
    }  # fmt: skip
    most = 0
    for number, (name, unit) in enumerate(metric_table(task.events)):
        values = _values(mapped, task.events, name, unit)
        value = np.add.reduceat(values, starts) if len(starts) else np.zeros(0)
        columns[f"value-{number}"] = value
        if number == 0:
            most = int(value.max(initial=0))
    try:
        with task.work.open("wb") as file:
            np.savez(file, **columns)
    except OSError as error:
        raise storage_error(task.work, error) from None
    return np.bincount(line, minlength=first).astype(np.int64), most


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
    """Cells of some parts (``work``) to be put where their lines' cells are.

    ``place`` ``int64[rows]``: where the cells of each line of the parts go in ``folder``'s columns.
    """

    work: Path
    folder: Path
    place: I64
    metrics: int


def place_cells(task: PlaceTask) -> None:
    """Write the cells of parts. Raises :class:`StorageError`."""
    with np.load(task.work, allow_pickle=False) as arrays, ExitStack() as stack:
        line = arrays["line"]
        names = {"line_node": "node"} | {
            f"line_value-{k}": f"value-{k}" for k in range(task.metrics)
        }
        starts = np.flatnonzero(np.diff(line, prepend=np.uint32(0xFFFFFFFF)) != 0)
        target = task.place[line[starts]]
        length = np.diff(starts, append=len(line))
        # Lines of parts mostly follow one another in the database too: one write for all.
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
    kernels = compiled.kernels() if cells >= _WORTH_CELLS else None
    for part in chunks:
        node = line_node[part]
        if kernels is not None:
            kernels.place_by_node(node, part.start, following, np.asarray(order))
            continue
        by_node = np.argsort(node, kind="stable")
        ranked = node[by_node]
        starts = np.flatnonzero(np.diff(ranked, prepend=np.uint32(0xFFFFFFFF)) != 0)
        length = np.diff(starts, append=len(ranked))
        within = np.arange(len(ranked)) - np.repeat(starts, length)
        order[following[ranked] + within] = by_node + part.start
        following[ranked[starts]] += length
    return node_totals, line_totals
