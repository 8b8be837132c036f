"""Counts of entries of contexts, as far as a sampled trace shows it.

A visit is a stretch of a line's records below a context. Calls that no record separates are one
visit, calls that no record falls into none: visits are a lower bound of the number of calls.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.array_types import F64, I64, U32, U64
from hpcd.model.cct import CCT

_SHIFT = np.uint64(32)
# Steps that wait to be looked at together: 16 bytes each.
_BATCH = 4 << 20


def common_ancestors(tree: CCT, one: U32, other: U32) -> U32:
    """``uint32[n]``: the innermost common ancestor of ``one[i]`` and ``other[i]``.

    ``tree`` must be numbered by levels, as unions are. O(n · depth).
    """
    one, other = one.copy(), other.copy()
    apart = np.flatnonzero(one != other)
    while len(apart):
        # The larger number is never the outer one.
        first = one[apart] > other[apart]
        one[apart[first]] = tree.parent[one[apart[first]]]
        other[apart[~first]] = tree.parent[other[apart[~first]]]
        apart = apart[one[apart] != other[apart]]
    return one


def count_visits(tree: CCT, sequences: Iterable[U32]) -> F64:
    """``float64[n]``: visits to each node of ``tree`` by lines that stood at these in turn."""
    change = np.zeros(len(tree))
    waiting: list[U64] = []
    counts: list[I64] = []
    for nodes in sequences:
        if not len(nodes):
            continue
        before = np.concatenate(([np.uint32(0)], nodes[:-1]))
        moved = before != nodes
        steps, count = np.unique(
            before[moved].astype(np.uint64) << _SHIFT | nodes[moved], return_counts=True
        )
        waiting.append(steps)
        counts.append(count)
        if sum(map(len, waiting)) > _BATCH:
            change += _entered(tree, waiting, counts)
            waiting, counts = [], []
    change += _entered(tree, waiting, counts)
    return tree.inclusive(change)


def _entered(tree: CCT, steps: list[U64], counts: list[I64]) -> F64:
    """Return the changes by steps (from << 32 | to) whose sums over subtrees are visits."""
    if not steps:
        return np.zeros(len(tree))
    # Lines of one program take the same steps: each is looked at once.
    distinct, place = np.unique(np.concatenate(steps), return_inverse=True)
    weight = sum_by(place, np.concatenate(counts).astype(np.float64), len(distinct))
    source = (distinct >> _SHIFT).astype(np.uint32)
    target = (distinct & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    # A step enters what lies between the common ancestor and where it leads.
    common = common_ancestors(tree, source, target)
    return sum_by(target, weight, len(tree)) - sum_by(common, weight, len(tree))
