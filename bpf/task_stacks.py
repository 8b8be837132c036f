"""The stacks of threads that are not recorded: read where they stand, none is stopped for it.

An iterator of the kernel's (``programs/iterators/task_stacks.bpf.c``) goes over all threads and
sends, of those of the processes requested, who they are, what they do, their kernel call path, the
registers they entered the kernel with and a copy of their stack.
"""

from __future__ import annotations

import os
import platform
import struct
from collections.abc import Callable, Mapping
from collections.abc import Iterator as Iterable
from contextlib import ExitStack
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from hpcd.array_types import U64
from hpcd.bpf.layouts import STACK_COPY
from hpcd.bpf.map_sizes import COPY_BYTES, REGISTERS_BYTES
from hpcd.bpf.rings.ring import Ring
from hpcd.bpf.task_iterator import RING_BYTES, TaskIterator

KERNEL_FRAMES = 127

TASK_STACK = np.dtype(
    [
        ("time", "<u8"),
        ("start", "<u8"),
        ("arrival", "<u8"),
        ("departure", "<u8"),
        ("reader_arrival", "<u8"),
        ("switches", "<u8"),
        ("stack_start", "<u8"),
        ("tgid", "<u4"),
        ("tid", "<u4"),
        ("parent", "<u4"),
        ("state", "<u4"),
        ("flags", "<u4"),
        ("image", "<u4"),
        ("on_cpu", "<u4"),
        ("parts", "<u4"),
        ("kernel_frames", "<u4"),
        ("size", "<u4"),
        ("comm", "S16"),
    ]
)
"""``struct task_stack``; the registers follow, :data:`KERNEL_FRAMES` kernel addresses and ``size``
bytes of the stack."""
_HEAD = struct.Struct("<7Q10I16s")
assert _HEAD.size == TASK_STACK.itemsize


class ThreadParts(IntEnum):
    """The parts of a process's threads that are read."""

    IDENTITY = 1
    KERNEL = 2
    USER = 3


HAS_REGISTERS, HAS_RUN, HAS_CHANGED = 1, 2, 4
"""Bits of :attr:`TaskStack.parts`: ``enum parts``."""


class TaskStack(NamedTuple):
    """One thread as the iterator met it: the fields of ``struct task_stack``, and the ``record``
    that holds it."""

    time: int
    start: int
    arrival: int
    departure: int
    reader_arrival: int
    switches: int
    stack_start: int
    tgid: int
    tid: int
    parent: int
    state: int
    flags: int
    image: int
    on_cpu: int
    parts: int
    kernel_frames: int
    size: int
    comm: bytes
    record: bytes

    @property
    def registers(self) -> U64:
        """u64[n], those of user space in the order of ``struct pt_regs``."""
        return np.frombuffer(self.record, np.uint64, _KERNEL_AT - _HEAD.size >> 3, _HEAD.size)

    @property
    def kernel(self) -> bytes:
        """Return addresses in the kernel, 8 bytes each, innermost first."""
        return self.record[_KERNEL_AT : _KERNEL_AT + 8 * self.kernel_frames]

    @property
    def stack(self) -> bytes:
        """The stack from address :attr:`stack_start` on."""
        return self.record[_STACK_AT : _STACK_AT + self.size]

    def without_stack(self) -> TaskStack:
        """Return this without the copy of its stack, which is most of it."""
        return self._replace(record=self.record[:_STACK_AT], size=0)

    @property
    def copy(self) -> bytes:
        """The registers and the stack, as :class:`hpcd.bpf.saved_walk.SavedWalker` takes them."""
        head = _COPY.pack(self.time, self.stack_start, self.tgid, 0, self.size, 0, 0)
        return head + self.record[_HEAD.size : _KERNEL_AT] + self.stack


_COPY = struct.Struct("<QQIIIHH")
assert _COPY.size == STACK_COPY.itemsize
_KERNEL_AT = _HEAD.size + REGISTERS_BYTES.get(platform.machine(), 0)
_STACK_AT = _KERNEL_AT + 8 * KERNEL_FRAMES


class TaskStacks:
    """Reads threads' stacks by ``iterator``, which it closes; without one it loads its own.

    Raises what :class:`~hpcd.bpf.task_iterator.TaskIterator` does.
    """

    def __init__(self, iterator: TaskIterator | None = None) -> None:
        with ExitStack() as resources:
            self._iterator = iterator or TaskIterator()
            resources.callback(self._iterator.close)
            self._wanted = self._iterator.wanted
            self._ring = Ring("stacks", RING_BYTES, self._iterator.ring)
            resources.callback(self._ring.close)
            self._resources = resources.pop_all()
        self._asked: set[int] = set()

    def read(
        self, wanted: Mapping[int, ThreadParts], run: Callable[[int], bool]
    ) -> Iterable[TaskStack]:
        """The threads of the processes ``wanted``, in order of their ids.

        ``run`` reads a descriptor, which runs the iterator, and returns whether to do so again. It
        may wait for ever: for a process that holds its address space locked, or for pages of a
        stack that are never brought.
        """
        for pid in self._asked - wanted.keys():
            self._wanted.delete(struct.pack("<I", pid))
        for pid, what in wanted.items():
            self._wanted.update(struct.pack("<I", pid), struct.pack("<I", what))
        self._asked = set(wanted)
        descriptor = self._iterator.open()
        try:
            more = True
            while more:
                more = run(descriptor)
                for record in self._ring.take_any():
                    yield _unpacked(record)
        finally:
            os.close(descriptor)
            for _ in self._ring.take_any():  # of a reading that was broken off
                pass

    @property
    def pending(self) -> int:
        """Bytes that were sent and not yet taken."""
        return self._ring.pending

    def close(self) -> None:
        """Unload the iterator."""
        self._resources.close()


def _unpacked(record: bytes) -> TaskStack:
    *fields, frames, size, comm = _HEAD.unpack_from(record)
    frames, size = min(frames, KERNEL_FRAMES), min(size, COPY_BYTES)
    return TaskStack._make((*fields, frames, size, comm.partition(b"\0")[0], record))
