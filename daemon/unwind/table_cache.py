"""Unwind tables kept on disk, one file per module."""

from __future__ import annotations

from pathlib import Path

from hpcd.bpf.loading.kernel_headers import cache_directory
from hpcd.daemon.unwind.unwind_table import VERSION, ModuleTable, pack_table, unpack_table
from hpcd.errors import FormatError
from hpcd.sandbox.file_cache import LIMIT_SECONDS, FileStore

# A whole clang takes 9 MB, all programs of a node with many some 100.
LIMIT_BYTES = 512 << 20
_KIND = "rows"
_FAILURE = "failure"
_MAX_REASON = 1000


class TableCache:
    """The cache. ``damaged`` counts files that had to be made again."""

    def __init__(
        self,
        directory: Path | None = None,
        *,
        limit_bytes: int = LIMIT_BYTES,
        limit_seconds: float = LIMIT_SECONDS,
    ) -> None:
        self.damaged = 0
        folder = (directory or cache_directory()) / "unwind"
        self._files = FileStore(folder, limit_bytes, limit_seconds)

    def load(self, writers: str, build_id: str) -> ModuleTable | None:
        """The table of a module that ``writers`` may have written (see
        :func:`~hpcd.sandbox.file_cache.writers_of`), None when it is not there or not sound."""
        data = self._files.load(writers, build_id, _KIND)
        if data is None:
            return None
        try:
            table = unpack_table(data)
        except FormatError:
            self.damaged += 1
            return None
        return table if table.build_id == build_id else None

    def load_failure(self, writers: str, file_id: str) -> str:
        """Why no table could be made of a file, "" when that is not known: it is not tried again
        by this version of the decoder."""
        data = self._files.load(writers, file_id, f"{_FAILURE}{VERSION}") or b""
        return data[:_MAX_REASON].decode(errors="replace")

    def store_failure(self, writers: str, file_id: str, reason: str) -> None:
        """Remember that no table can be made, and why."""
        kind = f"{_FAILURE}{VERSION}"
        self._files.store(writers, file_id, kind, reason.encode()[:_MAX_REASON])

    def store(self, writers: str, table: ModuleTable) -> None:
        """Keep a table; a full disk or the like only means it is not kept."""
        self._files.store(writers, table.build_id, _KIND, pack_table(table))
