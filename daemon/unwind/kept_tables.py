"""The store of unwind tables, and the commands whose tables are in it."""

from __future__ import annotations

import os
import shutil
from _blake2 import blake2b  # hashlib's, which loads OpenSSL as well: 5 ms
from collections.abc import Iterable, Sequence
from pathlib import Path

from hpcd.cache_directory import cache_directory
from hpcd.daemon.access.file_status import FileStatus
from hpcd.sandbox.file_cache import LIMIT_SECONDS, FileStore, writers_of

# Raised whenever the decoder makes other rows of the same file: cached tables are then remade.
VERSION = 25
# A whole clang takes 9 MB, all programs of a node with many some 100.
LIMIT_BYTES = 512 << 20
TABLE = "rows"
"""The kind of file that a table is."""
_COMMAND = "command"
# Variables that decide which files a command runs.
_VARIABLES = ("PATH", "LD_PRELOAD", "LD_LIBRARY_PATH")
_LIBRARIES = Path("/etc/ld.so.cache")


def table_store(
    directory: Path | None = None,
    *,
    limit_bytes: int = LIMIT_BYTES,
    limit_seconds: float = LIMIT_SECONDS,
) -> FileStore:
    """Return the store, in ``directory`` (default: the cache's)."""
    return FileStore((directory or cache_directory()) / "unwind", limit_bytes, limit_seconds)


def version_of(status: os.stat_result | FileStatus) -> str:
    """Return a text that identifies a file in its present state. No user can set the time of change
    in it."""
    words = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return "-".join(f"{word:x}" for word in words)


class KnownCommands:
    """Commands that were recorded before: the tables of all files that they are known to run were
    kept then."""

    def __init__(self) -> None:
        self._store = table_store()

    def knows(self, command: Sequence[str]) -> bool:
        """Whether the files that ``command`` runs are unchanged and their tables still cached;
        takes a millisecond."""
        try:
            kept = self._store.load(*_key(command))
            return kept is not None and all(map(self._is_kept, os.fsdecode(kept).split("\n")))
        except (OSError, ValueError):
            return False

    def _is_kept(self, line: str) -> bool:
        version, build_id, path = line.split(" ", 2)
        return version == version_of(os.stat(path)) and self._store.has(  # noqa: PTH116
            writers_of(Path(path)), build_id, TABLE
        )

    def remember(self, command: Sequence[str], files: Iterable[tuple[str, str]]) -> None:
        """Keep the paths and build-ids of the files that ``command`` runs. Raises OSError."""
        lines = (f"{version_of(os.stat(path))} {build_id} {path}" for path, build_id in files)  # noqa: PTH116
        self._store.store(*_key(command), os.fsencode("\n".join(lines)))


def _key(command: Sequence[str]) -> tuple[str, str, str]:
    """Return the place in the store for ``command``: for the programs that it names, and where
    programs and libraries are looked for, as these are now."""
    words = [str(VERSION), *(os.environ.get(name, "") for name in _VARIABLES)]
    if _LIBRARIES.exists():
        words.append(version_of(_LIBRARIES.stat()))
    for word in command:
        if path := shutil.which(word):
            words += [os.path.realpath(path), version_of(os.stat(path))]  # noqa: PTH116
        elif word.startswith("LD_"):
            words.append(word)
    return str(os.geteuid()), blake2b(os.fsencode("\0".join(words))).hexdigest()[:32], _COMMAND
