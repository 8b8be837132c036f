"""Merging measurements into a database.

Stages, each a set of independent tasks on an :class:`concurrent.futures.Executor`:

1. *read*: measurements become parts of the database, batch by batch
   (:mod:`hpcd.analysis.merge.read.measurement_reading`), the only stage that looks at records;
2. *unite* the trees into the canonical calling context tree
   (:mod:`hpcd.analysis.merge.unite.canonical_union`);
3. *sums*: every part's sums, by the canonical tree's nodes;
4. *symbols*: name the addresses of every load module, with inlined calls, loops and lines;
5. *tables* and *checksums*.

All but the first depend on parts only: adding measurements to a database reads only new ones, and a
resumed merge continues with existing parts. The result is written next to its place and
renamed, so a database exists whole or not at all, and it depends on the measurements only: not on
their order, the engine, or the number of workers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hpcd.analysis.arrays.bounds import bounds_of
from hpcd.analysis.arrays.column_files import save_column, storage_error
from hpcd.analysis.arrays.node_maps import NodeMaps
from hpcd.analysis.database import directory as layout
from hpcd.analysis.merge.publish.atomic_output import (
    DATABASE,
    check_output,
    put_in_place,
    remove_beside,
    work_folder,
    workers_path,
)
from hpcd.analysis.merge.publish.call_columns import CallSource, CallTables, unite_calls
from hpcd.analysis.merge.publish.context_statistics import (
    ContextStatistics,
    line_extremes,
    united_statistics,
)
from hpcd.analysis.merge.publish.database_files import all_checksums, place_parts
from hpcd.analysis.merge.publish.line_columns import line_columns
from hpcd.analysis.merge.publish.module_names import close_readers
from hpcd.analysis.merge.publish.node_names import NamedTree, name_tree, prepare
from hpcd.analysis.merge.publish.sqlite_writer import TableWriter
from hpcd.analysis.merge.publish.table_rows import ClockOffsets, DatabaseContents
from hpcd.analysis.merge.read.measurement_reading import ReadMeasurements, read_measurements
from hpcd.analysis.merge.tasks.executors import (
    DEFAULT_MEMORY,
    Progress,
    local_executor,
    run_all,
    workers_for,
)
from hpcd.analysis.merge.unite.canonical_modules import CanonicalModule, unite_modules
from hpcd.analysis.merge.unite.canonical_union import (
    CanonicalUnion,
    KeptTree,
    unite_trees,
)
from hpcd.analysis.merge.unite.line_order import LineOrder, order_lines
from hpcd.analysis.merge.unite.metric_cells import (
    CellTask,
    metric_scales,
    place_cells,
    place_nodes,
    translate_cells,
)
from hpcd.analysis.merge.unite.part_layout import PartLayout
from hpcd.analysis.merge.unite.united_events import unite_events
from hpcd.analysis.merge.unite.united_symbols import table_of
from hpcd.analysis.trace.part_contents import MeasurementContents, load_call_nodes, windows_of
from hpcd.array_types import F64, I64, U16, U32
from hpcd.errors import UsageError
from hpcd.model.cct import CCT
from hpcd.model.identity import Event
from hpcd.model.waits import INTERFERENCE, WAIT
from hpcd.startup.garbage import fewer_collections


@dataclass(slots=True)
class MergeResult:
    """The outcome of a merge.

    ``refused`` are (path, why) of inputs left out entirely; ``damaged`` (path, what) of inputs
    merged as far as they could be read; ``notes`` further sentences for the user.
    """

    database: Path
    measurements: int = 0
    lines: int = 0
    records: int = 0
    nodes: int = 0
    source_nodes: int = 0
    procedures: int = 0
    bytes: int = 0
    refused: list[tuple[str, str]] = field(default_factory=list)
    damaged: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def merge(
    paths: Sequence[Path],
    out: Path,
    *,
    executor: Executor | None = None,
    workers: int | None = None,
    memory: int = DEFAULT_MEMORY,
    progress: Progress | None = None,
    force: bool = False,
    add: bool = False,
    sync: bool = True,
) -> MergeResult:
    """Merge the measurements ``paths`` into the database ``out``.

    ``executor`` runs the tasks and stays open; without one, ``workers`` local processes do, each
    with about ``memory`` bytes. Inputs that are no measurements are refused by name and the rest
    is merged. ``add`` keeps the measurements that are in ``out`` already. With ``sync`` the
    database is on the disk before it appears under its name.

    Raises :class:`StorageError` when ``out`` exists (unless ``force`` or ``add``: then a database
    there is replaced at the end) or cannot be written, or another merge writes it,
    :class:`FormatError` when nothing is left to merge, :class:`WorkerDiedError` when a worker was
    killed; then the parts that were made are kept for the next attempt.
    """
    if not paths:
        raise UsageError("nothing to merge")
    check_output(out, replace=force or add)
    report = progress or (lambda stage, done, total: None)
    with work_folder(out) as work, contextlib.ExitStack() as stack:
        local = executor is None
        path = work.path if local else workers_path(work)
        if executor is None:
            executor = stack.enter_context(local_executor(workers_for(paths, workers)))
        old = out if add and out.exists() else None
        stack.callback(close_readers)
        stack.enter_context(fewer_collections())
        result = _Merge(paths, path, old, executor, report).run(memory=memory, local=local)
        # First, or it would be written to the disk with the database.
        remove_beside(work.path / DATABASE)
        put_in_place(work, out, sync=sync)
    result.database = out
    return result


class _Merge:
    """A merge in progress: its work folder, its inputs and its executor."""

    def __init__(
        self, paths: Sequence[Path], work: Path, old: Path | None, executor: Executor,
        progress: Progress,
    ) -> None:  # fmt: skip
        self._paths = list(dict.fromkeys(path.absolute() for path in paths))
        self._work = work
        self._root = work / DATABASE
        self._old = old
        self._executor = executor
        self._progress = progress

    def run(self, *, memory: int, local: bool) -> MergeResult:
        """All stages, in order.

        A worker may use ``memory`` bytes; ``local``: the workers run on this machine, so reading
        ahead fills their page cache.
        """
        read = read_measurements(
            self._paths, self._make_folders(), self._old, self._executor, self._progress,
            memory=memory, local=local,
        )  # fmt: skip
        measurements = read.contents
        modules, placed, union = self._unite_trees(read)
        tree = union.tree
        events, event_maps = unite_events([part.events for part in placed.parts])
        database = self._describe(measurements, modules, events)
        clock, order, columns = database.clock, database.order, database.columns
        rows = order.rows(len(measurements))
        # Process and thread tables have a row per line: workers compute sums while this writes.
        with TableWriter(self._root / layout.SQLITE, len(metric_scales(events))) as tables:
            tables.add(database.measured())
            node_totals, line_totals, cells = self._sum(placed, union, events, event_maps, rows)
            tables.add(database.line_totals(line_totals))
            self._map_trace(placed, union, event_maps, clock, order, rows)
            calls, waits, interference = self._unite_calls(placed, len(tree), clock, rows)
            named = self._name(modules, tree)
            self._progress("tables", 0, 1)
            inclusives = [tree.inclusive(exclusive) for exclusive in node_totals]
            statistics = self._statistics(union.path, inclusives, cells)
            referred = calls or waits or interference  # objects are numbered alike in all
            tables.add(database.contexts(
                tree, named, node_totals, inclusives, statistics, calls,
                referred.objects if referred else (),
            ))  # fmt: skip
            tables.finish()
        self._progress("tables", 1, 1)
        counts = {
            "measurements": len(measurements),
            "lines": len(columns.start),
            "nodes": len(tree),
            "procedures": len(named.procedures),
        }
        facts = {
            **counts,
            "parts": len(placed.parts),
            "records": int(columns.first[-1]),
            "cells": cells,
            "origin_ns": clock.origin_ns,
            "duration_ns": int(columns.end.max(initial=0)),
            **({"calls": calls.calls} if calls else {}),
            **({"waits": waits.calls} if waits else {}),
            **({"interference": interference.calls} if interference else {}),
        }
        return MergeResult(
            self._root,
            **counts,
            # Metric 0 counts records, and of an interval not the entry at its end.
            records=int(node_totals[0].sum()),
            source_nodes=sum(contents.nodes for contents in measurements),
            bytes=self._vouch(placed, facts),
            refused=read.refused,
            damaged=read.damaged,
            notes=read.notes + named.notes,
        )

    # --- stages ---

    def _unite_trees(
        self, read: ReadMeasurements
    ) -> tuple[list[CanonicalModule], PartLayout, CanonicalUnion]:
        """Stage 2: the modules of all measurements, the parts in order, and the canonical tree."""
        measurements = read.contents
        modules, module_maps = unite_modules(
            [contents.modules for contents in measurements],
            [contents.host for contents in measurements],
            [contents.id for contents in measurements],
        )
        prepare(self._executor, modules)
        placed = PartLayout.of(measurements, read.parts)
        kept = KeptTree.of(read.earlier, placed, module_maps, self._work)
        union = unite_trees(
            placed, modules, module_maps, kept, self._executor, self._progress,
            work=self._work, symbols=self._root / layout.SYMBOLS,
        )  # fmt: skip
        return modules, placed, union

    def _describe(
        self,
        measurements: Sequence[MeasurementContents],
        modules: Sequence[CanonicalModule],
        events: Sequence[Event],
    ) -> DatabaseContents:
        """Put the trace lines in order, and write their columns."""
        windows = windows_of(measurements)
        clock = ClockOffsets.of(measurements, windows)
        order, processes, threads = order_lines(measurements)
        rows = order.rows(len(measurements))
        columns = line_columns(measurements, order, rows, processes, threads, clock, windows)
        columns.save(self._root / "lines")
        return DatabaseContents(
            measurements, modules, events, clock, order, processes, threads, columns, windows
        )

    def _make_folders(self) -> Path:
        parts = self._work / "parts"
        try:
            parts.mkdir(exist_ok=True)
            # As private as the measurements: command lines and paths are in it.
            self._root.mkdir(mode=0o700)
            for folder in layout.FOLDERS:
                (self._root / folder).mkdir()
        except OSError as error:
            raise storage_error(self._root, error) from None
        return parts

    def _vouch(self, placed: PartLayout, facts: dict[str, Any]) -> int:
        """Put the parts in their place and write the manifest; returns the database's bytes."""
        known = place_parts(placed.parts, self._root, self._old)
        files = all_checksums(self._root, known, self._executor, self._progress)
        layout.write_manifest(self._root, facts, files)
        return sum(entry.bytes for entry in files.values())

    def _sum(
        self, placed: PartLayout, union: CanonicalUnion, events: Sequence[Event],
        event_maps: Sequence[U16], rows: Sequence[I64],
    ) -> tuple[list[F64], list[F64], int]:  # fmt: skip
        """Stage 3: metrics by line and by context; totals per metric of nodes and of lines."""
        scale = metric_scales(events)
        tasks = [
            CellTask(tuple(union.place(placed.parts[part]) for part in group.parts),
                     tuple(placed.live_rows(part) for part in group.parts),
                     tuple(event_maps[part] for part in group.parts),
                     group.tree, union.path, scale, group.cells)
            for group in union.groups
        ]  # fmt: skip
        cells = 0
        for done, (_, future) in enumerate(
            run_all(self._executor, translate_cells, tasks), start=1
        ):
            cells += future.result()
            self._progress("sums", done, len(tasks) + 1)
        sequence = [
            np.concatenate([placed.lines(part, rows) for part in group.parts])
            for group in union.groups
        ]
        works = [group.cells for group in union.groups]
        totals = place_cells(works, sequence, self._root / "metrics", scale, len(union.tree))
        self._progress("sums", len(tasks) + 1, len(tasks) + 1)
        return *totals, cells

    def _map_trace(
        self, placed: PartLayout, union: CanonicalUnion, event_maps: Sequence[U16],
        clock: ClockOffsets, order: LineOrder, rows: Sequence[I64],
    ) -> None:  # fmt: skip
        """Write the tables that translate numbers of parts to numbers of the database."""
        folder = self._root / "trace"
        place_nodes([group.cells for group in union.groups], folder)
        save_column(folder / "event.npy", np.concatenate(event_maps).astype(np.uint16))
        save_column(folder / "event_start.npy", bounds_of(list(map(len, event_maps))))
        shift = np.array(clock.offsets, np.int64) - clock.origin_ns
        save_column(folder / "shift.npy", shift)
        part, row = placed.place(rows)
        save_column(folder / "part.npy", part)
        save_column(folder / "measurement.npy", order.measurement)
        save_column(folder / "row.npy", row)

    def _unite_calls(
        self, placed: PartLayout, nodes: int, clock: ClockOffsets, rows: Sequence[I64]
    ) -> list[CallTables | None]:
        """The columns of recorded calls, of waits, and of interference, where
        there are any."""
        maps = NodeMaps(self._root / "trace", len(placed.parts), nodes)
        node: dict[int, U32] = {}
        for part, numbers in enumerate(placed.members):
            for number in numbers:
                if placed.measurements[number].call_chunks:
                    node[number] = maps[part][load_call_nodes(placed.measurements[number])]
        none = np.zeros(0, np.uint32)
        sources = [
            CallSource(contents, rows[number], node.get(number, none),
                       clock.offsets[number] - clock.origin_ns)
            for number, contents in enumerate(placed.measurements)
        ]  # fmt: skip
        lines = sum(map(len, rows))
        return [
            unite_calls(sources, lines, self._root / folder, only)
            for folder, only in (
                (layout.CALLS, None), (layout.WAITS, WAIT), (layout.INTERFERENCE, INTERFERENCE)
            )
        ]  # fmt: skip

    def _name(self, modules: Sequence[CanonicalModule], tree: CCT) -> NamedTree:
        """Stage 4: procedures for all frames, and the columns of the tree."""
        store = self._root / layout.SYMBOLS
        named = name_tree(
            self._executor, modules, store, table_of(store)[1], tree,
            lambda done, total: self._progress("symbols", done, total),
        )  # fmt: skip
        for name, column in (
            ("parent", tree.parent),
            ("frame", tree.frame),
            ("procedure", named.procedure_of_node),
            ("scope", named.scope_of_node),
        ):
            save_column(self._root / "cct" / f"{name}.npy", column)
        return named

    def _statistics(
        self, tree: Path, inclusives: Sequence[F64], cells: int
    ) -> list[ContextStatistics]:
        """Return for every metric the statistics of contexts over lines."""
        return united_statistics(
            self._root / "metrics", tree, inclusives, cells,
            lambda tasks: (
                (number, future.result())
                for number, future in run_all(self._executor, line_extremes, tasks)
            ),
        )  # fmt: skip
