"""The second stage of a merge: the trees of all parts become the canonical calling context tree.

They are united a few at a time, and these unions again (ICS 2011, section 4); symbols are united by
load module. Parts are put into groups, each of which is one task here and in the stages after it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hpcd.analysis.arrays.column_files import save_column, storage_error
from hpcd.analysis.database import directory as layout
from hpcd.analysis.merge.canonical_modules import CanonicalModule, translate
from hpcd.analysis.merge.canonical_tree import load_canonical, save_canonical
from hpcd.analysis.merge.earlier_database import EarlierDatabase, EarlierPart
from hpcd.analysis.merge.executors import Progress, in_order, run_all
from hpcd.analysis.merge.part_groups import GroupTask, unite_parts
from hpcd.analysis.merge.shared_companions import (
    SharedPart,
    locate_shared,
    shared_tasks,
    unite_shared,
)
from hpcd.analysis.merge.united_symbols import (
    SymbolUnion,
    choose,
    table_of,
    unite_symbols,
    united_modules,
)
from hpcd.analysis.trace.part_contents import PartContents
from hpcd.array_types import U32
from hpcd.model.cct import CCT
from hpcd.model.cct_union import locate, union

# Nodes and records of measurements whose parts one task unites and adds up.
_GROUP_SIZE = 1 << 20
# Trees united by one task. Two would halve the work of each step and double their number; with
# alike trees, as ranks of one program have, the total work is less the more are united at once.
_FAN_IN = 4


@dataclass(frozen=True, slots=True)
class PartGroup:
    """Measurements ``members`` whose parts are handled by one task, and the files of their trees
    (None where none of them has one of its own), of their cells and of their symbols."""

    members: tuple[int, ...]
    tree: Path | None
    cells: Path
    symbols: Path


@dataclass(frozen=True, slots=True)
class KeptTree:
    """The tree and symbols that are taken from the database that is added to.

    ``tree`` is the file of the tree, in modules of the new database, ``nodes`` ``uint32[k]`` the
    earlier database's numbers of its nodes, and ``located`` the file to write the new tree's node
    of each of the earlier database's nodes to. ``modules`` maps the earlier database's modules that
    have symbols to the new one's; ``owners`` maps modules of the new one to the number of the
    measurement whose table of symbols is theirs.
    """

    database: EarlierDatabase
    tree: Path
    nodes: U32
    located: Path
    modules: dict[int, int]
    owners: dict[int, int]

    @classmethod
    def of(
        cls, database: EarlierDatabase | None, measurements: Sequence[PartContents],
        module_maps: Sequence[U32], work: Path,
    ) -> KeptTree | None:  # fmt: skip
        """Return the tree that ``database`` has of the measurements whose parts are kept; None if
        there are none."""
        chosen = [n for n, contents in enumerate(measurements) if contents.united]
        if database is None or not chosen:
            return None
        modules = database.modules([(measurements[n].id, module_maps[n]) for n in chosen])
        tree, nodes = database.tree([measurements[n].id for n in chosen])
        path = work / "earlier.npz"
        _save(path, translate(tree, modules))
        number = {contents.id: n for n, contents in enumerate(measurements)}
        owners, recorded = table_of(database.root / layout.SYMBOLS)
        new = modules.tolist()
        return cls(
            database, path, nodes, work / "earlier-nodes.npy",
            {old: new[old] for old in recorded if old < len(new) and new[old]},
            {new[old]: number[uid] for old, uid in owners.items()
             if uid in number and measurements[number[uid]].united},
        )  # fmt: skip

    def locate_in(self, tree: CCT) -> None:
        """Write to ``located`` the node of ``tree`` of each of the earlier database's nodes."""
        # Nodes that no part which is kept has are nobody's.
        nodes = np.zeros(int(layout.read_manifest(self.database.root)["nodes"]), np.uint32)
        nodes[self.nodes] = locate(tree, load_canonical(self.tree))
        save_column(self.located, nodes)

    def part(self, contents: PartContents) -> EarlierPart:
        """Return the place of a measurement's sums in the earlier database."""
        number = self.database.number(contents.id)
        return EarlierPart(
            self.database.root, number, contents.part, self.located, tuple(contents.events)
        )


@dataclass(frozen=True, slots=True)
class CanonicalUnion:
    """The canonical tree, the file where workers find it, and where the sums of parts are.

    ``shared`` has by its number each measurement whose companion is one with others'.
    """

    tree: CCT
    path: Path
    groups: list[PartGroup]
    shared: dict[int, SharedPart]
    kept: KeptTree | None

    def part(self, number: int, contents: PartContents) -> Path | EarlierPart | SharedPart:
        """Return the place of the sums of measurement ``number``: its part, the earlier database or
        a shared companion."""
        if contents.member is not None:
            return self.shared[number]
        return self.kept.part(contents) if self.kept and contents.united else contents.part

    def nodes(self, chosen: Collection[int]) -> dict[int, U32]:
        """Return by measurement of ``chosen`` the database's node of each node of its tree
        (``uint32[n]``), once their cells are translated."""
        nodes: dict[int, U32] = {}
        for group in self.groups:
            mine = [at for at, number in enumerate(group.members) if number in chosen]
            if mine:
                with np.load(group.cells, allow_pickle=False) as arrays:
                    nodes |= {group.members[at]: arrays[f"nodes-{at}"] for at in mine}
        return nodes


def unite_measurements(
    measurements: Sequence[PartContents], modules: Sequence[CanonicalModule],
    module_maps: Sequence[U32], kept: KeptTree | None, executor: Executor, progress: Progress,
    *, work: Path, symbols: Path,
) -> CanonicalUnion:  # fmt: skip
    """Reduce the trees to one, and symbols, in the file ``symbols``, likewise.

    ``module_maps`` are what the modules of each measurement are of ``modules``. Raises
    :class:`FormatError` and :class:`StorageError`.
    """
    groups = _groups_of(measurements, work)
    wanted, owners = choose(
        modules, module_maps, [contents.symbols for contents in measurements],
        [contents.id for contents in measurements], kept.owners if kept else {},
    )  # fmt: skip
    total, done = max(len(measurements) - 1, 1), 0

    def show(united: int) -> None:
        nonlocal done
        done += united - 1
        progress("unite", done, total)

    shared, places = shared_tasks(measurements, module_maps, wanted, work)
    for number, future in run_all(executor, unite_shared, shared):
        future.result()
        show(sum(len(companion.members) for companion in shared[number].companions))
    tasks = [
        GroupTask(tuple(measurements[n].part if _has_own_companion(measurements[n]) else None
                        for n in group.members),
                  tuple(module_maps[n] for n in group.members), group.tree,
                  tuple(wanted[n] for n in group.members), group.symbols)
        for group in groups if group.tree is not None
    ]  # fmt: skip
    for number, future in run_all(executor, unite_parts, tasks):
        future.result()
        show(sum(part is not None for part in tasks[number].parts))
    symbols_union = SymbolUnion(
        (*(task.symbols_out for task in shared),
         *(task.symbols_out for task in tasks if task.symbols_out)),
        kept.database.root / layout.SYMBOLS if kept else None, kept.modules if kept else {},
        united_modules(modules), owners, symbols,
    )  # fmt: skip
    for _, future in run_all(executor, unite_symbols, [symbols_union]):
        future.result()
    trees = [task.out for task in shared] + [task.out for task in tasks]
    path = _reduce(trees + ([kept.tree] if kept else []), work, executor, show)
    tree = load_canonical(path)
    if kept is not None:
        kept.locate_in(tree)
    for _, future in run_all(executor, locate_shared, [(task, path) for task in shared]):
        future.result()
    return CanonicalUnion(tree, path, groups, places, kept)


def _groups_of(measurements: Sequence[PartContents], work: Path) -> list[PartGroup]:
    sizes = [contents.nodes + contents.records for contents in measurements]
    groups = []
    for number, members in enumerate(in_order(sizes, _GROUP_SIZE)):
        own = any(_has_own_companion(measurements[n]) for n in members)
        tree = work / f"group-{number}.npz" if own else None
        cells, symbols = work / f"cells-{number}.npz", work / f"symbols-{number}"
        groups.append(PartGroup(tuple(members), tree, cells, symbols))
    return groups


def _has_own_companion(contents: PartContents) -> bool:
    """Return whether a measurement has a companion of its own beside its part, not one that is
    shared."""
    return not contents.united and contents.member is None


def _reduce(
    paths: Sequence[Path], work: Path, executor: Executor, show: Callable[[int], None]
) -> Path:
    """The file of the union of the trees in ``paths``."""
    step = 0
    while len(paths) > 1:
        tasks = [
            (paths[at : at + _FAN_IN], work / f"union-{step}-{at}.npz")
            for at in range(0, len(paths), _FAN_IN)
        ]
        for number, future in run_all(executor, _unite_task, tasks):
            future.result()
            show(len(tasks[number][0]))
        paths = [path for _, path in tasks]
        step += 1
    return paths[0]


def _unite_task(task: tuple[Sequence[Path], Path]) -> None:
    paths, out = task
    _save(out, union([load_canonical(path) for path in paths])[0])


def _save(path: Path, tree: CCT) -> None:
    try:
        save_canonical(path, tree)
    except OSError as error:
        raise storage_error(path, error) from None
