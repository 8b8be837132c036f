"""Unwind tables kept on disk, one file per module."""

from __future__ import annotations

import os
from pathlib import Path

from hpcd.daemon.unwind.kept_tables import LIMIT_BYTES, TABLE, VERSION, table_store, version_of
from hpcd.daemon.unwind.packed_table import PackedTable, from_bytes, to_bytes
from hpcd.errors import FormatError
from hpcd.sandbox.file_cache import LIMIT_SECONDS, writers_of

_IDENTITY = "id"
# A later version may find more.
_NAMES = f"names{VERSION}"
_FAILURE = "failure"
_MAX_REASON = 1000
_MAX_DIGESTED = 1 << 16


FileVersion = tuple[str, str]


class TableCache:
    """The cache."""

    def __init__(
        self,
        directory: Path | None = None,
        *,
        limit_bytes: int = LIMIT_BYTES,
        limit_seconds: float = LIMIT_SECONDS,
    ) -> None:
        self._files = table_store(directory, limit_bytes=limit_bytes, limit_seconds=limit_seconds)

    def load(self, writers: str, build_id: str) -> PackedTable | None:
        """The table of a module that ``writers`` may have written (see
        :func:`~hpcd.sandbox.file_cache.writers_of`), None when it is not there or not sound."""
        data = self._files.load(writers, build_id, TABLE)
        if data is None:
            return None
        try:
            table = from_bytes(data)
        except FormatError:
            return None
        return table if table.build_id == build_id else None

    def load_build_id(self, version: FileVersion) -> str:
        """The build-id that was read in this very file, "" when none was: to read it takes the
        decoder, which takes a while to start."""
        data = self._files.load(*version, _IDENTITY) or b""
        return data.decode("ascii", errors="replace")

    def store_build_id(self, version: FileVersion, build_id: str) -> None:
        """Store the build id read in a file that had this ``version`` before reading: it may have
        been written to meanwhile."""
        self._files.store(*version, _IDENTITY, build_id.encode())

    def load_names(self, writers: str, build_id: str) -> bytes:
        """The names that were found in a module, as :mod:`hpcd.daemon.unwind.known_names` packs
        them; nothing when none were."""
        return self._files.load(writers, build_id, _NAMES) or b""

    def store_names(self, writers: str, build_id: str, names: bytes) -> None:
        """Keep the names found so far."""
        self._files.store(writers, build_id, _NAMES, names)

    def load_failure(self, writers: str, file_id: str) -> str:
        """Why no table could be made of a file, "" when that is not known: it is not tried again
        by this version of the decoder."""
        data = self._files.load(writers, file_id, f"{_FAILURE}{VERSION}") or b""
        return data[:_MAX_REASON].decode(errors="replace")

    def store_failure(self, writers: str, file_id: str, reason: str) -> None:
        """Remember that no table can be made, and why."""
        kind = f"{_FAILURE}{VERSION}"
        self._files.store(writers, file_id, kind, reason.encode()[:_MAX_REASON])

    def store(self, writers: str, table: PackedTable) -> None:
        """Keep a table; a full disk or the like only means it is not kept."""
        self._files.store(writers, table.build_id, TABLE, to_bytes(table))


def file_version(fd: int) -> FileVersion:
    """Return the user who may have written the file open at ``fd``, and a text that identifies
    its present state ("" if it cannot be identified)."""
    status = os.fstat(fd)
    writers = writers_of(fd)
    if not status.st_nlink:
        # Memory, such as a copy of the kernel's vDSO: every recorder has its own copy.
        if status.st_size > _MAX_DIGESTED:
            return writers, ""
        from _blake2 import blake2b  # hashlib's, which loads OpenSSL as well: 5 ms

        return writers, blake2b(os.pread(fd, _MAX_DIGESTED, 0)).hexdigest()
    return writers, version_of(status)
