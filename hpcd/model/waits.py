"""Waits and their wakers, and waits for a CPU by interferer, as they are stored.

A wait is held as a call (:mod:`hpcd.model.calls`) of :data:`WAIT`: it begins when its thread leaves
its CPU, in the call path that it leaves in, and lasts until the thread is woken.
"""

from __future__ import annotations

from enum import StrEnum

from hpcd.model.calls import CalledFunction, CallValue, Group, ValueKind

WAIT = CalledFunction(
    # Above the numbers of all functions that are recorded: there are at most 4096.
    65535,
    "wait",
    "",
    Group.WAIT,
    (
        CallValue("waker", ValueKind.LINE),
        CallValue("kind", ValueKind.NUMBER),
        CallValue("path", ValueKind.NODE),
        CallValue("futex", ValueKind.HANDLE),
        CallValue("other", ValueKind.OBJECT),
    ),
)
"""The function whose calls are waits: ``waker`` is the trace line of the thread that woke, 0 if
there is none; ``kind`` a :class:`hpcd.model.codes.Waker`, perhaps plus :data:`AGAIN`; ``path`` is
the call path that the thread woke in, where it was taken; ``futex`` the address that the wait was
for, a multiple of four, plus :data:`LOCK` and :data:`GIL`, 0 if it was for something else;
``other`` is who woke the thread, by name, if that is no recorded thread: a process, a kernel
thread, a device's interrupt, a softirq."""

INTERFERENCE = CalledFunction(
    65534,
    "interference",
    "",
    Group.INTERFERENCE,
    (
        CallValue("thread", ValueKind.LINE),
        CallValue("kind", ValueKind.NUMBER),
        CallValue("other", ValueKind.OBJECT),
    ),
)
"""The function whose calls are parts of waits for a CPU: each lasts as long as an interferer
ran, one after another from the wait's begin on, in no particular order. ``kind`` is a
:class:`hpcd.model.codes.Interferer`; ``thread`` the trace line of a thread of the process that ran,
0 if it is not recorded; ``other`` that process, or the kernel thread, if it is not."""


class OtherWaker(StrEnum):
    """Kinds of objects that are wakers, or run instead of others, and no recorded threads."""

    PROCESS = "process"
    KERNEL_THREAD = "kernel thread"
    SOFTIRQ = "softirq"
    INTERRUPT = "interrupt"


OTHERS_PROCESS = OtherWaker.PROCESS, "another user's process", 0
"""The object of all processes that the user may not know: kind, name and no pid."""

AGAIN = 16
"""The bit of a wait's ``kind`` that says that its thread came straight from a wait in the same call
path, which is recorded, too."""

LOCK = 1
"""The bit of a wait's ``futex`` that says that it waited as for a lock."""

GIL = 2
"""The bit of a wait's ``futex`` that says that the lock is that of an interpreter, which one thread
at a time holds to run Python code."""
