"""Writing a part: blocks as they come, everything else at the end."""

from __future__ import annotations

import mmap
import os
import shutil
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import zstandard

from hpcd.analysis.arrays.column_files import storage_error
from hpcd.analysis.arrays.named_arrays import pack_archive
from hpcd.analysis.arrays.packed_columns import pack_frame
from hpcd.analysis.arrays.small_numbers import ranked
from hpcd.analysis.trace.blocks import (
    BLOCK_RECORDS,
    Encoded,
    StoredFrames,
    decode_codes,
    decode_places,
)
from hpcd.analysis.trace.overview import Levels, OverviewSource
from hpcd.analysis.trace.part_format import (
    BLOCK,
    ENTRIES,
    FRAME_ENTRIES,
    FRAMED_LEVELS,
    HEADER,
    MAGIC,
    NO_FRAME,
    PACKED_SHORT_TABLES,
    PACKED_TABLES,
    VERSION,
    tables,
)
from hpcd.analysis.trace.short_waits import ShortWaits
from hpcd.array_types import I64, U8, U16, U32, U64, Array
from hpcd.kernels.library import kernels
from hpcd.measurement.zstd_contexts import compressor

# Level 1's parameters, with matches from 5 bytes on: overviews have many repetitions.
_FINEST_PARAMETERS = zstandard.ZstdCompressionParameters(
    window_log=17, chain_log=6, hash_log=12, search_log=1, min_match=5, target_length=0,
    strategy=1, write_content_size=True,
)  # fmt: skip
_COPIED_AT_ONCE = 1 << 20
TABLES_LEVEL = 3
"""Compression level of zstd for packed tables."""


class PartWriter:
    """Writes a part: blocks as they come, the rest at the end."""

    def __init__(self, path: Path) -> None:
        """Begin the file ``path``, replacing a killed merge's file. Raises
        :class:`StorageError`."""
        self._path = path
        self._tables: list[Array] = []
        try:
            self._file: BinaryIO = path.open("w+b")
            self._file.write(bytes(HEADER.size))
        except OSError as error:
            raise storage_error(path, error) from None
        self._at = 0
        # Start and content size of each frame; its stored size follows from the next start.
        self._frames: list[I64] = []
        self._content: list[I64] = []
        self._count = 0

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, line: I64, base: I64, word: U32, records: I64, encoded: Encoded) -> None:
        """Append blocks: the row, the first record's time and word (its node times four, plus its
        state), and the number of records of each."""
        table = np.empty(len(line), BLOCK)
        table["line"], table["base"], table["word"] = line, base, word
        table["records"], table["least"], table["width"] = records, encoded.least, encoded.width
        table["frame"], table["at"] = encoded.frame + self._count, encoded.at
        coded = encoded.code_frame >= 0
        table["code_frame"] = np.where(coded, encoded.code_frame + self._count, NO_FRAME)
        table["code_at"] = encoded.code_at
        self._tables.append(table)
        self._append_frames(encoded.data, encoded.content)

    def blocks(self) -> tuple[Array, I64, I64]:
        """The table of the added blocks, of type :data:`BLOCK`; the offsets of their frames
        behind the header, and the sizes of the frames' content."""
        self._file.flush()
        offset, _, content = self._frame_table()
        return self._all_blocks(), offset, content

    def _all_blocks(self) -> Array:
        return np.concatenate([*self._tables, np.empty(0, BLOCK)])

    def append(self, path: Path, table: Array, offset: I64, content: I64) -> None:
        """Append blocks that another writer has written to ``path``, with the other results of its
        :meth:`blocks`; ``table`` has the rows in this part."""
        table = table.copy()
        table["frame"] += self._count
        table["code_frame"][table["code_frame"] != NO_FRAME] += self._count
        self._tables.append(table)
        self._frames.append(offset + self._at)
        self._content.append(content)
        self._count += len(offset)
        try:
            self._file.flush()
            with path.open("rb") as other:
                size = os.fstat(other.fileno()).st_size - HEADER.size
                other.seek(HEADER.size)
                shutil.copyfileobj(other, self._file, _COPIED_AT_ONCE)
        except OSError as error:
            raise storage_error(path, error) from None
        self._at += size

    def take_back(self, line: int) -> tuple[I64, U32, U8, U16 | None, U64 | None]:
        """Return all records of one row so far, and remove them: times in ticks, nodes, states,
        weights."""
        mine = [table[table["line"] == line] for table in self._tables]
        self._tables = [table[table["line"] != line] for table in self._tables]
        blocks = np.concatenate(mine)
        self._file.flush()
        with (
            mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) as data,
            memoryview(data)[HEADER.size :] as body,
        ):
            records = _decode(StoredFrames(body, *self._frame_table()), blocks)
        self._file.seek(0, os.SEEK_END)
        return records

    def finish(
        self, source: I64, records: I64, first: I64, last: I64, overview: OverviewSource,
        short: ShortWaits, archive: Mapping[str, bytes],
    ) -> None:  # fmt: skip
        """Write everything else: the arrays of lines (:class:`PartLineTable`), their overviews
        ``overview``, and the waits without records ``short``."""
        lines = len(source)
        table = self._all_blocks()
        if bool((np.diff(table["line"].astype(np.int64)) < 0).any()):
            table = table[np.argsort(table["line"], kind="stable")]
        mine, dictionary, coarser = self._compress_overviews(lines, overview)
        blob = self._at
        self._pad(blob)
        some = bool(mine["entries"].any())
        sizes = self._write_coarser(mine, coarser) if some else [0] * len(ENTRIES)
        offset, size, content = self._frame_table()
        columns: dict[str, Array] = {
            "source": source, "records": records, "first": first, "last": last,
            "block": np.searchsorted(table["line"], np.arange(lines + 1)),
            "word": np.concatenate(([0], np.cumsum(mine.pop("words")))), **mine,
            "frame_offset": offset, "frame_size": size, "frame_content": content,
            "short": np.searchsorted(short.line, np.arange(lines + 1)),
            "short_since": short.since, "short_until": short.until, "short_word": short.word,
            "short_share": short.share,
        } | {f"block_{name}": table[name] for name in table.dtype.names or ()}  # fmt: skip
        whole = [
            columns[name].astype(kind, copy=False)
            for name, kind, _ in tables(lines, len(table), len(offset), len(short.line))
        ]
        whole.append(dictionary.astype("<u4", copy=False))
        packed = 0
        most = PACKED_SHORT_TABLES if len(table) < 2 * lines else PACKED_TABLES
        if sum(column.nbytes for column in whole) <= most:
            frame = pack_frame(TABLES_LEVEL, *(one.view(f"<u{one.itemsize}") for one in whole))
            packed = len(frame)
            self._section(frame)
        else:
            for column in whole:
                self._section(column.tobytes())
        archived = pack_archive(archive)
        self._write(archived)
        head = part_header(
            lines, len(table), len(offset), blob, sizes, len(dictionary), len(short.line),
            len(archived), packed,
        )  # fmt: skip
        try:
            self._file.seek(0)
            self._file.write(head)
            self._file.flush()
        except OSError as error:
            raise storage_error(self._path, error) from None

    def _compress_overviews(
        self, lines: int, overview: OverviewSource
    ) -> tuple[dict[str, I64], U32, dict[int, list[list[Array]]]]:
        """Append the :data:`FRAMED_LEVELS` of overviews as frames: columns of the table of lines,
        the dictionary, and by width the coarser levels' entries, each of all lines."""
        names = ("step", "origin", "entries", "wide", "finest", "words")
        columns = {name: np.zeros(lines, np.int64) for name in names}
        dictionaries: list[U32] = [np.zeros(0, np.uint32)]
        coarser: dict[int, list[list[Array]]] = {width: [] for width in ENTRIES}
        pack = compressor(_FINEST_PARAMETERS).compress
        frames: list[bytes] = []
        content: list[int] = []
        for line in overview.long_lines():
            step, origin, words = overview.line(line)
            if not len(words):
                continue
            # If the line has a dictionary, an overview has words' places in it.
            distinct, places = _dictionary(words)
            top = len(distinct) or int(places.max()) + 1
            width = next(
                width for width, kind in ENTRIES.items() if top <= 1 << (8 * kind.itemsize)
            )
            values = places.astype(ENTRIES[width], copy=False)
            facts = (step, origin, len(words), width, self._count + len(frames), len(distinct))
            for name, fact in zip(names, facts, strict=True):
                columns[name][line] = fact
            dictionaries.append(distinct)
            levels = Levels.entries(origin, values)
            for entries in levels[:FRAMED_LEVELS]:
                for at in range(0, len(entries), FRAME_ENTRIES):
                    some = np.ascontiguousarray(entries[at : at + FRAME_ENTRIES])
                    frames.append(pack(some.data))
                    content.append(some.nbytes)
            for level, some in enumerate(levels[FRAMED_LEVELS:]):
                if level == len(coarser[width]):
                    coarser[width].append([])
                coarser[width][level].append(some.copy())
        self._append_frames(frames, np.array(content, np.int64))
        return columns, np.concatenate(dictionaries), coarser

    def _write_coarser(
        self, columns: Mapping[str, I64], coarser: Mapping[int, list[list[Array]]]
    ) -> list[int]:
        """The overview sections: level by level, so that a coarse picture reads little; how many
        entries each has."""
        sizes = []
        for width, kind in ENTRIES.items():
            mine = np.where(columns["wide"] == width, columns["entries"], 0)
            levels = Levels.of(columns["step"], columns["origin"], mine)
            for values in coarser[width]:
                self._write(b"".join(entries.data for entries in values))
            sizes.append(int(levels.count[FRAMED_LEVELS:].sum()))
            self._pad(sizes[-1] * kind.itemsize)
        return sizes

    def _append_frames(self, frames: list[bytes], content: I64) -> None:
        sizes = np.array([len(frame) for frame in frames], np.int64)
        self._frames.append(self._at + np.cumsum(sizes) - sizes)
        self._content.append(content)
        self._count += len(sizes)
        self._write(b"".join(frames))
        self._at += int(sizes.sum())

    def _frame_table(self) -> tuple[I64, I64, I64]:
        """Offsets of all frames, their stored sizes, and their content sizes."""
        offset = np.concatenate([*self._frames, np.zeros(0, np.int64)])
        content = np.concatenate([*self._content, np.zeros(0, np.int64)])
        return offset, np.diff(offset, append=self._at), content

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


def part_header(
    lines: int, blocks: int, frames: int, blob: int, entries: Sequence[int], words: int,
    short: int, archive: int, packed: int,
) -> bytes:  # fmt: skip
    """The header of a part, with the count of each (see :data:`HEADER`)."""
    facts = (MAGIC, VERSION, lines, blocks, frames, blob, *entries, words, short, archive, packed)
    return HEADER.pack(*facts, zlib.crc32(HEADER.pack(*facts, 0, 0)[:-8]), 0)


def _dictionary(words: U16 | U32) -> tuple[U32, U8 | U16 | U32]:
    """The distinct ``words``, and the place of each of ``words`` among them; or none and ``words``.

    Numbers of nodes that occur most are small: they do without a dictionary, unless with one a byte
    is enough for an entry.
    """
    none = np.zeros(0, np.uint32)
    top = int(words.max(initial=0)) + 1
    if top > 1 << 16:
        return ranked(words.astype(np.uint32))
    if top <= 1 << 8:
        return none, words
    distinct, places = np.empty(1 << 8, np.uint32), np.empty(len(words), np.uint8)
    count = kernels.rank_words(
        np.ascontiguousarray(words, np.uint16), len(words), np.zeros(1 << 16, np.uint16), distinct,
        places,
    )  # fmt: skip
    return (none, words) if count < 0 else (distinct[:count], places)


def _decode(frames: StoredFrames, table: Array) -> tuple[I64, U32, U8, U16 | None, U64 | None]:
    """Times, nodes, states, events and values of all records of the blocks ``table``, in order."""
    count, width = table["records"], table["width"]
    full = np.arange(BLOCK_RECORDS) < count[:, None]
    state = np.empty(full.shape, np.uint8)
    ticks, node = decode_places(
        frames.blocks(table["frame"], table["at"], count, width), table["least"], state
    )
    time = ticks.astype(np.int64) + table["base"][:, None]
    if bool((table["code_frame"] == NO_FRAME).all()):
        return time[full], node[full], state[full], None, None
    codes = frames.blocks(table["code_frame"], table["code_at"], count, width, none=NO_FRAME)
    event, value = decode_codes(codes, ticks)
    return time[full], node[full], state[full], event[full], value[full]
