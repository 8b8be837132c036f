"""Walking copied stacks by the programs' own walker, which user space runs for that.

It takes the same steps as the others, but reads a copy of a stack (``struct saved``) in a map that
both sides see as memory. So a path that is walked late is the path that would have been walked.
"""

from __future__ import annotations

import mmap
import struct

import numpy as np

from hpcd.array_types import U64
from hpcd.bpf.kernel import libbpf, maps
from hpcd.bpf.layouts import MAX_FRAMES, SAVED, STACK_COPY
from hpcd.bpf.map_sizes import COPY_BYTES, registers_bytes, saved_bytes, walk_bytes
from hpcd.bpf.table_memory import Space
from hpcd.model.unwind_status import UnwindStatus

WALK_SP, WALK_DEPTH = 8, 72
"""Offsets in ``struct walk``: the stack pointer (u64), the user frames so far (u32)."""
# 33 tail calls of SAVED_WALK_FRAMES frames each run; a path has 1,151 at most.
_MAX_RUNS = 32
# Pieces overlap, and begin below the frame that the walk goes on from: registers are saved there.
_STEP, _KEPT = COPY_BYTES - 4096, 8192
_PAGE = 4096
_NO_ADDRESS = b"\xff"


def joined(copy: bytes, piece: bytes) -> bytes:
    """``copy`` (:data:`STACK_COPY`) with another ``piece`` of its stack behind it, and no address
    for what could not be read between the two."""
    time, start, tgid, stack, size, cache, unread = _COPY.unpack_from(copy)
    _, piece_start, _, _, piece_size, _, _ = _COPY.unpack_from(piece)
    gap: int = piece_start - start - size
    if not 0 <= gap <= COPY_BYTES:
        return copy
    head = _COPY.pack(time, start, tgid, stack, size + gap + piece_size, cache, unread)
    first = STACK_COPY.itemsize + registers_bytes()
    return head + copy[_COPY.size :] + _NO_ADDRESS * gap + piece[first:]


def marked(copy: bytes) -> bytes:
    """``copy`` (:data:`STACK_COPY`), as the programs have sent it, with no address in the pages
    that could not be read. As zeros they would be where stacks end."""
    _, start, _, _, size, _, unread = _COPY.unpack_from(copy)
    if not unread:
        return copy
    result = bytearray(copy)
    first, end = STACK_COPY.itemsize + registers_bytes(), 0
    for page in range(COPY_BYTES // _PAGE):
        begin, end = end, min((page + 1) * _PAGE - start % _PAGE, size)
        if unread >> page & 1:
            result[first + begin : first + end] = _NO_ADDRESS * (end - begin)
    return bytes(result)


class SavedWalker:
    """Walks copied stacks by ``program`` (``walk_saved``), which belongs to the sampler.

    Raises :class:`hpcd.errors.PlatformError` where the kernel cannot run it, and
    :class:`hpcd.errors.PrivilegeError`.
    """

    def __init__(self, program: int, saved: maps.Map, programs: maps.Map) -> None:
        self._fd = program
        self._registers = registers_bytes()
        self._bytes_at = SAVED.itemsize + self._registers
        size = -(-saved_bytes() // mmap.PAGESIZE) * mmap.PAGESIZE
        self._memory = mmap.mmap(saved.fd, size)
        self._walk_at = saved_bytes() - walk_bytes()
        try:
            programs.update(struct.pack("<I", 0), struct.pack("<I", self._fd))
            libbpf.run_program(self._fd)  # with nothing to do: whether the kernel can
        except BaseException:
            self.close()
            raise
        self._frames = np.frombuffer(
            self._memory, np.uint64, MAX_FRAMES + 1, saved_bytes() - 8 * (MAX_FRAMES + 1)
        )

    def walk(self, copy: bytes, space: Space) -> tuple[int, int, U64]:
        """The ending, the number of user frames and those kept, innermost first, of ``copy``
        (:data:`STACK_COPY`, which may have more than :data:`COPY_BYTES` of the stack) in an address
        space."""
        _, start, _, _, _, _, _ = _COPY.unpack_from(copy)
        first = STACK_COPY.itemsize + self._registers
        size = min(COPY_BYTES, len(copy) - first)
        memory = self._memory
        memory[SAVED.itemsize : self._bytes_at + size] = copy[STACK_COPY.itemsize : first + size]
        _SAVED.pack_into(memory, 0, start, size, 1, space.address, space.count, 0, 0, 0, 0)
        result = self._run()
        begin, end = 0, len(copy) - first
        while result[0] == _READ_FAULT and begin + COPY_BYTES < end:
            # From its innermost frame on, or further up: its caller's may be far away.
            frame = (self.stack_pointer - start & ~7) - _KEPT
            begin = frame if begin < frame < end else begin + _STEP
            result = self.go_on(start + begin, copy[first + begin : first + begin + COPY_BYTES])
        return result

    @property
    def stack_pointer(self) -> int:
        """Address of the frame at which the last walk ended."""
        return int(_U64.unpack_from(self._memory, self._walk_at + WALK_SP)[0])

    def go_on(self, start: int, stack: bytes) -> tuple[int, int, U64]:
        """Go on from the frame at which the last walk ended because it could not read. Returns what
        :meth:`walk` does. ``stack`` is the memory from ``start`` on, at most
        :data:`COPY_BYTES` of it."""
        memory, at = self._memory, self._walk_at + WALK_DEPTH
        stack = stack[:COPY_BYTES]
        memory[self._bytes_at : self._bytes_at + len(stack)] = stack
        # The step that failed had counted its frame, and will again.
        _U32.pack_into(memory, at, max(_U32.unpack_from(memory, at)[0] - 1, 0))
        _SAVED.pack_into(memory, 0, start, len(stack), 0, 0, 0, 0, 0, 0, 0)
        return self._run()

    def _run(self) -> tuple[int, int, U64]:
        done = ending = frames = depth = 0
        for _ in range(_MAX_RUNS):
            libbpf.run_program(self._fd)
            _, _, _, _, _, done, ending, frames, depth = _SAVED.unpack_from(self._memory)
            if done:
                break
        kept = min(frames, MAX_FRAMES)
        return ending, max(depth, kept), self._frames[:kept].copy()

    def close(self) -> None:
        """Unmap the memory."""
        # An array that looks into the memory keeps it mapped.
        self.__dict__.pop("_frames", None)
        self._memory.close()


_READ_FAULT = int(UnwindStatus.READ_FAULT)
_U64, _U32 = struct.Struct("<Q"), struct.Struct("<I")
_COPY = struct.Struct("<QQIIIHH")
_SAVED = struct.Struct("<QIIIIIIII")
assert _COPY.size == STACK_COPY.itemsize
assert _SAVED.size == SAVED.itemsize
