"""The calling context tree (CCT): every call path seen, shared prefixes stored once.

A tree is two columns. Node 0 is the root; a parent precedes its children, so one forward pass
computes anything that flows outward-in and one backward pass anything that flows inward-out.
(Ammons, Ball, Larus, PLDI 1997; Tallent et al., ICS 2011, section 3.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpcd.array_types import F64, I64, U32, U64, Mask
from hpcd.errors import FormatError

NO_NODE = np.uint32(0xFFFFFFFF)


@dataclass(frozen=True)
class CCT:
    """A calling context tree of ``n`` nodes.

    ``parent`` is ``uint32[n]``, ``frame`` is ``uint64[n]`` (see :mod:`hpcd.model.frame`).
    """

    parent: U32
    frame: U64

    def __len__(self) -> int:
        return len(self.parent)

    def validate(self, name: str) -> None:
        """Raise :class:`FormatError` naming ``name`` unless parents precede children."""
        n = len(self.parent)
        if n == 0 or len(self.frame) != n or self.parent[0] != 0 or self.frame[0] != 0:
            raise FormatError(f"{name}: calling context tree has no proper root")
        if n > 1 and bool((self.parent[1:] >= np.arange(1, n, dtype=np.uint32)).any()):
            raise FormatError(f"{name}: calling context tree is not in parent-first order")

    def depth(self) -> U32:
        """Return each node's number of frames from the root (0), uint32[n]. O(n · log depth)."""
        depth = np.ones(len(self.parent), dtype=np.uint32)
        depth[0] = 0
        jump = self.parent.copy()
        while bool(jump.any()):
            depth += depth[jump]
            jump = jump[jump]
        return depth

    def inclusive(self, exclusive: F64) -> F64:
        """Return the sum of ``exclusive`` (float64[n]) over each node's subtree, float64[n]; of
        float64[m, n] row by row.

        Nodes are handled level by level, deepest first: one bulk addition per level. O(n + depth).
        """
        if np.ndim(exclusive) > 1:
            return np.stack([self.inclusive(row) for row in exclusive])
        total = np.array(exclusive, dtype=np.float64)
        for nodes in self.levels()[:0:-1]:
            np.add.at(total, self.parent[nodes], total[nodes])
        return total

    def levels(self) -> list[I64]:
        """Return the nodes int64 of each depth, ascending, the root's first. O(n log n)."""
        return nodes_by_depth(self.depth())

    def preorder(self) -> tuple[I64, I64]:
        """Return int64[n] each: a node's place in a depth-first walk, and the end of its subtree's.

        Node ``a`` is an ancestor of ``b`` (or is ``b``) where ``begin[a] <= begin[b] < end[a]``.
        O(n log n).
        """
        size = self.inclusive(np.ones(len(self.parent))).astype(np.int64)
        begin = np.zeros(len(self.parent), np.int64)
        for level in self.levels()[1:]:
            nodes = level[np.argsort(self.parent[level], kind="stable")]
            above = self.parent[nodes]
            # What the siblings before a node take: a running sum, less what came before the first.
            before = np.cumsum(size[nodes]) - size[nodes]
            first = np.searchsorted(above, above)
            begin[nodes] = begin[above] + 1 + before - before[first]
        return begin, begin + size

    def path(self, node: int) -> U32:
        """Return the nodes uint32[depth] from the outermost frame to ``node``, without the root."""
        nodes = []
        while node:
            nodes.append(node)
            node = int(self.parent[node])
        return np.array(nodes[::-1], dtype=np.uint32)

    def innermost(self, chosen: Mask) -> U32:
        """Return :func:`nearest_chosen` of this tree."""
        return nearest_chosen(self.parent, chosen)

    def ancestor_at(self, limit: int) -> U32:
        """Return each node's ancestor at depth ``limit``, or itself if shallower, uint32[n].
        O(n · log depth)."""
        return self.innermost(self.depth() <= limit)

    def below(self, chosen: Mask) -> Mask:
        """Return which nodes are ``chosen`` (bool[n]) or have an ancestor that is, bool[n].
        O(n · log depth)."""
        inside: Mask = chosen[self.innermost(chosen)]
        return inside

    def keep(self, kept: Mask) -> tuple[CCT, U32]:
        """Return the tree of the ``kept`` nodes, bool[n], the root among them, each below the
        innermost kept one above it; and where in it each node, or that one, is, uint32[n]."""
        number = (np.cumsum(kept) - 1).astype(np.uint32)
        to = number[self.innermost(kept)]
        return CCT(to[self.parent[kept]], self.frame[kept]), to

    def reached(self, nodes: npt.NDArray[np.integer]) -> Mask:
        """Return which nodes are on the paths of ``nodes``, the root too, bool[n]."""
        reached = np.zeros(len(self), bool)
        while len(nodes):
            reached[nodes] = True
            nodes = np.unique(self.parent[nodes])
            nodes = nodes[~reached[nodes]]
        return reached


def nodes_by_depth(depth: U32) -> list[I64]:
    """Return the positions int64 of each depth in ``depth`` uint32[n], ascending, from 0 on."""
    if int(depth.max(initial=0)) < 1 << 16:
        depth = depth.astype(np.uint16)  # the stable sort of 16-bit keys is a radix sort
    order = np.argsort(depth, kind="stable")
    return np.split(order, np.cumsum(np.bincount(depth, minlength=1))[:-1])


def nearest_chosen(parent: U32, chosen: Mask) -> U32:
    """Return the innermost of the ``chosen`` nodes, bool[n], on each node's path, uint32[n]; 0, the
    root, for a path without any. O(n · log depth)."""
    jump = np.where(chosen, np.arange(len(parent), dtype=np.uint32), parent)
    while bool((jump[jump] != jump).any()):
        jump = jump[jump]
    return jump
