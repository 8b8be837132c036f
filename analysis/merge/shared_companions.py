"""Companions that short measurements share, from the task that read these to the sums."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from hpcd.analysis.arrays.bounds import bounds_of
from hpcd.analysis.arrays.column_files import open_column, save_column, storage_error
from hpcd.analysis.arrays.sparse_sums import Cells
from hpcd.analysis.merge.canonical_modules import translate, unite_modules
from hpcd.analysis.merge.canonical_tree import load_canonical, save_canonical
from hpcd.analysis.merge.part_groups import unite, unite_as_met
from hpcd.analysis.merge.united_symbols import Wanted, gather
from hpcd.analysis.trace.part_contents import PartContents
from hpcd.analysis.trace.shared_companion import (
    CELL_COLUMNS,
    SUFFIX,
    Member,
    open_shared,
    save_shared,
)
from hpcd.array_types import U32, Array
from hpcd.measurement.planes import narrow
from hpcd.model.cct import CCT
from hpcd.model.cct_union import locate

# Nodes of companions whose trees one task unites.
_TASK_NODES = 1 << 19


class CompanionWriter:
    """Gathers what measurements have besides their parts in the directory ``parts``, until all
    that share a companion are there."""

    def __init__(self, parts: Path) -> None:
        name = secrets.token_hex(8)
        # What a merge that is killed leaves half written is removed by the next one.
        self._unfinished, self._place = parts / f"part-{name}", parts / f"{name}{SUFFIX}"
        self._contents: list[PartContents] = []
        self._trees: list[CCT] = []
        self._orders: list[U32] = []
        self._cells: list[Cells] = []
        self._payloads: dict[bytes, int] = {}
        self._symbols: list[list[int]] = []

    def add(
        self, contents: PartContents, tree: CCT, order: U32, cells: Cells, symbols: Sequence[bytes]
    ) -> Member:
        """Put in what :func:`~hpcd.analysis.trace.part_contents.write_companion` is given of a
        part; where it will be."""
        self._contents.append(contents)
        self._trees.append(tree)
        self._orders.append(order)
        self._cells.append(cells)
        known = self._payloads
        self._symbols.append([known.setdefault(payload, len(known)) for payload in symbols])
        return Member(self._place, len(self._trees) - 1)

    def save(self) -> None:
        """Write the companion, if anything is in it. Raises :class:`StorageError`."""
        if not self._contents:
            return
        tables, of = self._modules()
        trees = self._trees
        if len(tables) > 1:
            trees = [translate(tree, tables[table]) for tree, table in zip(trees, of, strict=True)]
        else:
            # All have the same modules by the same numbers.
            tables = [np.arange(len(tables[0]), dtype=np.uint32)]
        tree, node = unite_as_met(trees)
        start = bounds_of([len(tree) for tree in trees])[:-1].tolist()
        columns: dict[str, Array] = {
            "parent": tree.parent, "frame": tree.frame,
            "node": narrow(np.concatenate(
                [node[order + np.uint32(at)]
                 for order, at in zip(self._orders, start, strict=True)]
            )),
            "node_start": bounds_of([len(order) for order in self._orders]),
            "cell_start": bounds_of([len(cells) for cells in self._cells]),
            "payload": np.frombuffer(b"".join(self._payloads), np.uint8),
            "payload_start": bounds_of([len(payload) for payload in self._payloads]),
        }  # fmt: skip
        by_node = [
            node[order + np.uint32(at)][cells.node]
            for cells, order, at in zip(self._cells, self._orders, start, strict=True)
        ]
        sums: tuple[list[Array], ...] = (
            [cells.line for cells in self._cells], by_node, [cells.event for cells in self._cells],
            [cells.records for cells in self._cells], [cells.value for cells in self._cells],
        )  # fmt: skip
        for name, column in zip(CELL_COLUMNS, sums, strict=True):
            columns[name] = narrow(np.concatenate(column))
        facts = {
            "parts": [(contents.part.name, contents.id, contents.size)
                      for contents in self._contents],
            "modules": [table.tolist() for table in tables], "of": of, "symbols": self._symbols,
            "named": [sorted(contents.symbols) for contents in self._contents],
        }  # fmt: skip
        try:
            save_shared(self._unfinished, columns, facts)
            self._unfinished.rename(self._place)
        except OSError as error:
            raise storage_error(self._place, error) from None

    def _modules(self) -> tuple[list[U32], list[int]]:
        """Return the distinct tables of modules, in numbers that all measurements have in common,
        and which of these tables is that of each measurement."""
        _, maps = unite_modules(
            [contents.modules for contents in self._contents],
            [contents.host for contents in self._contents],
            [contents.id for contents in self._contents],
        )
        number: dict[bytes, int] = {}
        of = [number.setdefault(table.tobytes(), len(number)) for table in maps]
        return [np.frombuffer(table, np.uint32) for table in number], of


@dataclass(frozen=True, slots=True)
class UsedCompanion:
    """A companion that parts share: its file, the numbers of the parts that are used of it, what
    its modules are in the database, the symbols that are wanted of each of these parts, and how
    many nodes its tree has."""

    path: Path
    members: tuple[int, ...]
    module_map: U32
    symbols: tuple[tuple[Wanted, ...], ...]
    nodes: int


@dataclass(frozen=True, slots=True)
class SharedTask:
    """Some companions that parts share, to be united.

    ``out`` is the file of their united tree, ``nodes`` where to say what their nodes are in it, and
    then, in a file of its own, in the database: one companion after the other.
    """

    companions: tuple[UsedCompanion, ...]
    out: Path
    nodes: Path
    symbols_out: Path

    @property
    def start(self) -> list[int]:
        """The index in ``nodes`` at which the nodes of each companion begin, and at which the last
        ones end."""
        start: list[int] = bounds_of([companion.nodes for companion in self.companions]).tolist()
        return start


@dataclass(frozen=True, slots=True)
class SharedPart:
    """The sums of a part whose companion is ``member`` of one, and ``nodes``, the column where what
    that one's nodes are in the database begins at ``first``."""

    member: Member
    nodes: Path
    first: int

    def __str__(self) -> str:
        return str(self.member)

    def sums(self) -> tuple[U32, Cells]:
        """The database's nodes of the numbers that the part gives nodes, and its sums by row, of
        the database's nodes and the measurement's events. Raises :class:`FormatError`."""
        companion = open_shared(self.member.path)
        known = _nodes(self.nodes)[self.first : self.first + companion.nodes]
        cells = companion.cells(self.member.number)
        mapped = Cells(cells.line, known[cells.node], cells.event, cells.records, cells.value)
        return known[companion.node(self.member.number)], mapped


@lru_cache(maxsize=32)
def _nodes(path: Path) -> U32:
    column: U32 = open_column(path, np.uint32)
    return column


def shared_tasks(
    measurements: Sequence[PartContents], module_maps: Sequence[U32],
    wanted: Sequence[tuple[Wanted, ...]], work: Path,
) -> tuple[list[SharedTask], dict[int, SharedPart]]:  # fmt: skip
    """The tasks that unite the trees of shared companions, and by its number where the sums of each
    measurement that has one are then. Raises :class:`FormatError`."""
    used: dict[Path, dict[int, Member]] = {}
    for number, contents in enumerate(measurements):
        if contents.member is not None:
            used.setdefault(contents.member.path, {})[number] = contents.member
    tasks: list[SharedTask] = []
    waiting: list[UsedCompanion] = []

    def make() -> None:
        number = len(tasks)
        # A name that no other merge of this process has had.
        nodes = work / f"shared-nodes-{number}-{secrets.token_hex(8)}.npy"
        tasks.append(SharedTask(
            tuple(waiting), work / f"shared-{number}.npz", nodes, work / f"shared-symbols-{number}"
        ))  # fmt: skip
        waiting.clear()

    held = 0
    for path in sorted(used):
        mine = used[path]
        companion = UsedCompanion(
            path, tuple(member.number for member in mine.values()),
            _module_map(path, mine, module_maps), tuple(wanted[number] for number in mine),
            open_shared(path).nodes,
        )  # fmt: skip
        waiting.append(companion)
        held += companion.nodes
        if held >= _TASK_NODES:
            make()
            held = 0
    if waiting:
        make()
    parts: dict[int, SharedPart] = {}
    for task in tasks:
        for companion, first in zip(task.companions, task.start, strict=False):
            for number, member in used[companion.path].items():
                parts[number] = SharedPart(member, _located(task.nodes), first)
    return tasks, parts


def _module_map(path: Path, mine: Mapping[int, Member], module_maps: Sequence[U32]) -> U32:
    """Return ``uint32[n]``: the database's module of each module of a companion, 0 where there is
    none."""
    companion = open_shared(path)
    tables: list[tuple[U32, U32]] = []
    for number, member in mine.items():
        own, known = companion.modules(member.number), module_maps[number]
        tables.append((own[: len(known)], known[: len(own)]))
    whole = np.zeros(max(int(own.max(initial=0)) for own, _ in tables) + 1, np.uint32)
    for own, known in tables:
        whole[own] = known
    whole[0] = 0
    return whole


def unite_shared(task: SharedTask) -> None:
    """Leave the union of the companions' trees in ``task.out``, and what their nodes are in it.

    Raises :class:`FormatError` and :class:`StorageError`.
    """
    trees, chosen = [], []
    for companion in task.companions:
        tree, which = open_shared(companion.path).tree(companion.members)
        trees.append(translate(tree, companion.module_map))
        chosen.append(which)
    tree, node = unite(trees)
    start = task.start
    nodes = np.zeros(start[-1], np.uint32)
    split = bounds_of([len(tree) for tree in trees])[1:-1]
    for which, mine, first in zip(chosen, np.split(node, split), start, strict=False):
        nodes[first + which.astype(np.int64)] = mine
    try:
        save_canonical(task.out, tree)
        save_column(task.nodes, nodes)
    except OSError as error:
        raise storage_error(task.out, error) from None
    gather(
        [(Member(companion.path, member), wanted) for companion in task.companions
         for member, wanted in zip(companion.members, companion.symbols, strict=True) if wanted],
        task.symbols_out,
    )  # fmt: skip


def locate_shared(task: tuple[SharedTask, Path]) -> None:
    """Turn the nodes of the united tree of a task into those of the canonical one. Raises
    :class:`FormatError` and :class:`StorageError`."""
    shared, canonical = task
    number = locate(load_canonical(canonical), load_canonical(shared.out))
    save_column(_located(shared.nodes), number[open_column(shared.nodes, np.uint32)])


def _located(nodes: Path) -> Path:
    """Return the path of the file with the canonical tree's node of each node of ``nodes``."""
    return nodes.with_suffix(".located.npy")


def forget_shared() -> None:
    """Close the companions and columns that are kept open."""
    open_shared.cache_clear()
    _nodes.cache_clear()
