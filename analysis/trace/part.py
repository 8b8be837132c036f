"""A part: a batch of measurements in a database, in one file that never changes.

It has the measurements' identities and their records as blocks and overviews. Nodes and events have
numbers of the part's own; what they are in the canonical tree is the database's business. So parts
are made independently of one another, stay what they are when measurements are added, and a merge
that was killed finds those already made.

    header | frames | overviews of 8, 16, 32 bits | tables | dictionary | archive

Frames are zstd's: of blocks, and of the two finest levels of overviews. Coarser levels are stored
as they are.

All numbers are little-endian; each section begins at a multiple of 8. Of short lines tables
and dictionary are one zstd frame, each column's byte planes one after the other. The archive holds
what is read whole or not at all: arrays and JSON by name, each a zstd frame.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterable
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
from hpcd.analysis.trace.part_format import (
    ENTRIES,
    FRAME_ENTRIES,
    FRAMED_LEVELS,
    HEADER,
    NO_FRAME,
    PACKED_SHORT_TABLES,
    BlockTable,
    FrameTable,
    Header,
    PartLineTable,
    tables,
)
from hpcd.array_types import I64, U8, U16, U32, U64, Array
from hpcd.errors import FormatError
from hpcd.measurement.planes import from_planes
from hpcd.regular_file import open_descriptor, open_regular

# What is read ahead of a part's tables: those of lines, of a hundred or so.
_TABLES_AHEAD = 64 << 10


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
                header = Header.read(Path(), head)
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
            header = Header.read(path, file.read(HEADER.size))
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
        header = self._header = Header.read(path, head)
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
            if not 0 <= zstandard.frame_content_size(frame.data) <= PACKED_SHORT_TABLES:
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
