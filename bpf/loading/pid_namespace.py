"""Whether hpcd knows processes by the numbers that BPF programs see."""

from __future__ import annotations

from pathlib import Path

from hpcd.errors import PlatformError

OWN_NAMESPACE = Path("/proc/self/ns/pid")
REMEDY = "run hpcd on the host, or in a container that has its processes (docker run --pid=host)"
# PROC_PID_INIT_INO (include/linux/proc_ns.h), part of the kernel's interface since Linux 3.8.
_HOSTS_INODE = 0xEFFFFFFC


def in_hosts_namespace() -> bool:
    """Whether this process is in the host's pid namespace, or nothing tells."""
    try:
        return OWN_NAMESPACE.stat().st_ino == _HOSTS_INODE
    except OSError:
        return True


def require_hosts_namespace() -> None:
    """Raise :class:`PlatformError` in a pid namespace of a container.

    BPF programs see the host's process numbers. In another namespace process 2 is another one, if
    there is any: what was requested would never be seen to run or to end.
    """
    if not in_hosts_namespace():
        raise PlatformError(f"the kernel's process numbers differ from those here; {REMEDY}")
