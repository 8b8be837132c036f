"""Whether hpcd knows processes and times by the numbers that BPF programs see."""

from __future__ import annotations

from pathlib import Path

from hpcd.errors import PlatformError

PID_NAMESPACE = Path("/proc/self/ns/pid")
CLOCK_OFFSETS = Path("/proc/self/timens_offsets")
PID_REMEDY = (
    "run hpcd on the host, or in a container that has its processes (docker run --pid=host)"
)
TIME_REMEDY = "run hpcd outside of this time namespace (unshare --time)"
# PROC_PID_INIT_INO (include/linux/proc_ns.h), part of the kernel's interface since Linux 3.8.
_HOSTS_INODE = 0xEFFFFFFC


def has_hosts_pids() -> bool:
    """Whether this process is in the host's pid namespace, or nothing tells."""
    try:
        return PID_NAMESPACE.stat().st_ino == _HOSTS_INODE
    except OSError:
        return True


def has_hosts_clock() -> bool:
    """Whether this process's clocks are the host's (time_namespaces(7)), or nothing tells."""
    try:
        lines = CLOCK_OFFSETS.read_text().splitlines()
    except OSError:
        return True
    return not any(int(offset) for line in lines for offset in line.split()[1:])


def require_host() -> None:
    """Raise :class:`PlatformError` in a pid namespace of a container, or with clocks of its own.

    BPF programs see the host's process numbers. In another namespace process 2 is another one, if
    there is any: what was requested would never be seen to run or to end. Their times are those of
    the host's clock.
    """
    if not has_hosts_pids():
        raise PlatformError(f"the kernel's process numbers differ from those here; {PID_REMEDY}")
    if not has_hosts_clock():
        raise PlatformError(f"the kernel's clock differs from the one here; {TIME_REMEDY}")
