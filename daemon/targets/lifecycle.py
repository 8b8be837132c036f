"""Threads, as the stages of a recording pass them on."""

from __future__ import annotations

import time
from dataclasses import dataclass

from hpcd.bpf.kernel_targets import KernelTargets
from hpcd.daemon.access import processes
from hpcd.daemon.access.processes import ThreadState
from hpcd.errors import TargetError


@dataclass(frozen=True, slots=True)
class AttachedThread:
    """A thread that ran before it was registered, at ``time_ns`` (monotonic).

    ``number`` is what the BPF programs know it by, ``state`` what it was doing at that time,
    ``cpu_ns`` the CPU time it had used. ``stack`` and ``copy`` are its stack, as the programs send
    those that are walked later, when it slept at that time; else empty. It has slept since
    ``asleep_since_ns``, None where that is not known. ``kernel_stack`` are places in the kernel,
    the innermost first, of one that sleeps and whose stack was not read.
    """

    number: int
    pid: int
    state: ThreadState
    time_ns: int
    cpu_ns: int
    stack: bytes = b""
    copy: bytes = b""
    asleep_since_ns: int | None = None
    kernel_stack: tuple[str, ...] = ()


def attach_thread(
    kernel: KernelTargets, pid: int, tid: int, *, before_exec: bool = False
) -> AttachedThread | None:
    """Number a thread that runs; None when it is gone or the programs have numbered it.

    With ``before_exec`` it is recorded from its next exec on.
    """
    now = time.monotonic_ns()
    number = kernel.add_thread(tid, before_exec=before_exec)
    if number is None:
        return None
    state = processes.thread_state(pid, tid)
    used = processes.cpu_ns(pid, tid)
    if state is None or used is None:
        kernel.forget_thread(tid)
        return None
    return AttachedThread(number, pid, state, now, used)


def attach_held(kernel: KernelTargets, pid: int) -> AttachedThread:
    """Make the programs record ``pid``, a child that hpcd holds, from its exec on; return its
    thread. Raises :class:`TargetError` when it is gone."""
    kernel.add_process(pid, None)
    thread = attach_thread(kernel, pid, pid, before_exec=True)
    if thread is None:
        raise TargetError(f"process {pid} ended before hpcd could attach to it")
    return thread
