"""Opening the files that a user names for results, in folders where others may put links."""

from __future__ import annotations

import errno
import os
from io import BufferedWriter
from pathlib import Path

from hpcd.closing import closing_fd
from hpcd.errors import StorageError

# As the kernel follows.
_MOST_LINKS = 40
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC


def open_output(path: Path) -> BufferedWriter:
    """Open ``path`` for writing; a file there is cut, pipes and devices are opened.

    Links are followed if root or this user made them, in any folder: the kernel's
    ``protected_symlinks`` requires that in sticky folders only. Raises :class:`StorageError`.
    """
    shown = path
    try:
        for _ in range(_MOST_LINKS):
            try:
                return os.fdopen(os.open(path, _WRITE | os.O_NOFOLLOW, 0o666), "wb")
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
            target = _target_of(path)
            if target is None:
                return os.fdopen(os.open(path, _WRITE), "wb")
            path = path.parent / target
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    except OSError as error:
        raise StorageError(f"cannot write {shown}: {error.strerror}") from None


def _target_of(link: Path) -> str | None:
    """Return the target of ``link``, None for a link in /proc, which leads to an open file.

    Raises :class:`StorageError` if another user made the link."""
    with closing_fd(os.open(link, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)) as fd:
        status = os.fstat(fd)
        if status.st_dev == Path("/proc").stat().st_dev:
            return None
        if status.st_uid not in (0, os.geteuid()):
            raise StorageError(f"{link} is a link that another user made; it is not followed")
        return os.readlink("", dir_fd=fd)
