"""Pictures of trace lines by compiled loops: what :mod:`hpcd.analysis.trace.line_sampler` does by
numpy, which draws what they leave.

Frames are decompressed into a ring of contents, which are kept for pictures to come: who looks
closely moves a little at a time.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from threading import Lock, Thread
from typing import Any

import numpy as np
import zstandard

from hpcd.analysis.arrays.read_ahead import Span, read_ahead
from hpcd.analysis.trace.line_sampler import PartRows
from hpcd.analysis.trace.part import NARROW, NARROWEST, WIDE, Part
from hpcd.array_types import I64, U8, U32, Array
from hpcd.measurement.codec import TIME_UNIT_NS
from hpcd.native.native_library import array_of, declare, native_library

_I64 = ctypes.c_int64
# What is kept, and what rows drawn together need at most: a picture of 1,200 rows record by record
# has 35 MB.
_RING_BYTES, _TOGETHER_BYTES = 64 << 20, 16 << 20
_MOST_FRAMES = 1 << 15
# Compressed bytes that are undone in one go: they stay in the cache.
_GO_BYTES = 1 << 20
# What is worth a thread.
_WORTH_BYTES, _WORTH_ROWS = 1 << 19, 100
_THREADS = min(len(os.sched_getaffinity(0)), 4)
# Of struct shown, in line_pictures.c, and of struct frame.
_STORED, _LEFT = 1, 3
_SHOWN_WORDS, _FRAME_WORDS, _ROOM_WORDS = 7, 5, (1 << 14) + 2
_BLOCK_COLUMNS = {
    "base": np.int64, "node": np.uint32, "frame": np.uint32, "at": np.uint32, "least": np.uint32,
    "width": np.uint16, "records": np.uint16,
}  # fmt: skip
_FRAME_COLUMNS = {"offset": np.int64, "size": np.uint32, "content": np.uint32}


class _Mapped:
    """A part as ``struct part``: ``words`` ``int64[n]``, whose last three a picture fills in."""

    def __init__(self, part: Part) -> None:
        stored, lines = part.stored(), part.lines
        blocks = [_checked(stored.columns[f"block_{name}"], kind)
                  for name, kind in _BLOCK_COLUMNS.items()]  # fmt: skip
        frames = [_checked(stored.columns[f"frame_{name}"], kind)
                  for name, kind in _FRAME_COLUMNS.items()]  # fmt: skip
        held = np.zeros(len(frames[0]), np.int64)
        words = part.dictionary
        rows = [_checked(column, np.int64) for column in (lines.wide, lines.word, lines.block)]
        # What the addresses are of.
        self._kept = (part, stored, blocks, frames, held, words, rows)
        numbers = [_address(stored.body), stored.body.size]
        numbers += [_address(stored.levels), len(stored.levels), len(part), stored.compressed]
        numbers.append(_address(rows[0]))
        for width in (NARROW, WIDE, NARROWEST):
            numbers += [_address(stored.entries[width]), len(stored.entries[width])]
        numbers += [_address(rows[1]), _address(_checked(words, np.uint32)), len(words)]
        numbers += [_address(rows[2]), len(blocks[0]), *map(_address, blocks)]
        numbers += [len(frames[0]), *map(_address, frames), _address(held), 0, 0, 0]
        self.words = np.array(numbers, np.int64)
        # Pixels closer together than the longest of these show records.
        step = np.where(lines.entries > 0, lines.step, np.iinfo(np.int64).max)
        self.finest = int(step.max(initial=0))


def _checked(array: Array, kind: Any) -> Array:
    if array.dtype != kind or not array.flags.c_contiguous:
        raise TypeError(f"{array.dtype} in place of a contiguous array of {kind}")
    return array


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


class PictureLoops:
    """The loops of ``line_pictures.c``, and contents of frames that pictures were drawn from."""

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
        if declare(library, "part_words", (), _I64)() != _WORDS:
            raise TypeError("struct part is another one")
        self._lock = Lock()
        self._mapped: dict[Part, _Mapped] = {}
        self._data: U8 = np.empty(0, np.uint8)
        # As struct ring: where it is, its size, how much was ever written.
        self._ring: I64 = np.zeros(3, np.int64)

    def draw(
        self, groups: Sequence[PartRows], times: I64, spacing: float, nodes: U32
    ) -> list[PartRows]:
        """Draw the rows of ``groups``, each of another part, in ``nodes`` ``uint32[rows, pixels]``
        at ``times`` (``int64[pixels]`` ns, ``spacing`` apart); those that are left to numpy."""
        if not groups:
            return []
        with self._lock:
            return self._drawn(groups, times, spacing, nodes)

    def _drawn(
        self, groups: Sequence[PartRows], times: I64, spacing: float, nodes: U32
    ) -> list[PartRows]:
        parts = self._parts(groups, spacing)
        count = np.array([len(rows.place) for rows in groups])
        rows = np.empty((int(count.sum()), 5), np.int64)
        rows[:, 0] = np.repeat(np.arange(len(groups)), count)
        for column, name in enumerate(("place", "local", "begin", "end"), 1):
            rows[:, column] = np.concatenate([getattr(group, name) for group in groups])
        shown = np.empty((len(rows), _SHOWN_WORDS), np.int64)
        self._choose(parts, rows, len(rows), times, len(times), spacing, shown)
        stored = np.flatnonzero(shown[:, 0] == _STORED)
        read_ahead(stored, lambda at: [groups[int(rows[at, 0])].part.entry_span(
            int(shown[at, 6]), int(shown[at, 4]), int(shown[at, 5]))])  # fmt: skip
        for begin, end in self._batches(groups, parts, rows, shown):
            bounds = np.linspace(
                begin, end, 1 + _pieces((end - begin) / _WORTH_ROWS)).astype(int).tolist()  # fmt: skip

            def paint(piece: int) -> None:
                room = np.empty(_ROOM_WORDS + len(times), np.int64)  # noqa: B023
                self._draw(parts, rows, shown, bounds[piece], bounds[piece + 1], self._ring,  # noqa: B023
                           times, len(times), spacing, room, nodes)  # fmt: skip

            _side_by_side(paint, len(bounds) - 1)
        left = np.flatnonzero(shown[:, 0] == _LEFT)
        cuts = np.flatnonzero(np.diff(rows[left, 0])) + 1
        return [
            PartRows(group.part, group.table, group.shift, *rows[mine, 1:].T)
            for mine in (np.split(left, cuts) if len(left) else [])
            for group in [groups[int(rows[mine[0], 0])]]
        ]

    def _parts(self, groups: Sequence[PartRows], spacing: float) -> I64:
        """``int64[groups, words]``: their parts as ``struct part``."""
        mapped = []
        for group in groups:
            group.part.read_here_and_there()
            found = self._mapped.get(group.part)
            if found is None:
                found = self._mapped[group.part] = _Mapped(group.part)
            mapped.append(found)
        close = [
            group.part for group, one in zip(groups, mapped, strict=True)
            if one.finest * TIME_UNIT_NS > spacing
        ]  # fmt: skip
        read_ahead(close, Part.table_spans)
        parts = np.stack([one.words for one in mapped])
        parts[:, -3:] = [(_address(_checked(group.table, np.uint32)), len(group.table), group.shift)
                         for group in groups]  # fmt: skip
        return parts

    def _batches(
        self, groups: Sequence[PartRows], parts: I64, rows: I64, shown: I64
    ) -> Iterator[tuple[int, int]]:
        """Rows, from one to before another, of which all that is compressed is in the ring."""
        following, begin = np.zeros(1, np.int64), 0
        frames = np.empty((_MOST_FRAMES, _FRAME_WORDS), np.int64)
        while begin < len(rows):
            found = self._find_room(
                parts, rows, shown, len(rows), self._whole_ring(), _TOGETHER_BYTES, frames,
                len(frames), following,
            )  # fmt: skip
            end = int(following[0])
            if found and not self._unpack(groups, parts, frames[:found]):
                shown[begin:end, 0] = _LEFT
            yield begin, end
            begin = end

    def _whole_ring(self) -> I64:
        if not len(self._data):
            self._data = np.empty(_RING_BYTES, np.uint8)
            self._ring[:] = _address(self._data), len(self._data), 0
        return self._ring

    def _unpack(self, groups: Sequence[PartRows], parts: I64, frames: I64) -> bool:
        """Decompress ``frames`` into the ring; whether they are what was expected."""

        def spans(frame: I64) -> list[Span]:
            number, at, size, _, _ = frame.tolist()
            return [groups[number].part.body_span(at, size)]

        read_ahead(frames, spans)
        packed, sound = np.cumsum(frames[:, 2]), []
        pieces = _pieces(int(packed[-1]) / _WORTH_BYTES)
        bounds = np.searchsorted(packed, np.arange(pieces + 1) * int(packed[-1]) / pieces).tolist()
        bounds[-1] = len(frames)

        def undo(piece: int) -> None:
            sound.append(self._undone(parts, frames[bounds[piece] : bounds[piece + 1]]))

        _side_by_side(undo, pieces)
        if not all(sound):
            # What is in the ring is not what it should be: as if it were empty.
            self._ring[2] += _RING_BYTES
        return all(sound)

    def _undone(self, parts: I64, frames: I64) -> bool:
        decompressor = zstandard.ZstdDecompressor()
        size, to, content = frames[:, 2], frames[:, 3], frames[:, 4]
        go = (np.cumsum(size) - size) // _GO_BYTES
        cuts = np.flatnonzero((np.diff(go) > 0) | (to[1:] != to[:-1] + content[:-1])) + 1
        bounds = [0, *cuts.tolist(), len(frames)]
        for a, z in zip(bounds[:-1], bounds[1:], strict=True):
            if a == z:
                continue
            packed = np.empty(int(size[a:z].sum()), np.uint8)
            if not self._gather(parts, frames[a:z], z - a, packed):
                return False
            room = self._data[int(to[a]) : int(to[z - 1] + content[z - 1])].data
            # One call for all: each frame is undone in one go, for there is room for it.
            reader = decompressor.stream_reader(packed.data, len(packed), read_across_frames=True)
            done = 0
            try:
                while done < len(room):
                    more = reader.readinto(room[done:])
                    if not more:
                        return False
                    done += more
            except zstandard.ZstdError:
                return False
        return True


# Of struct part, in line_pictures.c.
_WORDS = 33


def _pieces(worth: float) -> int:
    return max(1, min(_THREADS, int(worth)))


def _side_by_side(work: Callable[[int], None], pieces: int) -> None:
    """Do ``work`` for each number below ``pieces``, in as many threads."""
    threads = [Thread(target=work, args=(piece,)) for piece in range(1, pieces)]
    for thread in threads:
        thread.start()
    work(0)
    for thread in threads:
        thread.join()


def picture_loops() -> PictureLoops | None:
    """The loops, or None where they were not compiled."""
    library = native_library()
    return None if library is None else PictureLoops(library)
