"""The roles that procedures have by their names and load modules."""

from __future__ import annotations

from enum import IntEnum, IntFlag, auto
from typing import NamedTuple

import numpy as np

from hpcd.array_types import I64, Mask


class NameRole(IntFlag):
    """A role of a procedure; several may be true. Their names are the tables of ``roles.toml``."""

    COMMUNICATION = auto()
    """A call of MPI and its like, in which a rank hands over data or waits for others."""
    LOCAL = auto()
    """A call that communicates and returns without waiting for another rank."""
    STARTUP = auto()
    """Begins or ends communication, with all ranks together."""
    BARRIER = auto()
    CONDITION = auto()
    """Waits until another thread signals."""
    JOIN = auto()
    """Waits for the end of a thread or process that the caller started."""
    LOCK = auto()
    HERD = auto()
    """A wait that one wake-up may end for several threads, of which one has something to do."""
    WAKES_ONE = auto()
    """Wakes one thread only, for something to do."""
    ASLEEP = auto()
    """A wait in which the thread sleeps: samples of CPU time in it show no wait."""
    ONCE = auto()
    """Waits for another thread to have initialised something."""
    ANSWER = auto()
    """Asks somebody through the network, and waits for the answer. Of the kernel's, which others
    call that wait for requests, too."""
    ENTRY = auto()
    """Where a thread or program begins."""
    STUB = auto()
    """A stub of the linker, which leads to the procedure it is named after."""
    REGION = auto()
    """The body of an OpenMP parallel region."""
    TEAM = auto()
    """Called by teams of OpenMP's threads alone."""
    OPENMP = auto()
    """Code of an OpenMP run-time library."""
    PYTHON = auto()
    """Code of Python's interpreter."""
    HEADER = auto()
    """Code of a compiler's or a standard library's headers."""
    COLLECTOR = auto()
    """Collects garbage, here and below."""

    STOPPED = auto()
    """Kernel procedures, here and below: stopped by a signal or a debugger."""
    CHILDREN = auto()
    PIPE = auto()
    FULL = auto()
    """Waits until another process or thread reads: a pipe or a socket is full."""
    EVENTS = auto()
    """Waits for input, a request or a signal, or begins or ends the process."""
    SLEEP = auto()
    FUTEX = auto()
    SCHEDULER = auto()
    """Where a thread leaves its CPU."""
    INTERRUPT = auto()
    RECORDING = auto()
    """Programs that trace: what they take is no work of the program that is traced."""

    C_LIBRARY = auto()
    """A load module of the C library, or one that compilers link to every program."""
    SUPPORT = auto()
    """A load module that serves programs, such as MPI, and is not their own code."""
    PACKAGE = auto()
    """A load module that serves programs in Python."""
    PROGRAM = auto()
    """A load module of the program's own, whatever other roles it has."""


class OpenmpRole(IntEnum):
    """The use of the time within a recorded call of OpenMP, without recorded calls inside it."""

    NONE = 0
    REGION = 1
    """A parallel region: the call that begins it returns when it has ended."""
    BODY = 2
    """A thread's part of a region, or a task."""
    BARRIER = 3
    """Waiting for others."""
    LOCK = 4
    """Waiting for a lock, a critical section, a turn."""
    SCHEDULING = 5
    """Handing out iterations and tasks."""


class OpenmpFunction(NamedTuple):
    """The ``role`` of a function, and the ``construct`` of the source that it belongs to."""

    role: OpenmpRole
    construct: str


_SLEEPS = NameRole.BARRIER | NameRole.CONDITION | NameRole.JOIN | NameRole.LOCK | NameRole.ONCE
_WAITS = NameRole.COMMUNICATION | NameRole.BARRIER | NameRole.CONDITION


def have(roles: I64, role: NameRole) -> Mask:
    """``bool[n]``: which of ``roles`` have any of ``role``."""
    mask: Mask = (roles & role) != 0
    return mask


def wait_for_others(roles: I64) -> Mask:
    """``bool[n]``: which procedures wait for another rank or thread, be it asleep or polling."""
    return have(roles, _WAITS) & ~have(roles, NameRole.LOCAL)


def without_sleep(roles: I64) -> I64:
    """``roles`` as far as they are seen where waits were not recorded: a procedure in which threads
    sleep waits for nothing, as the threads that were sampled there ran."""
    return np.where(have(roles, NameRole.ASLEEP), roles & ~_SLEEPS, roles).astype(np.int64)
