"""Threads, as the stages of a recording pass them on."""

from __future__ import annotations

from dataclasses import dataclass

from hpcd.daemon.targets.processes import ThreadState


@dataclass(frozen=True, slots=True)
class AttachedThread:
    """A thread that ran before it was registered, at ``time_ns`` (monotonic).

    ``number`` is what the BPF programs know it by, ``state`` what it was doing at that time,
    ``cpu_ns`` the CPU time it had used. ``stack`` and ``copy`` are its stack, as the programs send
    those that are walked later, when it slept at that time; else empty. It has slept since
    ``asleep_since_ns``, None where that is not known.
    """

    number: int
    pid: int
    state: ThreadState
    time_ns: int
    cpu_ns: int
    stack: bytes = b""
    copy: bytes = b""
    asleep_since_ns: int | None = None
