"""Merging measurements into a database.

Stages, each a set of independent tasks on an :class:`concurrent.futures.Executor`:

1. *read*: every measurement becomes a part of the database (:mod:`hpcd.analysis.ingest`), the only
   stage that looks at records;
2. *unite* the trees pairwise into the canonical calling context tree (ICS 2011, section 4);
3. *sums*: every part's sums, by the canonical tree's nodes;
4. *symbols*: name the addresses of every load module, with inlined calls, loops and lines;
5. *tables* and *checksums*.

All but the first depend on parts alone: adding measurements to a database reads only those, and a
merge that was killed goes on with the parts it made. The result is written beside its place and
renamed, so a database exists whole or not at all, and it depends on the measurements alone: not on
their order, the engine, or the number of workers.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hpcd.analysis import layout
from hpcd.analysis.columns import ColumnWriter, create_column, save_column, storage_error
from hpcd.analysis.engine import local_executor, run_all
from hpcd.analysis.ingest import IngestTask, ingest, part_name, progress_of
from hpcd.analysis.lines import (
    NO_RANK,
    LineColumns,
    LineOrder,
    order_lines,
    unknown_thread,
)
from hpcd.analysis.metrics import (
    CellTask,
    PlaceTask,
    create_cells,
    metric_table,
    place_cells,
    translate_cells,
    write_contexts,
)
from hpcd.analysis.modules import CanonicalModule, translate, unite_modules
from hpcd.analysis.naming import NamedTree, name_tree, prepare
from hpcd.analysis.part import Part
from hpcd.analysis.scan import Scan, load_tree, read_scan
from hpcd.analysis.schema import write_tables
from hpcd.analysis.scopes import close_readers
from hpcd.analysis.statistics import context_statistics
from hpcd.analysis.tables import Contents, Timeline
from hpcd.analysis.union import load_canonical, save_canonical, union
from hpcd.analysis.workplace import check_output, put_in_place, work_directory
from hpcd.errors import FormatError, HpcdError, NotFoundError, UsageError
from hpcd.measurement.reader import measurement_size
from hpcd.model.cct import CCT
from hpcd.model.identity import Event, Process

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
U16 = npt.NDArray[np.uint16]
U32 = npt.NDArray[np.uint32]

Progress = Callable[[str, int, int], None]
"""Called with the stage, how much of it is done, and how much there is (``read``: bytes)."""

DEFAULT_MEMORY = 1 << 30
"""Bytes a worker may use for records it gathers; blocks are smaller, and more, with less."""

# Trees united by one task. Two would halve the work of each step and double their number; with
# alike trees, as ranks of one program have, the total work is less the more are united at once.
_FAN_IN = 4
_SHOW_SECONDS = 0.25


@dataclass(slots=True)
class MergeResult:
    """What a merge did.

    ``refused`` are (path, why) of inputs left out entirely; ``damaged`` (path, what) of inputs
    merged as far as they could be read; ``notes`` what a user should know besides.
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
) -> MergeResult:
    """Merge the measurements ``paths`` into the database ``out``.

    ``executor`` runs the tasks and stays open; without one, ``workers`` local processes do, each
    with about ``memory`` bytes. Inputs that are no measurements are refused by name and the rest
    is merged. ``add`` keeps the measurements that are in ``out`` already.

    Raises :class:`StorageError` when ``out`` exists (unless ``force`` or ``add``: then a database
    there is replaced at the end) or cannot be written, or another merge writes it,
    :class:`FormatError` when nothing is left to merge, :class:`WorkerDiedError` when a worker was
    killed; then the parts that were made are kept for the next attempt.
    """
    if not paths:
        raise UsageError("nothing to merge")
    check_output(out, replace=force or add)
    report = progress or (lambda stage, done, total: None)
    with work_directory(out) as work, contextlib.ExitStack() as stack:
        if executor is None:
            executor = stack.enter_context(local_executor(_workers(paths, workers)))
        old = out if add and out.exists() else None
        stack.callback(close_readers)
        result = _Merge(paths, work, old, executor, memory, report).run()
        put_in_place(work / "database", out)
    result.database = out
    return result


class _Merge:
    """One merge under way: its work directory, and what the stages found so far."""

    def __init__(
        self, paths: Sequence[Path], work: Path, old: Path | None, executor: Executor,
        memory: int, progress: Progress,
    ) -> None:  # fmt: skip
        self._paths = list(dict.fromkeys(path.absolute() for path in paths))
        self._work = work
        self._root = work / "database"
        self._old = old
        self._executor = executor
        self._memory = memory
        self._progress = progress
        self._result = MergeResult(self._root)

    def run(self) -> MergeResult:
        """All stages, in order."""
        result = self._result
        try:
            for folder in layout.FOLDERS:
                (self._root / folder).mkdir(parents=True)
        except OSError as error:
            raise storage_error(self._root, error) from None
        scans = self._read()
        modules, module_maps = unite_modules(
            [each.modules for each in scans],
            [each.node for each in scans],
            [each.id for each in scans],
        )
        prepare(self._executor, modules)
        tree, tree_path = self._unite(scans, module_maps)
        events, event_maps = _unite_events(scans)
        timeline = Timeline.of(scans)
        order, processes = order_lines(scans)
        rows = _rows_by_measurement(order, len(scans))
        columns = _line_columns(scans, order, rows, processes, timeline)
        columns.save(self._root / "lines")
        node_totals, line_totals, cells = self._sum(
            scans, module_maps, tree, tree_path, events, event_maps, rows
        )
        self._map_trace(scans, event_maps, timeline, order, rows)
        named = self._name(scans, modules, tree)
        save_column(self._root / "cct" / "parent.npy", tree.parent)
        save_column(self._root / "cct" / "frame.npy", tree.frame)
        save_column(self._root / "cct" / "procedure.npy", named.procedure_of_node)
        save_column(self._root / "cct" / "scope.npy", named.scope_of_node)
        self._progress("tables", 0, 1)
        contents = Contents(
            scans, modules, tree, named, events, timeline, order, processes, columns
        )
        tables = contents.tables(
            node_totals, line_totals, partial(context_statistics, self._root / "metrics", tree)
        )
        write_tables(self._root / layout.SQLITE, tables)
        self._progress("tables", 1, 1)
        result.measurements = len(scans)
        result.lines = len(columns.start)
        result.records = int(columns.first[-1])
        result.nodes = len(tree)
        result.source_nodes = sum(each.nodes for each in scans)
        result.procedures = len(named.procedures)
        result.notes += named.notes
        facts = {
            "measurements": len(scans),
            "lines": result.lines,
            "records": result.records,
            "nodes": result.nodes,
            "procedures": result.procedures,
            "cells": cells,
            "origin_ns": timeline.origin_ns,
            "duration_ns": int(columns.end.max(initial=0)),
        }
        files = self._checksums(self._place_parts(scans))
        layout.write_manifest(self._root, facts, files)
        result.bytes = sum(entry.bytes for entry in files.values())
        return result

    # --- stages ---

    def _read(self) -> list[Scan]:
        """Stage 1; measurements in an order of their own, whatever order they were given in."""
        parts = self._work / "parts"
        parts.mkdir(exist_ok=True)
        known = {each.id: each for each in self._old_scans()}
        found: list[tuple[int, Scan]] = []
        refused: list[tuple[int, str]] = []
        errors: list[HpcdError] = []
        sizes = [_size(path) for path in self._paths]
        # The biggest first, so that no worker is left with it at the end.
        numbers = sorted(range(len(sizes)), key=lambda number: -sizes[number])
        tasks = [
            IngestTask(self._paths[number], parts, self._old and self._old / "trace", self._memory)
            for number in numbers
        ]
        done, total = 0, max(sum(sizes), 1)
        shown = 0.0

        def show() -> None:
            nonlocal shown
            # Looking at the workers' files for each of many small measurements takes longer than
            # reading these.
            if time.monotonic() - shown > _SHOW_SECONDS:
                self._progress("read", min(done + progress_of(parts), total), total)
                shown = time.monotonic()

        for at, future in run_all(self._executor, ingest, tasks, show):
            number = numbers[at]
            try:
                found.append((number, future.result()))
            except (FormatError, NotFoundError) as error:
                refused.append((number, str(error)))
                errors.append(error)
            done += sizes[number]
            show()
        self._progress("read", total, total)
        scans = self._distinct(found, refused, known)
        self._result.refused = [(str(self._paths[number]), why) for number, why in sorted(refused)]
        if not scans:
            if len(refused) == 1:
                raise errors[0]
            raise FormatError(
                f"none of {len(self._paths)} inputs is a measurement: "
                + "; ".join(str(error) for error in errors)
            )
        for each in scans:
            self._result.damaged += [(str(each.path), what) for what in each.damage]
            if not each.closed:
                self._result.notes.append(f"{each.path}: not closed, merged as far as it goes")
        return scans

    def _old_scans(self) -> list[Scan]:
        """What is in the database already that is added to."""
        if self._old is None:
            return []
        # One of another version cannot be added to: what is in it would be lost.
        manifest = layout.read_manifest(self._old)
        places = sorted((self._old / "trace").glob("*.part"))
        if len(places) != manifest.get("measurements"):
            raise FormatError(f"{self._old}: parts of measurements are missing")
        answers = run_all(self._executor, _scan_of, places)
        return [future.result() for _, future in answers]

    def _distinct(
        self, found: list[tuple[int, Scan]], refused: list[tuple[int, str]],
        known: dict[int, Scan],
    ) -> list[Scan]:  # fmt: skip
        """Every measurement once, in order; of one that has grown, what there is now."""
        new: dict[int, Scan] = {}
        for number, each in sorted(found, key=lambda item: _measurement_key(item[1])):
            if each.id in new:
                why = f"{each.path}: the same measurement as {new[each.id].path}"
                refused.append((number, why))
                continue
            if each.id in known and known[each.id].part == each.part:
                self._result.notes.append(f"{each.path}: already in the database")
            new[each.id] = each
        return sorted((known | new).values(), key=_measurement_key)

    def _unite(self, scans: Sequence[Scan], module_maps: Sequence[U32]) -> tuple[CCT, Path]:
        """Stage 2: reduce the trees to one. The path is where workers find it."""
        waiting = [
            _Leaf(each.part, module_map)
            for each, module_map in zip(scans, module_maps, strict=True)
        ]
        total, done, step = len(waiting), 0, 0
        while True:
            groups = [waiting[at : at + _FAN_IN] for at in range(0, len(waiting), _FAN_IN)]
            tasks = [
                (group, self._work / f"union-{step}-{number}.npz")
                for number, group in enumerate(groups)
            ]
            for number, future in run_all(self._executor, _unite_task, tasks):
                future.result()
                done += len(groups[number]) - 1
                self._progress("unite", done, max(total - 1, 1))
            waiting = [_Leaf(path, None) for _, path in tasks]
            step += 1
            if len(waiting) == 1:
                return load_canonical(waiting[0].path), waiting[0].path

    def _sum(
        self, scans: Sequence[Scan], module_maps: Sequence[U32], tree: CCT, tree_path: Path,
        events: Sequence[Event], event_maps: Sequence[U16], rows: Sequence[I64],
    ) -> tuple[list[F64], list[F64], int]:  # fmt: skip
        """Stage 3: metrics by line and by context; totals per metric of nodes and of lines."""
        folder = self._root / "metrics"
        metrics = len(metric_table(events))
        tasks = [
            CellTask(each.part, module_maps[number], event_maps[number], tree_path, tuple(events),
                     self._cells(number))
            for number, each in enumerate(scans)
        ]  # fmt: skip
        total = 2 * len(tasks) + 1
        counts = np.zeros(sum(map(len, rows)), np.int64)
        most = 0
        for done, (number, future) in enumerate(
            run_all(self._executor, translate_cells, tasks), start=1
        ):
            found, high = future.result()
            counts[rows[number][: len(found)]] = found[: len(rows[number])]
            most = max(most, high)
            self._progress("sums", done, total)
        line_start = np.concatenate(([0], np.cumsum(counts)))
        create_cells(folder, line_start, metrics, most)
        places = [
            PlaceTask(self._cells(number), folder, line_start[rows[number]], metrics)
            for number in range(len(scans))
        ]
        for done, (_, placed) in enumerate(run_all(self._executor, place_cells, places), start=1):
            placed.result()
            self._progress("sums", len(tasks) + done, total)
        node_totals, line_totals = write_contexts(folder, line_start, metrics, len(tree))
        self._progress("sums", total, total)
        return node_totals, line_totals, int(line_start[-1])

    def _cells(self, number: int) -> Path:
        return self._work / f"cells-{number}.npz"

    def _map_trace(
        self, scans: Sequence[Scan], event_maps: Sequence[U16], timeline: Timeline,
        order: LineOrder, rows: Sequence[I64],
    ) -> None:  # fmt: skip
        """Say what the numbers in the parts mean here."""
        folder = self._root / "trace"
        starts = np.concatenate(([0], np.cumsum([each.nodes for each in scans])))
        save_column(folder / "node_start.npy", starts.astype(np.int64))
        create_column(folder / "node.npy", np.uint32, int(starts[-1]))
        with ColumnWriter(folder / "node.npy") as column:
            for number, at in enumerate(starts[:-1].tolist()):
                with np.load(self._cells(number), allow_pickle=False) as arrays:
                    column.write(at, arrays["map"])
        save_column(folder / "event.npy", np.concatenate(event_maps).astype(np.uint16))
        bounds = np.concatenate(([0], np.cumsum([len(table) for table in event_maps])))
        save_column(folder / "event_start.npy", bounds.astype(np.int64))
        shift = np.array(timeline.offsets, np.int64) - timeline.origin_ns
        save_column(folder / "shift.npy", shift)
        row = np.zeros(len(order.source), np.uint32)
        for mine in rows:
            row[mine] = np.arange(len(mine))
        save_column(folder / "part.npy", order.measurement)
        save_column(folder / "row.npy", row)

    def _name(
        self, scans: Sequence[Scan], modules: Sequence[CanonicalModule], tree: CCT
    ) -> NamedTree:
        """Stage 4: procedures for all frames."""
        tables = [
            next(((scans[m].part, i) for m, i in module.sources if i in scans[m].symbols), None)
            for module in modules
        ]
        return name_tree(
            self._executor, modules, tables, tree,
            lambda done, total: self._progress("symbols", done, total),
        )  # fmt: skip

    def _place_parts(self, scans: Sequence[Scan]) -> dict[str, layout.FileEntry]:
        """Put the parts into the database; those of the old one with the checksums known of them.

        They never change: both databases may have the same file.
        """
        known: dict[str, layout.FileEntry] = {}
        if self._old is not None:
            known = layout.manifest_files(self._old, layout.read_manifest(self._old))
        kept = {}
        for each in scans:
            name = f"trace/{part_name(each.id)}"
            place = self._root / name
            try:
                if self._work in each.part.parents:
                    each.part.rename(place)
                    continue
                try:
                    place.hardlink_to(each.part)
                except OSError:
                    shutil.copyfile(each.part, place)
            except OSError as error:
                raise storage_error(place, error) from None
            if name in known:
                kept[name] = known[name]
        return kept

    def _checksums(self, known: dict[str, layout.FileEntry]) -> dict[str, layout.FileEntry]:
        paths = sorted(path for path in self._root.rglob("*") if path.is_file())
        entries = dict(known)
        paths = [path for path in paths if str(path.relative_to(self._root)) not in known]
        done = run_all(self._executor, layout.block_checksums, paths)
        for count, (number, future) in enumerate(done, start=1):
            entries[str(paths[number].relative_to(self._root))] = future.result()
            self._progress("checksums", count, len(paths))
        return entries


# --- tasks, run in workers ---


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A tree to unite; a part's with a module map, for it still has its measurement's ids."""

    path: Path
    module_map: U32 | None


def _scan_of(place: Path) -> Scan:
    return read_scan(Part(place))


def _unite_task(task: tuple[Sequence[_Leaf], Path]) -> None:
    leaves, out = task
    trees = [
        load_canonical(leaf.path)
        if leaf.module_map is None
        else translate(load_tree(leaf.path), leaf.module_map)
        for leaf in leaves
    ]
    try:
        save_canonical(out, union(trees)[0])
    except OSError as error:
        raise storage_error(out, error) from None


# --- what the measurements have in common ---


def _measurement_key(each: Scan) -> tuple[object, ...]:
    """An order of measurements that depends on what they are alone."""
    return (each.node.hostname, each.node.boot_id, each.window_ns[0], each.id, each.path.name)


def _rows_by_measurement(order: LineOrder, measurements: int) -> list[I64]:
    """The trace lines of each measurement, in the order its part has them."""
    ranked = np.lexsort((order.source, order.measurement))
    bounds = np.searchsorted(order.measurement[ranked], np.arange(1, measurements))
    return np.split(ranked, bounds)


def _unite_events(scans: Sequence[Scan]) -> tuple[list[Event], list[U16]]:
    """The events of the database (ids from 0) and, per measurement, its ids' new ones."""
    known = {_event_key(e): e for each in scans for e in each.events.values()}
    events = [
        replace(e, id=number)
        for number, (_, e) in enumerate(sorted(known.items(), key=lambda item: item[0]))
    ]
    ids = {_event_key(e): e.id for e in events}
    lost = {code for each in scans for code in each.events_used if code not in each.events}
    if lost:
        # Records of an event whose announcement was lost still count as samples.
        events.append(Event(len(events), "unknown", "", 0.0, ""))
    maps = []
    for each in scans:
        codes = max([*each.events, *each.events_used], default=0)  # at most 16 bits, as scanned
        table = np.full(codes + 1, max(len(events) - 1, 0), np.uint16)
        for e in each.events.values():
            table[e.id] = ids[_event_key(e)]
        maps.append(table)
    return events, maps


def _event_key(event: Event) -> tuple[object, ...]:
    return (event.metric, event.name, event.unit, event.scale, event.frequency, event.interval)


def _line_columns(
    scans: Sequence[Scan],
    order: LineOrder,
    rows: Sequence[I64],
    processes: Sequence[tuple[int, Process]],
    timeline: Timeline,
) -> LineColumns:
    count = len(order.source)
    start, end, records = (np.zeros(count, np.int64) for _ in range(3))
    tid = np.zeros(count, np.int64)
    for number, (each, mine) in enumerate(zip(scans, rows, strict=True)):
        opened, closed = each.window_ns
        threads = [each.threads.get(n) or unknown_thread(n) for n in each.lines.tolist()]
        born = np.array([thread.start_ns for thread in threads], np.int64)
        died = np.array([closed if t.end_ns is None else t.end_ns for t in threads], np.int64)
        # A line is what was watched of its thread; its own records prove that it was there.
        born, died = np.clip(born, opened, closed), np.clip(died, opened, closed)
        seen = each.counts > 0
        born[seen] = np.minimum(born, each.first_ns)[seen]
        died[seen] = np.maximum(died, each.last_ns)[seen]
        shift = timeline.offsets[number] - timeline.origin_ns
        start[mine], end[mine] = born + shift, np.maximum(born, died) + shift
        records[mine] = each.counts
        tid[mine] = [thread.tid for thread in threads]
    ranks = [NO_RANK if p.rank is None else p.rank for _, p in processes]
    pids = np.array([p.pid for _, p in processes], np.int64)
    return LineColumns(
        start=start,
        end=end,
        first=np.concatenate(([0], np.cumsum(records))).astype(np.int64),
        rank=np.array(ranks, np.int32)[order.process],
        process=order.process,
        pid=pids[order.process],
        tid=tid,
    )


def _size(path: Path) -> int:
    with contextlib.suppress(OSError):
        return measurement_size(path)
    return 0


def _workers(paths: Sequence[Path], workers: int | None) -> int | None:
    """Small inputs are merged in this process: starting workers would take longer."""
    if workers is not None:
        return workers
    return 1 if sum(_size(path) for path in paths) < 16 << 20 else None
