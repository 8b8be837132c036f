"""Opening files of measurements and databases, which are hostile input.

In a file's place there may be a pipe, which would be waited for, a device, or a link to a file that
only the person reading may read.
"""

from __future__ import annotations

import errno
import os
import stat
from io import FileIO
from pathlib import Path

from hpcd.closing import closing_fd
from hpcd.errors import FormatError


def open_regular(path: Path) -> FileIO:
    """Open the regular file ``path`` for reading, not buffered.

    Raises :class:`FormatError` for anything else, a link too, and :class:`OSError` as
    :func:`open` does.
    """
    return os.fdopen(open_descriptor(path), "rb", buffering=0)


def open_descriptor(path: Path) -> int:
    """The descriptor of a file that is opened as by :func:`open_regular`."""
    try:
        # O_NONBLOCK: opening a pipe must not wait for a writer.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise FormatError(f"{path}: a link, not a regular file") from None
        # A socket.
        if error.errno == errno.ENXIO:
            raise FormatError(f"{path}: not a regular file") from None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise FormatError(f"{path}: not a regular file")
    return fd


def open_linked(path: Path | str) -> int:
    """The descriptor of the regular file that ``path`` leads to, also by links.

    Raises :class:`FormatError` for anything else, which is not opened: for a fifo or a device that
    may do something.
    """
    with closing_fd(os.open(path, os.O_PATH | os.O_CLOEXEC)) as place:
        if not stat.S_ISREG(os.fstat(place).st_mode):
            raise FormatError(f"{path}: not a regular file")
        # Opens the file that was checked, even if its name now leads to another.
        return os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_CLOEXEC)


def read_regular(path: Path) -> bytes:
    """The contents of a file that is opened as by :func:`open_regular`."""
    with open_regular(path) as file:
        return file.read()


def regular_size(path: Path) -> int | None:
    """The bytes of a regular file; None for anything else, a link too, and where nothing is."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
