"""The processors that this process may use, and the CPU time of the machine and of itself."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path


def processor_count() -> int:
    """Return the number of CPUs: on Linux the CPUs of this process's affinity, elsewhere all."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def machine_seconds() -> tuple[float, float, float]:
    """Return the CPU seconds since the machine started: used, taken by the hypervisor (0 as well
    where the kernel keeps no account of it), idle. Raises :class:`OSError`."""
    words = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()
    tick = os.sysconf("SC_CLK_TCK")
    user, nice, system, idle, io, *interrupts, stolen = (int(word) / tick for word in words[1:9])
    return user + nice + system + sum(interrupts), stolen, idle + io


def seconds_by_cpu() -> dict[int, tuple[float, float, float]]:
    """Return of each CPU that is online the seconds since the machine started: idle, in interrupts
    and softirqs (0 where the kernel keeps no account of these), taken by the hypervisor. Raises
    :class:`OSError`."""
    tick, seconds = os.sysconf("SC_CLK_TCK"), {}
    for line in Path("/proc/stat").read_text(encoding="ascii").splitlines():
        name, *words = line.split()
        if name.startswith("cpu") and name != "cpu":
            _, _, _, idle, io, hard, soft, stolen = (int(word) / tick for word in words[:8])
            seconds[int(name.removeprefix("cpu"))] = idle + io, hard + soft, stolen
    return seconds


def own_cpu_seconds() -> float:
    """Return the CPU seconds of this process and of the child processes it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
