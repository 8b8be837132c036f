"""Identities of a measurement: host, process, thread (one trace line each), load module, event.

Identifiers are small integers that a measurement never reuses, unlike pids, so a recycled pid or
tid is a new process or line.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import Any

MOST_RANKS = 1 << 24
"""More ranks than any job has: arrays are made with a place for each."""
MOST_FREQUENCY = 1 << 53
"""Hz; a double cannot represent all larger integers."""


@dataclass(frozen=True, slots=True)
class Host:
    """The machine a measurement was taken on."""

    hostname: str
    boot_id: str
    kernel: str
    machine: str
    cpus: int


@dataclass(frozen=True, slots=True)
class Process:
    """One process image owner (thread group). ``id`` is unique in its measurement.

    ``cpu_before_ns`` is the CPU time that it had used, with threads that had ended, when it was
    attached to; 0 where that was at its start, None where only its threads tell.
    """

    id: int
    pid: int
    parent_pid: int
    name: str
    exe: str
    command: tuple[str, ...]
    uid: int
    start_ns: int
    job: str = ""
    rank: int | None = None
    size: int | None = None
    cpu_before_ns: int | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # Merges send thousands between processes: dataclasses' pickling takes four times as long.
        return Process, _PROCESS_FIELDS(self)


_PROCESS_FIELDS = attrgetter(*Process.__slots__)


@dataclass(frozen=True, slots=True)
class Thread:
    """One trace line. ``line`` is unique in its measurement; times are monotonic ns.

    ``cpu_ns`` is the CPU time that the scheduler counted for it while it was recorded,
    ``cpu_before_ns`` the CPU time used before; None if unknown. A thread that slept when hpcd
    attached to it, at ``attached_ns``, has left its CPU at ``asleep_since_ns``: its first wait
    began then. None for others, and if the kernel does not report it.
    """

    line: int
    process: int
    tid: int
    name: str
    start_ns: int
    end_ns: int | None = None
    cpu_ns: int | None = None
    attached_ns: int | None = None
    asleep_since_ns: int | None = None
    cpu_before_ns: int | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Thread, _THREAD_FIELDS(self)


_THREAD_FIELDS = attrgetter(*Thread.__slots__)


class ModuleKind(StrEnum):
    """The kind of a load module, which decides how its symbols are found."""

    ELF = "elf"
    VDSO = "vdso"
    JIT = "jit"
    KERNEL = "kernel"
    KERNEL_MODULE = "kernel-module"
    PYTHON = "python"
    """A source file of Python's: offsets say which function and line (:mod:`.python_place`)."""
    JAVA = "java"
    """A source file of Java's, by its package; offsets are the same."""
    NAMED = "named"
    """Another tool's: its procedures have names, offsets follow from these."""
    NAMED_KERNEL = "named-kernel"
    """The same, of the kernel or its modules."""


KERNEL_KINDS = (ModuleKind.KERNEL, ModuleKind.KERNEL_MODULE, ModuleKind.NAMED_KERNEL)
"""Kinds of load modules with kernel code."""
SOURCE_KINDS = (ModuleKind.PYTHON, ModuleKind.JAVA)
"""Kinds of load modules that are source files, whose offsets say which line."""


@dataclass(frozen=True, slots=True)
class Module:
    """A load module. ``base`` is the run-time start of a JIT region, else 0."""

    id: int
    kind: ModuleKind
    path: str
    build_id: str = ""
    base: int = 0
    process: int = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return Module, _MODULE_FIELDS(self)


_MODULE_FIELDS = attrgetter(*Module.__slots__)


SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
"""Units of events that are times; metrics have seconds."""

LEAST_SCALE, MOST_SCALE = 1e-60, float(1 << 60)
"""Scales of events are 0 or between these: costs can be computed with."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event, which a record's ``event`` column refers to.

    A record represents ``value * scale`` of ``unit``: for cpu-clock samples, value counts sampling
    periods and scale is the period in seconds. A record of an ``interval`` event begins at its time
    and lasts as long as it represents; no other record of its line lies inside it.
    """

    id: int
    name: str
    unit: str
    scale: float
    metric: str
    frequency: int = 0
    interval: bool = False

    @property
    def length_ns(self) -> float:
        """Length of an interval whose value is 1 (ns); 0 of other events, and where the unit is no
        time."""
        return self.scale * (1e9 * SECONDS.get(self.unit, 0.0)) if self.interval else 0.0
