"""Locks that threads waited for, and who passed them on.

Who unlocks a lock that is waited for wakes a thread, and has held the lock since it was passed on
before: so the wake-ups at a lock tell who held it while any thread waited, and a thread that waits
behind others waits for each holder in turn (iovisor/bcc PR 1697).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpcd.array_types import I64, U8, U32, U64
from hpcd.model.codes import Waker
from hpcd.model.waits import LOCK


@dataclass(frozen=True, slots=True)
class Locks:
    """Holds the locks of ``n`` waits.

    ``lock`` ``int64[n]`` is the number of the lock that each waited for, -1 if for none;
    ``handover`` ``int64[m]`` are the waits that a thread ended by passing a lock on, by lock and
    time, those of lock ``i`` from ``first[i]`` to ``first[i + 1] - 1``.
    """

    lock: I64
    first: I64
    handover: I64


def locks_of(process: U32, futex: U64, end: I64, kind: U8) -> Locks:
    """Return the locks of waits, given ``process`` ``uint32[n]`` that each is of, ``futex``
    ``uint64[n]``, ``end`` ``int64[n]`` and ``kind`` ``uint8[n]`` (:mod:`hpcd.model.waits`).
    O(n log n)."""
    lock = np.full(len(futex), -1, np.int64)
    at = np.flatnonzero(futex & np.uint64(LOCK))
    if not len(at):
        return Locks(lock, np.zeros(1, np.int64), np.zeros(0, np.int64))
    _, place = np.unique(futex[at], return_inverse=True)
    _, lock[at] = np.unique(
        process[at].astype(np.int64) * (int(place.max()) + 1) + place, return_inverse=True
    )
    passed = at[kind[at] == Waker.THREAD]
    handover = passed[np.lexsort((end[passed], lock[passed]))]
    bounds = np.arange(int(lock.max()) + 2)
    return Locks(lock, np.searchsorted(lock[handover], bounds).astype(np.int64), handover)
