"""CPU time of recorded threads and processes, as the scheduler accounts for it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from hpcd.daemon.access import processes
from hpcd.measurement.seen_part import SeenPart
from hpcd.model.identity import Process


@dataclass(slots=True)
class _RunningProcess:
    process: Process
    threads: int = 0
    """Threads that are recorded now."""
    before_ns: int = 0
    """CPU time of its threads before they were recorded."""
    used_ns: int = 0
    """CPU time of ended threads while they were recorded."""
    goes_on: bool = False


@dataclass(slots=True)
class _RunningThread:
    owner: _RunningProcess
    tid: int
    before_ns: int
    used_ns: int

    @property
    def pid(self) -> int:
        return self.owner.process.pid

    @property
    def recorded_ns(self) -> int:
        return self.used_ns - self.before_ns


class CpuAccount:
    """CPU time of recorded threads, by their numbers, as the scheduler accounts for it.

    Keeps what each thread had used before it was recorded, and what it has used since.
    """

    def __init__(self) -> None:
        self._begin_ns = 0  # when the first thread was met
        self._running: dict[int, _RunningThread] = {}
        # By number in the measurement.
        self._processes: dict[int, _RunningProcess] = {}
        self._ended_ns = 0
        self._read_ns = 0
        self.seen = SeenPart()
        """The part seen of the processes all of whose threads have ended, or their recording."""

    def begin(self, number: int, process: Process, tid: int, used_ns: int, time_ns: int) -> None:
        """Count the CPU time of a thread that has used ``used_ns`` by ``time_ns``."""
        self._begin_ns = self._begin_ns or time_ns
        owner = self._processes.setdefault(process.id, _RunningProcess(process))
        owner.process = process
        owner.threads += 1
        owner.before_ns += used_ns
        self._running[number] = _RunningThread(owner, tid, used_ns, used_ns)

    def restart(self, number: int, used_ns: int) -> None:
        """Count no CPU time of the thread that it used before now, when it has used ``used_ns``."""
        thread = self._running[number]
        thread.owner.before_ns += used_ns - thread.before_ns
        thread.before_ns = thread.used_ns = used_ns

    def take_over(self, number: int, used_ns: int) -> None:
        """Count a thread on as another one, which has used ``used_ns``."""
        thread = self._running[number]
        thread.before_ns += used_ns - thread.used_ns
        thread.used_ns = used_ns

    def update(self, number: int, used_ns: int) -> None:
        """Note that the thread has used ``used_ns``, or more, in its whole life."""
        thread = self._running.get(number)
        if thread:
            thread.used_ns = max(thread.used_ns, used_ns)

    def end(self, number: int, used_ns: int, time_ns: int | None) -> int:
        """End a thread that used ``used_ns``, at ``time_ns``, or its recording (None: it goes on).

        Returns the ns of it while it was recorded.
        """
        self.update(number, used_ns)
        thread = self._running.pop(number, None)
        if not thread:
            return 0
        owner = thread.owner
        owner.used_ns += thread.recorded_ns
        owner.threads -= 1
        owner.goes_on |= time_ns is None
        if not owner.threads:
            del self._processes[owner.process.id]
            end_ns = self._read_ns if time_ns is None else time_ns
            self.seen = self.seen.plus(self._part(owner, end_ns))
        self._ended_ns += thread.recorded_ns
        return thread.recorded_ns

    def name_of(self, number: int) -> str:
        """Return the present name of a thread that has not ended; empty if it cannot be read."""
        thread = self._running.get(number)
        return processes.thread_name(thread.pid, thread.tid) if thread else ""

    def not_running(self) -> list[int]:
        """Return the numbers of threads that have ended without a call of :meth:`end`. Reads a
        /proc file for each thread."""
        return [
            number
            for number, thread in self._running.items()
            if processes.has_ended(thread.pid, thread.tid)
        ]

    def read(self) -> None:
        """Bring all that have not ended up to date. Reads a /proc file for each."""
        self._read_ns = time.monotonic_ns()
        for number, thread in self._running.items():
            used_ns = processes.cpu_ns(thread.pid, thread.tid)
            if used_ns is not None:
                self.update(number, used_ns)

    def total(self) -> float:
        """Return the CPU seconds of all threads, as far as is known."""
        running = sum(thread.recorded_ns for thread in self._running.values())
        return (self._ended_ns + running) / 1e9

    def _part(self, owner: _RunningProcess, end_ns: int) -> SeenPart:
        """The part that was seen, until ``end_ns``, of a process none of whose threads is recorded
        any more."""
        process = owner.process
        before_ns = process.cpu_before_ns
        begun_ns = process.start_ns or self._begin_ns
        return SeenPart(
            processes=1,
            going_on=int(owner.goes_on),
            cpu_s=owner.used_ns / 1e9,
            going_on_cpu_s=owner.used_ns / 1e9 if owner.goes_on else 0.0,
            before_s=(owner.before_ns if before_ns is None else before_ns) / 1e9,
            age_s=max(self._begin_ns - begun_ns, 0) / 1e9 if before_ns != 0 else 0.0,
            watched_s=max(end_ns - max(begun_ns, self._begin_ns), 0) / 1e9,
        )
