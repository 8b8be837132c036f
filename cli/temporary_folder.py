"""Temporary folders that the next process removes where one was killed before it could."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from hpcd.closing import closing_fd

# The process that has just made a folder may not have locked it yet.
_YOUNG_SECONDS = 60.0
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def temporary_folder(prefix: str) -> Iterator[tuple[Path, int]]:
    """A folder whose name begins with ``prefix``, removed at the end, and the descriptor that locks
    it: processes that inherit it keep the folder. Removes those of earlier processes first."""
    _remove_abandoned(prefix)
    with (
        tempfile.TemporaryDirectory(prefix=prefix) as folder,
        closing_fd(os.open(folder, _DIRECTORY)) as lock,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield Path(folder), lock


def _remove_abandoned(prefix: str) -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        # Another's, or removed meanwhile; or locked.
        with contextlib.suppress(OSError), closing_fd(os.open(path, _DIRECTORY)) as lock:
            status = os.fstat(lock)
            private = status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) == 0o700
            if private and time.time() - status.st_mtime > _YOUNG_SECONDS:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path)
