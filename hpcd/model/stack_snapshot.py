"""What threads do at one moment: where each stands, for how long, and what it waits for.

The reader (``hpcd.daemon.stacks``) makes it, the analysis names and merges it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from hpcd.array_types import U64
from hpcd.model.identity import Module, Process


class Activity(StrEnum):
    """What a thread does."""

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
    """What a thread waits for, as far as that can be told.

    ``kind`` is the wait's kind in a word or two: ``futex``, ``mutex``, ``thread``, ``file``,
    ``child`` and so on; ``call`` the system call it is in. ``holders`` are the threads (tids) whose
    doing would end the wait, where that is certain, ``address`` a futex's, ``word`` its value.
    """

    kind: str
    text: str
    call: str = ""
    address: int = 0
    word: int | None = None
    holders: tuple[int, ...] = ()
    process: int = 0
    """Of a futex that only threads of one process share: the pid; else 0."""


@dataclass(slots=True)
class ThreadStack:
    """One thread. ``path`` is the number of its call path in :attr:`StackSnapshot.paths`.

    ``seconds`` is how long it has been off its CPU; None for a thread that runs, or when it is not
    known. ``start_ns`` is monotonic. ``notes`` say what is amiss with what is shown.
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
