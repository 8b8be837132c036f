"""Parts whose trees are united, and whose sums are translated, by one task."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hpcd.analysis.arrays.bounds import bounds_of
from hpcd.analysis.arrays.named_arrays import load_arrays, save_arrays
from hpcd.analysis.merge.unite.canonical_modules import translate
from hpcd.analysis.merge.unite.canonical_tree import load_canonical
from hpcd.analysis.merge.unite.scratch import Scratch
from hpcd.analysis.merge.unite.united_symbols import WantedSymbols, gather
from hpcd.array_types import U32
from hpcd.errors import FormatError
from hpcd.kernels.library import kernels
from hpcd.model.cct import CCT
from hpcd.model.cct_union import locate, union


@dataclass(frozen=True, slots=True)
class UnitedPart:
    """The part ``path``: for each of its measurements a map from its load modules to the database's
    modules, and its symbols to be united."""

    path: Path
    module_maps: tuple[U32, ...]
    symbols: tuple[tuple[WantedSymbols, ...], ...]


@dataclass(frozen=True, slots=True)
class GroupTask:
    """The trees of ``parts``, to be united in the file ``out``, and their symbols, in the file
    ``symbols_out``. None is a part whose tree is in the database that is extended."""

    parts: tuple[UnitedPart | None, ...]
    out: Path
    symbols_out: Path


def unite_parts(task: GroupTask) -> None:
    """Leave the union of the parts' trees in ``task.out``, and where each of the nodes that they
    number is in it.

    Raises :class:`FormatError` and :class:`StorageError`.
    """
    trees, orders = [], []
    for part in task.parts:
        tree, order = _tree_of(part) if part else (_ROOT, _NO_ORDER)
        trees.append(tree)
        orders.append(order)
    tree, node = unite(trees)
    first = bounds_of([len(cct) for cct in trees])[:-1].tolist()
    numbered = [node[at + order.astype(np.int64)] for at, order in zip(first, orders, strict=True)]
    start = bounds_of(list(map(len, numbered)))
    save_arrays(task.out, {
        "parent": tree.parent, "frame": tree.frame, "node": np.concatenate(numbered),
        "start": start,
    })  # fmt: skip
    wanted = [(Scratch(part.path), part.symbols) for part in task.parts if part]
    gather(wanted, task.symbols_out)


_ROOT = CCT(np.zeros(1, np.uint32), np.zeros(1, np.uint64))
_NO_ORDER = np.zeros(0, np.uint32)


def _tree_of(part: UnitedPart) -> tuple[CCT, U32]:
    """The tree of a part, with the database's load modules in its frames, and its node of each
    number of the part."""
    scratch = Scratch(part.path)
    own = scratch.modules()
    if len(own) != len(part.module_maps):
        raise FormatError(f"{part.path}: its scratch file is damaged")
    modules = np.zeros(max((int(table.max(initial=0)) for table in own), default=0) + 1, np.uint32)
    for table, known in zip(own, part.module_maps, strict=True):
        modules[table[: len(known)]] = known[: len(table)]
    modules[0] = 0
    tree, order = scratch.tree()
    return translate(tree, modules), order


def unite(trees: Sequence[CCT]) -> tuple[CCT, U32]:
    """Return the canonical union of ``trees``, and its node for each of their nodes, in order."""
    met, node = unite_as_met(trees)
    tree, (number,) = union([met])
    return tree, number[node]


def unite_as_met(trees: Sequence[CCT]) -> tuple[CCT, U32]:
    """Return the union of ``trees``, with nodes numbered in order of appearance, and its
    node for each of their nodes, in order. Raises :class:`IndexError` if a parent does
    not precede its child."""
    start = bounds_of([len(tree) for tree in trees])
    total = int(start[-1])
    size = max(16, 1 << (2 * total - 1).bit_length())
    parent, frame = np.empty(max(total, 1), np.uint32), np.empty(max(total, 1), np.uint64)
    node = np.empty(total, np.uint32)
    used = kernels.unite_trees(
        np.concatenate([tree.parent for tree in trees]),
        np.concatenate([tree.frame for tree in trees]), start, len(trees),
        # Odd, and not to be foreseen, so that no tree is made to be slow.
        secrets.randbits(64) | 1, np.zeros(size, np.uint32), size, parent, frame, node,
    )  # fmt: skip
    if not used:
        raise IndexError("a calling context tree whose parents do not precede their children")
    return CCT(parent[:used].copy(), frame[:used].copy()), node


def located_nodes(group: Path, canonical: Path) -> list[U32]:
    """Per part of the file ``group``, ``uint32[nodes]``: the canonical tree's node of each number
    that it gives one.

    Raises :class:`FormatError`.
    """
    arrays = load_arrays(group)
    number = locate(load_canonical(canonical), CCT(arrays["parent"], arrays["frame"]))
    return np.split(number[arrays["node"]], arrays["start"][1:-1])
