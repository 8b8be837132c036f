"""Building the calling context tree (CCT) while samples arrive.

One node table serves the whole measurement; a thread's CCT is the part of it that the thread's
records reach. Identical call paths of different threads and ranks are thus one path, which keeps
the collector small on a node with many ranks. (The papers' threads build trees of their own to
avoid locks between them; here one collector sees all threads.)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hpcd.model import frame as frames
from hpcd.model.ending import Ending

U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]

_INITIAL = 4096
_MIX_PARENT = np.uint64(0x9E3779B97F4A7C15)
_MIX_FRAME = np.uint64(0xC2B2AE3D27D4EB4F)


class CCTBuilder:
    """A growing CCT: columns of parents and frames, and an open-addressing index over them.

    About 40 bytes a node. Inserting is bulk work: a dozen numpy calls per level of the deepest new
    path, whatever the number of paths.
    """

    def __init__(self) -> None:
        self.parent: U32 = np.zeros(_INITIAL, dtype=np.uint32)
        self.frame: U64 = np.zeros(_INITIAL, dtype=np.uint64)
        self.ending: npt.NDArray[np.uint8] = np.zeros(_INITIAL, dtype=np.uint8)
        self.ended_in: U32 = np.zeros(_INITIAL, dtype=np.uint32)
        self.samples: U64 = np.zeros(_INITIAL, dtype=np.uint64)
        self.count = 1
        self._index: U32 = np.zeros(4 * _INITIAL, dtype=np.uint32)

    def insert(self, path_frames: U64, lengths: npt.NDArray[np.int64]) -> U32:
        """Add paths and return each one's last node.

        ``path_frames`` holds the paths one after another, outermost frame first; ``lengths`` says
        how many frames each has (0 gives the root).
        """
        leaf = np.zeros(len(lengths), dtype=np.uint32)
        ends = np.cumsum(lengths)
        starts = ends - lengths
        active = np.flatnonzero(lengths > 0)
        level = 0
        while len(active):
            frame = path_frames[starts[active] + level]
            leaf[active] = self._intern(leaf[active], frame)
            level += 1
            active = active[lengths[active] > level]
        return leaf

    def count_samples(self, nodes: U32) -> None:
        """Count one sample for each entry of ``nodes``."""
        unique, times = np.unique(nodes, return_counts=True)
        self.samples[unique] += times.astype(np.uint64)

    def _intern(self, parent: U32, frame: U64) -> U32:
        order = np.lexsort((frame, parent))
        sorted_parent, sorted_frame = parent[order], frame[order]
        first = np.ones(len(order), dtype=bool)
        first[1:] = (sorted_parent[1:] != sorted_parent[:-1]) | (
            sorted_frame[1:] != sorted_frame[:-1]
        )
        nodes = self._find_or_add(sorted_parent[first], sorted_frame[first])
        result = np.empty(len(order), dtype=np.uint32)
        result[order] = nodes[np.cumsum(first) - 1]
        return result

    def _find_or_add(self, parent: U32, frame: U64) -> U32:
        """Nodes of distinct (parent, frame) pairs. Linear probing, all pairs a step at a time."""
        self._reserve(len(parent))
        mask = len(self._index) - 1
        slot = self._hash(parent, frame) & np.int64(mask)
        result = np.zeros(len(parent), dtype=np.uint32)
        pending = np.arange(len(parent))
        while len(pending):
            node = self._index[slot[pending]]
            hit = (
                (node != 0)
                & (self.parent[node] == parent[pending])
                & (self.frame[node] == frame[pending])
            )
            result[pending[hit]] = node[hit]
            empty = pending[node == 0]
            # Of several pairs that want one empty slot the first gets it; the others probe on.
            taken, winner = np.unique(slot[empty], return_index=True)
            added = empty[winner]
            ids = np.arange(self.count, self.count + len(added), dtype=np.uint32)
            self._index[taken] = ids
            self._add(ids, parent[added], frame[added])
            result[added] = ids
            pending = pending[result[pending] == 0]
            slot[pending] = (slot[pending] + 1) & mask
        return result

    def _add(self, ids: U32, parent: U32, frame: U64) -> None:
        self.parent[ids] = parent
        self.frame[ids] = frame
        marker = frames.is_marker(frame)
        self.ending[ids] = np.where(marker, frame & np.uint64(0xFF), self.ending[parent])
        below_marker = frames.is_marker(self.frame[parent])
        self.ended_in[ids] = np.where(below_marker, frames.module_of(frame), self.ended_in[parent])
        self.count += len(ids)

    @staticmethod
    def _hash(parent: U32, frame: U64) -> npt.NDArray[np.int64]:
        mixed = (parent.astype(np.uint64) + np.uint64(1)) * _MIX_PARENT ^ frame * _MIX_FRAME
        mixed ^= mixed >> np.uint64(32)
        return (mixed & np.uint64(0x7FFFFFFFFFFFFFFF)).astype(np.int64)

    def _reserve(self, extra: int) -> None:
        need = self.count + extra
        if need > len(self.parent):
            size = max(need, 2 * len(self.parent))
            for name in ("parent", "frame", "ending", "ended_in", "samples"):
                column = getattr(self, name)
                grown = np.zeros(size, dtype=column.dtype)
                grown[: len(column)] = column
                setattr(self, name, grown)
        if 2 * need > len(self._index):
            size = len(self._index)
            while size < 4 * need:
                size *= 2
            self._index = np.zeros(size, dtype=np.uint32)
            self._rebuild()

    def _rebuild(self) -> None:
        mask = len(self._index) - 1
        ids = np.arange(1, self.count, dtype=np.uint32)
        slot = self._hash(self.parent[1 : self.count], self.frame[1 : self.count]) & np.int64(mask)
        while len(ids):
            free = self._index[slot] == 0
            taken, winner = np.unique(slot[free], return_index=True)
            placed = np.flatnonzero(free)[winner]
            self._index[taken] = ids[placed]
            rest = np.ones(len(ids), dtype=bool)
            rest[placed] = False
            ids = ids[rest]
            slot = (slot[rest] + 1) & mask

    def endings(self) -> dict[Ending, dict[int, int]]:
        """Samples by how their path ended: {ending: {module it ended in: samples}}."""
        counted = np.flatnonzero(self.samples[: self.count])
        key = self.ending[counted].astype(np.uint64) << np.uint64(32) | self.ended_in[counted]
        unique, place = np.unique(key, return_inverse=True)
        total = np.zeros(len(unique), dtype=np.uint64)
        np.add.at(total, place, self.samples[counted])
        result: dict[Ending, dict[int, int]] = {}
        for each, number in zip(unique.tolist(), total.tolist(), strict=True):
            result.setdefault(Ending(each >> 32), {})[each & 0xFFFFFFFF] = number
        return result
