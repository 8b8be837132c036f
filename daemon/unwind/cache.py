"""Unwind tables kept on disk, one file per module.

A file's name begins with the uid that owns the module: an ELF file may claim any build-id, and so
can at worst mislead the unwinding of its owner's own programs.

What was used least recently goes when all together grow beyond a limit, and what nobody has used
for long; a file's time of change is when it was last used, as not all file systems keep times of
access.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from pathlib import Path

from hpcd.bpf.headers import cache_directory
from hpcd.daemon.unwind.table import ModuleTable, pack_table, unpack_table
from hpcd.errors import FormatError

_MAX_FILE = 1 << 30
# A whole clang takes 9 MB, all programs of a node with many some 100.
LIMIT_BYTES = 512 << 20
# A machine that runs a program once a quarter can make its tables again.
LIMIT_SECONDS = 90 * 86400
# A writer that was killed leaves a part of a file; no writer takes this long.
_PART_SECONDS = 3600
# Trimmed to this share of the limit, so that not every new table has to look at all files.
_ROOM = 0.9


class TableCache:
    """The cache; it never fails: what cannot be read is made again, what cannot be kept is not.

    ``damaged`` counts files that had to be made again.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        limit_bytes: int = LIMIT_BYTES,
        limit_seconds: float = LIMIT_SECONDS,
    ) -> None:
        self.damaged = 0
        self._limit_bytes = limit_bytes
        self._limit_seconds = limit_seconds
        # Bytes of all files, as far as this process knows; nothing before its first look.
        self._bytes: int | None = None
        self._directory: Path | None = (directory or cache_directory()) / "unwind"
        try:
            self._directory.mkdir(mode=0o755, parents=True, exist_ok=True)
            status = self._directory.lstat()
            # Others who can write here could have root unwind by their rows.
            if (
                not stat.S_ISDIR(status.st_mode)
                or status.st_uid != os.geteuid()
                or status.st_mode & 0o022
            ):
                self._directory = None
        except OSError:
            self._directory = None

    def _path(self, owner: int, build_id: str) -> Path | None:
        # Build-ids come from the target: nothing but letters and digits gets into a path.
        if self._directory is None or not build_id.replace("-", "").isalnum():
            return None
        return self._directory / f"{owner}-{build_id}.rows"

    def load(self, owner: int, build_id: str) -> ModuleTable | None:
        """The table of a module, None when it is not there or not sound."""
        path = self._path(owner, build_id)
        if path is None:
            return None
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return None
        with os.fdopen(fd, "rb") as file:
            status = os.fstat(fd)
            if (
                not stat.S_ISREG(status.st_mode)
                or status.st_uid != os.geteuid()
                or status.st_mode & 0o022
                or status.st_size > _MAX_FILE
            ):
                return None
            data = file.read()
        try:
            table = unpack_table(data)
        except FormatError:
            self.damaged += 1
            return None
        if table.build_id != build_id:
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return table

    def store(self, owner: int, table: ModuleTable) -> None:
        """Keep a table; a full disk or the like only means it is not kept."""
        path = self._path(owner, table.build_id)
        if path is None:
            return
        part = path.with_suffix(f".{os.urandom(4).hex()}")
        try:
            fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            packed = pack_table(table)
            with os.fdopen(fd, "wb") as file:
                file.write(packed)
            part.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            return
        if self._bytes is not None:
            self._bytes += len(packed)
        if self._bytes is None or self._bytes > self._limit_bytes:
            with contextlib.suppress(OSError):
                self._bytes = self._trim(path.parent)

    def _trim(self, directory: Path) -> int:
        """Delete what is too old, then what was used least recently; the bytes that are left."""
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
            age = self._limit_seconds if path.endswith(".rows") else _PART_SECONDS
            if total > room or now - used > age:
                with contextlib.suppress(OSError):
                    Path(path).unlink()
                    total -= size
        return total
