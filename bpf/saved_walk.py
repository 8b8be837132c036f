"""Walking copied stacks by the programs' own walker, which user space runs for that.

It takes the same steps as the others, but reads a copy of a stack (``struct saved``) in a map that
both sides see as memory. So a path that is walked late is the path that would have been walked.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from hpcd.array_types import U64
from hpcd.bpf.kernel import libbpf, maps
from hpcd.bpf.table_memory import Space
from hpcd.bpf.wire import (
    COPY_BYTES,
    MAX_FRAMES,
    PYTHON_WORDS,
    REGISTERS_BYTES,
    SAVED_BYTES,
    WALK_BYTES,
    Saved,
    StackCopy,
    StackEvent,
    Walk,
)
from hpcd.bpf.wire_structure import here
from hpcd.model.codes import UnwindStatus

# 33 tail calls of SAVED_WALK_FRAMES frames each run; a path has 1,151 at most.
_MAX_RUNS = 32
# Pieces overlap, and begin below the frame that the walk goes on from: registers are saved there.
_STEP, _KEPT = COPY_BYTES - 4096, 8192
_PAGE = 4096
_NO_ADDRESS = b"\xff"
_PLACE = StackCopy.reader("start", "size", "unread")
_FRAMES = StackEvent.reader("kernel_frames", "user_frames")
_U64 = struct.Struct("<Q")
_BX_UNAVAILABLE = (1 << 64) - 1


class Caller(NamedTuple):
    """The caller's registers, and the two words of the frame that is left."""

    ip: int
    sp: int
    bp: int
    word: int
    position: int


ReadStack = Callable[[int, int], bytes]
"""Reads the stack from an address on, a number of bytes; empty if not all can be read."""


class RuntimeCode(Protocol):
    """Code of a process without unwind tables, ``code_bytes`` from ``code_begin`` on."""

    code_begin: int
    code_bytes: int

    def step(self, ip: int, sp: int, bp: int, read: ReadStack, *, called: bool) -> Caller | None:
        """Return the caller of the frame with these registers; ``called``: ``ip`` is a return
        address, else the instruction that is next. None: the caller is not found."""


def joined(copy: bytes, piece: bytes) -> bytes:
    """``copy`` (:class:`StackCopy`) with another ``piece`` of its stack behind it, and no address
    for what could not be read between the two."""
    head, more = StackCopy.unpack(copy), StackCopy.unpack(piece)
    gap = more.start - head.start - head.size
    if not 0 <= gap <= COPY_BYTES:
        return copy
    head.size += gap + more.size
    first = StackCopy.BYTES + here(REGISTERS_BYTES)
    return head.pack() + copy[StackCopy.BYTES :] + _NO_ADDRESS * gap + piece[first:]


def marked(copy: bytes) -> bytes:
    """``copy`` (:class:`StackCopy`), as the programs have sent it, with no address in the pages
    that could not be read. As zeros they would be where stacks end."""
    start, size, unread = _PLACE(copy)
    if not unread:
        return copy
    result = bytearray(copy)
    first, end = StackCopy.BYTES + here(REGISTERS_BYTES), 0
    for page in range(COPY_BYTES // _PAGE):
        begin, end = end, min((page + 1) * _PAGE - start % _PAGE, size)
        if unread >> page & 1:
            result[first + begin : first + end] = _NO_ADDRESS * (end - begin)
    return bytes(result)


def without_chain(event: bytes) -> tuple[bytes, bytes]:
    """Return the event of a copied stack (:class:`StackEvent` and frames) and the Python frames of
    its thread that follow it."""
    kernel, user = _FRAMES(event)
    end = StackEvent.BYTES + 8 * min(kernel + user, MAX_FRAMES)
    return event[:end], event[end:]


class SavedWalker:
    """Walks copied stacks by ``program`` (``walk_saved``), which belongs to the sampler.

    Raises :class:`hpcd.errors.PlatformError` where the kernel cannot run it, and
    :class:`hpcd.errors.PrivilegeError`.
    """

    def __init__(self, program: int, saved: maps.Map, programs: maps.Map) -> None:
        self._fd = program
        self._code: RuntimeCode | None = None
        self._registers, saved_bytes = here(REGISTERS_BYTES), here(SAVED_BYTES)
        self._bytes_at = Saved.BYTES + self._registers
        size = -(-saved_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        self._memory = mmap.mmap(saved.fd, size)
        self._walk_at = saved_bytes - here(WALK_BYTES)
        try:
            programs.update(struct.pack("<I", 0), struct.pack("<I", self._fd))
            libbpf.run_program(self._fd)  # with nothing to do: whether the kernel can
        except BaseException:
            self.close()
            raise
        self._frames = np.frombuffer(
            self._memory, np.uint64, MAX_FRAMES + 1, saved_bytes - 8 * (MAX_FRAMES + 1)
        )

    def walk(
        self, copy: bytes, space: Space, chain: bytes = b"", code: RuntimeCode | None = None
    ) -> tuple[int, int, U64]:
        """The ending, the number of user frames and those kept, innermost first, of ``copy``
        (:class:`StackCopy`, which may have more than :data:`COPY_BYTES` of the stack) in an address
        space; ``chain`` are the Python frames of its thread (:func:`without_chain`), ``code`` takes
        the steps from code of its own."""
        self._code = code
        start, _, _ = _PLACE(copy)
        first = StackCopy.BYTES + self._registers
        size = min(COPY_BYTES, len(copy) - first)
        memory = self._memory
        memory[Saved.BYTES : self._bytes_at + size] = copy[StackCopy.BYTES : first + size]
        words = self._walk_at - 8 * PYTHON_WORDS
        memory[words - 8 : words + len(chain)] = _U64.pack(len(chain) // 8) + chain
        memory[: Saved.BYTES] = Saved(
            start=start, size=size, begin=1, space_address=space.address, space_count=space.count,
            code_begin=code.code_begin if code else 0, code_bytes=code.code_bytes if code else 0,
        ).pack()  # fmt: skip
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
        return self._walked().sp

    def go_on(self, start: int, stack: bytes) -> tuple[int, int, U64]:
        """Continue at the frame at which the last walk could not read its memory. Returns what
        :meth:`walk` does. ``stack`` is the memory from ``start`` on, at most
        :data:`COPY_BYTES` of it."""
        memory, walk = self._memory, self._walked()
        stack = stack[:COPY_BYTES]
        memory[self._bytes_at : self._bytes_at + len(stack)] = stack
        # The step that failed had counted its frame, and will again.
        walk.depth = max(walk.depth - 1, 0)
        memory[self._walk_at : self._walk_at + Walk.BYTES] = walk.pack()
        memory[: Saved.BYTES] = Saved(start=start, size=len(stack)).pack()
        return self._run()

    def _walked(self) -> Walk:
        return Walk.unpack(self._memory, self._walk_at)

    def _run(self) -> tuple[int, int, U64]:
        saved = self._run_program()
        while saved.ending == UnwindStatus.JVM_FRAME and self._step(saved):
            saved = self._run_program()
        kept = min(saved.frames, MAX_FRAMES)
        return saved.ending, max(saved.depth, kept), self._frames[:kept].copy()

    def _run_program(self) -> Saved:
        saved = Saved()
        for _ in range(_MAX_RUNS):
            libbpf.run_program(self._fd)
            saved = Saved.unpack(self._memory)
            if saved.done:
                break
        return saved

    def _step(self, saved: Saved) -> bool:
        """Continue the walk at the caller of the code in which it ended; False if that is not
        found."""
        walk = self._walked()
        if not self._code:
            return False

        def read(address: int, size: int) -> bytes:
            at = address - saved.start
            if not 0 <= at <= saved.size - size:
                return b""
            return self._memory[self._bytes_at + at : self._bytes_at + at + size]

        step = self._code.step(walk.ip, walk.sp, walk.bp, read, called=bool(walk.caller))
        if step is None or step.sp <= walk.sp:
            return False
        walk.ip, walk.sp, walk.bp, walk.bx_at, walk.link = *step[:3], _BX_UNAVAILABLE, 0
        walk.caller = 1
        self._memory[self._walk_at : self._walk_at + Walk.BYTES] = walk.pack()
        self._memory[: Saved.BYTES] = Saved(
            start=saved.start, size=saved.size, word=step.word, position=step.position
        ).pack()
        return True

    def close(self) -> None:
        """Unmap the memory."""
        # An array that looks into the memory keeps it mapped.
        self.__dict__.pop("_frames", None)
        self._memory.close()


_READ_FAULT = int(UnwindStatus.READ_FAULT)
