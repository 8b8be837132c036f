"""Mapping files of databases, which other users may cut short meanwhile."""

from __future__ import annotations

import mmap
import os
import shutil
import stat
import tempfile
from typing import IO


def map_file(file: IO[bytes], size: int) -> mmap.mmap:
    """Map the first ``size`` bytes of ``file`` read-only, at most all.

    A file that others than this user and root can write is copied first, into one that has no name:
    to read a mapping beyond the end of its file ends the process (SIGBUS). Raises
    :class:`OSError`.
    """
    if _is_steady(os.fstat(file.fileno())):
        return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    with tempfile.TemporaryFile() as copy:
        file.seek(0)
        shutil.copyfileobj(file, copy)
        copy.truncate(size)
        return mmap.mmap(copy.fileno(), size, access=mmap.ACCESS_READ)


def _is_steady(status: os.stat_result) -> bool:
    own = status.st_uid in (0, os.geteuid())
    return own and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
