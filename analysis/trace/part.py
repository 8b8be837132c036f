"""A part: one measurement's share of a database, in one file that never changes.

Everything a merge needs to know of a measurement, read once: what it is, its tree, its records as
blocks and overviews, its sums. Nodes in it are the measurement's own; where they stand in the
canonical tree is the database's business. So parts are made independently of one another, stay what
they are when measurements are added, and a merge that was killed finds those already made.

    header | blocks | overview, 16-bit | overview, 32-bit | tables | dictionary | archive

All numbers are little-endian; each section begins at a multiple of 8. The archive holds what is
read whole or not at all: arrays and JSON by name, each a zstd frame.
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
import numpy.typing as npt

from hpcd.analysis.arrays.archive import archive_index
from hpcd.analysis.arrays.read_ahead import Span
from hpcd.analysis.trace import blocks
from hpcd.analysis.trace.overview import Levels
from hpcd.array_types import I64, U16, U32, U64, Array
from hpcd.errors import FormatError

MAGIC = b"HPCDPART"
VERSION = 2
# In version 1 the second frames of blocks were planes of events and values.
_READ = (1, VERSION)
# magic, version, lines, blocks, bytes of blocks, overview entries of 16 and of 32 bits, dictionary
# entries, bytes of the archive, CRC-32 of what stands before it
HEADER = struct.Struct("<8sIIQQQQQQII")

BLOCK = np.dtype(
    [("line", "<i8"), ("base", "<i8"), ("offset", "<i8"), ("node", "<u4"), ("place", "<u4"),
     ("weight", "<u4"), ("least", "<u4"), ("width", "<u2"), ("records", "<u2")]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PartLineTable:
    """The lines of a part, ``n`` of them; all ``int64``.

    ``source[n]`` their numbers in the measurement, ascending; ``records[n]``; ``first[n]`` and
    ``last[n]`` the times of their first and last record in ticks; ``block[n + 1]`` and
    ``word[n + 1]`` where their blocks and their dictionary begin; ``step[n]``, ``origin[n]``,
    ``entries[n]`` the finest level of the overview (see :class:`Levels`), ``wide[n]`` whether it
    has 32-bit entries.
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


@dataclass(frozen=True, slots=True)
class BlockTable:
    """The blocks of a part, ``n`` of them, line by line in time order.

    ``base`` ``int64[n]`` time of the first record in ticks; ``offset`` ``int64[n]`` where the
    frames lie; ``node``, ``place``, ``weight``, ``least`` ``uint32[n]``: node of the first record,
    bytes of the two frames, the least step in ticks; ``width`` and ``records`` ``uint16[n]``: the
    planes (see :class:`blocks.Frames`) and how many records.
    """

    base: I64
    offset: I64
    node: U32
    place: U32
    weight: U32
    least: U32
    width: U16
    records: U16


# What is read ahead of a part's tables: those of lines, of a hundred or so.
_TABLES_AHEAD = 64 << 10

_BOUNDS = ("block", "word")


def tables(lines: int, count: int) -> Iterator[tuple[str, np.dtype[Any], int]]:
    """Name, type and length of every table, in order."""
    for column in fields(PartLineTable):
        yield column.name, np.dtype("<i8"), lines + (column.name in _BOUNDS)
    for column in fields(BlockTable):
        kind = BLOCK.fields[column.name][0] if BLOCK.fields else np.dtype("<i8")
        yield f"block_{column.name}", kind, count


def expect(paths: Iterable[Path]) -> None:
    """Have the kernel read the tables of parts that are opened next, all at once.

    Opening many one after another would wait for the disk at every one.
    """
    files = []
    try:
        for path in paths:
            with contextlib.suppress(OSError):
                file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                files.append(file)
                os.posix_fadvise(file, 0, HEADER.size, os.POSIX_FADV_WILLNEED)
        for file in files:
            head = os.pread(file, HEADER.size, 0)
            if len(head) == HEADER.size:
                *_, blob, narrow, wide, _, _, _, _ = HEADER.unpack(head)
                at = min(HEADER.size + blob + 2 * narrow + 4 * wide, os.fstat(file).st_size)
                os.posix_fadvise(file, at, _TABLES_AHEAD, os.POSIX_FADV_WILLNEED)
    finally:
        for file in files:
            os.close(file)


class Part:
    """A part, memory-mapped: opening reads its tables and nothing else."""

    def __init__(self, path: Path) -> None:
        """Map ``path``. Raises :class:`FormatError` unless everything in it is where it must be."""
        self.path = path
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                head = file.read(HEADER.size)
                # An empty file cannot be mapped.
                if size < HEADER.size:
                    raise FormatError(f"{path}: not a part of a database")
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise FormatError(f"{path}: {error.strerror or error}") from None
        if not head.startswith(MAGIC):
            raise FormatError(f"{path}: not a part of a database")
        _, version, lines, count, blob, *sizes, crc, _ = HEADER.unpack(head)
        narrow, wide, words, archive = sizes
        if crc != zlib.crc32(head[:-8]):
            raise FormatError(f"{path}: damaged (checksum of its header)")
        if version not in _READ:
            raise FormatError(f"{path}: version {version}, this hpcd reads {VERSION}")
        self._body = memoryview(self._map)[HEADER.size : HEADER.size + blob]
        self._at = HEADER.size + blob + -blob % 8
        self._size = size
        self._entries_at = [self._at, self._at + 2 * narrow + -2 * narrow % 8]
        narrow_entries: U16 = self._take(np.dtype("<u2"), narrow)
        wide_entries: U32 = self._take(np.dtype("<u4"), wide)
        self._tables_at = self._at
        columns = {name: self._take(kind, n) for name, kind, n in tables(lines, count)}
        self._tables_end = self._at
        self.lines = PartLineTable(*(columns[column.name] for column in fields(PartLineTable)))
        self._blocks = BlockTable(
            *(columns[f"block_{column.name}"] for column in fields(BlockTable))
        )
        self._blob = blob
        self._words_at = self._at
        self.dictionary: U32 = self._take(np.dtype("<u4"), words)
        self._archive = slice(self._at, self._at + archive)
        if self._archive.stop != size:
            raise FormatError(f"{path}: {size} bytes, should be {self._archive.stop}")
        self._check_lines(count, words)
        is_wide = self.lines.wide != 0
        self._levels = [
            Levels.of(self.lines.step, self.lines.origin, np.where(kind, self.lines.entries, 0))
            for kind in (~is_wide, is_wide)
        ]
        self._entries: list[Array] = [narrow_entries, wide_entries]
        for levels, stored in zip(self._levels, self._entries, strict=True):
            if levels.total != len(stored):
                raise self._damaged("overviews of other lengths than the table of lines says")

    def __len__(self) -> int:
        return len(self.lines.source)

    def levels(self, row: int) -> tuple[Levels, Array]:
        """The overview of a line: the levels of its kind, and the entries they point into."""
        kind = int(self.lines.wide[row] != 0)
        return self._levels[kind], self._entries[kind]

    def overview_spans(self, row: int, level: int, first: int, last: int) -> list[Span]:
        """Where entries ``first`` to ``last`` of a level of a line and its words lie."""
        kind = int(self.lines.wide[row] != 0)
        levels, entries = self._levels[kind], self._entries[kind]
        at = self._entries_at[kind] + (int(levels.offset[level, row]) + first) * entries.itemsize
        low, high = self.lines.word[row : row + 2].tolist()
        return [
            self._span(at, (last + 1 - first) * entries.itemsize),
            self._span(self._words_at + 4 * low, 4 * (high - low)),
        ]

    def table_spans(self) -> list[Span]:
        """Where the tables lie."""
        return [self._span(self._tables_at, self._tables_end - self._tables_at)]

    def block_spans(self, chosen: slice) -> list[Span]:
        """Where the times and nodes of the blocks ``chosen`` lie: apart from one another."""
        begin = self.blocks.offset[chosen] + HEADER.size
        sizes = self.blocks.place[chosen]
        return [self._span(*extent) for extent in zip(begin.tolist(), sizes.tolist(), strict=True)]

    def _span(self, at: int, size: int) -> Span:
        # In a damaged part entries and words may point anywhere.
        at = min(max(at, 0), self._size - 1)
        return Span(self._map, at, min(size, self._size - at))

    def release(self) -> None:
        """Give what has been read back to the kernel: it is mapped again when needed."""
        self._map.madvise(mmap.MADV_DONTNEED)

    def words(self, row: int) -> U32:
        """The nodes that overview entries of a line stand for."""
        return self.dictionary[int(self.lines.word[row]) : int(self.lines.word[row + 1])]

    def places(self, chosen: slice) -> tuple[npt.NDArray[np.unsignedinteger], U32]:
        """Ticks since each block's first record and nodes ``[n, 1024]`` of the blocks ``chosen``;
        short ones filled up with their last.
        """
        table = self.blocks
        return blocks.decode_places(
            self.place_frames(chosen),
            table.width[chosen],
            table.least[chosen],
            table.records[chosen].astype(np.int64),
        )

    def place_frames(self, chosen: slice) -> list[memoryview]:
        """The frames of times and nodes of the blocks ``chosen``."""
        begin = self.blocks.offset[chosen]
        end = begin + self.blocks.place[chosen]
        return [self._body[a:b] for a, b in zip(begin.tolist(), end.tolist(), strict=True)]

    def weights(self, chosen: slice, since: npt.NDArray[np.unsignedinteger]) -> tuple[U16, U64]:
        """Events (the measurement's) and values ``[n, 1024]`` of the blocks ``chosen``; ``since``
        are the ticks that :meth:`places` gives of them.
        """
        table = self.blocks
        begin = table.offset[chosen] + table.place[chosen]
        end = begin + table.weight[chosen]
        frames = [self._body[a:b] for a, b in zip(begin.tolist(), end.tolist(), strict=True)]
        count = table.records[chosen].astype(np.int64)
        return blocks.decode_weights(frames, count, table.width[chosen], since)

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

    def _check_lines(self, count: int, words: int) -> None:
        lines = self.lines
        if not (
            _bounds(lines.block, count)
            and _bounds(lines.word, words)
            and int(lines.entries.min(initial=0)) >= 0
            and int(np.abs(lines.origin).max(initial=0)) < 1 << 61
            and 0 <= int(lines.step.min(initial=0)) <= int(lines.step.max(initial=0)) < 1 << 61
            and bool((lines.step[lines.entries > 0] > 0).all())
        ):
            raise self._damaged("table of lines")

    @cached_property
    def blocks(self) -> BlockTable:
        """The table of blocks, checked when it is first asked for: overviews need none of it."""
        lines, table = self.lines, self._blocks
        sizes = table.place.astype(np.int64) + table.weight
        sound = (
            int(table.records.max(initial=0)) <= blocks.BLOCK_RECORDS
            and int(table.records.min(initial=1)) >= 1
            and int(table.offset.min(initial=0)) >= 0
            and int((table.offset + sizes).max(initial=0)) <= self._blob
        )
        total = np.concatenate(([0], np.cumsum(table.records, dtype=np.int64)))
        if not sound or bool(
            (total[lines.block[1:]] - total[lines.block[:-1]] != lines.records).any()
        ):
            raise self._damaged("table of blocks")
        return table

    def _damaged(self, what: str) -> FormatError:
        return FormatError(f"{self.path}: damaged ({what})")


def _bounds(bounds: I64, total: int) -> bool:
    return bounds[0] == 0 and bounds[-1] == total and not bool((bounds[1:] < bounds[:-1]).any())
