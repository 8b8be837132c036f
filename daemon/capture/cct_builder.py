"""Building the calling context tree (CCT) while samples arrive.

One node table serves the whole measurement; a thread's CCT is the part of it that the thread's
records reach. Identical call paths of different threads and ranks are thus one path, which keeps
the collector small on a node with many ranks. (The papers' threads build trees of their own to
avoid locks between them; here one collector sees all threads.)
"""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from hpcd.daemon.capture.path_loops import PathLoops, path_loops
from hpcd.model import frame as frames
from hpcd.model.unwind_status import UnwindStatus

U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]

_INITIAL = 4096


def _mix(value: U64) -> U64:
    """Each bit of ``value`` spread over all (the finaliser of MurmurHash3)."""
    mixed = value ^ value >> np.uint64(33)
    mixed *= np.uint64(0xFF51AFD7ED558CCD)
    mixed ^= mixed >> np.uint64(33)
    mixed *= np.uint64(0xC4CEB9FE1A85EC53)
    mixed ^= mixed >> np.uint64(33)
    return mixed


class CCTBuilder:
    """A growing CCT: columns of parents and frames, and an open-addressing index over them.

    A node is known by a 64-bit sum over the frames of its path, each mixed with its depth and a
    number drawn anew for every recording (so that no program can make two paths collide on
    purpose). Compiled, an insertion takes a step for each frame. By numpy the sums of all prefixes
    of all new paths are one running sum: two dozen calls however deep the paths are, and a sort of
    their frames; nodes are then numbered otherwise, parents first as well. About 50 bytes a node.
    """

    def __init__(self) -> None:
        self.parent: U32 = np.zeros(_INITIAL, dtype=np.uint32)
        self.frame: U64 = np.zeros(_INITIAL, dtype=np.uint64)
        self.ending: npt.NDArray[np.uint8] = np.zeros(_INITIAL, dtype=np.uint8)
        self.ended_in: U32 = np.zeros(_INITIAL, dtype=np.uint32)
        self.samples: U64 = np.zeros(_INITIAL, dtype=np.uint64)
        self.count = 1
        self._key: U64 = np.zeros(_INITIAL, dtype=np.uint64)
        self._index: U32 = np.zeros(4 * _INITIAL, dtype=np.uint32)
        self._secret = np.uint64(int.from_bytes(os.urandom(8), "little"))

    def insert(self, path_frames: U64, lengths: I64) -> U32:
        """Add paths and return each one's last node.

        ``path_frames`` holds the paths one after another, outermost frame first; ``lengths`` says
        how many frames each has (0 gives the root).
        """
        leaf = np.zeros(len(lengths), dtype=np.uint32)
        loops = path_loops()
        if loops:
            self._insert_compiled(loops, np.ascontiguousarray(path_frames), lengths, leaf)
            return leaf
        ends = np.cumsum(lengths)
        starts = ends - lengths
        full = np.flatnonzero(lengths)
        if not len(full):
            return leaf
        depth = np.arange(len(path_frames)) - np.repeat(starts, lengths)
        term = _mix(path_frames + _mix(depth.astype(np.uint64) + self._secret))
        total = np.cumsum(term, dtype=np.uint64)
        before = total[starts[full]] - term[starts[full]]
        key = total - np.repeat(before, lengths[full])

        leaf[full] = self._find(key[ends[full] - 1])
        fresh = full[leaf[full] == 0]
        if len(fresh):
            inside = np.repeat(leaf == 0, lengths)
            at = np.flatnonzero(inside)
            leaf[fresh] = self._insert_prefixes(key[at], depth[at], path_frames[at])[
                np.cumsum(lengths[fresh]) - 1
            ]
        return leaf

    def _insert_compiled(self, loops: PathLoops, path_frames: U64, lengths: I64, leaf: U32) -> None:
        ends = np.cumsum(lengths)
        if len(path_frames) != (int(ends[-1]) if len(ends) else 0) or bool((lengths < 0).any()):
            raise ValueError("paths of other lengths than they have")
        done = begin = 0
        while True:
            nodes = self._key, self.parent, self.frame, self.ending, self.ended_in
            more, self.count = loops.insert(
                path_frames[begin:], lengths[done:], int(self._secret), nodes, self._index,
                self.count, leaf[done:],
            )  # fmt: skip
            done += more
            if done == len(lengths):
                return
            begin = int(ends[done] - lengths[done])
            self._reserve(int(lengths[done]))

    def _insert_prefixes(self, key: U64, depth: I64, frame: U64) -> U32:
        """Nodes of all prefixes of paths that lie one after another, made where there are none."""
        unique, first, inverse = np.unique(key, return_index=True, return_inverse=True)
        node = self._find(unique)
        missing = np.flatnonzero(node == 0)
        missing = missing[np.argsort(depth[first[missing]], kind="stable")]  # parents first
        node[missing] = np.arange(self.count, self.count + len(missing), dtype=np.uint32)
        where = first[missing]
        outer = node[inverse[np.maximum(where - 1, 0)]]
        parent = np.where(depth[where] > 0, outer, np.uint32(0))
        self._append(unique[missing], parent, frame[where], depth[where])
        result: U32 = node[inverse]
        return result

    def count_samples(self, nodes: U32) -> None:
        """Count one sample for each entry of ``nodes``: where the path was cut by itself, else with
        all whole ones as the root's, as those of so many nodes are in no cache."""
        cut = nodes[self.ending[nodes] > 0]
        self.samples[0] += np.uint64(len(nodes) - len(cut))
        unique, times = np.unique(cut, return_counts=True)
        self.samples[unique] += times.astype(np.uint64)

    def _find(self, key: U64) -> U32:
        """The node of each key, 0 where there is none: linear probing, all keys at a time."""
        mask = np.uint64(len(self._index) - 1)
        slot = key & mask
        node = self._index[slot]
        pending = np.flatnonzero((node != 0) & (self._key[node] != key))
        while len(pending):
            slot[pending] = slot[pending] + np.uint64(1) & mask
            node_there = self._index[slot[pending]]
            node[pending] = node_there
            pending = pending[(node_there != 0) & (self._key[node_there] != key[pending])]
        result: U32 = node
        return result

    def _append(self, key: U64, parent: U32, frame: U64, depth: I64) -> None:
        """Add nodes whose parents exist or stand before them, in order of ``depth``."""
        self._reserve(len(key))
        ids = np.arange(self.count, self.count + len(key), dtype=np.uint32)
        self._key[ids] = key
        self.parent[ids] = parent
        self.frame[ids] = frame
        # Only the frame below the root may be a marker of an ending; all below it inherit.
        marker = frames.is_marker(frame) & (frames.omitted_count(frame) == 0)
        self.ending[ids[marker]] = frame[marker] & np.uint64(0xFF)
        if marker.any() or self.ending[parent].any():
            self._inherit(ids, parent, frame, depth)
        self.count += len(ids)
        self._index_nodes(ids)

    def _inherit(self, ids: U32, parent: U32, frame: U64, depth: I64) -> None:
        """Endings of nodes below markers; what is whole, nearly everything, never comes here."""
        for level in np.unique(depth[depth > 0]).tolist():
            at_level = np.flatnonzero(depth == level)
            above = parent[at_level]
            self.ending[ids[at_level]] = self.ending[above]
            own = frames.is_marker(self.frame[above]) & (self.parent[above] == 0)
            self.ended_in[ids[at_level]] = np.where(
                own, frames.module_of(frame[at_level]), self.ended_in[above]
            )

    def _index_nodes(self, ids: U32) -> None:
        """Enter nodes in the index. Of several that want one slot the first gets it."""
        mask = np.uint64(len(self._index) - 1)
        slot = self._key[ids] & mask
        while len(ids):
            free = np.flatnonzero(self._index[slot] == 0)
            taken, winner = np.unique(slot[free], return_index=True)
            placed = free[winner]
            self._index[taken] = ids[placed]
            rest = np.ones(len(ids), dtype=bool)
            rest[placed] = False
            ids = ids[rest]
            slot = slot[rest] + np.uint64(1) & mask

    def _reserve(self, extra: int) -> None:
        need = self.count + extra
        if need > len(self.parent):
            size = max(need, 2 * len(self.parent))
            for name in ("parent", "frame", "ending", "ended_in", "samples", "_key"):
                column = getattr(self, name)
                grown = np.zeros(size, dtype=column.dtype)
                grown[: len(column)] = column
                setattr(self, name, grown)
        if 2 * need > len(self._index):
            size = len(self._index)
            while size < 4 * need:
                size *= 2
            self._index = np.zeros(size, dtype=np.uint32)
            self._index_nodes(np.arange(1, self.count, dtype=np.uint32))

    def endings(self) -> dict[UnwindStatus, dict[int, int]]:
        """Samples by how their path ended: {ending: {module it ended in: samples}}."""
        samples = self.samples[: self.count]
        # Those below a marker are few: only they are sorted.
        cut = np.flatnonzero(self.ending[: self.count])
        cut = cut[samples[cut] > 0]
        key = self.ending[cut].astype(np.uint64) << np.uint64(32) | self.ended_in[cut]
        unique, inverse = np.unique(key, return_inverse=True)
        total = np.zeros(len(unique), dtype=np.uint64)
        np.add.at(total, inverse, samples[cut])
        result: dict[UnwindStatus, dict[int, int]] = {}
        whole = int(samples.sum()) - int(total.sum())
        if whole:
            result[UnwindStatus(0)] = {0: whole}
        for packed, number in zip(unique.tolist(), total.tolist(), strict=True):
            result.setdefault(UnwindStatus(packed >> 32), {})[packed & 0xFFFFFFFF] = number
        return result
