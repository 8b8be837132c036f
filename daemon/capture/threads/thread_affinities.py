"""The CPUs that threads may run on, as the kernel says: by their affinity, and the CPU set of their
control group."""

from __future__ import annotations

import os
from collections.abc import Mapping

from hpcd.measurement.summary import BoundThreads
from hpcd.model.identity import Thread

# Threads read in a round, a microsecond or two each.
_IN_A_ROUND = 256
# Further threads that are bound are not in the summary.
_MOST_BOUND = 4096


class ThreadAffinities:
    """The CPUs of threads as last read: when they are registered, and again in turn."""

    def __init__(self) -> None:
        self._online = os.sysconf("SC_NPROCESSORS_ONLN")
        self._cpus: dict[int, tuple[int, ...]] = {}
        self._of_process: dict[int, tuple[int, ...]] = {}
        """The CPUs of the thread of each process that was read last, if it is bound."""
        self._turn: list[int] = []

    def begin(self, thread: Thread) -> None:
        """Read the CPUs of a new thread. A thread that has ended gets the CPUs of its process's
        thread that was read last: threads inherit them."""
        if not self._read(thread) and thread.process in self._of_process:
            self._keep(thread, self._of_process[thread.process])

    def read_some(self, threads: Mapping[int, Thread]) -> None:
        """Read some of the living ``threads`` (by number), all in turn."""
        if not self._turn:
            self._turn = list(threads)
        for _ in range(min(_IN_A_ROUND, len(self._turn))):
            thread = threads.get(self._turn.pop())
            if thread:
                self._read(thread)

    def _read(self, thread: Thread) -> bool:
        """Read the CPUs of a thread; False where it has ended."""
        try:
            cpus = os.sched_getaffinity(thread.tid)
        except OSError:
            return False
        if len(cpus) < self._online:
            self._keep(thread, tuple(sorted(cpus)))
        else:
            self._cpus.pop(thread.line, None)
            self._of_process.pop(thread.process, None)
        return True

    def _keep(self, thread: Thread, cpus: tuple[int, ...]) -> None:
        if thread.line in self._cpus or len(self._cpus) < _MOST_BOUND:
            self._cpus[thread.line] = cpus
            self._of_process[thread.process] = cpus

    def bound(self) -> tuple[BoundThreads, ...]:
        """Return the threads that may not run on all CPUs, by the CPUs that they may run on."""
        lines: dict[tuple[int, ...], list[int]] = {}
        for line, cpus in self._cpus.items():
            lines.setdefault(cpus, []).append(line)
        return tuple(BoundThreads(cpus, tuple(sorted(of))) for cpus, of in sorted(lines.items()))
