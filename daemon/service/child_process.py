"""The processes of the service that work for users: after the service, which answers all."""

from __future__ import annotations

import contextlib
import os

# Added to the service's nice value.
_NICER = 5


def after_service(pid: int) -> None:
    """Lower the priority of ``pid``, which has just been started, below this process's."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, 0) + _NICER)
