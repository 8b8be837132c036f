"""A part: a batch of measurements in a database, in one file that never changes.

It has the measurements' identities and their records as blocks and overviews. Nodes and events have
numbers of the part's own; the database maps them to the canonical tree. So parts
are made independently of one another, stay unchanged when measurements are added, and a resumed
merge uses existing ones.

    header | frames | overviews of 8, 16, 32 bits | tables | dictionary | archive

Frames are zstd's: of blocks, and of the two finest levels of overviews. Coarser levels are stored
as they are.

All numbers are little-endian; each section begins at a multiple of 8. Of short lines tables
and dictionary are one zstd frame, with each column's byte planes in sequence. The archive holds
arrays and JSON by name, each a zstd frame that is read whole or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path

import numpy as np

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
from hpcd.analysis.trace.part_file import PartFile
from hpcd.analysis.trace.part_format import (
    ENTRIES,
    FRAME_ENTRIES,
    FRAMED_LEVELS,
    HEADER,
    NO_FRAME,
    BlockTable,
    FrameTable,
    PartLineTable,
)
from hpcd.array_types import I64, U8, U16, U32, U64, Array


@dataclass(frozen=True, slots=True)
class StoredPart:
    """The contents of a part as stored, checked only for their size.

    ``body`` ``uint8[bytes]`` are the frames, ``levels`` ``int64[levels, lines, 4]`` step, first,
    count and offset of each line's levels, the finest :data:`FRAMED_LEVELS` of which are
    compressed; ``entries`` the others by width; ``columns`` the tables of blocks, of frames and of
    short waits, ``block_``, ``frame_`` and ``short_``.
    """

    body: U8
    levels: I64
    entries: dict[int, Array]
    columns: dict[str, Array]


class Part:
    """A part, memory-mapped: opening reads only its tables."""

    def __init__(self, path: Path) -> None:
        """Map ``path``. Raises :class:`FormatError` unless everything in it is where it must be."""
        self.path = path
        file = self.file = PartFile(path)
        header = self._header = file.header
        self._entries: dict[int, Array] = {}
        self._entries_at: dict[int, int] = {}
        for (width, kind), stored in zip(ENTRIES.items(), header.entries, strict=True):
            self._entries_at[width] = file.at
            self._entries[width] = file.take(kind, stored)
        tables_at = file.at
        columns = self._columns = file.take_tables()
        self._tables = file.span(tables_at, file.at - tables_at)
        self.lines = PartLineTable(*(columns[column.name] for column in fields(PartLineTable)))
        self.dictionary: U32 = columns["words"]
        file.check_end()
        self._check_lines(header.blocks, header.words, header.short)
        self._overview = self._levels()

    def __len__(self) -> int:
        return len(self.lines.source)

    def _levels(self) -> I64:
        """``int64[lines, levels, 4]``: step, first, count and offset of each line's levels (see
        :class:`Levels`); levels of one width are adjacent. The offset of a compressed level is
        the number of its first frame."""
        lines = self.lines
        levels = Levels.of(lines.step, lines.origin, lines.entries)
        for width, entries in self._entries.items():
            mine = np.flatnonzero(lines.wide == width)
            counts = levels.count[:, mine]
            counts[:FRAMED_LEVELS] = 0
            if int(counts.sum()) != len(entries):
                raise self.file.damaged("overviews of other lengths than the table of lines says")
            levels.offset[:, mine] = np.cumsum(counts.ravel()).reshape(counts.shape) - counts
        frames = -(-levels.count[:FRAMED_LEVELS] // FRAME_ENTRIES)
        levels.offset[:FRAMED_LEVELS] = lines.finest + np.cumsum(frames, axis=0) - frames
        return np.stack((levels.step, levels.first, levels.count, levels.offset), axis=2).swapaxes(
            0, 1
        )

    def stored(self) -> StoredPart:
        """Return the contents as they are stored, for kernels."""
        levels = np.ascontiguousarray(self._overview.swapaxes(0, 1))
        return StoredPart(np.asarray(self.file.body), levels, self._entries, self._columns)

    def body_span(self, at: int, size: int) -> Span:
        """Return the place in the file of ``size`` bytes of frames, from ``at`` on."""
        return self.file.span(at + HEADER.size, size)

    def entry_span(self, width: int, first: int, count: int) -> Span:
        """Return the place in the file of ``count`` entries of uncompressed overviews."""
        size = ENTRIES[width].itemsize
        return self.file.span(self._entries_at[width] + first * size, count * size)

    def table_spans(self) -> list[Span]:
        """Return the places of the tables in the file."""
        return [self._tables]

    def places(self, chosen: slice, state: U8 | None = None) -> tuple[Unsigned, U32]:
        """Ticks since each block's first record and nodes ``[n, 1024]`` of the blocks ``chosen``;
        short blocks repeat their last. States are written into ``state``, if there is one.
        """
        self.file.read_here_and_there(False)
        return decode_places(self.stored_places(chosen), self.blocks.least[chosen], state)

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
        return StoredFrames(self.file.body, frames.offset, frames.size, frames.content)

    def weights(self, chosen: slice, since: Unsigned) -> tuple[U16, U64]:
        """Events (the measurement's) and values ``[n, 1024]`` of the blocks ``chosen``; ``since``
        are the ticks that :meth:`places` gives of them.
        """
        return decode_codes(self.stored_codes(chosen), since)

    def _check_lines(self, count: int, words: int, short: int) -> None:
        lines = self.lines
        if not (
            _bounds(lines.block, count)
            and _bounds(lines.word, words)
            and _bounds(lines.short, short)
            and int(lines.entries.min(initial=0)) >= 0
            and int(np.abs(lines.origin).max(initial=0)) < 1 << 61
            and 0 <= int(lines.step.min(initial=0)) <= int(lines.step.max(initial=0)) < 1 << 61
            and bool((lines.step[lines.entries > 0] > 0).all())
            and 0 <= int(lines.wide.min(initial=0)) <= int(lines.wide.max(initial=0)) < len(ENTRIES)
        ):
            raise self.file.damaged("table of lines")

    @cached_property
    def blocks(self) -> BlockTable:
        """The table of blocks, checked when it is first needed: overviews need none of it."""
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
            raise self.file.damaged("table of blocks")
        return table

    @cached_property
    def frames(self) -> FrameTable:
        """The table of frames, checked when it is first needed."""
        table = FrameTable(
            *(self._columns[f"frame_{column.name}"] for column in fields(FrameTable))
        )
        if (
            int(table.offset.min(initial=0)) < 0
            or int(table.offset.max(initial=0)) > self._header.blob
            or int((table.offset + table.size).max(initial=0)) > self._header.blob
            or int(table.content.max(initial=0)) > MOST_CONTENT
        ):
            raise self.file.damaged("table of frames")
        return table


def _bounds(bounds: I64, total: int) -> bool:
    return bounds[0] == 0 and bounds[-1] == total and not bool((bounds[1:] < bounds[:-1]).any())
