"""Offsets of hosts' clocks, from the messages they exchanged.

No message ends before it was sent. So of two hosts each message from one bounds the difference of
their clocks from one side, and each message back from the other; the fastest messages bound it
best. Between the bounds the offset is taken to be in the middle, and half of what is between them
is the residual error. Duda et al., *Estimating global time in distributed systems* (ICDCS 1987).
Collective operations of all with all bound it too: none ends before the last has begun.

Clocks also drift, by up to some 50 ppm, less what NTP corrects: the offset may change linearly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpcd.analysis.messages.matching import Collectives, Messages
from hpcd.analysis.messages.operations import Operations
from hpcd.array_types import F64, I64
from hpcd.model.mpi_functions import Role

_MAX_DRIFT = 5e-4
_STEPS = 60
# Less than this of messages says nothing of drift.
_MIN_SPAN_NS = 10**9


@dataclass(frozen=True)
class HostClocks:
    """The corrections of each host's times, with respect to host ``reference``.

    ``offset`` ``float64[h]`` in ns at time 0, ``drift`` ``float64[h]`` per ns, ``residual``
    ``float64[h]`` in ns: how far the offset may be wrong; infinite where no messages say.
    ``contradictions`` ``int64[h]``: messages that would still end before they were sent.
    """

    reference: int
    offset: F64
    drift: F64
    residual: F64
    contradictions: I64

    def corrected(self, host: I64, time: I64) -> I64:
        """``time`` of ``host`` (both ``int64[n]``) by the clock of the reference."""
        shift = self.offset[host] + self.drift[host] * time
        return time - np.rint(shift).astype(np.int64)


@dataclass(frozen=True)
class _Bounds:
    """Messages between hosts: from, to, when sent (sender's clock) and ended (receiver's)."""

    source: I64
    target: I64
    sent: I64
    ended: I64


def estimate(
    operations: Operations, messages: Messages, collectives: Collectives, host_of_rank: I64
) -> HostClocks:
    """Offsets of all hosts. ``host_of_rank`` ``int64[ranks]``. O(m · steps of the search)."""
    hosts = int(host_of_rank.max(initial=0)) + 1
    bounds = _bounds(operations, messages, collectives, host_of_rank)
    pairs = np.unique(np.sort(np.stack([bounds.source, bounds.target], 1), axis=1), axis=0)
    edges = [(*pair, *_between(bounds, *pair)) for pair in pairs.tolist()]
    edges = [edge for edge in edges if np.isfinite(edge[4])]
    volume = np.bincount(bounds.source, minlength=hosts) + np.bincount(
        bounds.target, minlength=hosts
    )
    reference = int(volume.argmax()) if len(volume) else 0
    offset, drift = np.zeros(hosts), np.zeros(hosts)
    residual = np.full(hosts, np.inf)
    contradictions = np.zeros(hosts, np.int64)
    residual[reference] = 0.0
    # From the reference outwards, each host over the most certain way (Prim's algorithm).
    while True:
        best = None
        for one, other, shift, slope, error, wrong in edges:
            for near, far, sign in ((one, other, 1.0), (other, one, -1.0)):
                if np.isfinite(residual[near]) and np.isinf(residual[far]):
                    total = residual[near] + error
                    if best is None or total < best[0]:
                        best = (total, near, far, sign * shift, sign * slope, wrong)
        if best is None:
            return HostClocks(reference, offset, drift, residual, contradictions)
        total, near, far, shift, slope, wrong = best
        offset[far], drift[far] = offset[near] + shift, drift[near] + slope
        residual[far], contradictions[far] = total, wrong


def _bounds(
    operations: Operations, messages: Messages, collectives: Collectives, host_of_rank: I64
) -> _Bounds:
    awaits = messages.receives.awaits[messages.receive]
    known = (awaits >= 0) & ~messages.guessed
    send = messages.sends.operation[messages.send[known]]
    receive = awaits[known]
    begin, end = _extremes(operations, collectives)
    sent = np.concatenate([send, begin])
    finished = np.concatenate([receive, end])
    source, target = host_of_rank[operations.rank[sent]], host_of_rank[operations.rank[finished]]
    apart = source != target
    return _Bounds(
        source[apart], target[apart], operations.begin[sent[apart]],
        operations.end[finished[apart]],
    )  # fmt: skip


def _extremes(operations: Operations, collectives: Collectives) -> tuple[I64, I64]:
    """Return pairs of blocking operations of all with all, each call and the next rank's: one
    cannot end before the other has begun. A ring of them connects all hosts."""
    at, instance = collectives.operation, collectives.instance
    all_to_all = np.isin(operations.role[at], (Role.ALL_TO_ALL, Role.BARRIER))
    selected = np.flatnonzero(
        all_to_all & collectives.meeting[instance] & (collectives.ended == at)
    )
    following = selected + 1
    last = following == collectives.first[instance[selected] + 1]
    following[last] = collectives.first[instance[selected[last]]]
    one, other = at[selected], at[following]
    return np.concatenate([one, other]), np.concatenate([other, one])


def _between(bounds: _Bounds, one: int, other: int) -> tuple[float, float, float, int]:
    """Offset of ``other``'s clock against ``one``'s, its drift, residual, contradictions."""
    there = (bounds.source == one) & (bounds.target == other)
    back = (bounds.source == other) & (bounds.target == one)
    if not there.any() or not back.any():
        return 0.0, 0.0, np.inf, 0
    # Time is that of ``one`` in either direction.
    upper_time, upper = bounds.sent[there], (bounds.ended - bounds.sent)[there]
    lower_time, lower = bounds.ended[back], (bounds.sent - bounds.ended)[back]

    def gap(slope: float) -> tuple[float, float]:
        least = float((upper - slope * upper_time).min())
        most = float((lower - slope * lower_time).max())
        return least - most, (least + most) / 2

    span = max(upper_time.max(), lower_time.max()) - min(upper_time.min(), lower_time.min())
    slope = 0.0
    if span >= _MIN_SPAN_NS:
        # The gap is a concave function of the slope: ternary search.
        low, high = -_MAX_DRIFT, _MAX_DRIFT
        for _ in range(_STEPS):
            third = (high - low) / 3
            if gap(low + third)[0] < gap(high - third)[0]:
                low += third
            else:
                high -= third
        slope = (low + high) / 2
    width, middle = gap(slope)
    wrong = int(((upper - slope * upper_time) < middle).sum()) + int(
        ((lower - slope * lower_time) > middle).sum()
    )
    return middle, slope, abs(width) / 2, wrong
