"""Pictures of trace lines by compiled loops: what :mod:`hpcd.analysis.trace.line_sampler` does by
numpy, which draws the rows that they leave: those in which something is not as it must be, and such
as show more records than are worth keeping.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from hpcd.analysis.arrays.packed_frames import side_by_side
from hpcd.analysis.arrays.read_ahead import Span, read_ahead
from hpcd.analysis.trace.frame_ring import THREADS, TOGETHER_BYTES, FrameRing
from hpcd.analysis.trace.line_sampler import PartRows
from hpcd.analysis.trace.part import NARROW, NARROWEST, WIDE, Part
from hpcd.array_types import I64, U32, Array
from hpcd.measurement.codec import TIME_UNIT_NS
from hpcd.native.native_library import address_of, array_of, declare, native_library

_I64 = ctypes.c_int64
_MOST_FRAMES = 1 << 15
_WORTH_A_THREAD = 100  # rows
# Of line_pictures.c: columns of struct shown and some of its kinds, columns of struct frame, and
# what drawing needs beside a number for each column.
_KIND, _FIRST, _COUNT, _WIDTH = 0, 4, 5, 6
_SHOWN_COLUMNS, _FRAME_COLUMNS, _ROOM = 7, 5, (1 << 14) + 2
_STORED, _LEFT = 1, 3
_OF_BLOCKS = {
    "base": np.int64, "node": np.uint32, "frame": np.uint32, "at": np.uint32, "least": np.uint32,
    "width": np.uint16, "records": np.uint16,
}  # fmt: skip
_OF_FRAMES = {"offset": np.int64, "size": np.uint32, "content": np.uint32}


class _Addresses:
    """A part as ``struct part``: ``words`` ``int64[n]``, the last three of which, what its nodes
    and times are in the database, a picture fills in. ``finest``: pixels closer together, in
    ticks, show records of some line."""

    def __init__(self, part: Part) -> None:
        stored, lines = part.stored(), part.lines
        # All that there are addresses of; not the part, which is closed when nobody has it.
        self._kept: list[object] = [stored]
        columns = stored.columns
        blocks = [self._of(columns[f"block_{name}"], kind) for name, kind in _OF_BLOCKS.items()]
        frames = [self._of(columns[f"frame_{name}"], kind) for name, kind in _OF_FRAMES.items()]
        words = [self._of(stored.body, np.uint8), len(stored.body)]
        words += [self._of(stored.levels, np.int64), len(stored.levels), len(part)]
        words += [stored.framed, self._of(lines.wide, np.int64)]
        for width in (NARROW, WIDE, NARROWEST):
            entries = stored.entries[width]
            words += [self._of(entries, entries.dtype), len(entries)]
        words += [self._of(lines.word, np.int64), self._of(part.dictionary, np.uint32)]
        words += [len(part.dictionary), self._of(lines.block, np.int64)]
        words += [len(columns["block_base"]), *blocks, len(columns["frame_offset"]), *frames]
        held = np.zeros(len(columns["frame_offset"]), np.int64)
        self.words = np.array([*words, self._of(held, np.int64), 0, 0, 0], np.int64)
        self._table: tuple[U32, int] | None = None
        step = np.where(lines.entries > 0, lines.step, np.iinfo(np.int64).max)
        self.finest = int(step.max(initial=0))

    def table_address(self, table: U32) -> int:
        """Where ``table`` lies: asked for with every picture, it is nearly always the same."""
        if self._table is None or self._table[0] is not table:
            self._table = table, address_of(table, np.uint32)
        return self._table[1]

    def _of(self, array: Array, kind: Any) -> int:
        self._kept.append(array)
        return address_of(array, kind)


class PictureLoops:
    """The loops of ``line_pictures.c``, for the parts of one database."""

    def __init__(self, library: ctypes.CDLL) -> None:
        numbers, nodes, data = array_of(np.int64), array_of(np.uint32), array_of(np.uint8)
        double = ctypes.c_double
        self._choose = declare(
            library, "choose_rows", (numbers, numbers, _I64, numbers, _I64, double, numbers)
        )
        self._find_room = declare(
            library, "find_room",
            (numbers, numbers, numbers, _I64, numbers, _I64, numbers, _I64, numbers), _I64,
        )  # fmt: skip
        self._gather = declare(
            library, "gather_frames", (numbers, numbers, _I64, data), ctypes.c_bool
        )
        self._draw = declare(
            library, "draw_rows",
            (numbers, numbers, numbers, _I64, _I64, numbers, numbers, _I64, double, numbers, nodes),
        )  # fmt: skip
        self._words = declare(library, "part_words", (), _I64)()
        # The ring is one picture's at a time.
        self._lock = Lock()
        self._addresses: WeakKeyDictionary[Part, _Addresses] = WeakKeyDictionary()
        self._ring = FrameRing()

    def draw(
        self, groups: Sequence[PartRows], times: I64, spacing: float, nodes: U32
    ) -> list[PartRows]:
        """Draw the rows of ``groups``, each of another part, in ``nodes`` ``uint32[rows, pixels]``
        at ``times`` (``int64[pixels]`` ns, ``spacing`` apart); those that are left to numpy."""
        if not groups:
            return []
        with self._lock:
            kept = self._parts(groups, spacing)
            addresses = self._words_of(groups, kept)
            rows, shown = self._chosen(groups, addresses, times, spacing)
            for begin, end in self._batches(groups, addresses, rows, shown):
                pieces = max(1, min(THREADS, (end - begin) // _WORTH_A_THREAD))
                bounds = [begin + (end - begin) * piece // pieces for piece in range(pieces + 1)]

                def paint(piece: int, bounds: list[int] = bounds) -> None:
                    room = np.empty(_ROOM + len(times), np.int64)
                    self._draw(
                        addresses, rows, shown, bounds[piece], bounds[piece + 1],
                        self._ring.words, times, len(times), spacing, room, nodes,
                    )  # fmt: skip

                side_by_side(paint, pieces)
        left = np.flatnonzero(shown[:, _KIND] == _LEFT)
        cuts = np.flatnonzero(np.diff(rows[left, 0])) + 1
        return [
            PartRows(group.part, group.table, group.shift, *rows[mine, 1:].T)
            for mine in (np.split(left, cuts) if len(left) else [])
            for group in [groups[int(rows[mine[0], 0])]]
        ]

    def _parts(self, groups: Sequence[PartRows], spacing: float) -> list[_Addresses]:
        """Their parts, to be kept while these are drawn."""
        found = []
        for group in groups:
            group.part.read_here_and_there()
            addresses = self._addresses.get(group.part)
            if addresses is None:
                addresses = self._addresses[group.part] = _Addresses(group.part)
            found.append(addresses)
        close = [
            group.part for group, one in zip(groups, found, strict=True)
            if one.finest * TIME_UNIT_NS > spacing
        ]  # fmt: skip
        read_ahead(close, Part.table_spans)
        return found

    def _words_of(self, groups: Sequence[PartRows], found: Sequence[_Addresses]) -> I64:
        """``int64[groups, words]``: their parts as ``struct part``."""
        parts = np.stack([one.words for one in found])
        if parts.shape[1] != self._words:
            raise TypeError("struct part has other fields")
        parts[:, -3:] = [
            (one.table_address(group.table), len(group.table), group.shift)
            for group, one in zip(groups, found, strict=True)
        ]
        return parts

    def _chosen(
        self, groups: Sequence[PartRows], addresses: I64, times: I64, spacing: float
    ) -> tuple[I64, I64]:
        """The rows as ``struct row``, and what is shown of each as ``struct shown``."""
        count = [len(group.place) for group in groups]
        rows = np.empty((sum(count), 5), np.int64)
        rows[:, 0] = np.repeat(np.arange(len(groups)), count)
        for column, name in enumerate(("place", "local", "begin", "end"), 1):
            rows[:, column] = np.concatenate([getattr(group, name) for group in groups])
        shown = np.empty((len(rows), _SHOWN_COLUMNS), np.int64)
        self._choose(addresses, rows, len(rows), times, len(times), spacing, shown)

        def spans(row: int) -> list[Span]:
            width, first, count = shown[row, [_WIDTH, _FIRST, _COUNT]].tolist()
            return [groups[int(rows[row, 0])].part.entry_span(width, first, count)]

        read_ahead(np.flatnonzero(shown[:, _KIND] == _STORED).tolist(), spans)
        return rows, shown

    def _batches(
        self, groups: Sequence[PartRows], addresses: I64, rows: I64, shown: I64
    ) -> Iterator[tuple[int, int]]:
        """Rows, from one to before another, of which all that is compressed is in the ring."""
        parts = [group.part for group in groups]
        following, begin = np.zeros(1, np.int64), 0
        frames = np.empty((_MOST_FRAMES, _FRAME_COLUMNS), np.int64)
        while begin < len(rows):
            found = self._find_room(
                addresses, rows, shown, len(rows), self._ring.prepare(), TOGETHER_BYTES, frames,
                len(frames), following,
            )  # fmt: skip
            end = int(following[0])
            if found and not self._ring.fill(parts, addresses, frames[:found], self._gather):
                shown[begin:end, _KIND] = _LEFT
            yield begin, end
            begin = end


def picture_loops() -> PictureLoops | None:
    """The loops, or None where they were not compiled."""
    library = native_library()
    return None if library is None else PictureLoops(library)
