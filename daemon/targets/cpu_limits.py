"""CPU time that limits of control groups (cpu.max, cpu.cfs_quota_us) withhold from targets."""

from __future__ import annotations

import contextlib
from itertools import accumulate
from pathlib import Path

from hpcd.daemon.access.processes import control_groups
from hpcd.daemon.targets.control_groups import cpu_hierarchy, read_beneath

# The limits of further groups, as on a node of containers, are not read: a reading takes 20 µs.
_MOST_GROUPS = 64
# By name in cpu.stat, version 2 (Documentation/admin-guide/cgroup-v2.rst) and version 1
# (Documentation/scheduler/sched-bwc.rst): the length of its unit (s).
_UNITS = {"throttled_usec": 1e-6, "throttled_time": 1e-9}


class CpuLimits:
    """The limits of the control groups that processes are in, and of those above."""

    def __init__(self) -> None:
        self._hierarchy = cpu_hierarchy()
        # By path: time withheld (s) until the group was first read, and by the last reading.
        self._withheld: dict[str, tuple[float, float]] = {}

    def watch(self, pid: int) -> None:
        """Count what the groups of ``pid`` withhold from now on."""
        if self._hierarchy is None:
            return
        path = control_groups(pid).get(self._hierarchy.controller, "")
        for group in accumulate(path.strip("/").split("/"), "{}/{}".format):
            if group and group not in self._withheld and len(self._withheld) < _MOST_GROUPS:
                seconds = _throttled(self._hierarchy.root, group)
                self._withheld[group] = seconds, seconds

    def withheld(self) -> float:
        """Return the CPU seconds withheld so far: threads that could run had CPUs that their group
        was not given."""
        if self._hierarchy is None:
            return 0.0
        for group, (before, last) in self._withheld.items():
            now = _throttled(self._hierarchy.root, group)
            self._withheld[group] = before, max(last, now)  # it may be gone
        return sum(last - before for before, last in self._withheld.values())


def _throttled(root: Path, group: str) -> float:
    with contextlib.suppress(OSError, ValueError):
        for line in read_beneath(root, group, "cpu.stat").decode("ascii").splitlines():
            name, _, value = line.partition(" ")
            if name in _UNITS:
                return int(value) * _UNITS[name]
    return 0.0
