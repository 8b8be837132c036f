"""Unwind tables kept on disk, one file per module."""

from __future__ import annotations

from pathlib import Path

from hpcd.bpf.headers import cache_directory
from hpcd.daemon.unwind.table import ModuleTable, pack_table, unpack_table
from hpcd.errors import FormatError
from hpcd.sandbox.store import LIMIT_SECONDS, FileStore

# A whole clang takes 9 MB, all programs of a node with many some 100.
LIMIT_BYTES = 512 << 20
_KIND = "rows"


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

    def load(self, owner: int, build_id: str) -> ModuleTable | None:
        """The table of a module, None when it is not there or not sound."""
        data = self._files.load(owner, build_id, _KIND)
        if data is None:
            return None
        try:
            table = unpack_table(data)
        except FormatError:
            self.damaged += 1
            return None
        return table if table.build_id == build_id else None

    def store(self, owner: int, table: ModuleTable) -> None:
        """Keep a table; a full disk or the like only means it is not kept."""
        self._files.store(owner, table.build_id, _KIND, pack_table(table))
