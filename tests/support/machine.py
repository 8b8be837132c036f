"""Effects of this machine on the programs that run on it."""

from __future__ import annotations

import os
from pathlib import Path


def stolen_seconds() -> float:
    """CPU seconds that the hypervisor has given to others since boot (proc_stat(5)).

    The kernel does not count them as a thread's CPU time; a clock read at its switches does.
    """
    _, *ticks = Path("/proc/stat").read_text().partition("\n")[0].split()
    return int(ticks[7]) / os.sysconf("SC_CLK_TCK")
