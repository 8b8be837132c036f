"""The canonical calling context tree: the union of many trees.

A call path is in the union if and only if it is in some input (Tallent et al., ICS 2011, section
4). The result is *numbered by its content*: nodes level by level from the root, siblings in the
order of their frames. It therefore depends on the set of call paths alone, neither on the order
of the inputs nor on how they were grouped, so unions may be reduced pairwise, by any engine, and
repeated incrementally.

Two consequences serve everything that reads a canonical tree: ``parent`` never decreases, so the
children of a node are one contiguous range, and so is every level.

Frames must mean the same in every input (see :mod:`hpcd.analysis.merge.unite.canonical_modules`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hpcd.array_types import I64, U32, U64
from hpcd.distinct import begins_run
from hpcd.errors import FormatError
from hpcd.model.cct import CCT, nodes_by_depth

DEPTH_LIMIT = 1 << 16
"""Levels a tree may have. The unwinder stops far earlier; a deeper tree is not ours, and each
level costs a fixed time here."""

_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)


def union(trees: Sequence[CCT]) -> tuple[CCT, list[U32]]:
    """Return the canonical union of ``trees`` and, for each, its nodes' new ids, uint32[len(tree)].

    One sort per level over all trees at once: O(n · log n) with n the sum of their sizes. Raises
    :class:`FormatError` when a tree is deeper than :data:`DEPTH_LIMIT`.
    """
    sizes = [len(tree) for tree in trees]
    if not sizes:
        return CCT(np.zeros(1, np.uint32), np.zeros(1, np.uint64)), []
    starts = np.concatenate(([0], np.cumsum(sizes)))
    depth = np.concatenate([tree.depth() for tree in trees])
    parent = np.concatenate(
        [tree.parent.astype(np.int64) + at for tree, at in zip(trees, starts[:-1], strict=True)]
    )
    frames, rank = rank_frames(np.concatenate([tree.frame for tree in trees]))
    tree, ids = _number(parent, rank, depth, frames)
    return tree, np.split(ids, starts[1:-1])


def collapse(tree: CCT, label: U64) -> tuple[CCT, U32]:
    """Return ``tree`` with frames replaced by ``label`` u64[n] and equal siblings united, and the
    new node of each, uint32[n].

    This is how calls from several lines of a procedure become one node of a view.
    """
    labels = label.copy()
    labels[0] = 0
    smaller, maps = union([CCT(tree.parent, labels)])
    return smaller, maps[0]


def locate(canonical: CCT, tree: CCT) -> U32:
    """Return the node in ``canonical`` of each call path of ``tree``, uint32[len(tree)].

    ``canonical`` must come from :func:`union` and hold every path. O(n · log N). Raises
    :class:`FormatError` when a path is missing.
    """
    frames, rank = rank_frames(canonical.frame)
    keys = canonical.parent.astype(np.uint64) << _SHIFT | rank
    # The root's key would equal a child's of the root; no other key is smaller.
    keys[0] = 0
    sought = np.minimum(np.searchsorted(frames, tree.frame), len(frames) - 1)
    present = frames[sought] == tree.frame
    ids = np.zeros(len(tree), np.uint32)
    for nodes in level_slices(tree.depth())[1:]:
        key = ids[tree.parent[nodes]].astype(np.uint64) << _SHIFT | sought[nodes].astype(np.uint64)
        at = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
        if not bool(((keys[at] == key) & present[nodes]).all()):
            raise FormatError("calling context tree has a path the union does not hold")
        ids[nodes] = at
    return ids


def rank_frames(frames: U64) -> tuple[U64, U64]:
    """Return the distinct frames in order, and each one's position among them, uint64[n]."""
    if len(frames) == 0:
        return frames.copy(), np.zeros(0, np.uint64)
    order = np.argsort(frames, kind="stable")
    sorted_frames = frames[order]
    first = begins_run(sorted_frames)
    rank = np.empty(len(frames), np.uint64)
    rank[order] = np.cumsum(first) - 1
    return sorted_frames[first], rank


def level_slices(depth: U32) -> list[I64]:
    """Return the node ids int64 of each level, the root's first.

    Raises :class:`FormatError` if there are more than :data:`DEPTH_LIMIT`.
    """
    if int(depth.max(initial=0)) >= DEPTH_LIMIT:
        raise FormatError(f"calling context tree is deeper than {DEPTH_LIMIT} frames")
    return nodes_by_depth(depth)


def _number(parent: I64, rank: U64, depth: U32, frames: U64) -> tuple[CCT, U32]:
    """Give equal paths equal ids, level by level, siblings in frame order."""
    ids = np.zeros(len(parent), np.uint32)
    parents = [np.zeros(1, np.uint32)]
    labels = [np.zeros(1, np.uint64)]
    total = 1
    for nodes in level_slices(depth)[1:]:
        key = ids[parent[nodes]].astype(np.uint64) << _SHIFT | rank[nodes]
        order = np.argsort(key)
        key = key[order]
        first = begins_run(key)
        ids[nodes[order]] = (total - 1) + np.cumsum(first)
        distinct = key[first]
        parents.append((distinct >> _SHIFT).astype(np.uint32))
        labels.append(frames[(distinct & _LOW).astype(np.int64)])
        total += len(distinct)
    return CCT(np.concatenate(parents), np.concatenate(labels)), ids
