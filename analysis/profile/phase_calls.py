"""Calls that mark phases, as arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hpcd.analysis.profile.time_segments import ranges
from hpcd.array_types import I64, U32
from hpcd.rows import take_rows


@dataclass(frozen=True, slots=True)
class PhaseCalls:
    """Calls that mark phases: ``line``, ``begin``, ``end``, ``group``, ``weight``, ``node`` (of the
    CCT), ``int64[n]`` each."""

    line: I64
    begin: I64
    end: I64
    group: I64
    weight: I64
    node: I64

    @staticmethod
    def none() -> PhaseCalls:
        """Return no calls."""
        return PhaseCalls(*(np.zeros(0, np.int64) for _ in range(6)))

    def shared(self, process: U32) -> PhaseCalls:
        """Copies for the threads without marks, of those of the first thread of their process that
        has any; ``process`` ``uint32[lines]``. They count as no calls."""
        marking = np.unique(self.line)
        owners, place = np.unique(process[marking], return_index=True)
        first = marking[place]
        unmarked = np.setdiff1d(np.flatnonzero(np.isin(process, owners)), marking)
        owner = first[np.searchsorted(owners, process[unmarked])]
        order = np.argsort(self.line, kind="stable")
        bounds = np.searchsorted(self.line[order], np.stack([owner, owner + 1]))
        which, at = ranges(bounds[0], bounds[1])
        mine = order[at]
        copies = take_rows(self, mine)
        return replace(copies, line=unmarked[which], weight=np.zeros_like(copies.weight))


def nesting_depth(step: I64, first: I64) -> I64:
    """Count open ones after each ``step`` of +1 or -1, never below 0; anew from all ``first``."""
    total = np.cumsum(step)
    if not len(total):
        return total
    which = np.zeros(len(step), np.int64)
    which[first[1:]] = 1
    which = np.cumsum(which)
    total -= (total[first] - step[first])[which]
    # The lowest so far of each line; later lines are below all earlier lines.
    span = 2 * len(step) + 2
    lowest = np.minimum.accumulate(np.minimum(total, 0) - which * span) + which * span
    depth: I64 = total - lowest
    return depth
