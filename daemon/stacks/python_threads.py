"""Python frames of the threads of a snapshot."""

from __future__ import annotations

import platform
from functools import partial

from hpcd.bpf.task_stacks import TaskStack
from hpcd.bpf.wire import Python
from hpcd.daemon.access.patience import WithheldError
from hpcd.daemon.runtimes.python.frame_naming import PythonNaming
from hpcd.daemon.runtimes.python.python_processes import read_memory
from hpcd.daemon.runtimes.python.standing_threads import (
    MemoryWords,
    ThreadRegisters,
    standing_chain,
    thread_states,
)

# In struct pt_regs of x86-64; of other processors no Python is known.
_INSTRUCTION, _STACK = 16, 19


class PythonThreads:
    """Reads the Python frames of threads that stand still, of the processes that ``naming`` knows
    to run CPython."""

    def __init__(self, naming: PythonNaming) -> None:
        self._naming = naming
        self._states: dict[int, dict[int, int]] = {}

    def begin_snapshot(self) -> None:
        """Read the threads' states anew when they are asked for."""
        self._states.clear()

    def chain(self, record: TaskStack) -> bytes:
        """Return the Python frames of a thread
        (:func:`hpcd.bpf.saved_walk.without_chain`), b"" if it has none or they cannot be read."""
        process = self._naming.processes.get(record.tgid)
        if process is None or not record.thread_pointer or platform.machine() != "x86_64":
            return b""
        pid, python, words = record.tgid, Python.unpack(process.entry), record.registers
        registers = ThreadRegisters(
            int(words[_STACK]), int(words[_INSTRUCTION]), record.thread_pointer
        )
        read = partial(read_memory, pid)
        try:
            if pid not in self._states:
                self._states[pid] = thread_states(MemoryWords(read), python)
            state = self._states[pid].get(record.thread_pointer)
            if not state:
                return b""
            return standing_chain(read, python, state, registers, self._naming.hash_identity)
        except (OSError, WithheldError):
            return b""
