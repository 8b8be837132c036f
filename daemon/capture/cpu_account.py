"""CPU time of recorded threads, as the scheduler accounts for it."""

from __future__ import annotations

from dataclasses import dataclass

from hpcd.daemon.targets import processes


@dataclass(slots=True)
class _Running:
    pid: int
    tid: int
    before_ns: int
    used_ns: int


class CpuAccount:
    """CPU time of recorded threads, by their numbers, as the scheduler accounts for it.

    Keeps what each thread had used before it was recorded, and what it has used since.
    """

    def __init__(self) -> None:
        self._running: dict[int, _Running] = {}
        self._ended_ns = 0

    def begin(self, number: int, pid: int, tid: int, used_ns: int) -> None:
        """Count the CPU time of a thread that has used ``used_ns`` so far."""
        self._running[number] = _Running(pid, tid, used_ns, used_ns)

    def update(self, number: int, used_ns: int) -> None:
        """Note that the thread has used ``used_ns``, or more, in its whole life."""
        thread = self._running.get(number)
        if thread:
            thread.used_ns = max(thread.used_ns, used_ns)

    def end(self, number: int, used_ns: int) -> int:
        """End a thread that used ``used_ns``; return the ns of it while it was recorded."""
        self.update(number, used_ns)
        thread = self._running.pop(number, None)
        recorded = thread.used_ns - thread.before_ns if thread else 0
        self._ended_ns += recorded
        return recorded

    def name_of(self, number: int) -> str:
        """Return the present name of a thread that has not ended; empty if it cannot be read."""
        thread = self._running.get(number)
        return processes.thread_name(thread.pid, thread.tid) if thread else ""

    def read(self) -> None:
        """Bring all that have not ended up to date. Reads a /proc file for each."""
        for number, thread in self._running.items():
            used_ns = processes.cpu_ns(thread.pid, thread.tid)
            if used_ns is not None:
                self.update(number, used_ns)

    def total(self) -> float:
        """Return the CPU seconds of all threads, as far as is known."""
        running = sum(thread.used_ns - thread.before_ns for thread in self._running.values())
        return (self._ended_ns + running) / 1e9
