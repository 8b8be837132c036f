"""Packed maps from nodes of parts to nodes of the database: a column with a zstd frame per part.

A short measurement has nearly as many nodes as records: 4 bytes per node would exceed its names.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import zstandard

from hpcd.analysis.arrays.column_files import open_bounds, open_column
from hpcd.array_types import I64, U8, U32
from hpcd.errors import FormatError
from hpcd.measurement.columns import ColumnCursor, encode_column
from hpcd.measurement.zstd_contexts import compressor, decompressor

_LEVEL = 3
# Bound on a column's bytes without its values.
_COLUMN_HEAD = 16
# Bytes of nodes that are kept: a picture has lines of many parts.
_MOST_HELD = 32 << 20


def pack_nodes(node: U32) -> bytes:
    """The frame of ``node`` ``uint32[n]``: a column of :mod:`hpcd.measurement.columns`."""
    return compressor(_LEVEL).compress(encode_column(node))


class NodeMaps:
    """The nodes of ``parts`` parts, below ``nodes`` each."""

    def __init__(self, folder: Path, parts: int, nodes: int) -> None:
        """Map the columns in ``folder``. Raises :class:`FormatError`."""
        self._folder, self._nodes = folder, nodes
        self._data: U8 = open_column(folder / "node.npy", np.uint8)
        self._frame: I64 = open_bounds(folder / "node_frame.npy", parts, len(self._data))
        self._count: npt.NDArray[np.uint32] = open_column(
            folder / "node_count.npy", np.uint32, parts
        )
        self._kept: dict[int, U32] = {}
        self._held = 0

    def __getitem__(self, part: int) -> U32:
        """``uint32[n]``: the nodes of part ``part``. Raises :class:`FormatError`."""
        kept_nodes = self._kept.get(part)
        if kept_nodes is not None:
            return kept_nodes
        low, high = self._frame[part : part + 2].tolist()
        count = int(self._count[part])
        try:
            frame = self._data[low:high].data
            if not 0 <= zstandard.frame_content_size(frame) <= 4 * count + _COLUMN_HEAD:
                raise FormatError("nodes of a part")
            node = ColumnCursor(decompressor().decompress(frame)).column(count, np.uint32)
        except (zstandard.ZstdError, FormatError):
            raise FormatError(f"{self._folder}: damaged (nodes of a part)") from None
        if int(node.max(initial=0)) >= self._nodes:
            raise FormatError(f"{self._folder}: damaged (nodes that do not exist)")
        if self._held > _MOST_HELD:
            self._kept, self._held = {}, 0
        self._kept[part] = node
        self._held += node.nbytes
        return node
