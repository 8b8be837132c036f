"""The processes of the service that work for users: after the service, which answers all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

# Added to the service's nice value.
_NICER = 5


def after_service(pid: int) -> None:
    """Lower the priority of ``pid``, which has just been started, below this process's."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, 0) + _NICER)


def end_first_without_memory() -> None:
    """When all of the service's memory is used up, have the kernel end this process, which works
    for a user, and not the service; of several the one that has most."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")


def tuples(value: Any) -> Any:
    """Return ``value`` of JSON with its lists as tuples, which specifications have."""
    if isinstance(value, dict):
        return {name: tuples(part) for name, part in value.items()}
    return tuple(map(tuples, value)) if isinstance(value, list) else value
