"""Packed maps from nodes of parts to nodes of the database: a column with a zstd frame per part.

A short measurement has nearly as many nodes as records: 4 bytes per node would exceed its names.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hpcd.analysis.arrays.column_files import open_column
from hpcd.analysis.arrays.packed_columns import PackedColumns, pack_frame
from hpcd.array_types import U32

_LEVEL = 3
# Bytes of nodes that are kept: a picture has lines of many parts.
_MOST_HELD = 32 << 20


def pack_nodes(node: U32) -> bytes:
    """The frame of ``node`` ``uint32[n]``."""
    return pack_frame(_LEVEL, node)


class NodeMaps:
    """The nodes of ``parts`` parts, below ``nodes`` each."""

    def __init__(self, folder: Path, parts: int, nodes: int) -> None:
        """Map the columns in ``folder``. Raises :class:`FormatError`."""
        self._nodes = nodes
        self._packed = PackedColumns(folder / "node.npy", folder / "node_frame.npy", parts)
        self._count: U32 = open_column(folder / "node_count.npy", np.uint32, parts)
        self._kept: dict[int, U32] = {}
        self._held = 0

    def __getitem__(self, part: int) -> U32:
        """``uint32[n]``: the nodes of part ``part``. Raises :class:`FormatError`."""
        kept_nodes = self._kept.get(part)
        if kept_nodes is not None:
            return kept_nodes
        content = self._packed.content(part)
        node: U32
        (node,) = self._packed.columns(content, 0, int(self._count[part]), np.uint32)
        if int(node.max(initial=0)) >= self._nodes:
            raise self._packed.damaged("nodes that do not exist")
        if self._held > _MOST_HELD:
            self._kept, self._held = {}, 0
        self._kept[part] = node
        self._held += node.nbytes
        return node
