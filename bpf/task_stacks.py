"""The stacks of threads that are not recorded: read where they stand, none is stopped for it.

An iterator of the kernel's (``programs/iterators/task_stacks.bpf.c``) goes over all threads and
sends, of those of the processes requested, who they are, what they do, their kernel call path, the
registers they entered the kernel with, a copy of their stack, and their Python frames.
"""

from __future__ import annotations

import copy
import os
import platform
import struct
from collections.abc import Callable, Mapping
from collections.abc import Iterator as Iterable
from contextlib import ExitStack

import numpy as np

from hpcd.array_types import U64
from hpcd.bpf import wire
from hpcd.bpf.rings.ring import Ring
from hpcd.bpf.task_iterator import RING_BYTES, TaskIterator
from hpcd.bpf.wire import Python, Wanted, WantedProcess

_NO_PYTHON = bytes(Python.BYTES)
_NO_PYTHONS: Mapping[int, bytes] = {}


class TaskStack(wire.TaskStack):
    """One thread as the iterator met it, and the ``record`` that holds it: behind the fields
    registers, kernel addresses and ``size`` bytes of the stack."""

    record: bytes = b""

    @property
    def registers(self) -> U64:
        """u64[n], those of user space in the order of ``struct pt_regs``."""
        return np.frombuffer(self.record, np.uint64, _KERNEL_AT - self.BYTES >> 3, self.BYTES)

    @property
    def kernel(self) -> bytes:
        """Return addresses in the kernel, 8 bytes each, innermost first."""
        return self.record[_KERNEL_AT : _KERNEL_AT + 8 * self.kernel_frames]

    @property
    def stack(self) -> bytes:
        """The stack from address :attr:`stack_start` on."""
        return self.record[_STACK_AT : _STACK_AT + self.size]

    @property
    def chain(self) -> bytes:
        """The thread's Python frames (:func:`hpcd.bpf.saved_walk.without_chain`)."""
        return self.record[_STACK_AT + self.size :][: 8 * self.python_words]

    def without_stack(self) -> TaskStack:
        """Return this without the copy of its stack, which is most of it, and Python frames."""
        kept = copy.copy(self)
        kept.record, kept.size, kept.python_words = self.record[:_STACK_AT], 0, 0
        return kept

    @property
    def copy(self) -> bytes:
        """The registers and the stack, as :class:`hpcd.bpf.saved_walk.SavedWalker` takes them."""
        head = wire.StackCopy(
            time=self.time, start=self.stack_start, tgid=self.tgid, size=self.size
        )
        return head.pack() + self.record[self.BYTES : _KERNEL_AT] + self.stack


_KERNEL_AT = TaskStack.BYTES + wire.REGISTERS_BYTES.get(platform.machine(), 0)
_STACK_AT = _KERNEL_AT + 8 * wire.TASK_KERNEL_FRAMES


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
        self,
        wanted: Mapping[int, Wanted],
        run: Callable[[int], bool],
        pythons: Mapping[int, bytes] = _NO_PYTHONS,
    ) -> Iterable[TaskStack]:
        """The threads of the processes ``wanted``, in order of their ids. ``pythons`` are the
        ``struct python`` of those that run CPython.

        ``run`` reads a descriptor, which runs the iterator, and returns whether to do so again. It
        may wait for ever: for a process that holds its address space locked, or for pages of a
        stack that are never brought.
        """
        for pid in self._asked - wanted.keys():
            self._wanted.delete(struct.pack("<I", pid))
        for pid, what in wanted.items():
            process = WantedProcess(wanted=what).pack() + pythons.get(pid, _NO_PYTHON)
            self._wanted.update(struct.pack("<I", pid), process)
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
    thread = TaskStack.unpack(record)
    thread.kernel_frames = min(thread.kernel_frames, wire.TASK_KERNEL_FRAMES)
    thread.size = min(thread.size, wire.COPY_BYTES)
    thread.comm = thread.comm.partition(b"\0")[0]
    thread.record = record
    return thread
