"""CPU time of the machine, as the kernel counts it."""

from __future__ import annotations

from hpcd.measurement.summary import MachineTime
from hpcd.processors import machine_seconds

_NO_TIME = MachineTime()


def machine_time(since: MachineTime = _NO_TIME) -> MachineTime:
    """Return the CPU time of this machine ``since`` an earlier call, by default since its start."""
    spent = zip(since, machine_seconds(), strict=True)
    return MachineTime._make(round(max(after - before, 0.0), 2) for before, after in spent)
