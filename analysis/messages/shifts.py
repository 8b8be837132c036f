"""Matching the calls of two ranks where the recording began in the middle of their run.

Of ranks that were in MPI before the recording, calls are missing at the beginning, of one more than
of the other: of a rank that is attached to while it waits in ``MPI_Recv`` the receive is missing,
its send is not. How many more, the *shift*, follows from

- the end: when they call ``MPI_Finalize``, ranks have received all messages, and have made the same
  collective calls;
- sizes and functions, which are equal in calls that belong together;
- times on one host: nothing is received before its send begins. Of the shifts that are left it is
  the one that explains the waiting: a receive that blocked returned when its message was sent, not
  rounds later. Where nobody waits, it is the largest if most messages were received before the
  next one was sent.

Where none of this tells, the shift is not known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpcd.array_types import I64, Mask

# Messages under way from one rank to another, at most: shifts that are tried below the largest.
_MOST_UNDER_WAY = 64
# The share of the time in the calls by which a shift must explain more than any other.
_CLEAR = 0.1


@dataclass(frozen=True)
class RankCalls:
    """Calls of one rank in order, that belong to those of another: its sends, or its receives.

    ``begin`` int64[n]; ``waited`` and ``end`` int64[n]: begin and end of the call that ended each,
    the largest integer where that is not known. ``label`` int64[n]: equal in calls that belong
    together, negative where not known. ``gives`` and ``takes`` bool[n]: the other rank's call
    cannot end before this has begun, and the reverse. ``host``; ``last``: the end of the rank's
    last call of MPI; ``finished``: no further calls followed. Times in ns.
    """

    begin: I64
    waited: I64
    end: I64
    label: I64
    gives: Mask
    takes: Mask
    host: int
    last: int
    finished: bool

    def __len__(self) -> int:
        return len(self.begin)


def find_shift(one: RankCalls, other: RankCalls) -> int | None:
    """Return the number d for which call k + d of ``one`` belongs to call k of ``other``; None
    where it cannot be told. O(n log n).
    """
    if not len(one) or not len(other):
        return None
    same_host = one.host == other.host
    if one.finished and other.finished:
        shift = len(one) - len(other)
        if _is_possible(one, other, shift, timed=same_host):
            return shift
    if not same_host:
        return None
    if other.takes.any():
        return _shift_by_times(one, other)
    shift_back = _shift_by_times(other, one) if one.takes.any() else None
    return None if shift_back is None else -shift_back


def _shift_by_times(one: RankCalls, other: RankCalls) -> int | None:
    bounds = _upper_bounds(one, other)
    if not len(bounds):
        return None
    largest = int(bounds.min())
    shifts = [
        shift
        for shift in range(largest, largest - _MOST_UNDER_WAY - 1, -1)
        if _overlap(one, other, shift) > 0 and _is_possible(one, other, shift, timed=True)
    ]
    if not shifts:
        return None
    explained = [_explained(one, other, shift) for shift in shifts]
    best = int(np.argmax(explained))
    rest = max(explained[:best] + explained[best + 1 :], default=0)
    if explained[best] - rest > _CLEAR * (_duration(one) + _duration(other)):
        return shifts[best]
    in_step = 2 * np.count_nonzero(bounds == largest) >= len(bounds)
    return largest if in_step and shifts[0] == largest else None


def _upper_bounds(one: RankCalls, other: RankCalls) -> I64:
    """Return bounds of the shift, int64[k]: when a call of ``other`` ends, the one of ``one`` that
    it takes from has begun."""
    # Of the time after a rank's last recorded call it is not known what it did.
    at = np.flatnonzero(other.takes & (other.end <= one.last))
    return np.searchsorted(one.begin, other.end[at], side="right") - 1 - at


def _overlap(one: RankCalls, other: RankCalls, shift: int) -> int:
    """Return how many calls of each belong together with ``shift``; not positive: none."""
    return min(len(one) - max(shift, 0), len(other) - max(-shift, 0))


def _together(one: RankCalls, other: RankCalls, shift: int) -> tuple[slice, slice]:
    count = max(_overlap(one, other, shift), 0)
    first, second = max(shift, 0), max(-shift, 0)
    return slice(first, first + count), slice(second, second + count)


def _is_possible(one: RankCalls, other: RankCalls, shift: int, *, timed: bool) -> bool:
    """Whether labels of calls that would belong together agree, and times if they are ``timed``."""
    mine, its = _together(one, other, shift)
    label, its_label = one.label[mine], other.label[its]
    if ((label >= 0) & (its_label >= 0) & (label != its_label)).any():
        return False
    if not timed:
        return True
    early = one.gives[mine] & (other.end[its] < one.begin[mine])
    late = one.takes[mine] & (one.end[mine] < other.begin[its])
    return not (early.any() or late.any())


def _explained(one: RankCalls, other: RankCalls, shift: int) -> int:
    """Return how long calls waited for those that would belong to them, ns."""
    mine, its = _together(one, other, shift)
    total = 0
    for waiter, own, giver, given in ((other, its, one, mine), (one, mine, other, its)):
        given_at, waited = giver.begin[given], waiter.waited[own]
        waits = (given_at > waited) & (given_at < waiter.end[own])
        total += int((given_at - waited)[waits].sum())
    return total


def _duration(calls: RankCalls) -> int:
    known = calls.end < np.iinfo(np.int64).max
    return int((calls.end - calls.waited)[known].sum())
