"""Threads that wait for others: deadlocks, and chains of waiters that end at one thread.

Only waits with one certain holder count: a thread that waits for whichever of its children ends
first may be freed by any of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpcd.model.stack_snapshot import ThreadStack

# What one holds and another waits for; a thread that joins another is no news by itself.
_LOCKS = ("mutex", "file lock")


@dataclass(frozen=True, slots=True)
class WaitingChains:
    """``deadlocks``: threads that wait for each other in a ring, each for the next. ``chains``: a
    waiter and, one after another, whom it waits for; the last waits for no known thread, or is in a
    deadlock. ``waiters`` are how many wait for each chain's last, directly or through others."""

    deadlocks: list[list[ThreadStack]]
    chains: list[list[ThreadStack]]
    waiters: list[int]


def waiting_chains(threads: Mapping[int, ThreadStack]) -> WaitingChains:
    """The rings and chains among ``threads`` (by tid), those with most waiters first. O(threads).

    Of the chains that end at one thread the longest is given.
    """
    holder = {
        tid: thread.wait.holders[0]
        for tid, thread in threads.items()
        if thread.wait and len(thread.wait.holders) == 1 and thread.wait.holders[0] in threads
    }
    ring_of = _rings(holder)
    depth: dict[int, int] = {}
    end: dict[int, int] = {}
    for tid in holder:
        path = []
        at = tid
        while at in holder and at not in ring_of and at not in depth:
            path.append(at)
            at = holder[at]
        level, last = depth.get(at, 0), end.get(at, at)
        for waiter in reversed(path):
            level += 1
            depth[waiter], end[waiter] = level, last
    longest: dict[int, int] = {}
    waiters: dict[int, int] = {}
    for tid, last in end.items():
        waiters[last] = waiters.get(last, 0) + 1
        if last not in longest or depth[tid] > depth[longest[last]]:
            longest[last] = tid
    chains = []
    for last, first in sorted(longest.items(), key=lambda item: -waiters[item[0]]):
        chain = [first]
        while chain[-1] != last:
            chain.append(holder[chain[-1]])
        if _tells(chain, threads):
            chains.append([threads[tid] for tid in chain])
    rings = sorted({ring for ring in ring_of.values()})
    return WaitingChains(
        [[threads[tid] for tid in ring] for ring in rings],
        chains,
        [waiters[chain[-1].tid] for chain in chains],
    )


def _rings(holder: Mapping[int, int]) -> dict[int, tuple[int, ...]]:
    """The ring each thread is in, of those that are in one; it begins with its lowest id."""
    ring_of: dict[int, tuple[int, ...]] = {}
    seen: dict[int, int] = {}
    for number, tid in enumerate(holder):
        at = tid
        while at in holder and at not in seen:
            seen[at] = number
            at = holder[at]
        if seen.get(at) != number or at in ring_of:
            continue
        ring = [at]
        while holder[ring[-1]] != at:
            ring.append(holder[ring[-1]])
        low = ring.index(min(ring))
        for member in ring:
            ring_of[member] = tuple(ring[low:] + ring[:low])
    return ring_of


def _tells(chain: Sequence[int], threads: Mapping[int, ThreadStack]) -> bool:
    """Whether a chain is worth a line: a lock is waited for on it."""
    waits = (threads[tid].wait for tid in chain[:-1])
    return any(wait is not None and wait.kind in _LOCKS for wait in waits)
