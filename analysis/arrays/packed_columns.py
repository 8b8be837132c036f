"""Frames of packed columns: in each frame of zstd columns of :mod:`hpcd.measurement.columns`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hpcd.analysis.arrays.column_files import open_bounds, open_column, release
from hpcd.array_types import U8, Array
from hpcd.errors import FormatError
from hpcd.measurement.columns import ColumnCursor, encode_column
from hpcd.measurement.zstd_contexts import compressor, unpack_frame


def pack_frame(level: int, *columns: Array, head: bytes = b"") -> bytes:
    """Return a frame of ``head`` and ``columns``, compressed at ``level``."""
    return compressor(level).compress(b"".join([head, *map(encode_column, columns)]))


class PackedColumns:
    """The frames in a mapped column of bytes, of which another has the bounds."""

    def __init__(self, path: Path, bounds: Path, frames: int) -> None:
        """Map ``frames`` frames in ``path``. Raises :class:`FormatError`."""
        self._path = path
        self._data: U8 = open_column(path, "u1")
        self._bounds = open_bounds(bounds, frames, len(self._data))

    def content(self, frame: int) -> bytes:
        """Return the contents of a frame. Raises :class:`FormatError`."""
        low, high = self._bounds[frame : frame + 2].tolist()
        try:
            return unpack_frame(self._data[low:high].data)
        except FormatError as error:
            raise self.damaged(error) from None

    def columns(self, content: bytes, at: int, count: int, *kinds: Any) -> list[Array]:
        """Return the columns of ``count`` entries that ``content`` has from ``at`` on. Raises
        :class:`FormatError`."""
        cursor = ColumnCursor(content, at)
        try:
            return [cursor.column(count, kind) for kind in kinds]
        except FormatError as error:
            raise self.damaged(error) from None

    def release(self) -> None:
        """Let the kernel drop the pages that were read."""
        release(self._data)

    def damaged(self, what: object) -> FormatError:
        """Return the error that names the damage."""
        return FormatError(f"{self._path}: damaged ({what})")
