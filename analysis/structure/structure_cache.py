"""Structure kept on disk by build id."""

from __future__ import annotations

import contextlib
from pathlib import Path

from hpcd.analysis.arrays.named_arrays import Arrays, NamedArrays, pack_arrays
from hpcd.cache_directory import cache_directory
from hpcd.errors import FormatError
from hpcd.sandbox.file_cache import FileStore, writers_of

# libLLVM with debug information takes 100 MB; ten libraries loaded with it take as much again.
_LIMIT_BYTES = 2 << 30
# Increased with every change of the cached data.
_VERSION = "v6"


class StructureCache:
    """Arrays by module and kind."""

    def __init__(self, directory: Path | None = None) -> None:
        folder: Path | None = None
        with contextlib.suppress(RuntimeError):  # a user without a home
            folder = (directory or cache_directory()) / "structure" / _VERSION
        self._files = FileStore(folder, _LIMIT_BYTES)

    def has(self, path: Path, build_id: str) -> bool:
        """Return whether anything is kept of a module's code; it may be less than is wanted."""
        try:
            return self._files.has(writers_of(path), build_id, "loops")
        except (OSError, ValueError):  # a measurement may say anything of a path
            return False

    def load(self, writers: str, build_id: str, kind: str) -> Arrays | None:
        """Return the arrays kept of a module that ``writers`` may have written (see
        :func:`~hpcd.sandbox.file_cache.writers_of`), None if absent or damaged."""
        data = self._files.load(writers, build_id, kind)
        if data is None:
            return None
        with contextlib.suppress(FormatError):
            return dict(NamedArrays(data))
        return None

    def store(self, writers: str, build_id: str, kind: str, arrays: Arrays) -> None:
        """Keep arrays; a full disk or the like only means they are not kept."""
        self._files.store(writers, build_id, kind, pack_arrays(arrays))
