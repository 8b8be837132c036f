"""Writing a part: blocks as they come, everything else at the end."""

from __future__ import annotations

import mmap
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

from hpcd.analysis.arrays.archive import pack_archive
from hpcd.analysis.arrays.column_files import storage_error
from hpcd.analysis.trace.blocks import BLOCK_RECORDS, Frames, decode_places, decode_weights
from hpcd.analysis.trace.overview import FACTOR, Levels, OverviewSource
from hpcd.analysis.trace.part import BLOCK, HEADER, MAGIC, VERSION, tables
from hpcd.array_types import I64, U16, U32, U64, Array
from hpcd.measurement.planes import ranked

# An overview names nodes by their place in the line's dictionary, of which few have this many.
_NARROW = 1 << 16


class PartWriter:
    """Writes a part: blocks as they come, the rest at the end."""

    def __init__(self, path: Path) -> None:
        """Begin the file ``path``. Raises :class:`StorageError`."""
        self._path = path
        self._tables: list[Array] = []
        try:
            self._file: BinaryIO = path.open("x+b")
            self._file.write(bytes(HEADER.size))
        except OSError as error:
            raise storage_error(path, error) from None
        self._at = 0

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, line: I64, base: I64, node: U32, records: I64, frames: Frames) -> None:
        """Append blocks: the row, first time and node, and the number of records of each."""
        both = frames.place.astype(np.int64) + frames.weight
        table = np.empty(len(line), BLOCK)
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
        blocks = np.concatenate(mine)
        self._file.flush()
        with (
            mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) as data,
            memoryview(data)[HEADER.size :] as body,
        ):
            records = _decode(body, blocks)
        self._file.seek(0, os.SEEK_END)
        return records

    def finish(
        self, source: I64, records: I64, first: I64, last: I64, overview: OverviewSource,
        archive: Mapping[str, Array | bytes],
    ) -> None:  # fmt: skip
        """Write everything else; the arrays of lines are those of :class:`PartLineTable`."""
        lines = len(source)
        table = np.concatenate([*self._tables, np.empty(0, BLOCK)])
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
        for name, kind, _ in tables(lines, len(table)):
            self._section(columns[name].astype(kind, copy=False).tobytes())
        self._section(dictionary.astype("<u4", copy=False).tobytes())
        packed = pack_archive(archive)
        self._write(packed)
        head = HEADER.pack(MAGIC, VERSION, lines, len(table), blob, *sizes, len(dictionary),
                            len(packed), 0, 0)  # fmt: skip
        head = HEADER.pack(MAGIC, VERSION, lines, len(table), blob, *sizes, len(dictionary),
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
                distinct, values = ranked(nodes)
                if len(distinct) > _NARROW and not is_wide:
                    later.append(line)
                    continue
                values = values.astype(kind)
                dictionaries[line], words[line] = distinct, len(distinct)
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


def _decode(body: memoryview, table: Array) -> tuple[I64, U32, U16 | None, U64 | None]:
    """All records of the blocks ``table``, in order."""
    begin = table["offset"].tolist()
    middle = (table["offset"] + table["place"]).tolist()
    end = (table["offset"] + table["place"] + table["weight"]).tolist()
    count = table["records"].astype(np.int64)
    full = np.arange(BLOCK_RECORDS) < count[:, None]
    frames = [body[a:b] for a, b in zip(begin, middle, strict=True)]
    ticks, node = decode_places(frames, table["width"], table["least"], count)
    time = ticks.astype(np.int64) + table["base"][:, None]
    if not table["weight"].any():
        return time[full], node[full], None, None
    frames = [body[a:b] for a, b in zip(middle, end, strict=True)]
    event, value = decode_weights(frames, count, table["width"], ticks)
    return time[full], node[full], event[full], value[full]
