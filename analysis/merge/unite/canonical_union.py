"""The second stage of a merge: the trees of all parts become the canonical calling context tree.

They are united a few at a time, and these unions again (ICS 2011, section 4); symbols are united by
load module. Parts are grouped; each group is a task here and in later stages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hpcd.analysis.arrays.column_files import save_column
from hpcd.analysis.database import directory as layout
from hpcd.analysis.merge.tasks.executors import Progress, in_order, run_all
from hpcd.analysis.merge.unite.canonical_modules import CanonicalModule, translate
from hpcd.analysis.merge.unite.canonical_tree import load_canonical, save_canonical
from hpcd.analysis.merge.unite.earlier_database import EarlierDatabase, EarlierPart, part_number
from hpcd.analysis.merge.unite.part_groups import GroupTask, UnitedPart, unite_parts
from hpcd.analysis.merge.unite.part_layout import PartLayout
from hpcd.analysis.merge.unite.united_symbols import (
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

# Nodes and records of parts that one task unites and adds up.
_GROUP_SIZE = 1 << 20
# Trees united by one task. Two would halve the work of each step and double their number; with
# alike trees, as ranks of one program have, the total work is less the more are united at once.
_FAN_IN = 4


@dataclass(frozen=True, slots=True)
class PartGroup:
    """The parts of these numbers, which are handled by one task, and the files of their trees (None
    where all are of the database that is added to), of their cells and of their symbols."""

    parts: tuple[int, ...]
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
        cls, database: EarlierDatabase | None, layout_of: PartLayout, module_maps: Sequence[U32],
        work: Path,
    ) -> KeptTree | None:  # fmt: skip
        """Return the tree of ``database`` with the parts that are kept; None if there are none.
        ``module_maps`` map each measurement's modules to modules of the new database."""
        kept = [number for number, part in enumerate(layout_of.parts) if part.kept]
        if database is None or not kept:
            return None
        measurements = layout_of.measurements
        chosen = sorted(n for part in kept for n in layout_of.members[part])
        modules = database.modules([(measurements[n].id, module_maps[n]) for n in chosen])
        tree, nodes = database.tree([part_number(layout_of.parts[part].path) for part in kept])
        path = work / "earlier-tree"
        save_canonical(path, translate(tree, modules))
        number = {measurements[n].id: n for n in chosen}
        owners, recorded = table_of(database.root / layout.SYMBOLS)
        new = modules.tolist()
        return cls(
            database, path, nodes, work / "earlier-nodes.npy",
            {old: new[old] for old in recorded if old < len(new) and new[old]},
            {new[old]: number[uid] for old, uid in owners.items() if uid in number},
        )  # fmt: skip

    def locate_in(self, tree: CCT) -> None:
        """Write to ``located`` the node of ``tree`` of each of the earlier database's nodes."""
        # Nodes that no kept part has keep number 0.
        nodes = np.zeros(int(layout.read_manifest(self.database.root)["nodes"]), np.uint32)
        nodes[self.nodes] = locate(tree, load_canonical(self.tree))
        save_column(self.located, nodes)

    def part(self, part: PartContents) -> EarlierPart:
        """Return the place of a part's sums in the earlier database."""
        return EarlierPart(self.database.root, part_number(part.path), self.located)


@dataclass(frozen=True, slots=True)
class CanonicalUnion:
    """The canonical tree, the file where workers find it, and the groups that parts are in."""

    tree: CCT
    path: Path
    groups: list[PartGroup]
    kept: KeptTree | None

    def place(self, part: PartContents) -> Path | EarlierPart:
        """Return the place of the sums of ``part``: its scratch file's part, or the earlier
        database."""
        return self.kept.part(part) if self.kept and part.kept else part.path


def unite_trees(
    layout_of: PartLayout, modules: Sequence[CanonicalModule], module_maps: Sequence[U32],
    kept: KeptTree | None, executor: Executor, progress: Progress, *, work: Path, symbols: Path,
) -> CanonicalUnion:  # fmt: skip
    """Reduce the trees to one, and symbols, in the file ``symbols``, likewise.

    ``module_maps`` map each measurement's modules to ``modules``. Raises
    :class:`FormatError` and :class:`StorageError`.
    """
    groups = _groups_of(layout_of.parts, work)
    measurements = layout_of.measurements
    wanted, owners = choose(
        modules, module_maps, [contents.symbols for contents in measurements],
        [contents.id for contents in measurements], kept.owners if kept else {},
    )  # fmt: skip
    total, done = max(len(layout_of.parts) - 1, 1), 0

    def show(united: int) -> None:
        nonlocal done
        done += united - 1
        progress("unite", done, total)

    def united(number: int) -> UnitedPart | None:
        part, members = layout_of.parts[number], layout_of.members[number]
        if part.kept:
            return None
        return UnitedPart(
            part.path, tuple(module_maps[n] for n in members), tuple(wanted[n] for n in members)
        )

    tasks = [
        GroupTask(tuple(map(united, group.parts)), group.tree, group.symbols)
        for group in groups if group.tree is not None
    ]  # fmt: skip
    for number, future in run_all(executor, unite_parts, tasks):
        future.result()
        show(sum(part is not None for part in tasks[number].parts))
    symbols_union = SymbolUnion(
        tuple(task.symbols_out for task in tasks),
        kept.database.root / layout.SYMBOLS if kept else None, kept.modules if kept else {},
        united_modules(modules), owners, symbols,
    )  # fmt: skip
    for _, future in run_all(executor, unite_symbols, [symbols_union]):
        future.result()
    trees = [task.out for task in tasks]
    path = _reduce(trees + ([kept.tree] if kept else []), work, executor, show)
    tree = load_canonical(path)
    if kept is not None:
        kept.locate_in(tree)
    return CanonicalUnion(tree, path, groups, kept)


def _groups_of(parts: Sequence[PartContents], work: Path) -> list[PartGroup]:
    sizes = [sum(one.nodes + one.records for one in part.measurements) for part in parts]
    groups = []
    for number, chosen in enumerate(in_order(sizes, _GROUP_SIZE)):
        own = any(not parts[part].kept for part in chosen)
        tree = work / f"group-{number}" if own else None
        cells, symbols = work / f"cells-{number}", work / f"symbols-{number}"
        groups.append(PartGroup(tuple(chosen), tree, cells, symbols))
    return groups


def _reduce(
    paths: Sequence[Path], work: Path, executor: Executor, show: Callable[[int], None]
) -> Path:
    """The file of the union of the trees in ``paths``."""
    step = 0
    while len(paths) > 1:
        tasks = [
            (paths[at : at + _FAN_IN], work / f"union-{step}-{at}")
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
    save_canonical(out, union([load_canonical(path) for path in paths])[0])
