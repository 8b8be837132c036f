"""Reports of the kernel's programs of a process that begins a program: its identity by then, its
arguments and its environment, as the kernel has just written them. No process is asked."""

from __future__ import annotations

import struct
from typing import NamedTuple

from hpcd.bpf.layouts import PROGRAM_EVENT

_HEAD = struct.Struct("<QIIQQIIII")  # PROGRAM_EVENT
assert _HEAD.size == PROGRAM_EVENT.itemsize


class ReportedProgram(NamedTuple):
    """A program at its exec. ``start`` is its process's start (ns, monotonic), ``group`` the number
    of its control group in the unified hierarchy (0: not known).

    ``arguments`` and ``environment`` are as /proc has them, None where they were cut.
    """

    start: int
    group: int
    parent: int
    user: int
    arguments: bytes | None
    environment: bytes | None

    @staticmethod
    def of(event: bytes) -> tuple[int, ReportedProgram]:
        """Return the pid, and the report of a :data:`~hpcd.bpf.layouts.PROGRAM_EVENT`."""
        _, _, pid, start, group, parent, user, arguments, environment = _HEAD.unpack_from(event)
        begin = _HEAD.size + arguments
        end = begin + environment
        return pid, ReportedProgram(
            start,
            group,
            parent,
            user,
            event[_HEAD.size : begin] if begin <= len(event) else None,
            event[begin:end] if end <= len(event) else None,
        )
