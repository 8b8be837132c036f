"""Merging measurements into a database.

Four stages, each a set of independent tasks on an :class:`concurrent.futures.Executor`:

1. *scan* every measurement: identities, tree, extent of the records;
2. *unite* the trees pairwise into the canonical calling context tree (ICS 2011, section 4);
3. *relabel*: stream every measurement's records to their place under their canonical ids;
4. *symbols*: name the addresses of every load module.

The result is written beside its place and renamed, so a database exists whole or not at all, and
it depends on the measurements alone: not on their order, the engine, or the number of workers.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hpcd.analysis import layout
from hpcd.analysis.columns import save_column, storage_error
from hpcd.analysis.engine import local_executor, run_all
from hpcd.analysis.lines import (
    NO_RANK,
    LineColumns,
    LineOrder,
    order_lines,
    unknown_thread,
)
from hpcd.analysis.metrics import write_metrics
from hpcd.analysis.modules import CanonicalModule, translate, unite_modules
from hpcd.analysis.naming import NamedTree, name_tree
from hpcd.analysis.relabel import RelabelTask, relabel
from hpcd.analysis.scan import Scan, load_tree, save_tree, scan
from hpcd.analysis.schema import write_tables
from hpcd.analysis.sparse import Cells, add_cells
from hpcd.analysis.tables import Contents, Timeline
from hpcd.analysis.trace import create_trace
from hpcd.analysis.union import union
from hpcd.errors import FormatError, HpcdError, NotFoundError, StorageError, UsageError
from hpcd.model.cct import CCT
from hpcd.model.identity import Event, Process

U16 = npt.NDArray[np.uint16]
U32 = npt.NDArray[np.uint32]

Progress = Callable[[str, int, int], None]
"""Called with the stage, how much of it is done, and how much there is."""

# Trees united by one task. Two would halve the work of each step and double their number; with
# alike trees, as ranks of one program have, the total work is less the more are united at once.
_FAN_IN = 4


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
    progress: Progress | None = None,
    force: bool = False,
) -> MergeResult:
    """Merge the measurements ``paths`` into the database ``out``.

    ``executor`` runs the tasks and stays open; without one, ``workers`` local processes do.
    Inputs that are no measurements are refused by name and the rest is merged.

    Raises :class:`StorageError` when ``out`` exists (unless ``force``: then a database there is
    replaced at the end) or cannot be written, :class:`FormatError` when nothing is left to merge.
    """
    if not paths:
        raise UsageError("nothing to merge")
    _check_output(out, force=force)
    report = progress or (lambda stage, done, total: None)
    try:
        work = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".merging", dir=out.parent))
    except OSError as error:
        raise storage_error(out.parent, error) from None
    try:
        with contextlib.ExitStack() as stack:
            if executor is None:
                executor = stack.enter_context(local_executor(_workers(paths, workers)))
            result = _Merge(paths, work, executor, report).run()
        _put_in_place(work / "database", out)
        result.database = out
        return result
    finally:
        shutil.rmtree(work, ignore_errors=True)


class _Merge:
    """One merge under way: its work directory, and what the stages found so far."""

    def __init__(
        self, paths: Sequence[Path], work: Path, executor: Executor, progress: Progress
    ) -> None:
        self._paths = paths
        self._work = work
        self._root = work / "database"
        self._executor = executor
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
        scans = self._scan()
        modules, module_maps = unite_modules(
            [each.modules for each in scans],
            [each.node for each in scans],
            [each.id for each in scans],
        )
        tree, tree_path = self._unite(scans, module_maps)
        events, event_maps = _unite_events(scans)
        timeline = Timeline.of(scans)
        order, processes = order_lines(scans)
        columns = _line_columns(scans, order, processes, timeline)
        columns.save(self._root / "lines")
        cells = self._relabel(
            scans, module_maps, tree_path, event_maps, len(events), timeline, order, columns
        )
        named = self._name(scans, modules, tree)
        save_column(self._root / "cct" / "parent.npy", tree.parent)
        save_column(self._root / "cct" / "frame.npy", tree.frame)
        save_column(self._root / "cct" / "procedure.npy", named.procedure_of_node)
        count, node_totals, line_totals = write_metrics(
            self._root / "metrics", cells, events, len(columns.start), len(tree)
        )
        self._progress("tables", 0, 1)
        contents = Contents(
            scans, modules, tree, named, events, timeline, order, processes, columns
        )
        write_tables(self._root / layout.SQLITE, contents.tables(node_totals, line_totals))
        self._progress("tables", 1, 1)
        result.measurements = len(scans)
        result.lines = len(columns.start)
        result.records = int(columns.first[-1])
        result.nodes = len(tree)
        result.source_nodes = sum(each.nodes for each in scans)
        result.procedures = len(named.procedures)
        result.notes += named.notes
        facts = {
            "lines": result.lines,
            "records": result.records,
            "nodes": result.nodes,
            "procedures": result.procedures,
            "cells": count,
            "origin_ns": timeline.origin_ns,
            "duration_ns": int(columns.end.max(initial=0)),
        }
        files = self._checksums()
        layout.write_manifest(self._root, facts, files)
        result.bytes = sum(entry.bytes for entry in files.values())
        return result

    # --- stages ---

    def _scan(self) -> list[Scan]:
        """Stage 1; measurements in an order of their own, whatever order they were given in."""
        paths = list(dict.fromkeys(path.absolute() for path in self._paths))
        tasks = [(path, self._work / f"scan-{number}") for number, path in enumerate(paths)]
        found: list[tuple[int, Scan]] = []
        refused: list[tuple[int, str]] = []
        errors: list[HpcdError] = []
        for done, (number, future) in enumerate(run_all(self._executor, _scan_task, tasks), 1):
            try:
                found.append((number, future.result()))
            except (FormatError, NotFoundError) as error:
                refused.append((number, str(error)))
                errors.append(error)
            self._progress("scan", done, len(tasks))
        found.sort(key=lambda item: _measurement_key(item[1]))
        scans: list[Scan] = []
        for number, each in found:
            if scans and scans[-1].id == each.id:
                refused.append((number, f"{each.path}: the same measurement as {scans[-1].path}"))
                continue
            scans.append(each)
        self._result.refused = [(str(paths[number]), why) for number, why in sorted(refused)]
        if not scans:
            if len(refused) == 1:
                raise errors[0]
            raise FormatError(
                f"none of {len(paths)} inputs is a measurement: "
                + "; ".join(str(error) for error in errors)
            )
        for each in scans:
            self._result.damaged += [(str(each.path), what) for what in each.damage]
            if not each.closed:
                self._result.notes.append(f"{each.path}: not closed, merged as far as it goes")
        return scans

    def _unite(self, scans: Sequence[Scan], module_maps: Sequence[U32]) -> tuple[CCT, Path]:
        """Stage 2: reduce the trees to one. The path is where workers find it."""
        waiting = [
            _Leaf(each.tree, module_map)
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
                return load_tree(waiting[0].path), waiting[0].path

    def _relabel(
        self,
        scans: Sequence[Scan],
        module_maps: Sequence[U32],
        tree: Path,
        event_maps: Sequence[U16],
        events: int,
        timeline: Timeline,
        order: LineOrder,
        columns: LineColumns,
    ) -> Cells:
        """Stage 3: write the trace; returns the sums per line, node and event."""
        has_event = events > 1
        has_value = any(each.value_min != 1 or each.value_max != 1 for each in scans)
        records = int(columns.first[-1])
        trace = self._root / "trace"
        create_trace(trace, records, has_event=has_event, has_value=has_value)
        tasks = []
        for number, each in enumerate(scans):
            mine = np.flatnonzero(order.measurement == number)
            ids = mine[np.argsort(order.source[mine])]
            tasks.append(
                RelabelTask(
                    path=each.path,
                    tree=each.tree,
                    module_map=module_maps[number],
                    canonical=tree,
                    chunks=each.chunks,
                    lines=each.lines,
                    line_ids=ids.astype(np.uint32),
                    rows=columns.first[ids],
                    counts=each.counts,
                    offset_ns=timeline.offsets[number] - timeline.origin_ns,
                    event_map=event_maps[number],
                    trace=trace,
                    has_event=has_event,
                    has_value=has_value,
                    cells=self._work / f"cells-{number}.npz",
                )
            )
        # The biggest first, so that no worker is left with it at the end.
        tasks.sort(key=lambda task: -int(task.counts.sum()))
        done = 0
        for _, future in run_all(self._executor, relabel, tasks):
            done += future.result()
            self._progress("relabel", done, records)
        return add_cells([_load_cells(task.cells) for task in tasks])

    def _name(
        self, scans: Sequence[Scan], modules: Sequence[CanonicalModule], tree: CCT
    ) -> NamedTree:
        """Stage 4: procedures for all frames."""
        tables = [
            next((scans[m].symbols[i] for m, i in module.sources if i in scans[m].symbols), None)
            for module in modules
        ]
        return name_tree(
            self._executor, modules, tables, tree,
            lambda done, total: self._progress("symbols", done, total),
        )  # fmt: skip

    def _checksums(self) -> dict[str, layout.FileEntry]:
        paths = sorted(path for path in self._root.rglob("*") if path.is_file())
        entries = {}
        done = run_all(self._executor, layout.block_checksums, paths)
        for count, (number, future) in enumerate(done, start=1):
            entries[str(paths[number].relative_to(self._root))] = future.result()
            self._progress("checksums", count, len(paths))
        return entries


# --- tasks, run in workers ---


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A tree to unite; with a module map if it still has its measurement's module ids."""

    path: Path
    module_map: U32 | None


def _scan_task(task: tuple[Path, Path]) -> Scan:
    try:
        return scan(*task)
    except OSError as error:
        raise NotFoundError(f"{task[0]}: {error.strerror or error}") from None


def _unite_task(task: tuple[Sequence[_Leaf], Path]) -> None:
    leaves, out = task
    trees = [
        load_tree(leaf.path)
        if leaf.module_map is None
        else translate(load_tree(leaf.path), leaf.module_map)
        for leaf in leaves
    ]
    try:
        save_tree(out, union(trees)[0])
    except OSError as error:
        raise storage_error(out, error) from None


def _load_cells(path: Path) -> Cells:
    with np.load(path, allow_pickle=False) as arrays:
        return Cells(*(arrays[name] for name in ("line", "node", "event", "records", "value")))


# --- what the measurements have in common ---


def _measurement_key(each: Scan) -> tuple[object, ...]:
    """An order of measurements that depends on what they are alone."""
    return (each.node.hostname, each.node.boot_id, each.window_ns[0], each.id, str(each.path))


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
    processes: Sequence[tuple[int, Process]],
    timeline: Timeline,
) -> LineColumns:
    count = len(order.source)
    start, end, records = (np.zeros(count, np.int64) for _ in range(3))
    tid = np.zeros(count, np.int64)
    for number, each in enumerate(scans):
        mine = np.flatnonzero(order.measurement == number)
        mine = mine[np.argsort(order.source[mine])]
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


# --- the output's place ---


def _check_output(out: Path, *, force: bool) -> None:
    if not out.parent.is_dir():
        raise StorageError(f"{out.parent}: no such directory")
    if not out.exists() and not out.is_symlink():
        return
    if not force:
        raise StorageError(f"{out} exists already; choose another name or give --force")
    if not layout.is_database(out):
        # --force replaces results, never somebody's files.
        raise StorageError(f"{out} is not an hpcd database; it is not replaced")


def _put_in_place(made: Path, out: Path) -> None:
    """Make the finished database appear under its name, at once."""
    try:
        # As private as the measurements: command lines and paths are in it.
        made.chmod(0o700)
        for path in made.rglob("*"):
            with path.open("rb") if path.is_file() else contextlib.nullcontext() as file:
                if file is not None:
                    os.fsync(file.fileno())
        retired = made.parent / "replaced"
        if out.exists():
            out.rename(retired)
        try:
            made.rename(out)
        except OSError:
            if retired.exists():
                retired.rename(out)
            raise
        folder = os.open(out.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise storage_error(out, error) from None


def _workers(paths: Sequence[Path], workers: int | None) -> int | None:
    """Small inputs are merged in this process: starting workers would take longer."""
    if workers is not None:
        return workers
    size = 0
    for path in paths:
        with contextlib.suppress(OSError):
            size += sum(file.stat().st_size for file in path.glob("segment-*.hpcd"))
    return 1 if size < 16 << 20 else None
