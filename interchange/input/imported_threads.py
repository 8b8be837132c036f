"""Threads and processes of recordings of other tools."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

from hpcd.errors import FormatError
from hpcd.interchange.fitted_names import readable
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.identity import Process, Thread

_MAX_LINES = 1 << 18
# A century and a half.
_LATEST_NS = 1 << 62


class ImportedThreads:
    """Threads, which are trace lines, and processes of a measurement.

    They are announced to ``writer`` when they are first met, and again by :meth:`finish` with
    complete data. ``rank`` and ``size`` describe the process with most samples.
    Raises FormatError naming ``source`` for numbers that no thread has, or too many threads.
    """

    def __init__(self, writer: MeasurementWriter, source: str) -> None:
        self.default_name = "imported"
        """The name of a process that the file does not name."""
        self.job = ""
        """The job of all processes, if given."""
        self.rank_job = ""
        """The job of processes that have a rank, by the file itself."""
        self.rank: int | None = None
        self.size: int | None = None
        self._writer = writer
        self._source = source
        self._processes: dict[int, Process] = {}
        self._process_names: dict[int, str] = {}
        self._ranks: dict[int, int] = {}
        self._lines: dict[tuple[int, int, int], int] = {}
        self._threads: list[Thread] = []
        self._nameless: set[int] = set()
        self._samples: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._threads)

    def line(self, pid: int, tid: int, name: bytes | str, cpu: int = 0) -> int:
        """Return the trace line of a thread; without a ``name`` it is shown by its number. ``cpu``
        distinguishes threads that share a number, as idle ones do."""
        key = pid, tid, cpu
        number = self._lines.get(key)
        if number is not None:
            return number
        number = len(self._lines)
        if number >= _MAX_LINES:
            raise FormatError(f"{self._source}: more than {_MAX_LINES:,} threads")
        if not -1 <= pid < 1 << 31 or not -1 <= tid < 1 << 63:
            raise FormatError(f"{self._source}: no process has the number {max(pid, tid)}")
        process = self._processes.get(pid)
        if process is None:
            process = Process(len(self._processes), pid, 0, self.default_name, "", (), 0, 0)
            self._processes[pid] = process
            self._writer.add_process(process)
        self._lines[key] = number
        thread = Thread(number, process.id, tid, readable(name or f"thread {tid}"), 0)
        self._threads.append(thread)
        self._writer.add_thread(thread)
        if not name:
            self._nameless.add(number)
        return number

    def name_process(self, pid: int, name: bytes | str) -> None:
        """Give a process another name than its threads'."""
        self._process_names[pid] = readable(name)

    def set_rank(self, pid: int, rank: int) -> None:
        """Set the rank of a process."""
        self._ranks[pid] = rank

    def rename(self, line: int, name: bytes | str) -> None:
        """Give a thread the name it had last."""
        self._threads[line] = replace(self._threads[line], name=readable(name))
        self._nameless.discard(line)

    def extend(self, line: int, begin_ns: int, end_ns: int, samples: int = 0) -> None:
        """Note that a thread existed from ``begin_ns`` to ``end_ns`` at least, with ``samples``.
        Raises :class:`FormatError` for invalid times."""
        if not -_LATEST_NS < begin_ns <= end_ns < _LATEST_NS:
            raise FormatError(f"{self._source}: damaged: times of a thread are out of range")
        thread = self._threads[line]
        if thread.end_ns is not None:
            begin_ns, end_ns = min(begin_ns, thread.start_ns), max(end_ns, thread.end_ns)
        self._threads[line] = replace(thread, start_ns=begin_ns, end_ns=end_ns)
        if samples:
            self._samples[thread.process] += samples

    def finish(self) -> None:
        """Write names, times, and the rank of the process with most samples."""
        names: dict[int, dict[int, str]] = defaultdict(dict)
        for thread in self._threads:
            if thread.line not in self._nameless:
                names[thread.process][thread.tid] = thread.name
        busiest = next((process for process, _ in self._samples.most_common(1)), -1)
        for process in self._processes.values():
            name = self._process_names.get(process.pid)
            name = name or self._name_by_threads(process.pid, names[process.id])
            rank = self._ranks.get(process.pid)
            job = self.job or (self.rank_job if rank is not None else "")
            if rank is None and process.id == busiest:
                rank = self.rank
            size = None if rank is None else self.size
            self._writer.add_process(replace(process, name=name, job=job, rank=rank, size=size))
        for thread in self._threads:
            self._writer.add_thread(thread)

    def _name_by_threads(self, pid: int, names: dict[int, str]) -> str:
        """Return the main thread's name of ``names`` by tid, or the name common to all threads."""
        shared = set(names.values())
        return names.get(pid) or (shared.pop() if len(shared) == 1 else self.default_name)
