"""Results read from modules, kept on disk: one file per module and kind.

A file's name begins with the users that may have written the module (:func:`writers_of`): an ELF
file may claim any build-id, and so can at worst mislead about programs of users that could have
changed these anyway.

The least recently used files go when all together grow beyond a limit, and so do files unused for
long; a file's time of change is its time of last use, as not all file systems keep times of access.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from pathlib import Path

_MAX_FILE = 2 << 30
# A machine that runs a program once a quarter can have its modules read again.
LIMIT_SECONDS = 90 * 86400
# A writer that was killed leaves a part of a file; no writer takes this long.
_PART_SECONDS = 3600
_PART = ".part"
# Trimmed to this share of the limit, so that not every new file has to look at all.
_ROOM = 0.9


class FileStore:
    """Files in ``directory`` (None: nowhere), of ``limit_bytes`` together. It never fails: an
    unreadable file is missing, a file that cannot be written is not kept."""

    def __init__(
        self, directory: Path | None, limit_bytes: int, limit_seconds: float = LIMIT_SECONDS
    ) -> None:
        self._limit_bytes = limit_bytes
        self._limit_seconds = limit_seconds
        # Bytes of all files, as far as this process knows; nothing before its first look.
        self._bytes: int | None = None
        self._directory: Path | None = None
        if directory is None:
            return
        with contextlib.suppress(OSError):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Another user with write access could make root unwind by forged rows.
            if _trusted(directory.lstat(), stat.S_IFDIR):
                self._directory = directory

    def load(self, writers: str, build_id: str, kind: str) -> bytes | None:
        """Return the cached data of a module that ``writers`` may have written (see
        :func:`writers_of`), None if there is no trusted entry."""
        path = self._path(writers, build_id, kind)
        if path is None:
            return None
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
            with os.fdopen(fd, "rb") as file:
                status = os.fstat(fd)
                if not _trusted(status, stat.S_IFREG) or status.st_size > _MAX_FILE:
                    return None
                data = file.read()
        except OSError:
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return data

    def has(self, writers: str, build_id: str, kind: str) -> bool:
        """Whether something is kept, sound or not."""
        path = self._path(writers, build_id, kind)
        return path is not None and path.exists()

    def store(self, writers: str, build_id: str, kind: str, data: bytes) -> None:
        """Keep ``data``; a full disk or the like only means it is not kept."""
        path = self._path(writers, build_id, kind)
        if path is None:
            return
        part = path.with_name(f"{os.urandom(8).hex()}{_PART}")
        try:
            fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(data)
            part.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            return
        if self._bytes is not None:
            self._bytes += len(data)
        if self._bytes is None or self._bytes > self._limit_bytes:
            with contextlib.suppress(OSError):
                self._bytes = self._trim(path.parent)

    def _path(self, writers: str, build_id: str, kind: str) -> Path | None:
        # Build-ids come from the file: nothing but letters and digits gets into a path.
        if self._directory is None or not build_id.replace("-", "").isalnum():
            return None
        return self._directory / f"{writers}-{build_id}.{kind}"

    def _trim(self, directory: Path) -> int:
        """Delete expired entries, then the least recently used; return the bytes left."""
        now = time.time()
        files = []
        with os.scandir(directory) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    files.append((status.st_mtime, status.st_size, entry.path))
        total = sum(size for _, size, _ in files)
        room = self._limit_bytes * (_ROOM if total > self._limit_bytes else 1)
        for used, size, path in sorted(files):
            age = _PART_SECONDS if path.endswith(_PART) else self._limit_seconds
            if total > room or now - used > age:
                with contextlib.suppress(OSError):
                    Path(path).unlink()
                    total -= size
        return total


def writers_of(file: int | Path) -> str:
    """Return the users that may have written ``file`` (a path or descriptor), as a part of a name.

    Data read from the file is kept for files of the same writers only. A file that only its owner
    may write shares data with the owner's other files. A file that a group or all may write, or an
    access control list grants others (which shows as the group's right), shares with no other file:
    its writers are unknown. Nor does a file on a file system mounted without set-user-ID programs,
    such as FUSE: the process that serves it chooses its owner. Raises :class:`OSError`.
    """
    status = os.stat(file)  # noqa: PTH116 (or a descriptor)
    if not status.st_mode & 0o022 and not os.statvfs(file).f_flag & os.ST_NOSUID:
        return str(status.st_uid)
    words = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return f"{status.st_uid}.file.{'.'.join(f'{word:x}' for word in words)}"


def _trusted(status: os.stat_result, kind: int) -> bool:
    """Return whether it is of this kind and no other user can have written it."""
    return (
        stat.S_IFMT(status.st_mode) == kind
        and status.st_uid == os.geteuid()
        and not status.st_mode & 0o022
    )
