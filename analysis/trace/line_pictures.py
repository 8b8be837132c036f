"""Drawing trace lines: the call path and the state that each pixel shows.

Zoomed out, from the lines' overviews, at computed places; zoomed in, from their records. Kernels
do both (``line_pictures.c``): first the content to draw of every row is chosen, then its compressed
frames are decompressed, as many together as fit, then rows are drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from hpcd.analysis.arrays.packed_frames import side_by_side
from hpcd.analysis.arrays.read_ahead import Span, read_ahead
from hpcd.analysis.trace.frame_ring import THREADS, TOGETHER_BYTES, FrameRing
from hpcd.analysis.trace.part import Part
from hpcd.analysis.trace.part_format import FRAMED_LEVELS, NARROW, NARROWEST, WIDE
from hpcd.analysis.trace.short_waits import SHORTEST_PIXEL_NS
from hpcd.array_types import I64, U32, Array
from hpcd.errors import FormatError
from hpcd.kernels.library import CStructure, address_of, kernels, structure, structure_size
from hpcd.measurement.codec import TIME_UNIT_NS

_MOST_FRAMES = 1 << 15
_WORTH_A_THREAD = 100  # rows
# Columns of struct shown, and of struct frame all.
_KIND, _FIRST, _COUNT, _WIDTH = 0, 4, 5, 6
_FRAME_COLUMNS = 5
# Fields of struct row behind the part's number.
_ROW = ("place", "local", "begin", "end")
# Kinds of content in line_pictures.c.
_RECORDS, _STORED, _DRAWN = 0, 1, 3
_FAULTS = {4: "damaged (overview of line {})", 5: "damaged (records of line {})",
           6: "records of nodes that do not exist", 7: "records are not in time order"}  # fmt: skip
_OF_BLOCKS = {
    "base": np.int64, "word": np.uint32, "frame": np.uint32, "at": np.uint32, "least": np.uint32,
    "width": np.uint16, "records": np.uint16,
}  # fmt: skip
_OF_SHORT_WAITS = {
    "since": np.int64, "until": np.int64, "word": np.uint32, "share": np.float32,
}  # fmt: skip
_OF_FRAMES = {"offset": np.int64, "size": np.uint32, "content": np.uint32}


@dataclass(frozen=True, slots=True)
class PartRows:
    """Rows of a picture whose lines are in one ``part``; all arrays ``int64[n]``.

    ``place`` the row in the picture, ``local`` the line in the part, drawn from column ``begin`` to
    before ``end``. ``table`` turns the part's nodes into the database's, ``shift`` its times into
    database times.
    """

    part: Part
    table: U32
    shift: int
    place: I64
    local: I64
    begin: I64
    end: I64


class _Addresses:
    """A part as ``struct part``: ``words`` ``int64[n]``; a picture fills in the last three (the
    meaning of its nodes and times in the database). ``finest``: at a smaller distance of pixels, in
    ticks, some line needs its records."""

    def __init__(self, part: Part) -> None:
        stored, lines = part.stored(), part.lines
        # All that there are addresses of; not the part, which is closed when it has no user left.
        self._kept: list[object] = [stored]
        columns = stored.columns
        blocks = [self._of(columns[f"block_{name}"], kind) for name, kind in _OF_BLOCKS.items()]
        frames = [self._of(columns[f"frame_{name}"], kind) for name, kind in _OF_FRAMES.items()]
        words = [self._of(stored.body, np.uint8), len(stored.body)]
        words += [self._of(stored.levels, np.int64), len(stored.levels), len(part)]
        words += [FRAMED_LEVELS, self._of(lines.wide, np.int64)]
        for width in (NARROW, WIDE, NARROWEST):
            entries = stored.entries[width]
            words += [self._of(entries, entries.dtype), len(entries)]
        words += [self._of(lines.word, np.int64), self._of(part.dictionary, np.uint32)]
        words += [len(part.dictionary), self._of(lines.block, np.int64)]
        words += [len(columns["block_base"]), *blocks, len(columns["frame_offset"]), *frames]
        held = np.zeros(len(columns["frame_offset"]), np.int64)
        self.short_waits = [
            np.ascontiguousarray(columns[f"short_{name}"], kind)
            for name, kind in _OF_SHORT_WAITS.items()
        ]
        """Columns of waits without records of their own."""
        self.words = np.array([*words, self._of(held, np.int64), 0, 0, 0], np.int64)
        assert self.words.nbytes == structure_size("part")
        self._table: tuple[U32, int] | None = None
        step = np.where(lines.entries > 0, lines.step, np.iinfo(np.int64).max)
        self.finest = int(step.max(initial=0))

    def table_address(self, table: U32) -> int:
        """Address of ``table``: needed for every picture, and nearly always the same."""
        if self._table is None or self._table[0] is not table:
            self._table = table, address_of(table, np.uint32)
        return self._table[1]

    def _of(self, array: Array, kind: Any) -> int:
        self._kept.append(array)
        return address_of(array, kind)


class LinePictures:
    """Draws pictures of the parts of one database, and keeps decompressed content for later
    pictures."""

    def __init__(self) -> None:
        # One picture uses the ring at a time.
        self._lock = Lock()
        self._addresses: WeakKeyDictionary[Part, _Addresses] = WeakKeyDictionary()
        self._ring = FrameRing()

    def draw(self, groups: Sequence[PartRows], times: I64, spacing: float, drawn: U32) -> None:
        """Draw the rows of ``groups``, each of another part, in ``drawn`` ``uint32[rows, pixels]``
        (:mod:`hpcd.analysis.trace.states`) at ``times`` (``int64[pixels]`` ns, ``spacing`` apart).

        Raises :class:`FormatError`.
        """
        if not groups:
            return
        pixels = structure("pixels", times, len(times), spacing)
        with self._lock:
            kept = self._parts(groups, spacing)
            addresses = self._words_of(groups, kept)
            rows, shown = self._chosen(groups, addresses, pixels)
            for begin, end in self._batches(groups, addresses, rows, shown):
                self._paint(addresses, rows, shown, begin, end, pixels, len(times), drawn)
            if spacing >= SHORTEST_PIXEL_NS:
                self._show_short_waits(groups, kept, pixels, drawn)
        for row in np.flatnonzero(shown[:, _KIND] != _DRAWN).tolist():
            path, line = groups[int(rows[row, 0])].part.path, int(rows[row, 2])
            raise FormatError(f"{path}: {_FAULTS[int(shown[row, _KIND])].format(line)}")

    def _parts(self, groups: Sequence[PartRows], spacing: float) -> list[_Addresses]:
        """Their parts, to be kept while these are drawn."""
        kept = []
        for group in groups:
            group.part.file.read_here_and_there()
            addresses = self._addresses.get(group.part)
            if addresses is None:
                addresses = self._addresses[group.part] = _Addresses(group.part)
            kept.append(addresses)
        close = [
            group.part for group, one in zip(groups, kept, strict=True)
            if one.finest * TIME_UNIT_NS > spacing
        ]  # fmt: skip
        read_ahead(close, Part.table_spans)
        return kept

    def _words_of(self, groups: Sequence[PartRows], kept: Sequence[_Addresses]) -> I64:
        """``int64[groups, words]``: their parts as ``struct part``."""
        parts = np.stack([one.words for one in kept])
        parts[:, -3:] = [
            (one.table_address(group.table), len(group.table), group.shift)
            for group, one in zip(groups, kept, strict=True)
        ]
        return parts

    def _chosen(
        self, groups: Sequence[PartRows], addresses: I64, pixels: CStructure
    ) -> tuple[I64, I64]:
        """The rows as ``struct row``, and the content to show of each as ``struct shown``."""
        rows = _rows_of(groups)
        shown = np.zeros((len(rows), structure_size("shown") // 8), np.int64)
        kernels.choose_rows(addresses, rows, len(rows), pixels, shown)

        def spans(row: int) -> list[Span]:
            width, first, count = shown[row, [_WIDTH, _FIRST, _COUNT]].tolist()
            return [groups[int(rows[row, 0])].part.entry_span(width, first, count)]

        read_ahead(np.flatnonzero(shown[:, _KIND] == _STORED).tolist(), spans)
        return rows, shown

    def _batches(
        self, groups: Sequence[PartRows], addresses: I64, rows: I64, shown: I64
    ) -> Iterator[tuple[int, int]]:
        """Yield ranges of rows whose compressed content is completely in the ring; the last row
        again, until all its pieces are drawn."""
        parts = [group.part for group in groups]
        following, begin = np.zeros(1, np.int64), 0
        frames = np.empty((_MOST_FRAMES, _FRAME_COLUMNS), np.int64)
        while begin < len(rows):
            following[0] = begin
            count = kernels.find_room(
                addresses, rows, shown, len(rows), self._ring.prepare(), TOGETHER_BYTES, frames,
                len(frames), following,
            )  # fmt: skip
            end = int(following[0])
            if count:
                self._ring.fill(parts, addresses, frames[:count])
            yield begin, end
            begin = end - 1 if shown[end - 1, _KIND] == _RECORDS else end

    def _paint(
        self, addresses: I64, rows: I64, shown: I64, begin: int, end: int, pixels: CStructure,
        columns: int, drawn: U32,
    ) -> None:  # fmt: skip
        """Draw the rows ``begin`` to ``end``, side by side where they are many."""
        pieces = max(1, min(THREADS, (end - begin) // _WORTH_A_THREAD))
        bounds = [begin + (end - begin) * piece // pieces for piece in range(pieces + 1)]

        def paint(piece: int) -> None:
            kernels.draw_rows(
                addresses, rows, shown, bounds[piece], bounds[piece + 1], self._ring.words, pixels,
                np.empty(kernels.draw_words(columns), np.int64), drawn,
            )  # fmt: skip

        side_by_side(paint, pieces)

    def _show_short_waits(
        self, groups: Sequence[PartRows], kept: Sequence[_Addresses], pixels: CStructure, drawn: U32
    ) -> None:
        """Show waits without records of their own where threads seem to run. Raises
        :class:`FormatError`."""
        for group, addresses in zip(groups, kept, strict=True):
            short = addresses.short_waits
            if not len(short[0]):
                continue
            first = np.ascontiguousarray(group.part.lines.short)
            waits = structure(
                "short_waits", first, len(group.part), *short, len(short[0]), group.table,
                len(group.table), group.shift,
            )  # fmt: skip
            rows = _rows_of([group])
            if not kernels.show_short_waits(waits, rows, len(rows), pixels, drawn):
                raise FormatError(f"{group.part.path}: damaged (short waits)")


def _rows_of(groups: Sequence[PartRows]) -> I64:
    """Return the rows of ``groups``, one group after another, as ``struct row``."""
    count = [len(group.place) for group in groups]
    rows = np.empty((sum(count), 1 + len(_ROW)), np.int64)
    rows[:, 0] = np.repeat(np.arange(len(groups)), count)
    for column, name in enumerate(_ROW, 1):
        rows[:, column] = np.concatenate([getattr(group, name) for group in groups])
    return rows
