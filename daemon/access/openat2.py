"""openat2(2): opening a file within bounds on how the kernel resolves its path."""

from __future__ import annotations

import ctypes
import os

# The same number on all architectures, since Linux 5.6; include/uapi/linux/openat2.h.
_SYS_OPENAT2 = 437
NO_XDEV, NO_MAGICLINKS, NO_SYMLINKS, BENEATH = 1, 2, 4, 8
CACHED = 0x20
"""Fails (EAGAIN) unless the kernel has all of the path: no file server is asked. Linux 5.12."""
WORKING_DIRECTORY = -100  # AT_FDCWD

_LIBC = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("flags", "mode", "resolve")]


def openat2(directory: int, path: str, flags: int, resolve: int) -> int:
    """Return a descriptor of ``path`` below ``directory``. Raises :class:`OSError`, and
    :class:`ValueError` for a NUL in the path."""
    name = os.fsencode(path)
    if b"\0" in name:
        raise ValueError("a NUL in a path")
    how = _OpenHow(flags, 0, resolve)
    size = ctypes.c_size_t(ctypes.sizeof(how))
    fd = _LIBC.syscall(ctypes.c_long(_SYS_OPENAT2), directory, name, ctypes.byref(how), size)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "openat2")
    return int(fd)
