"""From announced stacks to CCT nodes by compiled loops: what
:mod:`hpcd.daemon.capture.stack_resolver` and :mod:`~hpcd.daemon.capture.cct_builder` do by numpy.

Arrays have the types and shapes that the callers document, and are contiguous.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import NamedTuple

import numpy as np

from hpcd.array_types import I64, U8, U16, U32, U64
from hpcd.model.unwind_status import UnwindStatus
from hpcd.native.native_library import array_of, declare, loops_in

_I64 = ctypes.c_int64
# As in call_paths.c: consecutive addresses come to lie apart.
_SPREAD = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


class FrameTable:
    """Module frames by the kernel's addresses, in a form that many are looked up in at a time.

    ``addresses`` and ``frames`` (u64[slots], a power of two) are a table with linear probing; 0 is
    a free slot. At most half of the slots are taken.
    """

    def __init__(self) -> None:
        self.addresses: U64 = np.zeros(4096, np.uint64)
        self.frames: U64 = np.zeros(4096, np.uint64)
        self._count = 0

    def add(self, addresses: U64, frames: U64) -> None:
        """Enter addresses that are not in the table, each once."""
        if 2 * (self._count + len(addresses)) > len(self.addresses):
            known = self.addresses != 0
            addresses = np.append(self.addresses[known], addresses)
            frames = np.append(self.frames[known], frames)
            size = len(self.addresses)
            while size < 4 * len(addresses):
                size *= 2
            self.addresses, self.frames = np.zeros(size, np.uint64), np.zeros(size, np.uint64)
            self._count = 0
        mask = len(self.addresses) - 1
        for address, frame in zip(addresses.tolist(), frames.tolist(), strict=True):
            slot = (address * _SPREAD & _MASK) >> 32 & mask
            while self.addresses[slot]:
                slot = slot + 1 & mask
            self.addresses[slot], self.frames[slot] = address, frame
        self._count += len(addresses)


class Gathered(NamedTuple):
    """Paths of stacks: of each its cache u16[n], number u32[n] and length i64[n]; the frames of
    all, the outermost first, one path after another; kernel addresses that are not known; the
    places of user addresses outside of all modules, and the stacks these are of."""

    cache: U16
    stack: U32
    length: I64
    path: U64
    missing: U64
    raw_at: I64
    raw_of: I64


class PathLoops:
    """The loops of ``call_paths.c``."""

    def __init__(self, library: ctypes.CDLL) -> None:
        narrow, wide, kinds = array_of(np.uint32), array_of(np.uint64), array_of(np.uint16)
        places, data = array_of(np.int64), array_of(np.uint8)
        self._gather = declare(
            library, "gather_paths",
            (data, places, _I64, wide, _I64, ctypes.c_uint16, wide, wide, _I64, kinds, narrow,
             wide, places, wide, places, places, places),
            _I64,
        )  # fmt: skip
        self._insert = declare(
            library, "insert_paths",
            (wide, places, _I64, ctypes.c_uint64, wide, narrow, wide, data, narrow, _I64, narrow,
             _I64, places, narrow),
            _I64,
        )  # fmt: skip

    def gather(self, stacks: list[bytes], spans: U64, table: FrameTable) -> Gathered | None:
        """The paths of ``stacks`` (:data:`hpcd.bpf.layouts.STACK_EVENT` and frames); None where a
        stack has not as many frames as it says.

        ``spans`` u64[2 m] says where in the kernel lie the scheduler, the entry, and what writes
        threads' registers.
        """
        n = len(stacks)
        data = np.frombuffer(b"".join(stacks), np.uint8)
        sizes = np.fromiter(map(len, stacks), np.int64, n)
        words = len(data) // 8 + n
        cache, stack = np.empty(n, np.uint16), np.empty(n, np.uint32)
        length, numbers = np.empty(n, np.int64), np.empty(2, np.int64)
        path, missing = np.empty(words, np.uint64), np.empty(words, np.uint64)
        raw_at, raw_of = np.empty(words, np.int64), np.empty(words, np.int64)
        total = self._gather(
            data, sizes, n, spans, len(spans) // 2, int(UnwindStatus.REGISTERS_CHANGING),
            table.addresses, table.frames, len(table.addresses), cache, stack, path, length,
            missing, raw_at, raw_of, numbers,
        )  # fmt: skip
        if total < 0:
            return None
        absent, raw = numbers.tolist()
        return Gathered(
            cache, stack, length, path[:total], missing[:absent], raw_at[:raw], raw_of[:raw]
        )

    def insert(
        self, path: U64, lengths: I64, secret: int, nodes: tuple[U64, U32, U64, U8, U32],
        index: U32, count: int, leaf: U32,
    ) -> tuple[int, int]:  # fmt: skip
        """Fill ``leaf`` u32[n] with the last nodes of paths, as far as there is room for new ones
        (:class:`~hpcd.daemon.capture.cct_builder.CCTBuilder`: keys, parents, frames, endings and
        modules these are in). How many paths are done, and how many nodes there are."""
        counted = np.array([count])
        room = min(len(nodes[0]), len(index) // 2)
        done: int = self._insert(
            path, lengths, len(lengths), secret, *nodes, room, index, len(index), counted, leaf
        )
        return done, int(counted[0])


@cache
def path_loops() -> PathLoops | None:
    """The loops, or None where they were not compiled."""
    return loops_in(PathLoops)
