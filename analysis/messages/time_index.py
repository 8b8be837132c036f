"""Spans of time in order, to find those in a window without looking at the others."""

from __future__ import annotations

import numpy as np

from hpcd.array_types import I64


class TimeIndex:
    """Spans from ``begin`` to ``end`` (``int64[n]``, in any order), by their positions.

    O(n log n) once; a query O(log n) and what it answers.
    """

    def __init__(self, begin: I64, end: I64) -> None:
        self._order: I64 = np.argsort(begin, kind="stable")
        self._begin = begin[self._order]
        self._end = end[self._order]
        # The latest end so far: where it has not passed a moment, no span before has.
        self._reach = np.maximum.accumulate(self._end)

    def begun(self, t0: int, t1: int) -> I64:
        """Positions of the spans that begin in [t0, t1), in order of their begins."""
        low, high = np.searchsorted(self._begin, [t0, t1])
        return self._order[low:high]

    def overlapping(self, t0: int, t1: int) -> I64:
        """Positions of the spans of which a part is in [t0, t1), in order of their begins. Reads
        also the spans between the first of these and t0."""
        low = int(np.searchsorted(self._reach, t0))
        high = max(low, int(np.searchsorted(self._begin, t1)))
        inside = self._end[low:high] >= t0
        return self._order[low:high][inside]
