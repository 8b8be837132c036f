"""The targets as the BPF programs know them: which processes and threads are recorded."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from hpcd.bpf import wire
from hpcd.bpf.sampler_maps import SamplerMaps
from hpcd.bpf.wire import THREAD_CPU_BITS, THREADS_PER_CPU

if TYPE_CHECKING:  # with numpy, which is imported while a command runs already
    from hpcd.bpf.table_memory import Space

# In the place of a CPU's number, in thread numbers that user space gives.
_USER_NUMBERS = (1 << THREAD_CPU_BITS) - 1

# How often the stack is copied for an address in no mapping, until the mappings are read again:
# when they had changed, and at least when they had not, so that there is likely nothing to find.
# Between these it halves with each reading: a process is read while it loads libraries.
_CREDIT, _LEAST_CREDIT = 4000, 256


def _process(space: Space | None, image: int, credit: int = _CREDIT) -> bytes:
    """``struct process`` of a target with this address space."""
    process = wire.Process(image=image, credit=credit)
    if space is not None:
        process.space_address, process.space_count = space.address, space.count
        process.space_number = space.number
    return process.pack()


class KernelTargets:
    """The processes and threads in the maps of one sampler."""

    def __init__(self, maps: SamplerMaps) -> None:
        self._maps = maps
        self._user_threads = 0

    def add_thread(self, tid: int, *, before_exec: bool = False) -> int | None:
        """Number a thread that already runs; None when the programs have numbered it.

        With ``before_exec`` it is recorded from its next exec on.
        """
        if self._user_threads >= THREADS_PER_CPU:
            return None
        self._user_threads += 1
        number = self._user_threads << THREAD_CPU_BITS | _USER_NUMBERS
        if tid < len(self._maps.registered):
            self._maps.registered[tid] = 1
        fresh = self._maps.threads.add(
            struct.pack("<I", tid), wire.Thread(number=number, hidden=int(before_exec)).pack()
        )
        return number if fresh else None

    def forget_thread(self, tid: int) -> None:
        """Drop the number of a thread that was gone before its state could be read."""
        self._maps.threads.delete(struct.pack("<I", tid))

    def unreported(self) -> set[int]:
        """Return the numbers of the threads whose last reports were lost. Two system calls for each
        thread."""
        keys = self._maps.threads.keys()
        values = [value for key in keys if (value := self._maps.threads.lookup(key))]
        threads = map(wire.Thread.unpack, values)
        return {thread.number for thread in threads if thread.lost}

    def exclude_process(self, pid: int) -> None:
        """Never record ``pid`` and what it starts."""
        self._maps.processes.update(struct.pack("<I", pid), wire.Process(excluded=1).pack())

    def forget_process(self, pid: int) -> None:
        """Take a process that was gone when it was registered out of those recorded."""
        self._maps.processes.delete(struct.pack("<I", pid))

    def add_process(self, pid: int, space: Space | None, image: int = 0) -> None:
        """Make ``pid`` a target whose mappings are ``space``; None: they are not known yet.

        They are not used when it runs another program than ``image`` by now (of a
        :class:`~hpcd.bpf.wire.ThreadEvent`; 0: not known).
        """
        if not self._is_excluded(pid):
            self._maps.processes.update(struct.pack("<I", pid), _process(space, image))

    def _is_excluded(self, pid: int) -> bool:
        """Whether the programs have let go of ``pid``, or will: that is for good."""
        entry = self._maps.processes.lookup(struct.pack("<I", pid))
        return entry is not None and wire.Process.unpack(entry).excluded != 0

    def set_space(self, pid: int, space: Space | None, image: int, *, unchanged: int = 0) -> bool:
        """Replace the mappings of a target; False when it has ended. ``unchanged`` is the number of
        readings in a row that have found the space as it was."""
        if self._is_excluded(pid):
            return False
        entry = _process(space, image, max(_CREDIT >> unchanged, _LEAST_CREDIT))
        return self._maps.processes.replace(struct.pack("<I", pid), entry)

    def set_python(self, pid: int, entry: bytes) -> None:
        """Take the Python frames of ``pid``, by ``entry`` (``struct python``), until its exec or
        end."""
        self._maps.pythons.update(struct.pack("<I", pid), entry)

    def know_python(self, program: bytes, entry: bytes) -> None:
        """Take the Python frames of all processes that begin ``program`` (``struct
        python_program``) from their exec on, by ``entry`` (``struct python``), whose addresses
        count from where the program's code begins."""
        self._maps.python_programs.update(program, entry)

    def forget_python(self, pid: int) -> None:
        """Take no Python frames of ``pid`` any more."""
        self._maps.pythons.delete(struct.pack("<I", pid))

    def set_jvm(self, pid: int, entry: bytes) -> None:
        """Take the Java frames of ``pid``, by ``entry`` (``struct jvm``), until its exec or end."""
        self._maps.jvms.update(struct.pack("<I", pid), entry)

    def forget_jvm(self, pid: int) -> None:
        """Take no Java frames of ``pid`` any more."""
        self._maps.jvms.delete(struct.pack("<I", pid))

    def records(self, pid: int) -> bool:
        """Whether process ``pid`` is recorded, as the kernel sees it."""
        entry = self._maps.processes.lookup(struct.pack("<I", pid))
        return entry is not None and wire.Process.unpack(entry).excluded == 0
