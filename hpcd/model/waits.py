"""Waits and who ended them, as measurements and databases hold them.

A wait is held as a call (:mod:`hpcd.model.calls`) of :data:`WAIT`: it begins when its thread leaves
its CPU, in the call path that it leaves in, and lasts until the thread is woken.
"""

from __future__ import annotations

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
    ),
)
"""The function whose calls are waits: ``waker`` is the trace line of the thread that woke, 0 if
there is none; ``kind`` a :class:`hpcd.model.codes.Waker`, perhaps plus :data:`AGAIN`; ``path`` is
the call path that the thread woke in, where it was taken; ``futex`` the address that the wait was
for, a multiple of four, plus :data:`LOCK` and :data:`GIL`, 0 if it was for something else."""

AGAIN = 16
"""The bit of a wait's ``kind`` that says that its thread came straight from a wait in the same call
path, which is recorded, too."""

LOCK = 1
"""The bit of a wait's ``futex`` that says that it waited as for a lock."""

GIL = 2
"""The bit of a wait's ``futex`` that says that the lock is that of an interpreter, which one thread
at a time holds to run Python code."""
