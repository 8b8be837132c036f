"""Threads that were woken in vain: they went straight back to wait in the same place.

That alone may also be a thread that does little between its waits. It was woken in vain

- of a lock, if it has not passed the lock on in between, as another thread had taken it;
- of a condition variable or of events, if it was woken together with others that waited there, by
  one thread (as by pthread_cond_broadcast(), or several threads in epoll_wait()), and one of these
  did not go back. Who posts a semaphore, or signals, wakes one thread, for something to do.
"""

from __future__ import annotations

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.roles.role import NameRole, have
from hpcd.analysis.waits.locks import Locks
from hpcd.analysis.waits.wait_edges import WaitEdges
from hpcd.array_types import I64, U32, Mask
from hpcd.model.codes import Waker

# A broadcast wakes its threads one after another, some microseconds each.
_TOGETHER_NS = 100_000


def woken_in_vain(db: Database, waits: WaitEdges, locks: Locks) -> Mask:
    """``bool[n]``: whether each of ``db``'s ``waits`` ended in vain, so that the line's next one is
    its continuation. O(n log n)."""
    line = waits.line
    returned = np.zeros(len(line), bool)
    returned[:-1] = waits.again[1:] & (line[1:] == line[:-1]) & (waits.node[1:] == waits.node[:-1])
    vain = returned & (locks.lock >= 0)
    candidates = np.flatnonzero(vain)
    vain[candidates] = ~_passed_on(waits, locks, candidates)
    herds, wakes_one = (_inside(db, role) for role in (NameRole.HERD, NameRole.WAKES_ONE))
    herded = (locks.lock < 0) & herds[waits.node] & ~wakes_one[waits.path]
    at = np.flatnonzero(herded & (waits.kind == Waker.THREAD) & (waits.waker >= 0))
    vain[at] |= returned[at] & among_others(
        waits.waker[at], waits.node[at], waits.begin[at], waits.end[at], returned[at]
    )
    return vain


def enders(vain: Mask) -> I64:
    """``int64[n]``: the wait that each goes on to, itself unless it ended in vain (``vain``)."""
    at = np.arange(len(vain))
    last = np.where(vain, len(vain), at)
    return np.ascontiguousarray(np.minimum.accumulate(last[::-1])[::-1])


def _inside(db: Database, role: NameRole) -> Mask:
    """``bool[nodes]``: which contexts are in procedures that have ``role``."""
    inside: Mask = db.cct.innermost(have(db.roles, role)[db.procedure_of_node]) > 0
    return inside


def _passed_on(edges: WaitEdges, locks: Locks, waits: I64) -> Mask:
    """``bool[k]``: whether the line of each of ``waits`` has passed its lock on before its next."""
    line, begin, end = edges.line, edges.begin, edges.end
    by_waker = locks.handover[
        np.lexsort((end[locks.handover], locks.lock[locks.handover], edges.waker[locks.handover]))
    ]
    # The waker, the lock and the time as one number each, in the same order.
    keys = np.array([edges.waker[by_waker], locks.lock[by_waker], end[by_waker]], np.int64).T.copy()
    place = _ranks(keys, np.array([line[waits], locks.lock[waits], end[waits]], np.int64).T.copy())
    later = np.minimum(place, max(len(by_waker) - 1, 0))
    if not len(by_waker):
        return np.zeros(len(waits), bool)
    passed: Mask = (
        (place < len(by_waker))
        & (keys[later, 0] == line[waits])
        & (keys[later, 1] == locks.lock[waits])
        & (keys[later, 2] <= begin[waits + 1])
    )
    return passed


def _ranks(keys: I64, wanted: I64) -> I64:
    """Return ``int64[k]``, how many rows of ``keys`` (ascending) are at most each of ``wanted``."""
    both = np.concatenate([keys, wanted])
    of_keys = np.arange(len(both)) < len(keys)
    order = np.lexsort((~of_keys, both[:, 2], both[:, 1], both[:, 0]))
    before = np.cumsum(of_keys[order])
    ranks = np.empty(len(both), np.int64)
    ranks[order] = before
    return ranks[len(keys) :]


def among_others(waker: I64, node: U32, begin: I64, end: I64, returned: Mask) -> Mask:
    """``bool[n]``: whether each wait in the context ``node``, from ``begin`` to ``end``, was ended
    by a thread (``waker``) that ended others there with it, and one of these was not ``returned``
    to."""
    among = np.zeros(len(returned), bool)
    if not len(among):
        return among
    order = np.lexsort((end, node, waker))
    new = np.ones(len(order), bool)
    new[1:] = (
        (np.diff(waker[order]) != 0)
        | (np.diff(node[order].astype(np.int64)) != 0)
        | (np.diff(end[order]) > _TOGETHER_NS)
        # It was no one of the herd when the one before it was woken.
        | (begin[order][1:] > end[order][:-1])
    )
    herd = np.cumsum(new) - 1
    among[order] = (np.bincount(herd, ~returned[order]) > 0)[herd]
    return among
