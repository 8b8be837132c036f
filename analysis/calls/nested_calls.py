"""Recorded calls within calls of the same thread."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_whole
from hpcd.array_types import I64


class NestedCalls:
    """Calls by the call that each was made in.

    ``parent`` ``int64[n]``: the innermost call of its thread that it lies in, -1 for none;
    ``levels``: the calls of each depth, the outermost first. O(n log n), and O(n) for each level.
    """

    def __init__(self, line: I64, begin: I64, end: I64) -> None:
        """Nest calls in order of ``line`` and ``begin``, ``int64[n]`` each; ``end > begin``."""
        count = len(begin)
        self._length = end - begin
        time, step = np.concatenate([begin, end]), np.repeat([1, -1], count)
        order = np.lexsort((step, time, np.concatenate([line, line])))
        open_calls = np.cumsum(step[order])
        begins = order < count
        depth = np.zeros(count, np.int64)
        depth[order[begins]] = open_calls[begins] - 1
        by_depth = np.argsort(depth, kind="stable")
        bounds = np.searchsorted(depth[by_depth], np.arange(int(depth.max(initial=-1)) + 2))
        self.levels = [by_depth[low:high] for low, high in pairwise(bounds)]
        self.parent = np.full(count, -1, np.int64)
        for above, level in pairwise(self.levels):
            self.parent[level] = above[np.searchsorted(above, level) - 1]

    def own_time(self, weight: I64) -> I64:
        """Return ``int64[n]``: the time of each call less that of calls in it, of which each
        counts ``weight`` ``int64[n]`` times; never below 0."""
        inner = np.flatnonzero(self.parent >= 0)
        spent = sum_whole(self.parent[inner], (self._length * weight)[inner], len(self.parent))
        own: I64 = np.maximum(self._length - spent, 0)
        return own
