"""Status of files as far as the kernel has it, without a request to a file server."""

from __future__ import annotations

import ctypes
import os
import struct
from functools import cache
from typing import NamedTuple

from hpcd.closing import closing_fd
from hpcd.daemon.access.openat2 import CACHED, WORKING_DIRECTORY, openat2

# AT_EMPTY_PATH, AT_STATX_DONT_SYNC; STATX_BASIC_STATS
_STATX_FLAGS, _BASIC_STATS = 0x1000 | 0x4000, 0x7FF
# statx(2): user, mode, inode, size; the times of change, of the status and of contents; the device.
_STATX = struct.Struct("<20xI4xH2xQQ48xqI4xqI12xII112x")


OVERLAY = 0x794C7630
"""The type of overlay file systems (OVERLAYFS_SUPER_MAGIC)."""
IN_MEMORY = (0x01021994, 0x858458F6, 0x958458F6)
"""Types of file systems that keep files in memory: tmpfs, ramfs, hugetlbfs (linux/magic.h)."""


class FileStatus(NamedTuple):
    """Identity of a file and its contents, as far as the kernel knows it without reading."""

    st_mode: int
    st_dev: int
    st_ino: int
    st_size: int
    st_mtime_ns: int
    st_uid: int
    st_ctime_ns: int


def status_of(descriptor: int) -> FileStatus:
    """The status of what ``descriptor`` is of. Raises :class:`OSError`."""
    buffer = ctypes.create_string_buffer(_STATX.size)
    if _libc().statx(descriptor, b"", _STATX_FLAGS, _BASIC_STATS, buffer):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    user, mode, inode, size, *times, major, minor = _STATX.unpack(buffer)
    ctime, mtime = (seconds * 1_000_000_000 + part for seconds, part in (times[:2], times[2:]))
    return FileStatus(mode, os.makedev(major, minor), inode, size, mtime, user, ctime)


def cached_status(path: str) -> FileStatus:
    """The status of the file at ``path`` if the kernel has looked the path up lately.

    A user may have put a file system that it serves anywhere on the path. Raises :class:`OSError`,
    :class:`ValueError`.
    """
    with closing_fd(openat2(WORKING_DIRECTORY, path, os.O_PATH | os.O_CLOEXEC, CACHED)) as fd:
        return status_of(fd)


def file_system_type(descriptor: int) -> int:
    """The magic number (statfs(2)) of the file system that ``descriptor`` is of.

    Whoever serves it is asked. Raises :class:`OSError`.
    """
    buffer = ctypes.create_string_buffer(_STATX.size)
    if _libc().fstatfs(descriptor, buffer):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return ctypes.c_ulong.from_buffer(buffer).value


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
