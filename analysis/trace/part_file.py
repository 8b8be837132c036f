"""The file of a part: its header and the sections behind it."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from hpcd.analysis.arrays.file_mapping import map_file
from hpcd.analysis.arrays.named_arrays import NamedArrays
from hpcd.analysis.arrays.read_ahead import Span
from hpcd.analysis.trace.part_format import ENTRIES, HEADER, PACKED_SHORT_TABLES, PartHeader, tables
from hpcd.array_types import Array
from hpcd.errors import FormatError
from hpcd.measurement.columns import ColumnCursor
from hpcd.measurement.zstd_contexts import unpack_frame
from hpcd.regular_file import open_descriptor, open_regular

# Bytes of a part's tables to read ahead: the tables of about a hundred lines.
_TABLES_AHEAD = 64 << 10


def expect(paths: Iterable[Path]) -> None:
    """Request that the kernel read the tables of parts that are opened next, all at once.

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
                header = PartHeader.read(Path(), head)
                overviews = sum(
                    kind.itemsize * count
                    for kind, count in zip(ENTRIES.values(), header.entries, strict=True)
                )
                at = min(HEADER.size + header.blob + overviews, os.fstat(file).st_size)
                os.posix_fadvise(file, at, _TABLES_AHEAD, os.POSIX_FADV_WILLNEED)
    finally:
        for file in files:
            os.close(file)


def read_archive(path: Path) -> NamedArrays:
    """The packed entries of a part's archive by name; see :func:`.pack_archive`.
    Reads only the archive. Raises :class:`FormatError`."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            header = PartHeader.read(path, file.read(HEADER.size))
            if header.archive > size:
                raise FormatError(f"{path}: damaged (shorter than its header says)")
            file.seek(size - header.archive)
            return NamedArrays(file.read(header.archive), path)
    except OSError as error:
        raise FormatError(f"{path}: {error.strerror or error}") from None


class PartFile:
    """The file of a part, memory-mapped; ``at`` is the place from which arrays are taken."""

    def __init__(self, path: Path) -> None:
        """Map ``path``. Raises :class:`FormatError` if it is no part."""
        self.path = path
        try:
            with open_regular(path) as file:
                self._size = os.fstat(file.fileno()).st_size
                head = file.read(HEADER.size)
                # An empty file cannot be mapped.
                if self._size < HEADER.size:
                    raise FormatError(f"{path}: not a part of a database")
                self._map = map_file(file, self._size)
        except OSError as error:
            raise FormatError(f"{path}: {error.strerror or error}") from None
        self._scattered = False
        self.header = PartHeader.read(path, head)
        blob = self.header.blob
        self.body = memoryview(self._map)[HEADER.size : HEADER.size + blob]
        """The frames."""
        self.at = HEADER.size + blob + -blob % 8

    def take(self, kind: np.dtype[Any], count: int) -> Array:
        """Return the array at the current position, and advance behind it."""
        size = count * kind.itemsize
        if self.at + size > self._size:
            raise self.damaged("shorter than its header says")
        values: Array = np.frombuffer(self._map, kind, count, self.at)
        self.at += size + -size % 8
        return values

    def take_tables(self) -> dict[str, Array]:
        """Return the columns of all tables and the dictionary, ``words``, by name."""
        header = self.header
        wanted = [
            *tables(header.lines, header.blocks, header.frames, header.short),
            ("words", np.dtype("<u4"), header.words),
        ]
        if not header.packed:
            return {name: self.take(kind, count) for name, kind, count in wanted}
        frame = self.take(np.dtype(np.uint8), header.packed)
        if sum(kind.itemsize * count for _, kind, count in wanted) > PACKED_SHORT_TABLES:
            raise self.damaged("packed tables")
        try:
            cursor = ColumnCursor(unpack_frame(frame.data))
            return {
                name: cursor.column(count, np.dtype(f"<u{kind.itemsize}").type).view(kind)
                for name, kind, count in wanted
            }
        except FormatError as error:
            raise self.damaged(f"packed tables: {error}") from None

    def check_end(self) -> None:
        """Raise :class:`FormatError` unless the archive is all that is left of the file."""
        end = self.at + self.header.archive
        if end != self._size:
            raise FormatError(f"{self.path}: {self._size} bytes, should be {end}")

    def span(self, at: int, size: int) -> Span:
        """The place of some bytes of the file."""
        # In a damaged part entries and words may point anywhere.
        at = min(max(at, 0), self._size - 1)
        return Span(self._map, at, min(size, self._size - at))

    def read_here_and_there(self, scattered: bool = True) -> None:
        """Request that the kernel read only pages that are touched or expected, as pictures need;
        or with ``scattered`` False the surrounding pages again, perhaps megabytes each time.
        """
        if scattered != self._scattered:
            self._map.madvise(mmap.MADV_RANDOM if scattered else mmap.MADV_NORMAL)
            self._scattered = scattered

    def release(self) -> None:
        """Let the kernel drop the pages that were read; they are mapped again when needed."""
        self._map.madvise(mmap.MADV_DONTNEED)

    def archive(self) -> NamedArrays:
        """The packed entries of the archive by name; see :func:`.pack_archive`."""
        return NamedArrays(self._map[self._size - self.header.archive :], self.path)

    def damaged(self, what: str) -> FormatError:
        """Return the error that names the damage."""
        return FormatError(f"{self.path}: damaged ({what})")
