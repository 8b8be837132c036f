"""CPU time of the machine, as the kernel counts it. No numpy here: a command may have begun before
that is imported."""

from __future__ import annotations

import os
from pathlib import Path

from hpcd.measurement.summary import MachineTime

_COUNTS = Path("/proc/stat")
_NO_TIME = MachineTime()


def machine_time(since: MachineTime = _NO_TIME) -> MachineTime:
    """Return the CPU time of this machine ``since`` an earlier call, by default since its start."""
    try:
        words = _COUNTS.read_text(encoding="ascii").split("\n", 1)[0].split()
    except OSError:
        return _NO_TIME
    tick = os.sysconf("SC_CLK_TCK")
    user, nice, system, idle, io, *interrupts, stolen = (int(word) / tick for word in words[1:9])
    now = MachineTime(user + nice + system + sum(interrupts), stolen, idle + io)
    return MachineTime._make(round(max(b - a, 0.0), 2) for a, b in zip(since, now, strict=True))
