"""Parts whose trees are united, and whose sums are translated, by one task.

A short measurement's tree has as many nodes as it has records: of thousands, what is done once for
a tree takes longer than anything done with records.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hpcd.analysis.arrays.bounds import bounds_of
from hpcd.analysis.arrays.column_files import storage_error
from hpcd.analysis.merge.canonical_modules import translate
from hpcd.analysis.merge.canonical_tree import load_canonical
from hpcd.analysis.merge.united_symbols import Wanted, gather
from hpcd.analysis.trace.part_contents import load_tree
from hpcd.array_types import I64, U32
from hpcd.kernels.library import kernels
from hpcd.model.cct import CCT
from hpcd.model.cct_union import locate, union


@dataclass(frozen=True, slots=True)
class GroupTask:
    """The trees of ``parts``, their module ids to be replaced by ``module_maps``, to be united in
    the file ``out``.

    None stands for a part whose tree is in the database that is added to. ``symbols`` are wanted of
    each part, in the file ``symbols_out``.
    """

    parts: tuple[Path | None, ...]
    module_maps: tuple[U32, ...]
    out: Path
    symbols: tuple[tuple[Wanted, ...], ...] = ()
    symbols_out: Path | None = None


def unite_parts(task: GroupTask) -> None:
    """Leave the union of the parts' trees in ``task.out``, and where each of their nodes is in it.

    Raises :class:`FormatError` and :class:`StorageError`.
    """
    trees = [
        translate(load_tree(part), module_map) if part else _ROOT
        for part, module_map in zip(task.parts, task.module_maps, strict=True)
    ]
    tree, node = unite(trees)
    start = np.concatenate(([0], np.cumsum([len(cct) for cct in trees]))).astype(np.int64)
    try:
        with task.out.open("xb") as file:
            np.savez(file, parent=tree.parent, frame=tree.frame, node=node, start=start)
    except OSError as error:
        raise storage_error(task.out, error) from None
    if task.symbols_out is not None:
        wanted = zip(task.parts, task.symbols, strict=True)
        gather(
            [(part, part_symbols) for part, part_symbols in wanted if part and part_symbols],
            task.symbols_out,
        )


_ROOT = CCT(np.zeros(1, np.uint32), np.zeros(1, np.uint64))


def unite(trees: Sequence[CCT]) -> tuple[CCT, U32]:
    """The canonical union of ``trees``, and the nodes in it of all of theirs, one after another."""
    met, node = unite_as_met(trees)
    tree, (number,) = union([met])
    return tree, number[node]


def unite_as_met(trees: Sequence[CCT]) -> tuple[CCT, U32]:
    """The union of ``trees``, whose nodes are numbered in the order in which they are met, and the
    nodes in it of all of theirs, one after another. Raises :class:`IndexError` where a parent does
    not precede its child."""
    start = bounds_of([len(tree) for tree in trees])
    total = int(start[-1])
    size = max(16, 1 << (2 * total - 1).bit_length())
    parent, frame = np.empty(max(total, 1), np.uint32), np.empty(max(total, 1), np.uint64)
    node = np.empty(total, np.uint32)
    used = kernels.unite_trees(
        np.concatenate([tree.parent for tree in trees]),
        np.concatenate([tree.frame for tree in trees]), start, len(trees),
        # Odd, and nobody can foresee it, so that no tree is made to be slow.
        secrets.randbits(64) | 1, np.zeros(size, np.uint32), size, parent, frame, node,
    )  # fmt: skip
    if not used:
        raise IndexError("a calling context tree whose parents do not precede their children")
    return CCT(parent[:used].copy(), frame[:used].copy()), node


def located_nodes(group: Path, canonical: Path) -> list[U32]:
    """Per part of the file ``group``, ``uint32[nodes]``: where its nodes are in the canonical tree.

    Raises :class:`FormatError`.
    """
    with np.load(group, allow_pickle=False) as arrays:
        start: I64 = arrays["start"]
        number = locate(load_canonical(canonical), CCT(arrays["parent"], arrays["frame"]))
        return np.split(number[arrays["node"]], start[1:-1])
