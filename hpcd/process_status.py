"""The status of processes, as proc_pid_status(5) has it."""

from __future__ import annotations


def status_field(process: int | str, name: str) -> str:
    """Return a field of ``/proc/PROCESS/status``, empty if there is none or the process is gone.

    ``process`` is a pid, ``self``, or ``PID/task/TID``.
    """
    try:
        with open(f"/proc/{process}/status", errors="replace") as file:  # noqa: PTH123
            for line in file:
                field, _, value = line.partition(":")
                if field == name:
                    return value.strip()
    except OSError:
        pass
    return ""


def is_runnable(process: int | str) -> bool:
    """Whether a process, named as for :func:`status_field`, has a CPU or waits for one."""
    return status_field(process, "State").startswith("R")
