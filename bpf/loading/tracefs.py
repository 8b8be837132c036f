"""Tracepoints' numbers, from tracefs wherever it is mounted, or by a private mount of it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hpcd.errors import PlatformError

_MOUNTS = (Path("/sys/kernel/tracing/events"), Path("/sys/kernel/debug/tracing/events"))
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long
# The same on every architecture: they are younger than the common table.
_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
_CLOEXEC, _CMD_CREATE = 1, 6


class Tracepoints:
    """The folder ``events`` of tracefs, by descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def number(self, system: str, name: str) -> int | None:
        """Return perf_event_attr.config of the tracepoint; None if there is no such tracepoint."""
        try:
            file = os.open(f"{system}/{name}/id", os.O_RDONLY, dir_fd=self._descriptor)
        except OSError:
            return None
        try:
            text = os.read(file, 32).strip()
        finally:
            os.close(file)
        return int(text) if text.isdigit() else None

    def systems(self) -> list[str]:
        """Return the groups of tracepoints: ``sched``, ``syscalls`` ..."""
        return self._folders(".")

    def names(self, system: str) -> list[str]:
        """The tracepoints of ``system``, none when there is no such."""
        return self._folders(system)

    def _folders(self, path: str) -> list[str]:
        try:
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._descriptor)
        except OSError:
            return []
        try:
            with os.scandir(folder) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir())
        finally:
            os.close(folder)


@contextmanager
def events() -> Iterator[Tracepoints]:
    """Tracefs' tracepoints.

    Where it is not mounted, or only for others, a mount without a place in the file system is
    made, which no other process sees and which ends with the block. Raises :class:`PlatformError`.
    """
    descriptor = _mounted()
    if descriptor is None:
        descriptor = _private()
    try:
        yield Tracepoints(descriptor)
    finally:
        os.close(descriptor)


def _mounted() -> int | None:
    for path in _MOUNTS:
        try:
            return os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            continue
    return None


def _private() -> int:
    opened: list[int] = []
    try:
        opened.append(_call(_FSOPEN, b"tracefs", _CLOEXEC))
        _call(_FSCONFIG, opened[0], _CMD_CREATE, None, None, 0)
        opened.append(_call(_FSMOUNT, opened[0], _CLOEXEC, 0))
        return os.open("events", os.O_RDONLY | os.O_DIRECTORY, dir_fd=opened[1])
    except OSError as error:
        raise PlatformError(
            f"tracepoints need tracefs, which cannot be mounted: {os.strerror(error.errno or 0)}; "
            "mount -t tracefs tracefs /sys/kernel/tracing"
        ) from None
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _call(number: int, *arguments: int | bytes | None) -> int:
    result: int = _LIBC.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result
