"""CPU time of the machine, as the kernel counts it."""

from __future__ import annotations

from collections.abc import Mapping

from hpcd.measurement.summary import CpuSeconds, MachineTime
from hpcd.processors import machine_seconds, seconds_by_cpu

_NO_TIME = MachineTime()


def machine_time(since: MachineTime = _NO_TIME) -> MachineTime:
    """Return the CPU time of this machine ``since`` an earlier call, by default since its start."""
    spent = zip(since, machine_seconds(), strict=True)
    return MachineTime._make(round(max(after - before, 0.0), 2) for before, after in spent)


def times_of_cpus(since: Mapping[int, tuple[float, float, float]]) -> tuple[CpuSeconds, ...]:
    """Return the times of the CPUs ``since`` an earlier :func:`seconds_by_cpu`, without CPUs that
    were offline then or are now."""
    return tuple(
        CpuSeconds(number, *(
            round(max(after - before, 0.0), 2)
            for before, after in zip(since[number], seconds, strict=True)
        ))
        for number, seconds in seconds_by_cpu().items() if number in since
    )  # fmt: skip
