"""CCT nodes in the place of call paths that are finished after their samples were recorded."""

from __future__ import annotations

import numpy as np

from hpcd.array_types import I64, U32, Mask

STAND_IN = 1 << 31
"""CCT nodes from here on represent paths that are not finished."""


class StandIns:
    """CCT nodes from :data:`STAND_IN` on that represent paths until these are finished.

    A stand-in is :data:`STAND_IN` and its index; those that nothing refers to any more are
    forgotten.
    """

    def __init__(self) -> None:
        self._first = self._count = 0
        # Of each index from _first on: its node, 0 until there is one, and its samples until then.
        self._node: U32 = np.zeros(1024, np.uint32)
        self._samples: I64 = np.zeros(1024, np.int64)
        self._round_ends = [0, 0, 0]

    @property
    def any_in_use(self) -> bool:
        """Whether anything may still refer to a stand-in."""
        return self._count > self._first

    def add(self, count: int) -> range:
        """Return the indices of new stand-ins."""
        first = self._count
        self._count += count
        need = self._count - self._first
        if need > len(self._node):
            size = max(need, 2 * len(self._node))
            self._node = np.append(self._node, np.zeros(size - len(self._node), np.uint32))
            self._samples = np.append(self._samples, np.zeros(size - len(self._samples), np.int64))
        return range(first, self._count)

    def settle(self, indices: list[int], node: U32) -> None:
        """Give stand-ins the nodes u32[n] of their finished paths."""
        self._node[np.array(indices) - self._first] = node

    def translate(self, node: U32) -> tuple[U32, Mask]:
        """Return ``node`` u32[n] with stand-ins of finished paths replaced, and a mask of those of
        others."""
        stand_in = node >= STAND_IN
        if not stand_in.any():
            return node, stand_in
        result = node.copy()
        at = np.flatnonzero(stand_in)
        real = self._node[self._positions(node[at])]
        result[at] = np.where(real > 0, real, node[at])
        return result, result >= STAND_IN

    def count_samples(self, stand_in: U32) -> None:
        """Count samples of paths that are not finished."""
        np.add.at(self._samples, self._positions(stand_in), 1)

    def _positions(self, stand_in: U32) -> I64:
        return (stand_in & np.uint32(STAND_IN - 1)).astype(np.int64) - self._first

    def drain_counted(self) -> tuple[U32, I64]:
        """Return the nodes of paths finished since the last call, and the samples of each."""
        used = self._count - self._first
        at = np.flatnonzero((self._node[:used] > 0) & (self._samples[:used] > 0))
        result = self._node[at].copy(), self._samples[at].copy()
        self._samples[at] = 0
        return result

    def end_round(self, oldest_waiting: int | None) -> None:
        """Forget stand-ins that nothing refers to: the caller has translated all it has, samples
        name those of this round and the last only, and paths wait from ``oldest_waiting`` on."""
        self._round_ends = [*self._round_ends[1:], self._count]
        waiting = self._count if oldest_waiting is None else oldest_waiting
        oldest = min(self._round_ends[0], waiting)
        drop = oldest - self._first
        if drop and (oldest == self._count or drop > len(self._node) // 2):
            self._node, self._samples = self._node[drop:].copy(), self._samples[drop:].copy()
            self._first = oldest
