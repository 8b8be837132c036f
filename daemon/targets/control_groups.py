"""Control groups by their paths: looked up in the file systems of control groups alone.

A path is a user's, and so may be what lies at its end: from ``/proc/PID/root`` on it leads to a
file system that the user serves, where a lookup waits for as long as the user likes and cannot be
killed. So the kernel resolves it beneath the root of a hierarchy, without links or other mounts.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from hpcd.closing import closing_fd
from hpcd.daemon.access.openat2 import BENEATH, NO_MAGICLINKS, NO_SYMLINKS, NO_XDEV, openat2
from hpcd.errors import UsageError

# include/uapi/linux/magic.h: CGROUP2_SUPER_MAGIC, CGROUP_SUPER_MAGIC.
_CONTROL_GROUP_FILE_SYSTEMS = (0x63677270, 0x27E0EB)
_RESOLVE = NO_XDEV | NO_MAGICLINKS | NO_SYMLINKS | BENEATH


class _FileSystem(ctypes.Structure):
    """struct statfs of 64-bit kernels: 120 bytes, the type first."""

    _fields_ = [("type", ctypes.c_long), ("others", ctypes.c_long * 14)]


_LIBC = ctypes.CDLL(None, use_errno=True)
_OPEN_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


def control_group(text: str) -> str:
    """A control group's path below the root of its hierarchy, from that or from its directory.
    Raises :class:`UsageError` when there is none."""
    path = PurePosixPath(text)
    if ".." not in path.parts:
        for root in _hierarchies():
            inside = path.is_relative_to(root)
            below = "/" + "/".join(path.relative_to(root).parts) if inside else text
            if _has(root, below):
                return below
    raise UsageError(f"no control group {text}")


class CpuHierarchy(NamedTuple):
    """The hierarchy that has limits of CPU time: its directory, and its controller's name in
    /proc/PID/cgroup, empty for version 2."""

    root: Path
    controller: str


def cpu_hierarchy() -> CpuHierarchy | None:
    """Return the hierarchy that has limits of CPU time; None if none is mounted."""
    top = Path("/sys/fs/cgroup")
    if _has(top, "/"):
        return CpuHierarchy(top, "")
    return next(
        (
            CpuHierarchy(root, "cpu")
            for root in (top / "cpu", top / "cpu,cpuacct")
            if _has(root, "/")
        ),
        None,
    )


def read_beneath(hierarchy: Path, path: str, file: str) -> bytes:
    """Read a ``file`` of the control group ``path``, 4,096 bytes at most. Raises
    :class:`OSError` or :class:`ValueError`."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    with (
        closing_fd(os.open(hierarchy, _OPEN_FLAGS)) as root,
        closing_fd(openat2(root, path, _OPEN_FLAGS, _RESOLVE)) as group,
        closing_fd(os.open(file, flags, dir_fd=group)) as fd,
    ):
        return os.read(fd, 4096)


def _hierarchies() -> list[Path]:
    """The directories where hierarchies may be mounted: version 1 has one for each controller."""
    unified, top = Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")
    return [top] if _has(top, "/") else [unified, *sorted(top.glob("*"))]


def _has(hierarchy: Path, path: str) -> bool:
    """Whether ``hierarchy`` is mounted and has a control group of this ``path``."""
    # ValueError: a NUL or half a character in the path.
    with (
        contextlib.suppress(OSError, ValueError),
        closing_fd(os.open(hierarchy, _OPEN_FLAGS)) as root,
    ):
        if _is_control_group(root):
            os.close(openat2(root, path.strip("/") or ".", _OPEN_FLAGS, _RESOLVE))
            return True
    return False


def _is_control_group(fd: int) -> bool:
    file_system = _FileSystem()
    if _LIBC.fstatfs(fd, ctypes.byref(file_system)):
        raise OSError(ctypes.get_errno(), "fstatfs")
    return file_system.type in _CONTROL_GROUP_FILE_SYSTEMS
