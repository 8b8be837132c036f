"""A selection as tables, for CSV, Parquet and Arrow files and for data frames.

``contexts``: id, parent (0: none), depth, name, kind, module, file, line, address. ``modules``,
``metrics``, ``events``. ``trace_lines``: id, label, job, rank, host, pid, tid, process, thread,
start and end. ``costs``: the exclusive cost of each context on each line, a column for each metric.
``trace``: a row for each record; ``duration_ns`` is a wait's duration, else 0; rows with
``interval_end`` only mark where a wait ended. Times are ns since the origin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from hpcd.analysis.trace.trace_lines import Line
from hpcd.array_types import Array
from hpcd.interchange.output.context_table import ContextTable, Detail
from hpcd.interchange.output.export_selection import ExportSelection

Column = Array | list[str] | list[int | None]

_BATCH = 4096


class Table(NamedTuple):
    """A table: its ``columns``' names and types, and ``batches`` of its rows, column by column.

    ``kinds`` are ``u4``, ``i8`` and so on as numpy has them, ``text``, or ``i4?`` if a value may be
    missing.
    """

    name: str
    columns: list[str]
    kinds: list[str]
    batches: Callable[[], Iterator[list[Column]]]


def tables(selection: ExportSelection) -> list[Table]:
    """Return the tables of ``selection``."""
    table = selection.contexts(Detail.PLACE)
    return [
        _contexts(table), _modules(selection), _metrics(selection), _events(selection),
        _lines(selection), _costs(selection, table), _trace(selection, table),
    ]  # fmt: skip


def _table(
    name: str, columns: dict[str, str], batches: Callable[[], Iterator[list[Column]]]
) -> Table:
    return Table(name, list(columns), list(columns.values()), batches)


def _contexts(table: ContextTable) -> Table:
    columns = {
        "context": "u4", "parent": "u4", "depth": "u4", "name": "text", "kind": "text",
        "module": "u4", "file": "text", "line": "u4", "address": "u8",
    }  # fmt: skip

    def batches() -> Iterator[list[Column]]:
        depth, frames = table.depth(), table.frames
        for at in range(0, len(table), _BATCH):
            span = slice(at, at + _BATCH)
            frame = table.frame[span]
            numbers = frame.tolist()
            kinds = ["inlined" if inside else "procedure" for inside in frames.inlined[frame]]
            yield [
                np.arange(at, at + len(numbers), dtype=np.uint32), table.parent[span], depth[span],
                [frames.name[n] for n in numbers], kinds, frames.module[frame],
                [frames.file[n] for n in numbers], frames.line[frame], frames.address[frame],
            ]  # fmt: skip

    return _table("contexts", columns, batches)


def _modules(selection: ExportSelection) -> Table:
    columns = {"module": "u4", "kind": "text", "path": "text", "build_id": "text"}

    def batches() -> Iterator[list[Column]]:
        rows = selection.db.modules
        yield [
            np.array([row.id for row in rows], np.uint32), [str(row.kind) for row in rows],
            [row.path for row in rows], [row.build_id or "" for row in rows],
        ]  # fmt: skip

    return _table("modules", columns, batches)


def _metrics(selection: ExportSelection) -> Table:
    def batches() -> Iterator[list[Column]]:
        yield [selection.names, selection.units]

    return _table("metrics", {"name": "text", "unit": "text"}, batches)


def _events(selection: ExportSelection) -> Table:
    columns = {"event": "u4", "name": "text", "metric": "text"}

    def batches() -> Iterator[list[Column]]:
        events = selection.events
        names = [*selection.db.metrics.names, ""]
        yield [
            np.arange(len(events.name), dtype=np.uint32), events.name,
            [names[number] for number in events.metric.tolist()],
        ]  # fmt: skip

    return _table("events", columns, batches)


def _lines(selection: ExportSelection) -> Table:
    columns = {
        "trace_line": "u4", "label": "text", "job": "text", "rank": "i4?", "host": "text",
        "pid": "i8", "tid": "i8", "process": "text", "thread": "text", "start_ns": "i8",
        "end_ns": "i8",
    }  # fmt: skip

    def columns_of(lines: list[Line]) -> list[Column]:
        return [
            np.array([line.number for line in lines], np.uint32), [line.label for line in lines],
            [line.job for line in lines], [line.rank for line in lines],
            [line.host for line in lines], np.array([line.pid for line in lines], np.int64),
            np.array([line.tid for line in lines], np.int64), [line.process for line in lines],
            [line.thread for line in lines], np.array([line.start for line in lines], np.int64),
            np.array([line.end for line in lines], np.int64),
        ]  # fmt: skip

    def batches() -> Iterator[list[Column]]:
        held: list[Line] = []
        for line in selection.iterate_lines("lines"):
            held.append(line)
            if len(held) == _BATCH:
                yield columns_of(held)
                held = []
        yield columns_of(held)

    return _table("trace_lines", columns, batches)


def _costs(selection: ExportSelection, table: ContextTable) -> Table:
    columns = {"trace_line": "u4", "context": "u4"} | {name: "f8" for name in selection.names}

    def batches() -> Iterator[list[Column]]:
        for line in selection.iterate_lines("costs"):
            costs = selection.line_costs(line.number, table)
            if len(costs.context):
                number = np.full(len(costs.context), line.number, np.uint32)
                yield [number, costs.context, *costs.cost]

    return _table("costs", columns, batches)


def _trace(selection: ExportSelection, table: ContextTable) -> Table:
    columns = {"trace_line": "u4", "time_ns": "i8", "context": "u4", "event": "u2",
               "duration_ns": "i8", "interval_end": "u1"}  # fmt: skip
    columns |= {name: "f8" for name in selection.names}

    def batches() -> Iterator[list[Column]]:
        for line in selection.iterate_lines("trace"):
            for block in selection.trace(line.number):
                yield [
                    np.full(len(block), line.number, np.uint32), block.time,
                    table.of_node[block.node], block.event, block.duration,
                    block.end.astype(np.uint8), *block.cost,
                ]  # fmt: skip

    return _table("trace", columns, batches)
