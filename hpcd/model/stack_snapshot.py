"""The state of threads at one moment: call path, waiting reason and the time since when it holds.

The reader (``hpcd.daemon.stacks``) makes it, the analysis names and merges it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from hpcd.array_types import U64
from hpcd.model import frame as frames
from hpcd.model.identity import Module, Process


class Activity(StrEnum):
    """The activity of a thread."""

    RUNNING = "running"
    """It is on a CPU."""
    RUNNABLE = "waiting for a CPU"
    ASLEEP = "asleep"
    UNINTERRUPTIBLE = "asleep, uninterruptibly"
    STOPPED = "stopped"
    TRACED = "stopped by a tracer"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Wait:
    """The reason for a thread's wait, as far as it is known.

    ``kind`` is the wait's kind in a word or two: ``futex``, ``mutex``, ``thread``, ``file``,
    ``child`` and so on; ``call`` the system call it is in. ``holders`` are the threads (tids) whose
    action would end the wait, where that is certain, ``address`` a futex's, ``word`` its value.
    """

    kind: str
    text: str
    call: str = ""
    address: int = 0
    word: int | None = None
    holders: tuple[int, ...] = ()
    process: int = 0
    """Pid of the process, for a futex private to one process; else 0."""


@dataclass(slots=True)
class ThreadStack:
    """One thread. ``path`` is the number of its call path in :attr:`StackSnapshot.paths`.

    ``seconds`` is the time since it left its CPU; None for a running thread, or if unknown.
    ``start_ns`` is monotonic. ``notes`` name defects of the shown data.
    """

    tid: int
    pid: int
    name: str
    start_ns: int
    activity: Activity
    switches: int
    seconds: float | None
    path: int
    wait: Wait | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class StackSnapshot:
    """Threads read together. ``paths`` are frames u64[n] (:mod:`hpcd.model.frame`), outermost
    first, ``symbols`` names of functions (start, size, name) by load module, ``images``
    descriptors of modules' files, which are open while the reader is."""

    time_ns: int
    seconds: float
    """How long reading the threads took."""
    threads: list[ThreadStack]
    processes: dict[int, Process]
    """By pid."""
    modules: dict[int, Module]
    symbols: dict[int, list[tuple[int, int, str]]]
    paths: list[U64]
    images: dict[int, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def of_processes(self, pids: Collection[int]) -> StackSnapshot:
        """Return the part of these processes, with the load modules that their paths go through; no
        notes."""
        threads = [thread for thread in self.threads if thread.pid in pids]
        numbers = {
            path: new for new, path in enumerate(sorted({thread.path for thread in threads}))
        }
        paths = [self.paths[path] for path in numbers]
        every = np.concatenate([np.zeros(0, np.uint64), *paths])
        modules = set(frames.module_of(every[frames.is_module(every)]).tolist())
        return StackSnapshot(
            self.time_ns,
            self.seconds,
            [replace(thread, path=numbers[thread.path]) for thread in threads],
            {pid: process for pid, process in self.processes.items() if pid in pids},
            {number: module for number, module in self.modules.items() if number in modules},
            {number: rows for number, rows in self.symbols.items() if number in modules},
            paths,
            {number: image for number, image in self.images.items() if number in modules},
        )
