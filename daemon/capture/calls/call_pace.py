"""The share of calls that is recorded: all, until they cost more than they may."""

from __future__ import annotations

import numpy as np

from hpcd.array_types import I64

# Calls recorded a second beyond which the recorder, the disk and the reader of a database have too
# much of them, whatever they may cost: 15 bytes each on disk.
MOST_A_SECOND = 200_000
# CPU seconds of the recorder for a call it takes from the ring and writes.
_RECORDER_SECONDS = 1e-6
# About what a recorded call costs in all, and below which share of the budget it does not matter.
_CALL_SECONDS, _LITTLE = 3e-6, 0.25
MOST_ONE_IN = 1 << 14
# Functions that make up less of the calls are left alone.
_SMALL = 0.02
_ABOVE, _WELL_BELOW = 1.1, 0.3
# Rounds well below the limit before it is raised again, so that it does not swing.
_ROUNDS_BELOW = 5


class CallPace:
    """Decides, function by function, one in how many calls is recorded.

    ``share`` of the targets' CPU time (and at least of one CPU) is what calls may cost; None: any,
    but no more than ``most`` are recorded a second. Called once a second or so.
    """

    def __init__(self, functions: int, share: float | None, most: float = MOST_A_SECOND) -> None:
        self.one_in: I64 = np.ones(functions, np.int64)
        self._share = share
        self._most = most
        self._before: tuple[float, float, float] | None = None
        self._rounds_below = 0

    def step(self, now: float, spent: float, targets: float, recorded: I64) -> list[int]:
        """The functions whose :attr:`one_in` has changed.

        ``now`` in seconds; ``spent`` CPU seconds of the programs that record calls so far,
        ``targets`` of what is recorded; ``recorded`` ``int64[functions]`` calls since the last
        step.
        """
        before, self._before = self._before, (now, spent, targets)
        if before is None or now <= before[0]:
            return []
        seconds = now - before[0]
        total = int(recorded.sum())
        excess = total / seconds / self._most
        if self._share is not None:
            allowed = self._share * max(targets - before[2], seconds)
            cost = spent - before[1] + total * _RECORDER_SECONDS
            # Calls that are passed over cost something too, which no rate can save.
            useful = max(total * _CALL_SECONDS / (_LITTLE * allowed), 1.0)
            excess = max(excess, min(cost / allowed, useful))
        was = self.one_in.copy()
        if excess > _ABOVE:
            self._rounds_below = 0
            often = recorded > _SMALL * total
            factor = 2 ** int(np.ceil(np.log2(excess)))
            self.one_in[often] = np.minimum(self.one_in[often] * factor, MOST_ONE_IN)
        elif excess < _WELL_BELOW:
            self._rounds_below += 1
            if self._rounds_below >= _ROUNDS_BELOW:
                self._rounds_below = 0
                self.one_in = np.maximum(self.one_in // 2, 1)
        else:
            self._rounds_below = 0
        return np.flatnonzero(self.one_in != was).tolist()
