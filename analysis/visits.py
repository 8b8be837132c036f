"""How often contexts were entered, as far as a sampled trace shows it.

A visit is a stretch of a line's records below a context. Calls that no record separates are one
visit, calls that no record falls into none: visits are a lower bound of the number of calls.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from hpcd.analysis.sparse import sum_by
from hpcd.model.cct import CCT

F64 = npt.NDArray[np.float64]
U32 = npt.NDArray[np.uint32]


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
    for nodes in sequences:
        if not len(nodes):
            continue
        before = np.concatenate(([np.uint32(0)], nodes[:-1]))
        moved = before != nodes
        pairs, counts = np.unique(
            before[moved].astype(np.uint64) << np.uint64(32) | nodes[moved], return_counts=True
        )
        source = (pairs >> np.uint64(32)).astype(np.uint32)
        target = (pairs & np.uint64(0xFFFFFFFF)).astype(np.uint32)
        # A step enters what lies between the common ancestor and where it leads.
        weight = counts.astype(np.float64)
        change += sum_by(target, weight, len(tree))
        change -= sum_by(common_ancestors(tree, source, target), weight, len(tree))
    return tree.inclusive(change)
