"""Reports of the kernel's programs of a process that begins a program: its identity by then, its
arguments and its environment, as the kernel has just written them. No process is asked."""

from __future__ import annotations

from typing import NamedTuple

from hpcd.bpf.wire import ProgramEvent


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
        """Return the pid, and the report of a :class:`~hpcd.bpf.wire.ProgramEvent`."""
        head = ProgramEvent.unpack(event)
        begin = head.BYTES + head.arguments
        end = begin + head.environment
        return head.tgid, ReportedProgram(
            head.start,
            head.group,
            head.parent,
            head.user,
            event[head.BYTES : begin] if begin <= len(event) else None,
            event[begin:end] if end <= len(event) else None,
        )
