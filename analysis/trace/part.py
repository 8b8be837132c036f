"""A part: one measurement's share of a database, in one file that never changes.

Everything a merge needs to know of a measurement, read once: what it is, its tree, its records as
blocks and overviews, its sums. Nodes in it are the measurement's own; where they stand in the
canonical tree is the database's business. So parts are made independently of one another, stay what
they are when measurements are added, and a merge that was killed finds those already made.

    header | frames | overviews of 8, 16, 32 bits | tables | dictionary | archive

Frames are zstd's: of blocks, and of the two finest levels of overviews. Coarser levels are stored
as they are.

All numbers are little-endian; each section begins at a multiple of 8. Of short measurements tables
and dictionary are one zstd frame, each column's byte planes one after the other. The archive holds
what is read whole or not at all: arrays and JSON by name, each a zstd frame.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from hpcd.analysis.arrays.archive import archive_index
from hpcd.analysis.arrays.read_ahead import Span
from hpcd.analysis.trace.blocks import (
    BLOCK_RECORDS,
    MOST_CONTENT,
    StoredBlocks,
    StoredFrames,
    Unsigned,
    decode_codes,
    decode_places,
)
from hpcd.analysis.trace.overview import Levels
from hpcd.array_types import I64, U8, U16, U32, U64, Array
from hpcd.errors import FormatError
from hpcd.measurement.planes import from_planes
from hpcd.regular_file import open_descriptor, open_regular

MAGIC = b"HPCDPART"
VERSION = 1
FRAMED_LEVELS = 2
"""Of each line's overview so many levels are compressed, the finest ones."""
# magic, version, lines, blocks, frames, bytes of frames, overview entries of 8, of 16 and of 32
# bits, dictionary entries, bytes of the archive, bytes of packed tables (0: they are not), CRC-32
# of what stands before it
HEADER = struct.Struct("<8sIIQQQQQQQQQII")
PACKED_TABLES = 64 << 10
"""Bytes of tables and dictionary that are packed at most: larger ones are mapped."""

# Of overviews, by what the table of lines says of their width.
NARROW, WIDE, NARROWEST = range(3)
ENTRIES: dict[int, np.dtype[Any]] = {
    NARROWEST: np.dtype("<u1"),
    NARROW: np.dtype("<u2"),
    WIDE: np.dtype("<u4"),
}
"""The types of overviews' entries, in the order their sections have."""

BLOCK = np.dtype(
    [("line", "<i8"), ("base", "<i8"), ("node", "<u4"), ("frame", "<u4"), ("at", "<u4"),
     ("code_frame", "<u4"), ("code_at", "<u4"), ("least", "<u4"), ("width", "<u2"),
     ("records", "<u2")]
)  # fmt: skip
NO_FRAME = (1 << 32) - 1
_FRAME = (("offset", "<i8"), ("size", "<u4"), ("content", "<u4"))


@dataclass(frozen=True, slots=True)
class PartLineTable:
    """The lines of a part, ``n`` of them; all ``int64``.

    ``source[n]`` their numbers in the measurement, ascending; ``records[n]``; ``first[n]`` and
    ``last[n]`` the times of their first and last record in ticks; ``block[n + 1]`` and
    ``word[n + 1]`` where their blocks and their dictionary begin; ``step[n]``, ``origin[n]``,
    ``entries[n]`` the finest level of the overview (see :class:`Levels`), ``wide[n]`` whether it
    has entries of 16 bits (0), 32 (1) or 8 (2); ``finest[n]`` the first of the frames that the
    finest levels are stored in, one after another, :data:`FRAME_ENTRIES` each.
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


@dataclass(frozen=True, slots=True)
class BlockTable:
    """The blocks of a part, ``n`` of them, line by line in time order.

    ``base`` ``int64[n]`` time of the first record in ticks; ``node``, ``least`` ``uint32[n]``: node
    of the first record, the least step in ticks; ``frame`` and ``at`` ``uint32[n]``: the frame of
    times and nodes, and where in it they begin; ``code_frame`` and ``code_at`` the same of codes,
    NO_FRAME where all events are 0 and all values 1; ``width`` and ``records`` ``uint16[n]``: the
    planes (see :class:`hpcd.analysis.trace.blocks.Encoded`) and how many records.
    """

    base: I64
    node: U32
    frame: U32
    at: U32
    code_frame: U32
    code_at: U32
    least: U32
    width: U16
    records: U16


@dataclass(frozen=True, slots=True)
class FrameTable:
    """The frames of a part, ``n`` of them: ``offset`` ``int64[n]`` where each lies, ``size`` and
    ``content`` ``uint32[n]``: its bytes, and those it decompresses to.
    """

    offset: I64
    size: U32
    content: U32


# What is read ahead of a part's tables: those of lines, of a hundred or so.
_TABLES_AHEAD = 64 << 10

_BOUNDS = ("block", "word")

FRAME_ENTRIES = 8192
"""Entries of a level of an overview that are compressed together."""


def tables(lines: int, count: int, frames: int) -> Iterator[tuple[str, np.dtype[Any], int]]:
    """Name, type and length of every table, in order."""
    for column in fields(PartLineTable):
        yield column.name, np.dtype("<i8"), lines + (column.name in _BOUNDS)
    for column in fields(BlockTable):
        kind = BLOCK.fields[column.name][0] if BLOCK.fields else np.dtype("<i8")
        yield f"block_{column.name}", kind, count
    for name, code in _FRAME:
        yield f"frame_{name}", np.dtype(code), frames


@dataclass(frozen=True, slots=True)
class _Header:
    """The numbers of a part's header: how many there are of each."""

    lines: int
    blocks: int
    frames: int
    blob: int
    entries: tuple[int, int, int]
    """Of 8, 16 and 32 bits."""
    words: int
    archive: int
    packed: int

    @staticmethod
    def read(path: Path, data: bytes) -> _Header:
        """Raises :class:`FormatError` unless ``data``, the beginning of ``path``, is one."""
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
        lines, count, frames, blob, narrowest, narrow, wide, words, archive, packed = numbers
        return _Header(
            lines, count, frames, blob, (narrowest, narrow, wide), words, archive, packed
        )


def expect(paths: Iterable[Path]) -> None:
    """Have the kernel read the tables of parts that are opened next, all at once.

    Opening many one after another would wait for the disk at every one.
    """
    files = []
    try:
        for path in paths:
            with contextlib.suppress(OSError, FormatError):
                file = open_descriptor(path)
                files.append(file)
                os.posix_fadvise(file, 0, HEADER.size, os.POSIX_FADV_WILLNEED)
        for file in files:
            head = os.pread(file, HEADER.size, 0)
            with contextlib.suppress(FormatError):  # said when it is opened
                header = _Header.read(Path(), head)
                overviews = sum(
                    kind.itemsize * count
                    for kind, count in zip(ENTRIES.values(), header.entries, strict=True)
                )
                at = min(HEADER.size + header.blob + overviews, os.fstat(file).st_size)
                os.posix_fadvise(file, at, _TABLES_AHEAD, os.POSIX_FADV_WILLNEED)
    finally:
        for file in files:
            os.close(file)


def read_archive(path: Path) -> dict[str, memoryview]:
    """The packed entries of a part's archive by name; see :func:`unpack_array`. Reads nothing else
    of it. Raises :class:`FormatError`."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            header = _Header.read(path, file.read(HEADER.size))
            if header.archive > size:
                raise FormatError(f"{path}: damaged (shorter than its header says)")
            file.seek(size - header.archive)
            return archive_index(file.read(header.archive))
    except OSError as error:
        raise FormatError(f"{path}: {error.strerror or error}") from None


@dataclass(frozen=True, slots=True)
class StoredPart:
    """The contents of a part as they are stored, unchecked but for its size.

    ``body`` ``uint8[bytes]`` are the frames, ``levels`` ``int64[levels, lines, 4]`` step, first,
    count and offset of each line's levels, the finest :data:`FRAMED_LEVELS` of which are
    compressed; ``entries`` the others by width; ``columns`` the tables of blocks and frames,
    ``block_`` and ``frame_``.
    """

    body: U8
    levels: I64
    entries: dict[int, Array]
    columns: dict[str, Array]


class Part:
    """A part, memory-mapped: opening reads its tables and nothing else."""

    def __init__(self, path: Path) -> None:
        """Map ``path``. Raises :class:`FormatError` unless everything in it is where it must be."""
        self.path = path
        try:
            with open_regular(path) as file:
                size = os.fstat(file.fileno()).st_size
                head = file.read(HEADER.size)
                # An empty file cannot be mapped.
                if size < HEADER.size:
                    raise FormatError(f"{path}: not a part of a database")
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise FormatError(f"{path}: {error.strerror or error}") from None
        self._scattered = False
        header = self._header = _Header.read(path, head)
        self._size = size
        self._body = memoryview(self._map)[HEADER.size : HEADER.size + header.blob]
        self._at = HEADER.size + header.blob + -header.blob % 8
        self._entries: dict[int, Array] = {}
        self._entries_at: dict[int, int] = {}
        for (width, kind), stored in zip(ENTRIES.items(), header.entries, strict=True):
            self._entries_at[width] = self._at
            self._entries[width] = self._take(kind, stored)
        self._tables_at = self._at
        wanted = [
            *tables(header.lines, header.blocks, header.frames),
            ("words", np.dtype("<u4"), header.words),
        ]
        columns = self._unpacked(wanted, header.packed) if header.packed else {
            name: self._take(kind, n) for name, kind, n in wanted
        }  # fmt: skip
        self._tables_end = self._at
        self.lines = PartLineTable(*(columns[column.name] for column in fields(PartLineTable)))
        self._columns = columns
        self.dictionary: U32 = columns["words"]
        self._archive = slice(self._at, self._at + header.archive)
        if self._archive.stop != size:
            raise FormatError(f"{path}: {size} bytes, should be {self._archive.stop}")
        self._check_lines(header.blocks, header.words)
        self._overview = self._levels()

    def __len__(self) -> int:
        return len(self.lines.source)

    def _levels(self) -> I64:
        """``int64[lines, levels, 4]``: step, first, count and offset of each line's levels (see
        :class:`Levels`); those of one width lie together. The offset of one that is compressed is
        the number of its first frame."""
        lines = self.lines
        levels = Levels.of(lines.step, lines.origin, lines.entries)
        for width, entries in self._entries.items():
            mine = np.flatnonzero(lines.wide == width)
            counts = levels.count[:, mine]
            counts[:FRAMED_LEVELS] = 0
            if int(counts.sum()) != len(entries):
                raise self._damaged("overviews of other lengths than the table of lines says")
            levels.offset[:, mine] = np.cumsum(counts.ravel()).reshape(counts.shape) - counts
        frames = -(-levels.count[:FRAMED_LEVELS] // FRAME_ENTRIES)
        levels.offset[:FRAMED_LEVELS] = lines.finest + np.cumsum(frames, axis=0) - frames
        return np.stack((levels.step, levels.first, levels.count, levels.offset), axis=2).swapaxes(
            0, 1
        )

    def stored(self) -> StoredPart:
        """Return the contents as they are stored, for kernels."""
        levels = np.ascontiguousarray(self._overview.swapaxes(0, 1))
        return StoredPart(np.asarray(self._body), levels, self._entries, self._columns)

    def body_span(self, at: int, size: int) -> Span:
        """Return the place in the file of ``size`` bytes of frames, from ``at`` on."""
        return self._span(at + HEADER.size, size)

    def entry_span(self, width: int, first: int, count: int) -> Span:
        """Return the place in the file of ``count`` entries of uncompressed overviews."""
        size = ENTRIES[width].itemsize
        return self._span(self._entries_at[width] + first * size, count * size)

    def table_spans(self) -> list[Span]:
        """Return the places of the tables in the file."""
        return [self._span(self._tables_at, self._tables_end - self._tables_at)]

    def _span(self, at: int, size: int) -> Span:
        # In a damaged part entries and words may point anywhere.
        at = min(max(at, 0), self._size - 1)
        return Span(self._map, at, min(size, self._size - at))

    def read_here_and_there(self, scattered: bool = True) -> None:
        """Have the kernel read only what is touched or expected of the part, where it is not in
        memory, as pictures do; or again what lies around it too. That may be megabytes each time.
        """
        if scattered != self._scattered:
            self._map.madvise(mmap.MADV_RANDOM if scattered else mmap.MADV_NORMAL)
            self._scattered = scattered

    def release(self) -> None:
        """Give what has been read back to the kernel: it is mapped again when needed."""
        self._map.madvise(mmap.MADV_DONTNEED)

    def places(self, chosen: slice) -> tuple[Unsigned, U32]:
        """Ticks since each block's first record and nodes ``[n, 1024]`` of the blocks ``chosen``;
        short ones filled up with their last.
        """
        self.read_here_and_there(False)
        return decode_places(self.stored_places(chosen), self.blocks.least[chosen])

    def stored_places(self, chosen: slice) -> StoredBlocks:
        """The times and nodes of the blocks ``chosen``, undecoded. Raises :class:`FormatError`."""
        table = self.blocks
        return self._stored_frames.blocks(
            table.frame[chosen], table.at[chosen], table.records[chosen], table.width[chosen]
        )

    def stored_codes(self, chosen: slice) -> StoredBlocks:
        """The codes of the blocks ``chosen``, undecoded. Raises :class:`FormatError`."""
        table = self.blocks
        return self._stored_frames.blocks(
            table.code_frame[chosen], table.code_at[chosen], table.records[chosen],
            table.width[chosen], none=NO_FRAME,
        )  # fmt: skip

    @property
    def _stored_frames(self) -> StoredFrames:
        frames = self.frames
        return StoredFrames(self._body, frames.offset, frames.size, frames.content)

    def has_weights(self, chosen: slice) -> bool:
        """Whether any record of the blocks ``chosen`` is not of event 0 and value 1."""
        return bool((self.blocks.code_frame[chosen] != NO_FRAME).any())

    def weights(self, chosen: slice, since: Unsigned) -> tuple[U16, U64]:
        """Events (the measurement's) and values ``[n, 1024]`` of the blocks ``chosen``; ``since``
        are the ticks that :meth:`places` gives of them.
        """
        return decode_codes(self.stored_codes(chosen), since)

    def archive(self) -> dict[str, memoryview]:
        """The packed entries of the archive by name; see :func:`unpack_array`."""
        with memoryview(self._map) as whole:
            data = bytes(whole[self._archive])
        return archive_index(data)

    def _take(self, kind: np.dtype[Any], count: int) -> Array:
        size = count * kind.itemsize
        if self._at + size > self._size:
            raise self._damaged("shorter than its header says")
        values: Array = np.frombuffer(self._map, kind, count, self._at)
        self._at += size + -size % 8
        return values

    def _unpacked(
        self, wanted: Iterable[tuple[str, np.dtype[Any], int]], size: int
    ) -> dict[str, Array]:
        """The columns ``wanted``, of packed tables of ``size`` bytes."""
        frame = self._take(np.dtype(np.uint8), size)
        columns: dict[str, Array] = {}
        at = 0
        try:
            if not 0 <= zstandard.frame_content_size(frame.data) <= PACKED_TABLES:
                raise self._damaged("packed tables")
            content = np.frombuffer(zstandard.ZstdDecompressor().decompress(frame.data), np.uint8)
        except zstandard.ZstdError:
            raise self._damaged("packed tables") from None
        for name, kind, count in wanted:
            planes = content[at : at + count * kind.itemsize]
            at += count * kind.itemsize
            if len(planes) != count * kind.itemsize:
                raise self._damaged("packed tables")
            whole = from_planes(planes.reshape(kind.itemsize, count), f"<u{kind.itemsize}")
            columns[name] = whole.view(kind)
        if at != len(content):
            raise self._damaged("packed tables")
        return columns

    def _check_lines(self, count: int, words: int) -> None:
        lines = self.lines
        if not (
            _bounds(lines.block, count)
            and _bounds(lines.word, words)
            and int(lines.entries.min(initial=0)) >= 0
            and int(np.abs(lines.origin).max(initial=0)) < 1 << 61
            and 0 <= int(lines.step.min(initial=0)) <= int(lines.step.max(initial=0)) < 1 << 61
            and bool((lines.step[lines.entries > 0] > 0).all())
            and 0 <= int(lines.wide.min(initial=0)) <= int(lines.wide.max(initial=0)) < len(ENTRIES)
        ):
            raise self._damaged("table of lines")

    @cached_property
    def blocks(self) -> BlockTable:
        """The table of blocks, checked when it is first asked for: overviews need none of it."""
        table = BlockTable(
            *(self._columns[f"block_{column.name}"] for column in fields(BlockTable))
        )
        frames = self._header.frames
        sound = (
            int(table.records.max(initial=0)) <= BLOCK_RECORDS
            and int(table.records.min(initial=1)) >= 1
            and int(table.frame.max(initial=0)) < max(frames, 1)
            and int(table.code_frame[table.code_frame != NO_FRAME].max(initial=0)) < max(frames, 1)
        )
        lines = self.lines
        total = np.concatenate(([0], np.cumsum(table.records, dtype=np.int64)))
        if not sound or bool(
            (total[lines.block[1:]] - total[lines.block[:-1]] != lines.records).any()
        ):
            raise self._damaged("table of blocks")
        return table

    @cached_property
    def frames(self) -> FrameTable:
        """The table of frames, checked when it is first asked for."""
        table = FrameTable(
            *(self._columns[f"frame_{column.name}"] for column in fields(FrameTable))
        )
        if (
            int(table.offset.min(initial=0)) < 0
            or int(table.offset.max(initial=0)) > self._header.blob
            or int((table.offset + table.size).max(initial=0)) > self._header.blob
            or int(table.content.max(initial=0)) > MOST_CONTENT
        ):
            raise self._damaged("table of frames")
        return table

    def _damaged(self, what: str) -> FormatError:
        return FormatError(f"{self.path}: damaged ({what})")


def _bounds(bounds: I64, total: int) -> bool:
    return bounds[0] == 0 and bounds[-1] == total and not bool((bounds[1:] < bounds[:-1]).any())
