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
from hpcd.analysis.trace.frame_ring import THREADS, TOGETHER_BYTES, FrameRing, Structures
from hpcd.analysis.trace.part import Part
from hpcd.analysis.trace.part_format import FRAMED_LEVELS, NARROW, NARROWEST, WIDE
from hpcd.analysis.trace.short_waits import SHORTEST_PIXEL_NS
from hpcd.array_types import I64, U32, Array
from hpcd.errors import FormatError
from hpcd.kernels.library import CStructure, address_of, kernels, structure, structure_dtype
from hpcd.measurement.codec import TIME_UNIT_NS

_MOST_FRAMES = 1 << 15
_WORTH_A_THREAD = 100  # rows
# Fields of struct row behind the part's number, as PartRows has them.
_ROW = {"place": "place", "line": "local", "begin": "begin", "end": "end"}
# By the member of enum kind of kernels.h.
_FAULTS = {
    "DAMAGED_OVERVIEW": "damaged (overview of line {})",
    "DAMAGED_RECORDS": "damaged (records of line {})",
    "NO_SUCH_NODE": "records of nodes that do not exist",
    "OUT_OF_ORDER": "records are not in time order",
}
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
    """A part as ``struct``, one ``struct part`` but for the meaning of its nodes and times in the
    database, which a picture fills in. ``finest``: at a smaller distance of pixels, in ticks, some
    line needs its records."""

    def __init__(self, part: Part) -> None:
        stored, lines = part.stored(), part.lines
        # All that there are addresses of; not the part, which is closed when it has no user left.
        self._kept: list[object] = [stored]
        columns = stored.columns
        fields = {
            name: self._of(columns[f"block_{name}"], kind) for name, kind in _OF_BLOCKS.items()
        }
        fields |= {
            name: self._of(columns[f"frame_{name}"], kind) for name, kind in _OF_FRAMES.items()
        }
        for bits, width in ((16, NARROW), (32, WIDE), (8, NARROWEST)):
            entries = stored.entries[width]
            fields[f"entries{bits}"] = self._of(entries, entries.dtype)
            fields[f"size{bits}"] = len(entries)
        held = np.zeros(len(columns["frame_offset"]), np.int64)
        self.short_waits = {
            name: np.ascontiguousarray(columns[f"short_{name}"], kind)
            for name, kind in _OF_SHORT_WAITS.items()
        }
        """Columns of waits without records of their own."""
        fields |= {
            "body": self._of(stored.body, np.uint8), "body_size": len(stored.body),
            "level": self._of(stored.levels, np.int64), "levels": len(stored.levels),
            "lines": len(part), "framed": FRAMED_LEVELS, "wide": self._of(lines.wide, np.int64),
            "first_word": self._of(lines.word, np.int64),
            "words": self._of(part.dictionary, np.uint32), "word_count": len(part.dictionary),
            "block": self._of(lines.block, np.int64), "blocks": len(columns["block_base"]),
            "frames": len(columns["frame_offset"]), "held": self._of(held, np.int64),
        }  # fmt: skip
        self.struct = np.zeros(1, structure_dtype("part"))
        for name, value in fields.items():
            self.struct[name] = value
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
        pixels = structure("pixels", times=times, columns=len(times), spacing=spacing)
        with self._lock:
            kept = self._parts(groups, spacing)
            addresses = _structures_of(groups, kept)
            rows, shown = self._chosen(groups, addresses, pixels)
            for begin, end in self._batches(groups, addresses, rows, shown):
                self._paint(addresses, rows, shown, begin, end, pixels, len(times), drawn)
            if spacing >= SHORTEST_PIXEL_NS:
                self._show_short_waits(groups, kept, pixels, drawn)
        for row in np.flatnonzero(shown["kind"] != kernels.DRAWN).tolist():
            path, line = groups[int(rows["part"][row])].part.path, int(rows["line"][row])
            faults = {getattr(kernels, kind): fault for kind, fault in _FAULTS.items()}
            raise FormatError(f"{path}: {faults[int(shown['kind'][row])].format(line)}")

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

    def _chosen(
        self, groups: Sequence[PartRows], addresses: Structures, pixels: CStructure
    ) -> tuple[Structures, Structures]:
        """The rows as ``struct row``, and the content to show of each as ``struct shown``."""
        rows = _rows_of(groups)
        shown = np.zeros(len(rows), structure_dtype("shown"))
        kernels.choose_rows(addresses, rows, len(rows), pixels, shown)

        def spans(row: int) -> list[Span]:
            width, first, count = shown[["width", "first", "count"]][row].tolist()
            return [groups[int(rows["part"][row])].part.entry_span(width, first, count)]

        read_ahead(np.flatnonzero(shown["kind"] == kernels.STORED).tolist(), spans)
        return rows, shown

    def _batches(
        self,
        groups: Sequence[PartRows],
        addresses: Structures,
        rows: Structures,
        shown: Structures,
    ) -> Iterator[tuple[int, int]]:
        """Yield ranges of rows whose compressed content is completely in the ring; the last row
        again, until all its pieces are drawn."""
        parts = [group.part for group in groups]
        following, begin = np.zeros(1, np.int64), 0
        frames = np.empty(_MOST_FRAMES, structure_dtype("frame"))
        while begin < len(rows):
            following[0] = begin
            count = kernels.find_room(
                addresses, rows, shown, len(rows), self._ring.struct, TOGETHER_BYTES, frames,
                len(frames), following,
            )  # fmt: skip
            end = int(following[0])
            if count:
                self._ring.fill(parts, addresses, frames[:count])
            yield begin, end
            begin = end - 1 if shown["kind"][end - 1] == kernels.RECORDS else end

    def _paint(
        self, addresses: Structures, rows: Structures, shown: Structures, begin: int, end: int,
        pixels: CStructure, columns: int, drawn: U32,
    ) -> None:  # fmt: skip
        """Draw the rows ``begin`` to ``end``, side by side where they are many."""
        pieces = max(1, min(THREADS, (end - begin) // _WORTH_A_THREAD))
        bounds = [begin + (end - begin) * piece // pieces for piece in range(pieces + 1)]

        def paint(piece: int) -> None:
            kernels.draw_rows(
                addresses, rows, shown, bounds[piece], bounds[piece + 1], self._ring.struct, pixels,
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
            if not len(short["since"]):
                continue
            first = np.ascontiguousarray(group.part.lines.short)
            waits = structure(
                "short_waits", first=first, lines=len(group.part), **short,
                n=len(short["since"]), table=group.table, table_size=len(group.table),
                shift=group.shift,
            )  # fmt: skip
            rows = _rows_of([group])
            if not kernels.show_short_waits(waits, rows, len(rows), pixels, drawn):
                raise FormatError(f"{group.part.path}: damaged (short waits)")


def _structures_of(groups: Sequence[PartRows], kept: Sequence[_Addresses]) -> Structures:
    """The parts of ``groups``, each a ``struct part``."""
    parts = np.concatenate([addresses.struct for addresses in kept])
    for part, group, addresses in zip(parts, groups, kept, strict=True):
        part["table"], part["table_size"] = addresses.table_address(group.table), len(group.table)
        part["shift"] = group.shift
    return parts


def _rows_of(groups: Sequence[PartRows]) -> Structures:
    """Return the rows of ``groups``, one group after another, as ``struct row``."""
    count = [len(group.place) for group in groups]
    rows = np.empty(sum(count), structure_dtype("row"))
    rows["part"] = np.repeat(np.arange(len(groups)), count)
    for field, name in _ROW.items():
        rows[field] = np.concatenate([getattr(group, name) for group in groups])
    return rows
