"""Merging measurements into a database.

Stages, each a set of independent tasks on an :class:`concurrent.futures.Executor`:

1. *read*: every measurement becomes a part of the database (:mod:`hpcd.analysis.merge.ingest`),
   the only
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
import os
import shutil
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from hpcd.analysis.arrays.column_files import save_column, storage_error
from hpcd.analysis.database import directory as layout
from hpcd.analysis.merge.atomic_output import (
    check_output,
    put_in_place,
    remove_beside,
    work_directory,
)
from hpcd.analysis.merge.call_columns import CallSource, CallTables, unite_calls
from hpcd.analysis.merge.canonical_modules import CanonicalModule, translate, unite_modules
from hpcd.analysis.merge.canonical_tree import load_canonical, save_canonical
from hpcd.analysis.merge.context_statistics import (
    ContextStatistics,
    line_extremes,
    united_statistics,
)
from hpcd.analysis.merge.earlier_database import EarlierDatabase, EarlierPart
from hpcd.analysis.merge.executors import (
    DEFAULT_MEMORY,
    in_order,
    local_executor,
    run_all,
    size_of,
    together,
    workers_for,
)
from hpcd.analysis.merge.ingest import (
    IngestTask,
    ingest_several,
    join_shares,
    part_name,
    progress_of,
)
from hpcd.analysis.merge.line_order import (
    NO_NUMBER,
    LineOrder,
    ProcessTable,
    ThreadTable,
    order_lines,
)
from hpcd.analysis.merge.metric_cells import (
    CellTask,
    metric_scales,
    place_cells,
    place_nodes,
    translate_cells,
)
from hpcd.analysis.merge.module_names import close_readers
from hpcd.analysis.merge.node_names import NamedTree, name_tree, prepare
from hpcd.analysis.merge.part_groups import GroupTask, unite_parts
from hpcd.analysis.merge.prefetch import Prefetch, Stretch
from hpcd.analysis.merge.shared_companions import (
    SharedPart,
    forget_shared,
    locate_shared,
    shared_tasks,
    unite_shared,
)
from hpcd.analysis.merge.shares import ReadShare, Share, divide
from hpcd.analysis.merge.sqlite_writer import TableWriter
from hpcd.analysis.merge.table_rows import ClockOffsets, DatabaseContents
from hpcd.analysis.merge.united_symbols import (
    SymbolUnion,
    choose,
    table_of,
    unite_symbols,
    united_modules,
)
from hpcd.analysis.trace.part import Part
from hpcd.analysis.trace.part_contents import PartContents, read_contents, windows_of
from hpcd.analysis.trace.shared_companion import members_in
from hpcd.analysis.trace.trace_lines import NO_RANK, LineColumns
from hpcd.array_types import F64, I64, U16, U32
from hpcd.errors import FormatError, HpcdError, UsageError
from hpcd.garbage import fewer_collections
from hpcd.model.cct import CCT
from hpcd.model.cct_union import locate, union
from hpcd.model.identity import Event

Progress = Callable[[str, int, int], None]
"""Called with the stage, how much of it is done, and how much there is (``read``: bytes)."""

# Measurements that one task reads, in bytes: short ones are read together.
_READ_BYTES = 8 << 20
# Files whose checksums one task makes, in bytes.
_CHECK_BYTES = 16 << 20
# Nodes and records of measurements whose parts one task unites and adds up.
_GROUP_SIZE = 1 << 20
# Trees united by one task. Two would halve the work of each step and double their number; with
# alike trees, as ranks of one program have, the total work is less the more are united at once.
_FAN_IN = 4
_SHOW_SECONDS = 0.25
# Of inputs that are no measurements, where none is one.
_SHOW_ERRORS = 8


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
    with work_directory(out) as work, contextlib.ExitStack() as stack:
        local = executor is None
        if executor is None:
            executor = stack.enter_context(local_executor(workers_for(paths, workers)))
        old = out if add and out.exists() else None
        stack.callback(close_readers)
        stack.callback(forget_shared)
        stack.enter_context(fewer_collections())
        result = _Merge(paths, work, old, executor, memory, report, local=local).run()
        # First, or it would be written to the disk with the database.
        remove_beside(work / "database")
        put_in_place(work / "database", out, sync=sync)
    result.database = out
    return result


class _Merge:
    """One merge under way: its work directory, and what the stages found so far."""

    def __init__(
        self, paths: Sequence[Path], work: Path, old: Path | None, executor: Executor,
        memory: int, progress: Progress, *, local: bool,
    ) -> None:  # fmt: skip
        self._paths = list(dict.fromkeys(path.absolute() for path in paths))
        self._work = work
        self._root = work / "database"
        self._old = old
        self._executor = executor
        self._memory = memory
        self._progress = progress
        # Whether the workers read from this machine's memory what is read ahead.
        self._local = local
        self._result = MergeResult(self._root)
        self._groups: list[_Group] = []
        self._shared: dict[int, SharedPart] = {}
        self._earlier: EarlierDatabase | None = None

    def run(self) -> MergeResult:
        """All stages, in order."""
        result = self._result
        try:
            for folder in layout.FOLDERS:
                (self._root / folder).mkdir(parents=True)
        except OSError as error:
            raise storage_error(self._root, error) from None
        measurements = self._read()
        modules, module_maps = unite_modules(
            [contents.modules for contents in measurements],
            [contents.host for contents in measurements],
            [contents.id for contents in measurements],
        )
        prepare(self._executor, modules)
        earlier = self._kept(measurements, module_maps)
        tree, tree_path = self._unite(measurements, modules, module_maps, earlier)
        events, event_maps = _unite_events(measurements)
        windows = windows_of(measurements)
        clock = ClockOffsets.of(measurements, windows)
        order, processes, threads = order_lines(measurements)
        rows = _rows_by_measurement(order, len(measurements))
        columns = _line_columns(measurements, order, rows, processes, threads, clock, windows)
        columns.save(self._root / "lines")
        database = DatabaseContents(
            measurements, modules, events, clock, order, processes, threads, columns, windows
        )
        # The rows of who was measured are as many as there are lines: workers add up meanwhile.
        with TableWriter(self._root / layout.SQLITE, len(metric_scales(events))) as tables:
            tables.add(database.measured())
            node_totals, line_totals, cells = self._sum(
                measurements, tree, tree_path, events, event_maps, rows, earlier
            )
            tables.add(database.line_totals(line_totals))
            self._map_trace(event_maps, clock, order, rows)
            calls = self._unite_calls(measurements, clock, rows, len(order.source))
            named = self._name(modules, tree)
            save_column(self._root / "cct" / "parent.npy", tree.parent)
            save_column(self._root / "cct" / "frame.npy", tree.frame)
            save_column(self._root / "cct" / "procedure.npy", named.procedure_of_node)
            save_column(self._root / "cct" / "scope.npy", named.scope_of_node)
            self._progress("tables", 0, 1)
            inclusives = [tree.inclusive(exclusive) for exclusive in node_totals]
            statistics = self._statistics(tree_path, inclusives, cells)
            tables.add(database.contexts(
                tree, named, node_totals, inclusives, statistics, calls
            ))  # fmt: skip
            tables.finish()
        self._progress("tables", 1, 1)
        result.measurements = len(measurements)
        result.lines = len(columns.start)
        # Metric 0 counts records, and of an interval not the entry at its end.
        result.records = int(node_totals[0].sum())
        result.nodes = len(tree)
        result.source_nodes = sum(contents.nodes for contents in measurements)
        result.procedures = len(named.procedures)
        result.notes += named.notes
        facts = {
            "measurements": len(measurements),
            "lines": result.lines,
            "records": int(columns.first[-1]),
            "nodes": result.nodes,
            "procedures": result.procedures,
            "cells": cells,
            "origin_ns": clock.origin_ns,
            "duration_ns": int(columns.end.max(initial=0)),
            **({"calls": calls.calls} if calls else {}),
        }
        files = self._checksums(self._place_parts(measurements))
        layout.write_manifest(self._root, facts, files)
        result.bytes = sum(entry.bytes for entry in files.values())
        return result

    # --- stages ---

    def _read(self) -> list[PartContents]:
        """Stage 1; measurements in an order of their own, whatever order they were given in."""
        parts = self._work / "parts"
        parts.mkdir(exist_ok=True)
        old_parts = self._old_parts()
        earlier = {contents.id: contents for contents in old_parts}
        if self._old is not None:
            self._earlier = EarlierDatabase(self._old, old_parts)
        ingested: list[tuple[int, PartContents]] = []
        refused: list[tuple[int, str]] = []
        errors: list[HpcdError] = []
        sizes = [size_of(path) for path in self._paths]
        existing = self._old and self._old / "trace"
        members = members_in(parts)
        new = not any(parts.iterdir())
        units = [
            (number, share)
            for number, size in enumerate(sizes)
            for share in divide(size) or (None,)
        ]
        unit_sizes = [share.bytes if share else sizes[number] for number, share in units]
        groups = together(unit_sizes, _READ_BYTES)
        tasks = [
            [
                IngestTask(self._paths[number], parts, existing, self._memory, share, new=new)
                for number, share in (units[at] for at in group)
            ]
            for group in groups
        ]
        if members:
            tasks = [
                [replace(task, members=members.get(f"{task.name}.part", {})) for task in group]
                for group in tasks
            ]
        done, total = 0, max(sum(sizes), 1)
        ahead = Prefetch(
            _stretch(self._paths[number], share, sizes[number])
            for group in groups
            for number, share in (units[at] for at in group)
            if self._local
        )
        ahead.keep_up(0)
        shown = 0.0
        joined: dict[int, list[IngestTask]] = {}
        settled: set[int] = set()

        def show() -> None:
            nonlocal shown
            # Looking at the workers' files for each of many small measurements takes longer than
            # reading these.
            if time.monotonic() - shown > _SHOW_SECONDS:
                self._progress("read", min(done + progress_of(parts), total), total)
                shown = time.monotonic()

        def take(number: int, answer: PartContents | HpcdError) -> None:
            if isinstance(answer, HpcdError):
                refused.append((number, str(answer)))
                errors.append(answer)
            else:
                ingested.append((number, answer))

        for at, future in run_all(self._executor, ingest_several, tasks, show):
            for task, unit, answer in zip(tasks[at], groups[at], future.result(), strict=True):
                number = units[unit][0]
                done += unit_sizes[unit]
                if isinstance(answer, ReadShare):
                    joined.setdefault(number, []).append(task)
                elif number not in settled:
                    # One share that cannot be read is enough, as is a part that is there.
                    settled.add(number)
                    take(number, answer)
            ahead.keep_up(done)
            show()
        whole = sorted(joined.keys() - settled)
        shares = [joined[number] for number in whole]
        for at, made in run_all(self._executor, join_shares, shares, show):
            take(whole[at], made.result())
        self._progress("read", total, total)
        measurements = self._distinct(ingested, refused, earlier)
        self._result.refused = [(str(self._paths[number]), why) for number, why in sorted(refused)]
        if not measurements:
            if len(refused) == 1:
                raise errors[0]
            raise FormatError(
                f"none of {len(self._paths)} inputs is a measurement: "
                + "; ".join(str(error) for error in errors[:_SHOW_ERRORS])
                + (f"; and {len(errors) - _SHOW_ERRORS} more" * (len(errors) > _SHOW_ERRORS))
            )
        for contents in measurements:
            self._result.damaged += [(str(contents.path), what) for what in contents.damage]
            if not contents.closed:
                self._result.notes.append(f"{contents.path}: not closed, merged as far as it goes")
            origin = contents.options.get("imported")
            if isinstance(origin, dict) and origin.get("times") == "synthetic":
                self._result.notes.append(f"{contents.path}: imported, its times are synthetic")
        return measurements

    def _old_parts(self) -> list[PartContents]:
        """What is in the database already that is added to."""
        if self._old is None:
            return []
        # One of another version cannot be added to: what is in it would be lost.
        manifest = layout.read_manifest(self._old)
        places = sorted((self._old / "trace").glob("*.part"))
        if len(places) != manifest.get("measurements"):
            raise FormatError(f"{self._old}: parts of measurements are missing")
        answers = run_all(self._executor, _read_part, places)
        return [future.result() for _, future in answers]

    def _distinct(
        self, ingested: list[tuple[int, PartContents]], refused: list[tuple[int, str]],
        earlier: dict[int, PartContents],
    ) -> list[PartContents]:  # fmt: skip
        """Every measurement once, in order; of one that has grown, what there is now."""
        new: dict[int, PartContents] = {}
        for number, contents in (ingested[at] for at in _ranked([each for _, each in ingested])):
            if contents.id in new:
                why = f"{contents.path}: the same measurement as {new[contents.id].path}"
                refused.append((number, why))
                continue
            if contents.id in earlier and earlier[contents.id].part == contents.part:
                self._result.notes.append(f"{contents.path}: already in the database")
            new[contents.id] = contents
        if not earlier:  # they are in order
            return list(new.values())
        every = list((earlier | new).values())
        return [every[at] for at in _ranked(every)]

    def _kept(
        self, measurements: Sequence[PartContents], module_maps: Sequence[U32]
    ) -> _Kept | None:
        """What the database that is added to has of the measurements whose parts are kept."""
        chosen = [n for n, contents in enumerate(measurements) if contents.united]
        if self._earlier is None or not chosen:
            return None
        database = self._earlier
        modules = database.modules([(measurements[n].id, module_maps[n]) for n in chosen])
        tree, nodes = database.tree([measurements[n].id for n in chosen])
        path = self._work / "earlier.npz"
        try:
            save_canonical(path, translate(tree, modules))
        except OSError as error:
            raise storage_error(path, error) from None
        number = {contents.id: n for n, contents in enumerate(measurements)}
        owners, recorded = table_of(database.root / layout.SYMBOLS)
        new = modules.tolist()
        return _Kept(
            database, path, nodes, self._work / "earlier-nodes.npy",
            {old: new[old] for old in recorded if old < len(new) and new[old]},
            {new[old]: number[uid] for old, uid in owners.items()
             if uid in number and measurements[number[uid]].united},
        )  # fmt: skip

    def _unite(
        self, measurements: Sequence[PartContents], modules: Sequence[CanonicalModule],
        module_maps: Sequence[U32], kept: _Kept | None,
    ) -> tuple[CCT, Path]:  # fmt: skip
        """Stage 2: reduce the trees to one, and symbols likewise. The path is where workers find
        it."""
        sizes = [contents.nodes + contents.records for contents in measurements]
        self._groups = [
            _Group(tuple(members), self._work / f"group-{number}.npz",
                   self._work / f"cells-{number}.npz", self._work / f"symbols-{number}")
            for number, members in enumerate(in_order(sizes, _GROUP_SIZE))
        ]  # fmt: skip
        wanted, owners = choose(
            modules, module_maps, [contents.symbols for contents in measurements],
            [contents.id for contents in measurements], kept.owners if kept else {},
        )  # fmt: skip
        total, done, step = len(measurements), 0, 0
        shared, self._shared = shared_tasks(measurements, module_maps, wanted, self._work)
        for number, future in run_all(self._executor, unite_shared, shared):
            future.result()
            done += sum(len(each.members) for each in shared[number].companions) - 1
            self._progress("unite", done, max(total - 1, 1))
        groups = [
            GroupTask(tuple(measurements[n].part if self._own(measurements[n]) else None
                            for n in group.members),
                      tuple(module_maps[n] for n in group.members), group.tree,
                      tuple(wanted[n] for n in group.members), group.symbols)
            for group in self._groups if self._has_own(group, measurements)
        ]  # fmt: skip
        for number, future in run_all(self._executor, unite_parts, groups):
            future.result()
            done += sum(part is not None for part in groups[number].parts) - 1
            self._progress("unite", done, max(total - 1, 1))
        symbols = SymbolUnion(
            (*(task.symbols_out for task in shared),
             *(task.symbols_out for task in groups if task.symbols_out)),
            kept.database.root / layout.SYMBOLS if kept else None, kept.modules if kept else {},
            united_modules(modules), owners, self._root / layout.SYMBOLS,
        )  # fmt: skip
        for _, future in run_all(self._executor, unite_symbols, [symbols]):
            future.result()
        waiting = [task.out for task in shared] + [task.out for task in groups]
        waiting += [kept.tree] if kept else []
        while len(waiting) > 1:
            tasks = [
                (waiting[at : at + _FAN_IN], self._work / f"union-{step}-{at}.npz")
                for at in range(0, len(waiting), _FAN_IN)
            ]
            for number, future in run_all(self._executor, _unite_task, tasks):
                future.result()
                done += len(tasks[number][0]) - 1
                self._progress("unite", done, max(total - 1, 1))
            waiting = [path for _, path in tasks]
            step += 1
        tree = load_canonical(waiting[0])
        if kept is not None:
            # Nodes that no part which is kept has are nobody's.
            nodes = np.zeros(kept.nodes_of_all, np.uint32)
            nodes[kept.nodes] = locate(tree, load_canonical(kept.tree))
            save_column(kept.located, nodes)
        located = [(task, waiting[0]) for task in shared]
        for _, future in run_all(self._executor, locate_shared, located):
            future.result()
        return tree, waiting[0]

    def _own(self, contents: PartContents) -> bool:
        """Whether the part of a measurement has a companion of its own."""
        return not contents.united and contents.member is None

    def _has_own(self, group: _Group, measurements: Sequence[PartContents]) -> bool:
        return any(self._own(measurements[number]) for number in group.members)

    def _sum(
        self, measurements: Sequence[PartContents], tree: CCT, tree_path: Path,
        events: Sequence[Event], event_maps: Sequence[U16], rows: Sequence[I64],
        kept: _Kept | None,
    ) -> tuple[list[F64], list[F64], int]:  # fmt: skip
        """Stage 3: metrics by line and by context; totals per metric of nodes and of lines."""
        scale = metric_scales(events)

        def part(number: int) -> Path | EarlierPart | SharedPart:
            contents = measurements[number]
            if contents.member is not None:
                return self._shared[number]
            return kept.part(contents) if kept and contents.united else contents.part

        tasks = [
            CellTask(tuple(part(n) for n in group.members),
                     tuple(len(rows[n]) for n in group.members),
                     tuple(event_maps[n] for n in group.members),
                     tuple(measurements[n].call_chunks > 0 for n in group.members),
                     group.tree if self._has_own(group, measurements) else None, tree_path,
                     scale, group.cells)
            for group in self._groups
        ]  # fmt: skip
        cells = 0
        for done, (_, future) in enumerate(
            run_all(self._executor, translate_cells, tasks), start=1
        ):
            cells += future.result()
            self._progress("sums", done, len(tasks) + 1)
        sequence = [np.concatenate([rows[n] for n in group.members]) for group in self._groups]
        works = [group.cells for group in self._groups]
        totals = place_cells(works, sequence, self._root / "metrics", scale, len(tree))
        self._progress("sums", len(tasks) + 1, len(tasks) + 1)
        return *totals, cells

    def _nodes(self, chosen: Collection[int]) -> dict[int, U32]:
        """Of the measurements ``chosen`` what the nodes of their trees are in the database."""
        nodes: dict[int, U32] = {}
        for group in self._groups:
            mine = [at for at, number in enumerate(group.members) if number in chosen]
            if mine:
                with np.load(group.cells, allow_pickle=False) as arrays:
                    nodes |= {group.members[at]: arrays[f"nodes-{at}"] for at in mine}
        return nodes

    def _map_trace(
        self, event_maps: Sequence[U16], clock: ClockOffsets, order: LineOrder, rows: Sequence[I64]
    ) -> None:
        """Say what the numbers in the parts mean here."""
        folder = self._root / "trace"
        place_nodes([group.cells for group in self._groups], folder)
        save_column(folder / "event.npy", np.concatenate(event_maps).astype(np.uint16))
        bounds = np.concatenate(([0], np.cumsum([len(table) for table in event_maps])))
        save_column(folder / "event_start.npy", bounds.astype(np.int64))
        shift = np.array(clock.offsets, np.int64) - clock.origin_ns
        save_column(folder / "shift.npy", shift)
        row = np.zeros(len(order.source), np.uint32)
        for mine in rows:
            row[mine] = np.arange(len(mine))
        save_column(folder / "part.npy", order.measurement)
        save_column(folder / "row.npy", row)

    def _unite_calls(
        self, measurements: Sequence[PartContents], clock: ClockOffsets, rows: Sequence[I64],
        lines: int,
    ) -> CallTables | None:  # fmt: skip
        """The columns of recorded calls, where there are any."""
        nodes = self._nodes({n for n, each in enumerate(measurements) if each.call_chunks})
        none = np.zeros(0, np.uint32)
        sources = [
            CallSource(contents, rows[number], nodes.get(number, none),
                       clock.offsets[number] - clock.origin_ns)
            for number, contents in enumerate(measurements)
        ]  # fmt: skip
        return unite_calls(sources, lines, self._root / layout.CALLS)

    def _name(self, modules: Sequence[CanonicalModule], tree: CCT) -> NamedTree:
        """Stage 4: procedures for all frames."""
        store = self._root / layout.SYMBOLS
        return name_tree(
            self._executor, modules, store, table_of(store)[1], tree,
            lambda done, total: self._progress("symbols", done, total),
        )  # fmt: skip

    def _statistics(
        self, tree: Path, inclusives: Sequence[F64], cells: int
    ) -> list[ContextStatistics]:
        """Of every metric, how it is spread over lines."""
        return united_statistics(
            self._root / "metrics", tree, inclusives, cells,
            lambda tasks: (
                (number, future.result())
                for number, future in run_all(self._executor, line_extremes, tasks)
            ),
        )  # fmt: skip

    def _place_parts(self, measurements: Sequence[PartContents]) -> dict[str, layout.FileEntry]:
        """Put the parts into the database; the checksums that are known of them.

        Those of the old one never change: both databases may have the same file.
        """
        checked: dict[str, layout.FileEntry] = {}
        if self._old is not None:
            checked = layout.manifest_files(self._old, layout.read_manifest(self._old))
        kept = {}
        work = f"{self._work}{os.sep}"
        for contents in measurements:
            name = f"trace/{part_name(contents.id)}"
            place = self._root / name
            try:
                if str(contents.part).startswith(work):
                    contents.part.rename(place)
                    if contents.checksums:
                        kept[name] = layout.FileEntry(place.stat().st_size, contents.checksums)
                    continue
                try:
                    place.hardlink_to(contents.part)
                except OSError:
                    shutil.copyfile(contents.part, place)
            except OSError as error:
                raise storage_error(place, error) from None
            if name in checked:
                kept[name] = checked[name]
        return kept

    def _checksums(self, checked: dict[str, layout.FileEntry]) -> dict[str, layout.FileEntry]:
        sizes: dict[str, int] = {}
        for folder in [self._root, *(path for path in self._root.iterdir() if path.is_dir())]:
            prefix = "" if folder == self._root else f"{folder.name}/"
            with os.scandir(folder) as found:
                sizes.update((prefix + f.name, f.stat().st_size) for f in found if f.is_file())
        names = sorted(sizes.keys() - checked.keys())
        groups = [
            [names[at] for at in group]
            for group in together([sizes[name] for name in names], _CHECK_BYTES)
        ]
        tasks = [[self._root / name for name in group] for group in groups]
        entries = dict(checked)
        for number, future in run_all(self._executor, _checksums, tasks):
            entries.update(zip(groups[number], future.result(), strict=True))
            self._progress("checksums", len(entries) - len(checked), len(names))
        return entries


# --- tasks, run in workers ---


@dataclass(frozen=True, slots=True)
class _Group:
    """Measurements whose parts are handled by one task, the files of their trees, of their cells
    and of their symbols."""

    members: tuple[int, ...]
    tree: Path
    cells: Path
    symbols: Path


@dataclass(frozen=True, slots=True)
class _Kept:
    """What is taken from the database that is added to.

    ``tree`` is the file of the tree that its ``nodes`` ``uint32[k]`` are, in modules of the new
    one; ``located`` where to say which nodes all of its are there. ``modules`` turns its modules
    that have symbols into the new one's, and ``owners`` has the number of the measurement whose
    table that of a module (the new one's) is.
    """

    database: EarlierDatabase
    tree: Path
    nodes: U32
    located: Path
    modules: dict[int, int]
    owners: dict[int, int]

    @property
    def nodes_of_all(self) -> int:
        return int(layout.read_manifest(self.database.root)["nodes"])

    def part(self, contents: PartContents) -> EarlierPart:
        """Where the sums of a measurement are."""
        number = self.database.number(contents.id)
        return EarlierPart(
            self.database.root, number, contents.part, self.located, tuple(contents.events)
        )


def _read_part(place: Path) -> PartContents:
    return read_contents(Part(place)).by_column()


def _checksums(paths: Sequence[Path]) -> list[layout.FileEntry]:
    return [layout.block_checksums(path) for path in paths]


def _unite_task(task: tuple[Sequence[Path], Path]) -> None:
    paths, out = task
    try:
        save_canonical(out, union([load_canonical(path) for path in paths])[0])
    except OSError as error:
        raise storage_error(out, error) from None


# --- what the measurements have in common ---


def _ranked(measurements: Sequence[PartContents]) -> list[int]:
    """An order of measurements that depends on what they are alone."""
    begin = windows_of(measurements)[:, 0].tolist()
    keys = [
        (contents.host.hostname, contents.host.boot_id, opened, contents.id, contents.path.name)
        for contents, opened in zip(measurements, begin, strict=True)
    ]
    return sorted(range(len(keys)), key=keys.__getitem__)


def _rows_by_measurement(order: LineOrder, measurements: int) -> list[I64]:
    """The trace lines of each measurement, in the order its part has them."""
    ranked = np.lexsort((order.source, order.measurement))
    bounds = np.searchsorted(order.measurement[ranked], np.arange(1, measurements))
    return np.split(ranked, bounds)


def _unite_events(measurements: Sequence[PartContents]) -> tuple[list[Event], list[U16]]:
    """The events of the database (ids from 0) and, per measurement, its ids' new ones."""
    distinct = {_event_key(e): e for contents in measurements for e in contents.events.values()}
    events = [
        replace(e, id=number)
        for number, (_, e) in enumerate(sorted(distinct.items(), key=lambda item: item[0]))
    ]
    ids = {_event_key(e): e.id for e in events}
    lost = {
        code
        for contents in measurements
        for code in contents.events_used
        if code not in contents.events
    }
    if lost:
        # Records of an event whose announcement was lost still count as samples.
        events.append(Event(len(events), "unknown", "", 0.0, ""))
    maps = []
    for contents in measurements:
        codes = max(
            [*contents.events, *contents.events_used], default=0
        )  # at most 16 bits, as scanned
        table = np.full(codes + 1, max(len(events) - 1, 0), np.uint16)
        for e in contents.events.values():
            table[e.id] = ids[_event_key(e)]
        maps.append(table)
    return events, maps


def _event_key(event: Event) -> tuple[object, ...]:
    return (event.metric, event.name, event.unit, event.scale, event.frequency, event.interval)


def _line_columns(
    measurements: Sequence[PartContents],
    order: LineOrder,
    rows: Sequence[I64],
    processes: ProcessTable,
    threads: ThreadTable,
    clock: ClockOffsets,
    windows: I64,
) -> LineColumns:
    every = np.concatenate(rows)
    records, first, last = (np.empty(len(every), np.int64) for _ in range(3))
    records[every] = np.concatenate([contents.counts for contents in measurements])
    first[every] = np.concatenate([contents.first_ns for contents in measurements])
    last[every] = np.concatenate([contents.last_ns for contents in measurements])
    opened, closed = windows[order.measurement].T
    born = threads.start_ns
    died = np.where(threads.end_ns == NO_NUMBER, closed, threads.end_ns)
    # A line is what was watched of its thread; its own records prove that it was there.
    born, died = np.clip(born, opened, closed), np.clip(died, opened, closed)
    seen = records > 0
    born = np.where(seen, np.minimum(born, first), born)
    died = np.where(seen, np.maximum(died, last), died)
    shift = (np.array(clock.offsets, np.int64) - clock.origin_ns)[order.measurement]
    start, end = born + shift, np.maximum(born, died) + shift
    ranks = np.where(processes.rank == NO_NUMBER, NO_RANK, processes.rank)
    return LineColumns(
        start=start,
        end=end,
        first=np.concatenate(([0], np.cumsum(records))).astype(np.int64),
        rank=ranks.astype(np.int32)[order.process],
        process=order.process,
        pid=processes.pid[order.process],
        tid=threads.tid,
    )


def _stretch(path: Path, share: Share | None, size: int) -> Stretch:
    return Stretch(path, share.begin, share.end) if share else Stretch(path, 0, size)
