"""The format of a part's file: its header and its tables (docs/database.md, Parts)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from hpcd.array_types import I64, U16, U32
from hpcd.errors import FormatError

MAGIC = b"HPCDPART"
VERSION = 3
FRAMED_LEVELS = 2
"""Levels of each line's overview that are compressed, the finest ones."""
# magic, version, lines, blocks, frames, bytes of frames, overview entries of 8, of 16 and of 32
# bits, dictionary entries, short waits, bytes of the archive, bytes of packed tables (0: not
# packed), CRC-32 of the bytes before it
HEADER = struct.Struct("<8sIIQQQQQQQQQQII")
PACKED_TABLES = 64 << 10
"""Bytes of tables and dictionary that are packed at most: larger ones are mapped."""
PACKED_SHORT_TABLES = 16 << 20
"""The same where lines have about one block: tables are then a seventh of a part."""

# Entry types of overviews, by the width in the table of lines.
NARROW, WIDE, NARROWEST = range(3)
ENTRIES: dict[int, np.dtype[Any]] = {
    NARROWEST: np.dtype("<u1"),
    NARROW: np.dtype("<u2"),
    WIDE: np.dtype("<u4"),
}
"""The types of overviews' entries, in the order their sections have."""

BLOCK = np.dtype(
    [("line", "<i8"), ("base", "<i8"), ("word", "<u4"), ("frame", "<u4"), ("at", "<u4"),
     ("code_frame", "<u4"), ("code_at", "<u4"), ("least", "<u4"), ("width", "<u2"),
     ("records", "<u2")]
)  # fmt: skip
NO_FRAME = (1 << 32) - 1
_FRAME = (("offset", "<i8"), ("size", "<u4"), ("content", "<u4"))
_SHORT = (("since", "<i8"), ("until", "<i8"), ("word", "<u4"), ("share", "<f4"))


@dataclass(frozen=True, slots=True)
class PartLineTable:
    """The lines of a part, ``n`` of them; all ``int64``.

    ``source[n]`` their numbers in their measurement, ascending in each; ``records[n]``;
    ``first[n]`` and ``last[n]`` the times of their first and last record in ticks; ``block[n + 1]``
    and ``word[n + 1]`` where their blocks and their dictionary begin; ``step[n]``, ``origin[n]``,
    ``entries[n]`` the finest level of the overview (see :class:`Levels`), ``wide[n]`` whether it
    has entries of 16 bits (0), 32 (1) or 8 (2); ``finest[n]`` the first of the frames that the
    finest levels are stored in, one after another, :data:`FRAME_ENTRIES` each; ``short[n + 1]``
    where their short waits begin.
    """

    source: I64
    records: I64
    first: I64
    last: I64
    block: I64
    word: I64
    step: I64
    origin: I64
    entries: I64
    wide: I64
    finest: I64
    short: I64


@dataclass(frozen=True, slots=True)
class BlockTable:
    """The blocks of a part, ``n`` of them, line by line in time order.

    ``base`` ``int64[n]`` time of the first record in ticks; ``word``, ``least`` ``uint32[n]``: four
    times the node of the first record plus its state, the least step in ticks; ``frame`` and ``at``
    ``uint32[n]``: the frame of times and nodes, and where in it they begin; ``code_frame`` and
    ``code_at`` the same of codes, NO_FRAME where all events are 0 and all values 1; ``width`` and
    ``records`` ``uint16[n]``: the planes (see :class:`hpcd.analysis.trace.blocks.Encoded`) and how
    many records.
    """

    base: I64
    word: U32
    frame: U32
    at: U32
    code_frame: U32
    code_at: U32
    least: U32
    width: U16
    records: U16


@dataclass(frozen=True, slots=True)
class FrameTable:
    """The frames of a part, ``n`` of them: ``offset`` ``int64[n]`` their places, ``size`` and
    ``content`` ``uint32[n]``: their stored and their decompressed bytes.
    """

    offset: I64
    size: U32
    content: U32


_BOUNDS = ("block", "word", "short")

FRAME_ENTRIES = 8192
"""Entries of a level of an overview that are compressed together."""


def tables(
    lines: int, count: int, frames: int, short: int
) -> Iterator[tuple[str, np.dtype[Any], int]]:
    """Name, type and length of every table, in order."""
    for column in fields(PartLineTable):
        yield column.name, np.dtype("<i8"), lines + (column.name in _BOUNDS)
    for column in fields(BlockTable):
        kind = BLOCK.fields[column.name][0] if BLOCK.fields else np.dtype("<i8")
        yield f"block_{column.name}", kind, count
    for name, code in _FRAME:
        yield f"frame_{name}", np.dtype(code), frames
    for name, code in _SHORT:
        yield f"short_{name}", np.dtype(code), short


@dataclass(frozen=True, slots=True)
class PartHeader:
    """The numbers of a part's header: how many there are of each."""

    lines: int
    blocks: int
    frames: int
    blob: int
    entries: tuple[int, int, int]
    """Of 8, 16 and 32 bits."""
    words: int
    short: int
    archive: int
    packed: int

    @staticmethod
    def read(path: Path, data: bytes) -> PartHeader:
        """Read the header from ``data``, the beginning of ``path``. Raises :class:`FormatError`."""
        if not data.startswith(MAGIC) or len(data) < HEADER.size:
            raise FormatError(f"{path}: not a part of a database")
        _, version, *numbers, crc, _ = HEADER.unpack_from(data)
        if version != VERSION:
            raise FormatError(
                f"{path}: part format {version}, this hpcd reads format {VERSION}:"
                " merge the measurements again"
            )
        if crc != zlib.crc32(data[: HEADER.size - 8]):
            raise FormatError(f"{path}: damaged (checksum of its header)")
        lines, count, frames, blob, narrowest, narrow, wide, words, short, archive, packed = numbers
        return PartHeader(
            lines, count, frames, blob, (narrowest, narrow, wide), words, short, archive, packed
        )
