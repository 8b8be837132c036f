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

import json
import mmap
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import zstandard

from hpcd.analysis import blocks
from hpcd.analysis.columns import storage_error
from hpcd.analysis.overview import FACTOR, Levels, OverviewSource
from hpcd.errors import FormatError

U16 = npt.NDArray[np.uint16]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
Array = npt.NDArray[Any]

MAGIC = b"HPCDPART"
VERSION = 1
# magic, version, lines, blocks, bytes of blocks, overview entries of 16 and of 32 bits, dictionary
# entries, bytes of the archive, CRC-32 of what stands before it
_HEADER = struct.Struct("<8sIIQQQQQQII")
# An overview names nodes by their place in the line's dictionary, of which few have this many.
_NARROW = 1 << 16
# What one entry of the archive may come to; 2^26 nodes of a tree are half of it.
_ENTRY_LIMIT = 1 << 30

_BLOCK = np.dtype(
    [("line", "<i8"), ("base", "<i8"), ("offset", "<i8"), ("node", "<u4"), ("place", "<u4"),
     ("weight", "<u4"), ("least", "<u4"), ("width", "<u2"), ("records", "<u2")]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LineTable:
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


_BOUNDS = ("block", "word")


def _tables(lines: int, count: int) -> Iterator[tuple[str, np.dtype[Any], int]]:
    """Name, type and length of every table, in order."""
    for each in fields(LineTable):
        yield each.name, np.dtype("<i8"), lines + (each.name in _BOUNDS)
    for each in fields(BlockTable):
        kind = _BLOCK.fields[each.name][0] if _BLOCK.fields else np.dtype("<i8")
        yield f"block_{each.name}", kind, count


class PartWriter:
    """Writes a part: blocks as they come, the rest at the end."""

    def __init__(self, path: Path) -> None:
        """Begin the file ``path``. Raises :class:`StorageError`."""
        self._path = path
        self._tables: list[Array] = []
        try:
            self._file: BinaryIO = path.open("x+b")
            self._file.write(bytes(_HEADER.size))
        except OSError as error:
            raise storage_error(path, error) from None
        self._at = 0

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def add(self, line: I64, base: I64, node: U32, records: I64, frames: blocks.Frames) -> None:
        """Append blocks: the row, first time and node, and the number of records of each."""
        both = frames.place.astype(np.int64) + frames.weight
        table = np.empty(len(line), _BLOCK)
        table["line"], table["base"], table["node"] = line, base, node
        table["records"], table["place"], table["weight"] = records, frames.place, frames.weight
        table["least"], table["width"] = frames.least, frames.width
        table["offset"] = self._at + np.cumsum(both) - both
        self._tables.append(table)
        self._write(b"".join(frames.data))
        self._at += int(both.sum())

    def take_back(self, line: int) -> tuple[I64, U32, U16 | None, U64 | None]:
        """All records of one row so far, which then has none: times in ticks, nodes, weights."""
        mine = [table[table["line"] == line] for table in self._tables]
        self._tables = [table[table["line"] != line] for table in self._tables]
        found = np.concatenate(mine)
        self._file.flush()
        with (
            mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) as data,
            memoryview(data)[_HEADER.size :] as body,
        ):
            records = _decode(body, found)
        self._file.seek(0, os.SEEK_END)
        return records

    def finish(
        self, source: I64, records: I64, first: I64, last: I64, overview: OverviewSource,
        archive: Mapping[str, Array | bytes],
    ) -> None:  # fmt: skip
        """Write everything else; the arrays of lines are those of :class:`LineTable`."""
        lines = len(source)
        table = np.concatenate([*self._tables, np.empty(0, _BLOCK)])
        table = table[np.argsort(table["line"], kind="stable")]
        blob = self._at
        self._pad(blob)
        step, origin, entries, wide, word, dictionary, sizes = self._write_overviews(
            lines, overview
        )
        columns: dict[str, Array] = {
            "source": source, "records": records, "first": first, "last": last,
            "block": np.searchsorted(table["line"], np.arange(lines + 1)), "word": word,
            "step": step, "origin": origin, "entries": entries, "wide": wide,
        } | {f"block_{name}": table[name] for name in table.dtype.names or ()}  # fmt: skip
        for name, kind, _ in _tables(lines, len(table)):
            self._section(columns[name].astype(kind, copy=False).tobytes())
        self._section(dictionary.astype("<u4", copy=False).tobytes())
        packed = _pack_archive(archive)
        self._write(packed)
        head = _HEADER.pack(MAGIC, VERSION, lines, len(table), blob, *sizes, len(dictionary),
                            len(packed), 0, 0)  # fmt: skip
        head = _HEADER.pack(MAGIC, VERSION, lines, len(table), blob, *sizes, len(dictionary),
                            len(packed), zlib.crc32(head[:-8]), 0)  # fmt: skip
        try:
            self._file.seek(0)
            self._file.write(head)
            self._file.flush()
        except OSError as error:
            raise storage_error(self._path, error) from None

    def _write_overviews(
        self, lines: int, overview: OverviewSource
    ) -> tuple[I64, I64, I64, I64, I64, U32, tuple[int, int]]:
        """Both overview sections: level by level, so that a coarse picture reads little."""
        step, origin, entries, wide, words = (np.zeros(lines, np.int64) for _ in range(5))
        dictionaries: list[U32] = [np.zeros(0, np.uint32)] * lines
        place = np.zeros(0, np.uint32)
        sizes = []
        todo = list(range(lines))
        for is_wide, kind in ((0, np.dtype("<u2")), (1, np.dtype("<u4"))):
            coarser: dict[int, list[Array]] = {}
            later = []
            mine = np.zeros(lines, np.int64)
            for line in todo:
                step[line], origin[line], nodes = overview.line(line)
                if not len(nodes):
                    continue
                known = _distinct(nodes)
                if len(known) > _NARROW and not is_wide:
                    later.append(line)
                    continue
                if int(known[-1]) >= len(place):
                    place = np.zeros(2 * int(known[-1]) + 2, np.uint32)
                place[known] = np.arange(len(known))
                values = place[nodes].astype(kind)
                dictionaries[line], words[line] = known, len(known)
                mine[line] = entries[line] = len(nodes)
                wide[line] = is_wide
                self._write(values.tobytes())
                for level in range(1, 16):
                    skip = -int(origin[line]) % FACTOR**level
                    coarser.setdefault(level, []).append(values[skip :: FACTOR**level])
            levels = Levels.of(step, origin, mine)
            for level in range(1, len(levels.count)):
                kept = np.flatnonzero(mine)
                for line, values in zip(kept.tolist(), coarser[level], strict=True):
                    self._write(values[: int(levels.count[level, line])].tobytes())
            sizes.append(levels.total)
            self._pad(levels.total * kind.itemsize)
            todo = later
        word = np.concatenate(([0], np.cumsum(words)))
        return (step, origin, entries, wide, word,
                np.concatenate([*dictionaries, np.zeros(0, np.uint32)]),
                (sizes[0], sizes[1]))  # fmt: skip

    def _section(self, data: bytes) -> None:
        self._write(data)
        self._pad(len(data))

    def _pad(self, written: int) -> None:
        self._write(bytes(-written % 8))

    def _write(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            raise storage_error(self._path, error) from None


class Part:
    """A part, memory-mapped: opening reads its tables and nothing else."""

    def __init__(self, path: Path) -> None:
        """Map ``path``. Raises :class:`FormatError` unless everything in it is where it must be."""
        self.path = path
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                head = file.read(_HEADER.size)
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
        except OSError as error:
            raise FormatError(f"{path}: {error.strerror or error}") from None
        if len(head) != _HEADER.size or not head.startswith(MAGIC):
            raise FormatError(f"{path}: not a part of a database")
        _, version, lines, count, blob, *sizes, crc, _ = _HEADER.unpack(head)
        narrow, wide, words, archive = sizes
        if crc != zlib.crc32(head[:-8]):
            raise FormatError(f"{path}: damaged")
        if version != VERSION:
            raise FormatError(f"{path}: version {version}, this hpcd reads {VERSION}")
        self._body = memoryview(self._map)[_HEADER.size : _HEADER.size + blob]
        self._at = _HEADER.size + blob + -blob % 8
        self._size = size
        narrow_entries: U16 = self._take(np.dtype("<u2"), narrow)
        wide_entries: U32 = self._take(np.dtype("<u4"), wide)
        tables = {name: self._take(kind, n) for name, kind, n in _tables(lines, count)}
        self.lines = LineTable(*(tables[each.name] for each in fields(LineTable)))
        self._blocks = BlockTable(*(tables[f"block_{each.name}"] for each in fields(BlockTable)))
        self._blob = blob
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
                raise self._damaged()

    def __len__(self) -> int:
        return len(self.lines.source)

    @property
    def records(self) -> int:
        """Records of all lines."""
        return int(self.lines.records.sum())

    def levels(self, row: int) -> tuple[Levels, Array]:
        """The overview of a line: the levels of its kind, and the entries they point into."""
        kind = int(self.lines.wide[row] != 0)
        return self._levels[kind], self._entries[kind]

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

    def weights(self, chosen: slice) -> tuple[U16, U64]:
        """Events (the measurement's) and values ``[n, 1024]`` of the blocks ``chosen``."""
        begin = self.blocks.offset[chosen] + self.blocks.place[chosen]
        end = begin + self.blocks.weight[chosen]
        frames = [self._body[a:b] for a, b in zip(begin.tolist(), end.tolist(), strict=True)]
        return blocks.decode_weights(frames, self.blocks.records[chosen].astype(np.int64))

    @property
    def has_weights(self) -> bool:
        """Whether events and values are kept: not where there is one event and all are 1."""
        return bool(self.blocks.weight.any())

    def archive(self) -> dict[str, memoryview]:
        """The packed entries of the archive by name; see :func:`unpack_array`."""
        with memoryview(self._map) as whole:
            data = bytes(whole[self._archive])
        try:
            (length,) = struct.unpack_from("<Q", data)
            index = json.loads(data[8 : 8 + length])
            body = memoryview(data)[8 + length :]
            return {str(name): body[int(a) : int(b)] for name, (a, b) in index.items()}
        except (struct.error, ValueError, TypeError, AttributeError, RecursionError):
            raise self._damaged() from None

    def _take(self, kind: np.dtype[Any], count: int) -> Array:
        size = count * kind.itemsize
        if self._at + size > self._size:
            raise self._damaged()
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
            raise self._damaged()

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
            raise self._damaged()
        return table

    def _damaged(self) -> FormatError:
        return FormatError(f"{self.path}: damaged")


def _distinct(nodes: U32) -> U32:
    """The distinct values of ``nodes``, ascending."""
    top = int(nodes.max()) + 1
    if top > 8 * len(nodes):
        return np.unique(nodes)
    # Marking them takes a seventh of the time of sorting them.
    seen = np.zeros(top, bool)
    seen[nodes] = True
    return np.flatnonzero(seen).astype(np.uint32)


def _bounds(bounds: I64, total: int) -> bool:
    return bounds[0] == 0 and bounds[-1] == total and not bool((bounds[1:] < bounds[:-1]).any())


def _decode(body: memoryview, table: Array) -> tuple[I64, U32, U16 | None, U64 | None]:
    """All records of the blocks ``table``, in order."""
    begin = table["offset"].tolist()
    middle = (table["offset"] + table["place"]).tolist()
    end = (table["offset"] + table["place"] + table["weight"]).tolist()
    count = table["records"].astype(np.int64)
    full = np.arange(blocks.BLOCK_RECORDS) < count[:, None]
    frames = [body[a:b] for a, b in zip(begin, middle, strict=True)]
    ticks, node = blocks.decode_places(frames, table["width"], table["least"], count)
    time = ticks.astype(np.int64) + table["base"][:, None]
    if not table["weight"].any():
        return time[full], node[full], None, None
    frames = [body[a:b] for a, b in zip(middle, end, strict=True)]
    event, value = blocks.decode_weights(frames, count)
    return time[full], node[full], event[full], value[full]


# --- the archive ---


def _pack_archive(entries: Mapping[str, Array | bytes]) -> bytes:
    """u64 length, JSON of name to [begin, end], then the frames."""
    pack = zstandard.ZstdCompressor(level=3).compress
    index, parts, at = {}, [], 0
    for name, value in entries.items():
        part = pack(value if isinstance(value, bytes) else _planes(value))
        index[name] = [at, at + len(part)]
        parts.append(part)
        at += len(part)
    head = json.dumps(index).encode()
    return b"".join([struct.pack("<Q", len(head)), head, *parts])


def _planes(values: Array) -> bytes:
    """Byte planes: trees and sums compress to half of what they would otherwise."""
    flat = np.ascontiguousarray(values)
    return np.ascontiguousarray(flat.view(np.uint8).reshape(-1, flat.itemsize).T).tobytes()


def unpack_bytes(frame: memoryview) -> bytes:
    """An entry of the archive. Raises :class:`FormatError`."""
    try:
        if not 0 <= zstandard.frame_content_size(frame) <= _ENTRY_LIMIT:
            raise FormatError("an entry of a part's archive is too big")
        return zstandard.ZstdDecompressor().decompress(frame)
    except zstandard.ZstdError as error:
        raise FormatError(f"an entry of a part's archive does not decompress: {error}") from None


def unpack_array(frame: memoryview, kind: npt.DTypeLike) -> Array:
    """An array of the archive. Raises :class:`FormatError`."""
    data = unpack_bytes(frame)
    width = np.dtype(kind).itemsize
    if len(data) % width:
        raise FormatError("an array of a part's archive is of another type")
    planes = np.frombuffer(data, np.uint8).reshape(width, -1)
    values: Array = np.ascontiguousarray(planes.T).view(kind).ravel()
    return values
