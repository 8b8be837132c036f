"""Metrics of a database as they are merged: sums of many parts in chunks, and totals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hpcd.analysis.arrays.bounds import bounds_of
from hpcd.analysis.arrays.cell_store import chunks_of, pack_cells
from hpcd.analysis.arrays.column_files import ColumnWriter, create_column, save_column
from hpcd.analysis.arrays.named_arrays import load_arrays, save_arrays
from hpcd.analysis.arrays.node_maps import pack_nodes
from hpcd.analysis.arrays.small_numbers import ranked
from hpcd.analysis.arrays.sparse_sums import Cells, add_cells, join_cells
from hpcd.analysis.database.metrics import RECORDS
from hpcd.analysis.merge.unite.earlier_database import EarlierPart
from hpcd.analysis.merge.unite.part_groups import located_nodes
from hpcd.analysis.merge.unite.scratch import Scratch
from hpcd.array_types import F64, I64, U16, U32
from hpcd.errors import FormatError
from hpcd.kernels.library import kernels
from hpcd.masks import positions
from hpcd.model.identity import SECONDS, Event
from hpcd.rows import take_rows


def metric_table(events: Sequence[Event]) -> list[tuple[str, str]]:
    """(name, unit) of the metrics that ``events`` give: records, then by name; times in s."""
    units = {
        (event.metric, "s" if event.unit in SECONDS else event.unit)
        for event in events
        if event.metric and event.metric != RECORDS
    }
    table = [(RECORDS, "")]
    seen = {RECORDS}
    for name, unit in sorted(units):
        # Two units under one name would add up apples and pears.
        table.append((name if name not in seen else f"{name} ({unit})", unit))
        seen.add(name)
    return table


def metric_scales(events: Sequence[Event]) -> F64:
    """``float64[metrics, events]``: the amount of a value of 1 of each event in each metric, 0 if
    it does not count; 0 of records, which are counted."""
    table = metric_table(events)
    scale = np.zeros((len(table), max((event.id for event in events), default=-1) + 1))
    for number, (name, unit) in enumerate(table[1:], start=1):
        for event in events:
            event_unit = "s" if event.unit in SECONDS else event.unit
            if name in (event.metric, f"{event.metric} ({unit})") and event_unit == unit:
                scale[number, event.id] = event.scale * SECONDS.get(event.unit, 1.0)
    return scale


@dataclass(frozen=True, slots=True)
class CellTask:
    """The sums of ``parts``, to be translated to the database's nodes and events.

    ``rows`` ``int64[n]`` are the rows of each that are trace lines, ascending, ``event_maps`` turn
    the parts' events into the database's. ``group`` is the file of their trees
    (:mod:`hpcd.analysis.merge.unite.part_groups`), None where all are of the database that is added
    to, ``canonical`` the database's tree, ``scale`` as :func:`metric_scales` gives it; ``work`` is
    the file to leave the result in.
    """

    parts: tuple[Path | EarlierPart, ...]
    rows: tuple[I64, ...]
    event_maps: tuple[U16, ...]
    group: Path | None
    canonical: Path
    scale: F64
    work: Path


def translate_cells(task: CellTask) -> int:
    """Leave the parts' sums in ``task.work``, and their nodes' places in the canonical tree.

    Returns how many sums there are. Raises :class:`FormatError` and :class:`StorageError`.
    """
    trace_maps, mapped, lines = _mapped_sums(task)
    counts = np.bincount(mapped.line, minlength=lines).astype(np.int64)
    chunks = chunks_of(counts)
    packed = [
        pack_cells(mapped if len(chunks) == 1 else _of_lines(mapped, chunk)) for chunk in chunks
    ]
    frames = [frame for chunk in packed for frame in chunk.frames]
    maps = [pack_nodes(trace_map) for trace_map in trace_maps]
    node, place = ranked(mapped.node)
    columns: dict[str, Any] = {
        "lines": np.array([chunk.stop - chunk.start for chunk in chunks], np.int64),
        "events": np.array([len(chunk.event) for chunk in packed], np.int64),
        "event": np.concatenate([chunk.event for chunk in packed] or [np.zeros(0, np.uint16)]),
        "cells": np.concatenate([chunk.cells for chunk in packed] or [np.zeros(0, np.int64)]),
        "size": np.array([len(frame) for frame in frames], np.int64),
        "data": np.frombuffer(b"".join(frames), np.uint8),
        "map_count": np.array([len(trace_map) for trace_map in trace_maps], np.uint32),
        "map_size": np.array([len(frame) for frame in maps], np.int64),
        "map": np.frombuffer(b"".join(maps), np.uint8),
        "line_total": _totals(mapped.line, lines, mapped, task.scale),
        "node": node,
        "node_total": _totals(place, len(node), mapped, task.scale),
    }  # fmt: skip
    save_arrays(task.work, columns)
    return len(mapped)


def _mapped_sums(task: CellTask) -> tuple[list[U32], Cells, int]:
    """Return the place in the canonical tree of each node, by part, and the parts' sums by these
    places and by the task's lines, of which there are as many as the last value.

    Raises :class:`FormatError`.
    """
    none = [np.zeros(0, np.uint32)] * len(task.parts)
    node_maps = located_nodes(task.group, task.canonical) if task.group else none
    trace_maps: list[U32] = []
    cells = []
    first = 0
    united = False
    for part, rows, node_map, event_map in zip(
        task.parts, task.rows, node_maps, task.event_maps, strict=True
    ):
        if isinstance(part, EarlierPart):
            trace_map, own = part.sums(event_map)
        else:
            trace_map, own = node_map, Scratch(part).sums()
            if len(own) and (
                int(own.node.max()) >= len(node_map) or int(own.event.max()) >= len(event_map)
            ):
                raise FormatError(f"{part}: damaged (sums of nodes or events that do not exist)")
            # Two modules, and so two nodes, of a part may be one in the database.
            united |= _repeats(trace_map)
            own = replace(own, node=trace_map[own.node], event=event_map[own.event])
        trace_maps.append(trace_map)
        own = _of_rows(own, rows)
        cells.append(
            Cells(own.line + np.uint32(first), own.node, own.event, own.records, own.value)
        )
        first += len(rows)
    mapped = join_cells(cells)
    if united:
        mapped = add_cells([mapped])
    return trace_maps, mapped, first


def _repeats(values: npt.NDArray[np.integer]) -> bool:
    ordered = np.sort(values)
    return bool((ordered[1:] == ordered[:-1]).any())


def _of_rows(cells: Cells, rows: I64) -> Cells:
    """Return the ``cells`` of the lines ``rows``, with the line's index in ``rows`` as line."""
    top = int(cells.line.max(initial=0))
    if top < len(rows) == int(rows[-1]) + 1:
        return cells
    place = positions(1 + max(top, int(rows.max(initial=0))), rows)
    line = place[cells.line]
    mine = np.flatnonzero(line >= 0)
    return replace(take_rows(cells, mine), line=line[mine].astype(np.uint32))


def _of_lines(cells: Cells, chosen: slice) -> Cells:
    mine = np.flatnonzero((cells.line >= chosen.start) & (cells.line < chosen.stop))
    return replace(take_rows(cells, mine), line=cells.line[mine] - np.uint32(chosen.start))


def _totals(place: U32, count: int, cells: Cells, scale: F64) -> F64:
    """``float64[metrics, count]``: the sums of ``cells`` added up at their ``place``."""
    events = np.flatnonzero(np.bincount(cells.event))
    slot_of = positions(int(events.max(initial=-1)) + 1, events, 0)
    added = np.zeros((1 + len(events), count))
    if not kernels.total_sums(
        np.ascontiguousarray(place, np.uint32), cells.event, cells.records, cells.value, len(place),
        slot_of, len(slot_of), len(events), count, added,
    ):  # fmt: skip
        raise IndexError("sums at places that do not exist")
    totals = np.zeros((len(scale), count))
    totals[0] = added[0]
    for sums, event in zip(added[1:], events.tolist(), strict=True):
        totals += sums * scale[:, event : event + 1]
    return totals


def place_cells(
    works: Sequence[Path], sequence: Sequence[I64], folder: Path, scale: F64, nodes: int
) -> tuple[list[F64], list[F64]]:
    """Put the chunks that tasks left in ``works`` into the columns of ``folder``.

    ``sequence`` has the trace lines of each task, in the order of its rows. Returns per metric the
    totals ``float64[nodes]`` and ``float64[lines]``. Raises :class:`StorageError`.
    """
    line = np.concatenate([*sequence, np.zeros(0, np.int64)]).astype(np.uint32)
    save_column(folder / "line.npy", line)
    save_column(folder / "scale.npy", scale.ravel())
    node_totals = [np.zeros(nodes) for _ in scale]
    line_totals = [np.zeros(len(line)) for _ in scale]
    columns: dict[str, list[Any]] = {
        name: [np.zeros(0, np.int64)] for name in ("lines", "events", "event", "cells", "size")
    }
    for work, mine in zip(works, sequence, strict=True):
        arrays = load_arrays(work)
        for name, parts in columns.items():
            parts.append(arrays[name])
        node, by_node, own = arrays["node"], arrays["node_total"], arrays["line_total"]
        for number in range(len(scale)):
            node_totals[number][node] += by_node[number]
            line_totals[number][mine] = own[number]
    whole = {name: np.concatenate(parts) for name, parts in columns.items()}
    save_column(folder / "chunk_line.npy", bounds_of(whole["lines"]))
    save_column(folder / "chunk_frame.npy", bounds_of(whole["events"]))
    save_column(folder / "frame_event.npy", whole["event"].astype(np.uint16))
    save_column(folder / "frame_cells.npy", whole["cells"])
    start = bounds_of(whole["size"])
    save_column(folder / "frame_start.npy", start)
    join_files(works, "data", folder / "cells.npy", int(start[-1]))
    for number, total in enumerate(node_totals):
        save_column(folder / f"total-{number}.npy", total)
    return node_totals, line_totals


def place_nodes(works: Sequence[Path], folder: Path) -> None:
    """Write the parts' nodes, which tasks left in ``works``, into the columns of ``folder``.

    Raises :class:`StorageError`.
    """
    count, size = [np.zeros(0, np.uint32)], [np.zeros(0, np.int64)]
    for work in works:
        arrays = load_arrays(work)
        count.append(arrays["map_count"])
        size.append(arrays["map_size"])
    frame = bounds_of(np.concatenate(size))
    save_column(folder / "node_count.npy", np.concatenate(count))
    save_column(folder / "node_frame.npy", frame)
    join_files(works, "map", folder / "node.npy", int(frame[-1]))


def join_files(works: Sequence[Path], name: str, out: Path, total: int) -> None:
    """Concatenate the arrays ``name`` of ``works`` into a column of bytes."""
    create_column(out, np.uint8, total)
    at = 0
    with ColumnWriter(out) as column:
        for work in works:
            data = load_arrays(work)[name]
            column.write(at, data)
            at += len(data)
