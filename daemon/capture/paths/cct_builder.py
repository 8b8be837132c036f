"""Building the calling context tree (CCT) while samples arrive.

One node table serves the whole measurement; a thread's CCT is the part of it that the thread's
records reach. Identical call paths of different threads and ranks are thus one path, which keeps
the collector small on a node with many ranks. (The papers' threads build trees of their own to
avoid locks between them; here one collector sees all threads.)
"""

from __future__ import annotations

import os

import numpy as np

from hpcd.array_types import I64, U8, U32, U64
from hpcd.daemon.capture.records.recorder_kernels import index_nodes, insert_paths
from hpcd.distinct import distinct
from hpcd.kernels.library import CStructure, structure
from hpcd.model.codes import UnwindStatus
from hpcd.model.frame import marker_frame

_INITIAL = 4096
_UNLIMITED = 1 << 62
MOST_CONTEXTS = 1 << 19
"""Nodes made for the paths of one user (root's are not limited): 50 MB. Large applications have
some 100,000 in hours."""


class CCTBuilder:
    """A growing CCT: columns of parents and frames, and an open-addressing index over them.

    A node is known by a 64-bit sum over the frames of its path, each mixed with its depth and a
    number drawn anew for every recording, so that no program can make two paths collide on
    purpose. Parents precede their children. About 50 bytes a node.

    ``parent`` u32, ``frame`` u64, ``samples`` u64 (:meth:`count_samples`), ``ending`` u8 (the
    :class:`UnwindStatus` of truncated paths, else 0) and ``ended_in`` u32 (the module of the frame
    that a truncated path begins with) have room for more nodes than ``count``.
    """

    def __init__(self) -> None:
        self._secret = int.from_bytes(os.urandom(8), "little")
        self._key: U64 = np.zeros(_INITIAL, np.uint64)
        self.frame: U64 = np.zeros(_INITIAL, np.uint64)
        self.samples: U64 = np.zeros(_INITIAL, np.uint64)
        self.parent: U32 = np.zeros(_INITIAL, np.uint32)
        self.ended_in: U32 = np.zeros(_INITIAL, np.uint32)
        self.ending: U8 = np.zeros(_INITIAL, np.uint8)
        self._users = {0: 0}
        self._left: I64 = np.array([_UNLIMITED], np.int64)
        self._beyond = 0
        self.failures: dict[str, str] = {}
        """The users whose call paths were not all kept, and why."""
        self.struct = self._index_nodes(1)
        """The tree as kernels take it; another one once paths are inserted."""

    @property
    def count(self) -> int:
        """Nodes, the root included."""
        return int(self.struct.pointer.count)

    def insert(self, frames: U64, lengths: I64, uid: I64 | None = None) -> U32:
        """Add call paths and return each one's last node, u32[n].

        ``frames`` u64[sum(lengths)] has the paths one after another, the outermost frame first,
        ``lengths`` i64[n] the number of frames of each; 0 gives the root. ``uid`` i64[n] says whose
        they are (None: root's): a user's paths beyond :data:`MOST_CONTEXTS` nodes have one node in
        common. Raises :class:`ValueError` if the two do not fit.
        """
        user, beyond = np.zeros(len(lengths), np.int64), 0
        if uid is not None:
            user, beyond = self._numbers_of(uid), self._beyond_limit()
        start = np.append(0, np.cumsum(lengths))
        if len(frames) != start[-1] or bool((lengths < 0).any()):
            raise ValueError("paths of other lengths than they have")
        leaf = np.zeros(len(lengths), np.uint32)
        done = 0
        while True:
            done += insert_paths(
                frames[start[done] :], lengths[done:], user[done:], self._left, beyond, self.struct,
                leaf[done:],
            )  # fmt: skip
            if done == len(lengths):
                break
            self._make_room(int(lengths[done]))
        if uid is not None:
            for refused in distinct(uid[leaf == beyond]).tolist():
                self.failures[f"call paths of user {refused}"] = f"more than {MOST_CONTEXTS:,}"
        return leaf

    def _numbers_of(self, uid: I64) -> I64:
        """Return the numbers of users i64[n]; that of root is 0."""
        users = distinct(uid)
        for user in users.tolist():
            if user not in self._users:
                self._users[user] = len(self._users)
                self._left = np.append(self._left, MOST_CONTEXTS)
        numbers = np.array([self._users[user] for user in users.tolist()], np.int64)
        return numbers[np.searchsorted(users, uid)]

    def _beyond_limit(self) -> int:
        """Return the node of paths beyond their user's limit."""
        if not self._beyond:
            marker = np.array([marker_frame(UnwindStatus.CONTEXT_LIMIT)], np.uint64)
            self._beyond = int(self.insert(marker, np.ones(1, np.int64))[0])
        return self._beyond

    def _make_room(self, extra: int) -> None:
        count = self.count
        size = max(count + extra, 2 * len(self.parent))
        for name in ("_key", "frame", "samples", "parent", "ended_in", "ending"):
            column = getattr(self, name)
            grown = np.zeros(size, dtype=column.dtype)
            grown[: len(column)] = column
            setattr(self, name, grown)
        self.struct = self._index_nodes(count)

    def _index_nodes(self, count: int) -> CStructure:
        """Return the tree of ``count`` nodes with a new index, at most half full."""
        room = len(self.parent)
        self._index: U32 = np.zeros(1 << (2 * room - 1).bit_length(), np.uint32)
        struct = structure(
            "tree", keys=self._key, frames=self.frame, samples=self.samples, parents=self.parent,
            ended_in=self.ended_in, endings=self.ending, room=room, count=count,
            index=self._index, slots=len(self._index), secret=self._secret,
        )  # fmt: skip
        index_nodes(struct)
        return struct

    def count_samples(self, nodes: U32) -> None:
        """Count one sample for each entry of ``nodes``: on the node itself if its path is
        truncated, on the root if not, as the nodes of many truncated paths fit no cache."""
        truncated = nodes[self.ending[nodes] > 0]
        self.samples[0] += np.uint64(len(nodes) - len(truncated))
        np.add.at(self.samples, truncated, np.uint64(1))

    def endings(self) -> dict[UnwindStatus, dict[int, int]]:
        """Return samples by how their path ended: {ending: {module it ended in: samples}}."""
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
