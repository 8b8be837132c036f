"""Columns of trace records and of the calling context tree, as bytes.

Records of one chunk are sorted by line, then time. Each column is split into byte planes, so that
zstd sees the nearly constant high bytes apart from the busy low ones.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from hpcd.array_types import I64, U8, U16, U32, U64, Array
from hpcd.errors import FormatError
from hpcd.measurement.planes import from_planes, ranked, to_planes
from hpcd.measurement.record_loops import RecordLoops, record_loops
from hpcd.measurement.record_writing import record_writing

# Microseconds, as in the paper (ICS 2011, section 3): finer than sampling can place anything, and a
# nanosecond's noise would cost 1.3 bytes a record.
TIME_UNIT_NS = 1000
_Kind = TypeVar("_Kind", np.uint16, np.uint32, np.uint64)
_HEAD = struct.Struct("<IIQI")
_COLUMN = struct.Struct("<BBHI")
_CONSTANT, _PLANES, _DICTIONARY, _RANKED = 0, 1, 2, 3
# Forms of RECORDS: what follows what, and what steps are counted from.
_PLAIN, _LASTING = 0, 1
_FORM_SHIFT = 24
_FAULTS = ("", "a time step exceeds 2^44 units", "a record lasts longer than 2^44 units",
           "an event is out of range")  # fmt: skip
_CCT_HEAD = struct.Struct("<II")
MAX_RECORDS = 1 << 20
MAX_NODES = 1 << 20


@dataclass(frozen=True, slots=True)
class RecordChunk:
    """Records of a chunk: line ``line[i]`` has records ``start[i]:start[i+1]``, in time order.

    ``line`` u32[k], ``start`` i64[k+1], ``time_ns`` u64[n] (monotonic), ``node`` u32[n], ``event``
    u16[n], ``value`` u64[n]. A column that is constant may be one value, broadcast.
    """

    line: U32
    start: I64
    time_ns: U64
    node: U32
    event: U16
    value: U64

    def __len__(self) -> int:
        return len(self.time_ns)


Room = Callable[[int], tuple[U64, U32, U16, U64]]
"""Gives the columns of so many records to fill: times, nodes, events, values."""


def new_columns(records: int) -> tuple[U64, U32, U16, U64]:
    """Columns of so many records: times, nodes, events, values."""
    return (np.empty(records, np.uint64), np.empty(records, np.uint32),
            np.empty(records, np.uint16), np.empty(records, np.uint64))  # fmt: skip


def narrow(values: Array) -> npt.NDArray[np.unsignedinteger]:
    """``values`` in the fewest bytes of 1, 2, 4, 8 that hold them all."""
    top = int(values.max(initial=0))
    width = 1 if top < 1 << 8 else 2 if top < 1 << 16 else 4 if top < 1 << 32 else 8
    out: npt.NDArray[np.unsignedinteger] = values.astype(f"<u{width}")
    return out


def encode_column(values: U64 | U32 | U16 | I64) -> bytes:
    """One column: header (coding, width, pad, bytes), then its data."""
    if len(values) and bool((values == values[0]).all()):
        return _COLUMN.pack(_CONSTANT, 8, 0, 8) + struct.pack("<Q", int(values[0]))
    narrowed = narrow(values)
    data = to_planes(narrowed)
    return _COLUMN.pack(_PLANES, narrowed.dtype.itemsize, 0, len(data)) + data


def encode_ranked(values: U32) -> bytes:
    """The node column: most chunks use few of the nodes there are, and some of these much more than
    others. Those that occur most come first, so that most numbers are small."""
    unique, place = ranked(values)
    if len(unique) == 1 or 4 * len(unique) > len(values) * 3:
        return encode_column(values)
    order = np.argsort(-np.bincount(place, minlength=len(unique)), kind="stable")
    number = np.empty(len(unique), np.uint32)
    number[order] = np.arange(len(unique), dtype=np.uint32)
    index, chosen = narrow(number[place]), narrow(unique[order])
    data = struct.pack("<IBB2x", len(unique), chosen.dtype.itemsize, index.dtype.itemsize)
    data += to_planes(chosen) + to_planes(index)
    return _COLUMN.pack(_RANKED, 4, 0, len(data)) + data


def _integers(
    data: bytes | memoryview, width: int, count: int, kind: type[_Kind]
) -> npt.NDArray[_Kind]:
    planes = np.frombuffer(data, np.uint8, width * count).reshape(width, count)
    return from_planes(planes, kind)


class ColumnCursor:
    """Reads columns one after another, never past the end."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = memoryview(data)
        self._at = at

    def take(self, count: int) -> memoryview:
        """The next ``count`` bytes."""
        end = self._at + count
        if count < 0 or end > len(self._data):
            raise FormatError(
                f"{count} bytes of a column at {self._at} exceed the chunk of {len(self._data)}"
            )
        part = self._data[self._at : end]
        self._at = end
        return part

    def column(self, count: int, kind: type[_Kind]) -> npt.NDArray[_Kind]:
        """``count`` integers of type ``kind``; a constant takes no memory, and is read-only."""
        coding, width, _, size = _COLUMN.unpack(self.take(_COLUMN.size))
        data = self.take(size)
        if coding == _CONSTANT and size == 8:
            (value,) = struct.unpack("<Q", data)
            if value <= np.iinfo(kind).max:
                return np.broadcast_to(kind(value), count)
        elif coding == _PLANES and width in (1, 2, 4, 8) and size == width * count:
            if width <= np.dtype(kind).itemsize:
                return _integers(data, width, count, kind)
        elif coding in (_DICTIONARY, _RANKED) and size >= 8:
            return self._dictionary(data, count, kind, steps=coding == _DICTIONARY)
        raise FormatError(
            f"column of {count} values: coding {coding} of width {width} does not fit {size} bytes"
        )

    def planes(self, count: int, most: int, kind: npt.DTypeLike) -> tuple[U8, Array]:
        """The next column as it is stored, of ``count`` integers up to ``most``: its planes
        ``uint8[width, count]``, and the words of type ``kind`` that these are places in, if any.
        A constant has one word and no planes."""
        coding, width, _, size = _COLUMN.unpack(self.take(_COLUMN.size))
        data = self.take(size)
        if coding == _CONSTANT and size == 8:
            (value,) = struct.unpack("<Q", data)
            if value <= most:
                return np.zeros((0, count), np.uint8), np.array([value], kind)
        elif coding == _PLANES and width in (1, 2, 4, 8) and size == width * count:
            if most >> (8 * width - 1):
                return np.frombuffer(data, np.uint8).reshape(width, count), np.zeros(0, kind)
        elif coding in (_DICTIONARY, _RANKED) and size >= 8:
            words, width, at = self._words(data, count, steps=coding == _DICTIONARY)
            if int(words.max(initial=0)) <= most:
                planes = np.frombuffer(data, np.uint8, offset=at).reshape(width, count)
                return planes, words.astype(kind)
        raise FormatError(
            f"column of {count} values: coding {coding} of width {width} does not fit {size} bytes"
        )

    def _words(self, data: memoryview, count: int, *, steps: bool) -> tuple[U64, int, int]:
        """The values of a dictionary, and the width of the places in it and where these begin."""
        entries, step_width, width = struct.unpack_from("<IBB", data)
        at = 8 + step_width * entries
        if (
            step_width in (1, 2, 4)
            and width in (1, 2, 4)
            and entries <= count
            and len(data) == at + width * count
        ):
            words: U64 = _integers(data[8:at], step_width, entries, np.uint64)
            return np.cumsum(words) if steps else words, width, at
        raise FormatError(f"column of {count} values has an inconsistent dictionary of {entries}")

    def _dictionary(
        self, data: memoryview, count: int, kind: type[_Kind], *, steps: bool
    ) -> npt.NDArray[_Kind]:
        unique, width, at = self._words(data, count, steps=steps)
        place: U32 = _integers(data[at:], width, count, np.uint32)
        if not len(place) or (
            int(place.max()) < len(unique) and int(unique.max()) <= np.iinfo(kind).max
        ):
            chosen: npt.NDArray[_Kind] = unique.astype(kind).take(place)
            return chosen
        raise FormatError(
            f"column of {count} values has an inconsistent dictionary of {len(unique)}"
        )


@lru_cache(8)
def _lasts(events: frozenset[int]) -> npt.NDArray[np.bool_]:
    """Of each event that can be, whether it is one of these."""
    lasts = np.zeros(1 << 16, bool)
    lasts[list(events)] = True
    return lasts


def encode_records(
    line: U32, time_ns: U64, node: U32, event: U16, value: U64, lasting: Collection[int] = ()
) -> bytes:
    """Payload of a RECORDS chunk; the records must be sorted by (line, time).

    ``lasting`` are events whose records last as many time units as their value says. What follows
    such a record begins at its end or a little later: that little is stored.
    """
    lasts = _lasts(frozenset(lasting))
    loops = record_writing()
    if loops and len(line):
        columns = (
            np.ascontiguousarray(line, np.uint32), np.ascontiguousarray(time_ns, np.uint64),
            np.ascontiguousarray(node, np.uint32), np.ascontiguousarray(event, np.uint16),
            np.ascontiguousarray(value, np.uint64),
        )  # fmt: skip
        return loops.encode(columns, lasts.view(np.uint8), _LASTING << _FORM_SHIFT)
    first = np.flatnonzero(np.r_[True, line[1:] != line[:-1]]) if len(line) else np.zeros(0, int)
    count = np.diff(np.r_[first, len(line)])
    ticks = (time_ns // np.uint64(TIME_UNIT_NS)).astype(np.int64)
    base = int(ticks[first].min()) if len(first) else 0
    step = np.diff(ticks, prepend=base)
    step[first] = ticks[first] - base
    steps = step.astype(np.uint64)
    ends = lasts[event]
    if ends.any():
        # A wait may have been cut by what follows, or have a record inside: those stay as they are.
        ends[:-1] &= value[:-1] <= steps[1:]
        ends[first[1:] - 1] = True
        lasted = np.where(ends, value, np.uint64(0))
        lasted[first[1:] - 1] = 0
        steps[1:] -= lasted[:-1]
    odd = value != 1
    kind = event.astype(np.uint32) << np.uint32(2) | ends.astype(np.uint32) << np.uint32(1) | odd
    return b"".join(
        [
            _HEAD.pack(len(first), len(line), base, TIME_UNIT_NS | _LASTING << _FORM_SHIFT),
            encode_column(line[first]),
            encode_column(count.astype(np.uint32)),
            encode_column(steps),
            encode_ranked(node),
            encode_column(kind),
            encode_column(value[odd]),
        ]
    )


def decode_records(
    data: bytes, loops: RecordLoops | None = None, room: Room | None = None
) -> RecordChunk:
    """The inverse of :func:`encode_records`, whatever the form; :class:`FormatError` on anything
    inconsistent.

    With ``loops`` the columns are those that ``room`` gives, or new ones.
    """
    if len(data) < _HEAD.size:
        raise FormatError(f"RECORDS chunk of {len(data)} bytes is shorter than its header")
    lines, records, base, unit = _HEAD.unpack_from(data)
    form, unit = unit >> _FORM_SHIFT, unit & (1 << _FORM_SHIFT) - 1
    if records > MAX_RECORDS or lines > records or not 1 <= unit <= 1_000_000 or form > _LASTING:
        raise FormatError(
            f"RECORDS chunk header is invalid: {records} records of {lines} lines, unit {unit} ns,"
            f" form {form}"
        )
    cursor = ColumnCursor(data, _HEAD.size)
    line = cursor.column(lines, np.uint32)
    count = cursor.column(lines, np.uint32).astype(np.int64)
    if int(count.sum()) != records or (lines and int(count.min()) < 1):
        raise FormatError(f"RECORDS chunk: lines have {int(count.sum())} records, not {records}")
    start = np.zeros(lines + 1, dtype=np.int64)
    np.cumsum(count, out=start[1:])
    if loops is not None:
        columns = new_columns(records) if room is None else room(records)
        if form == _LASTING:
            _decode_compiled(cursor, start, base, unit, loops, columns)
        else:
            time, node, event, value = columns
            time[:], node[:], event[:], value[:] = _decoded(cursor, start, base, unit, form)
        return RecordChunk(line, start, *columns)
    return RecordChunk(line, start, *_decoded(cursor, start, base, unit, form))


def _decoded(
    cursor: ColumnCursor, start: I64, base: int, unit: int, form: int
) -> tuple[U64, U32, U16, U64]:
    """Times, nodes, events and values of records; where lines begin in them is ``start``."""
    records = int(start[-1])
    step = cursor.column(records, np.uint64)
    node = cursor.column(records, np.uint32)
    if form == _LASTING:
        event, value, lasted = _events(cursor, records)
        step = _from_ends(step, start, lasted)
    else:
        event, value = cursor.column(records, np.uint16), cursor.column(records, np.uint64)
    if records and int(step.max()) >= 1 << 44:
        raise FormatError("RECORDS chunk: a time step exceeds 2^44 units")
    # Times are sums of steps within each line: one running sum, less what came before the line.
    total = np.cumsum(step, dtype=np.uint64)
    before = np.where(start[:-1] > 0, total[np.maximum(start[:-1] - 1, 0)], np.uint64(0))
    total += np.repeat(np.uint64(base) - before, np.diff(start))
    total *= np.uint64(unit)
    return total, node, event, value


def _decode_compiled(
    cursor: ColumnCursor, start: I64, base: int, unit: int, loops: RecordLoops,
    columns: tuple[U64, U32, U16, U64],
) -> None:  # fmt: skip
    """The same of form 1 by compiled loops, into ``columns``."""
    time, node, event, value = columns
    records = int(start[-1])
    kind = np.empty(records, np.uint32)
    _filled(cursor, time, loops)
    _filled(cursor, node, loops)
    _filled(cursor, kind, loops)
    number = loops.odd_ones(kind)
    odd = np.ones(number + 1, np.uint64)
    _filled(cursor, odd[:number], loops)
    fault = loops.times_and_values(start, base, unit, kind, odd, time, event, value)
    if fault:
        raise FormatError(f"RECORDS chunk: {_FAULTS[fault]}")


def _filled(
    cursor: ColumnCursor, values: npt.NDArray[_Kind], loops: RecordLoops
) -> npt.NDArray[_Kind]:
    """``values``, of 32 or 64 bits, with what the next column says."""
    count, most = len(values), (1 << 8 * values.itemsize) - 1
    if not loops.column(*cursor.planes(count, most, values.dtype), values):
        raise FormatError(f"column of {count} values has an inconsistent dictionary")
    return values


def _events(cursor: ColumnCursor, records: int) -> tuple[U16, U64, U64 | None]:
    """Events and values of ``records`` records, constant ones without memory; and how long each
    lasted whose end the next one's step begins at, None where there is none."""
    kind = cursor.column(records, np.uint32)
    if int(kind.max(initial=0)) >> 2 >= 1 << 16:
        raise FormatError(f"RECORDS chunk: event {int(kind.max()) >> 2}")
    if records and kind.strides == (0,):
        code, ends, odd = int(kind[0]) >> 2, int(kind[0]) & 2, int(kind[0]) & 1
        value = cursor.column(records if odd else 0, np.uint64)
        if not odd:
            value = np.broadcast_to(np.uint64(1), records)
        return np.broadcast_to(np.uint16(code), records), value, np.array(value) if ends else None
    odd_ones = (kind & np.uint32(1)).astype(bool)
    values = np.ones(records, np.uint64)
    values[odd_ones] = cursor.column(int(np.count_nonzero(odd_ones)), np.uint64)
    lasted = values * (kind >> np.uint32(1) & np.uint32(1))
    return (kind >> np.uint32(2)).astype(np.uint16), values, lasted


def _from_ends(step: U64, start: I64, lasted: U64 | None) -> U64:
    """Steps from each record to the next, of steps from where the one before, having ``lasted`` so
    long, ended."""
    if lasted is None or len(step) < 2:
        return step
    # A line's first record is counted from the base.
    lasted[start[1:] - 1] = 0
    if int(lasted.max()) >= 1 << 44:
        raise FormatError("RECORDS chunk: a record lasts longer than 2^44 units")
    whole = np.array(step)
    whole[1:] += lasted[:-1]
    return whole


def encode_nodes(first: int, parent: U32, frame: U64) -> bytes:
    """Payload of a CCT chunk: nodes ``first ...`` with their parents and frames."""
    ids = np.arange(first, first + len(parent), dtype=np.uint32)
    return (
        _CCT_HEAD.pack(first, len(parent))
        + encode_column((ids - parent).astype(np.uint32))
        + encode_column(frame)
    )


def decode_nodes(data: bytes) -> tuple[int, U32, U64]:
    """(first node, parents, frames); :class:`FormatError` unless parents precede children."""
    if len(data) < _CCT_HEAD.size:
        raise FormatError(f"CCT chunk of {len(data)} bytes is shorter than its header")
    first, count = _CCT_HEAD.unpack_from(data)
    if count > MAX_NODES or first < 1 or first + count >= 1 << 32:
        raise FormatError(f"CCT chunk header is invalid: {count} nodes from {first} on")
    cursor = ColumnCursor(data, _CCT_HEAD.size)
    loops = record_loops()
    frame: U64
    if loops is None:
        back = cursor.column(count, np.uint32).astype(np.int64)
        frame = np.array(cursor.column(count, np.uint64))
    else:
        back = _filled(cursor, np.empty(count, np.uint32), loops).astype(np.int64)
        frame = _filled(cursor, np.empty(count, np.uint64), loops)
    parent = np.arange(first, first + count, dtype=np.int64) - back
    if count and (int(back.min()) < 1 or int(parent.min()) < 0):
        raise FormatError("CCT chunk: a parent does not precede its child")
    return first, parent.astype(np.uint32), frame
