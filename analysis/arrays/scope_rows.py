"""A row for each context, and one for each scope that contains it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hpcd.array_types import I64, U32, U64, Mask
from hpcd.model.cct import CCT, nearest_chosen


@dataclass(frozen=True)
class ScopeRows:
    """Contexts and the scopes that contain each, in order: the context, then its outermost scope
    first.

    ``first[n]`` and ``last[n]`` are the row of context ``n`` and the row of its innermost scope,
    equal for a context without scopes; ``parent`` is the row above each of ``count`` rows.
    """

    count: int
    first: I64
    last: I64
    parent: I64
    _innermost: I64
    _above: I64

    def scopes(self) -> Iterator[tuple[I64, I64]]:
        """(rows, the scope of each), innermost first: each row of a scope once."""
        place, around = self.last, self._innermost
        while len(around):
            inside = around > 0
            place, around = place[inside], around[inside]
            yield place, around
            place, around = place - 1, self._above[around]

    def tree(self, frames: U64 | U32, scope_frames: U64 | U32) -> CCT:
        """Return the rows as a tree: contexts have ``frames`` ``[contexts]``, scopes
        ``scope_frames`` ``[scopes]``."""
        label = np.zeros(self.count, np.uint64)
        label[self.first] = frames
        for row, scope in self.scopes():
            label[row] = scope_frames[scope]
        return CCT(self.parent.astype(np.uint32), label)


def scope_rows(scope_parent: U32, kept: Mask, scope_of: U32, context_parent: U32) -> ScopeRows:
    """Rows of the contexts in ``scope_of`` (u32[contexts]), for the scopes ``kept``.

    ``scope_parent`` is the scope around each scope, 0 the outermost, which is no scope of its own;
    ``context_parent`` the context above each; the root has no scopes. O(contexts times nesting).
    """
    inner = nearest_chosen(scope_parent, kept).astype(np.int64)
    above = inner[scope_parent]
    own = inner[scope_of]
    own[0] = 0
    length = np.ones(len(own), np.int64)
    around = own
    while bool(around.any()):
        length += around > 0
        around = above[around]
    first = np.cumsum(length) - length
    last = first + length - 1
    count = int(length.sum())
    parent = np.maximum(np.arange(count) - 1, 0)
    parent[first] = last[context_parent]
    return ScopeRows(count, first, last, parent, own, above)
