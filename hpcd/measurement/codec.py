"""Columns of trace records and of the calling context tree, as bytes.

Records of one chunk are sorted by line, then time. Each column is split into byte planes, so that
zstd sees the nearly constant high bytes apart from the busy low ones.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from hpcd.array_types import I64, U8, U16, U32, U64, Array
from hpcd.errors import FormatError
from hpcd.kernels.library import kernels
from hpcd.measurement.record_columns import Columns, as_structure, scratch

# Microseconds, as in the paper (ICS 2011, section 3): finer than sampling can place anything, and a
# nanosecond's noise would cost 1.3 bytes a record.
TIME_UNIT_NS = 1000
_Kind = TypeVar("_Kind", np.uint16, np.uint32, np.uint64)
_HEAD = struct.Struct("<IIQI")
_COLUMN = struct.Struct("<BBHI")
_DICTIONARY = struct.Struct("<IBB2x")
_CONSTANT, _PLANES, _RANKED = 0, 1, 3
_FAULTS = ("", "a time step exceeds 2^44 units", "a record lasts longer than 2^44 units",
           "an event is out of range")  # fmt: skip
_CCT_HEAD = struct.Struct("<II")
MAX_RECORDS = 1 << 20
MAX_NODES = 1 << 20


@dataclass(frozen=True, slots=True)
class RecordChunk:
    """Records of a chunk: line ``line[i]`` has records ``start[i]:start[i+1]``, in time order.

    ``line`` u32[k], ``start`` i64[k+1], ``time_ns`` u64[n] (monotonic), ``node`` u32[n], ``event``
    u16[n], ``value`` u64[n].
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
"""Returns columns for a number of records to fill: times, nodes, events, values."""


def new_columns(records: int) -> tuple[U64, U32, U16, U64]:
    """Columns for ``records`` records: times, nodes, events, values."""
    return (np.empty(records, np.uint64), np.empty(records, np.uint32),
            np.empty(records, np.uint16), np.empty(records, np.uint64))  # fmt: skip


def encode_column(values: Array) -> bytes:
    """One column of unsigned integers: header (coding, width, padding, bytes), then its data."""
    n = len(values)
    out = scratch(kernels.column_bytes(n))
    if values.itemsize == 8:
        length = kernels.encode_column64(np.ascontiguousarray(values, np.uint64), n, out)
    else:
        length = kernels.encode_column32(np.ascontiguousarray(values, np.uint32), n, out)
    return out[:length].tobytes()


def encode_ranked(values: U32) -> bytes:
    """A column of few distinct values, some of which occur much more than others: places in a
    dictionary in which these come first, if that is smaller."""
    n = len(values)
    memory = scratch(kernels.encode_bytes(n) + kernels.column_bytes(n))
    out = memory[-kernels.column_bytes(n) :]
    length = kernels.encode_ranked(np.ascontiguousarray(values), n, memory, out)
    return out[:length].tobytes()


class ColumnCursor:
    """Reads columns one after another, never past the end."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = memoryview(data)
        self._at = at

    def column(self, count: int, kind: type[_Kind]) -> npt.NDArray[_Kind]:
        """The next column, of ``count`` integers of type ``kind``. Raises :class:`FormatError`."""
        if kind is np.uint16:
            wide = self.column(count, np.uint32)
            if int(wide.max(initial=0)) >> 16:
                raise FormatError(f"column of {count} values: {int(wide.max())} exceeds 16 bits")
            narrow: npt.NDArray[Any] = wide.astype(np.uint16)
            return narrow
        values = np.empty(count, kind)
        self.fill(values)
        return values

    def fill(self, values: npt.NDArray[Any]) -> None:
        """Fill ``values``, of 32 or 64 bits, with the next column. Raises :class:`FormatError`."""
        planes, words = self._planes(len(values), values.dtype)
        decode = kernels.decode_column32 if values.itemsize == 4 else kernels.decode_column64
        if not decode(planes, len(planes), words, len(words), values, len(values)):
            raise FormatError(f"column of {len(values)} values has an inconsistent dictionary")

    def _planes(self, count: int, kind: np.dtype[Any]) -> tuple[U8, Array]:
        """The next column as it is stored: its planes ``uint8[width, count]``, and the words of
        type ``kind`` that these are places in, if any. A constant has one word and no planes."""
        coding, width, _, size = _COLUMN.unpack(self._take(_COLUMN.size))
        data = self._take(size)
        most = (1 << 8 * kind.itemsize) - 1
        if coding == _CONSTANT and size == 8:
            (value,) = struct.unpack("<Q", data)
            if value <= most:
                return np.zeros((0, count), np.uint8), np.array([value], kind)
        elif coding == _PLANES and width in (1, 2, 4, 8) and size == width * count:
            if width <= kind.itemsize:
                return np.frombuffer(data, np.uint8).reshape(width, count), np.zeros(0, kind)
        elif coding == _RANKED and size >= _DICTIONARY.size:
            entries, word_width, width = _DICTIONARY.unpack_from(data)
            at = _DICTIONARY.size + word_width * entries
            if (
                word_width in (1, 2, 4)
                and width in (1, 2, 4)
                and 0 < entries <= count
                and size == at + width * count
            ):
                words = np.empty(entries, kind)
                stored = np.frombuffer(data[_DICTIONARY.size : at], np.uint8)
                none = np.zeros(0, kind)
                decode = kernels.decode_column32 if kind.itemsize == 4 else kernels.decode_column64
                decode(stored, word_width, none, 0, words, entries)
                planes = np.frombuffer(data, np.uint8, offset=at).reshape(width, count)
                return planes, words
        raise FormatError(
            f"column of {count} values: coding {coding} of width {width} does not fit {size} bytes"
        )

    def _take(self, count: int) -> memoryview:
        """The next ``count`` bytes."""
        end = self._at + count
        if end > len(self._data):
            raise FormatError(
                f"{count} bytes of a column at {self._at} exceed the chunk of {len(self._data)}"
            )
        part = self._data[self._at : end]
        self._at = end
        return part


@lru_cache(8)
def _lasts(events: frozenset[int]) -> npt.NDArray[np.bool_]:
    """``bool[65536]``: whether an event is one of ``events``."""
    lasts = np.zeros(1 << 16, bool)
    lasts[list(events)] = True
    return lasts


def encode_records(columns: Columns, lasting: Collection[int] = ()) -> bytes:
    """Payload of a RECORDS chunk of the records ``columns``, sorted by line and time.

    ``lasting`` are events whose records last as many time units as their value says. What follows
    such a record begins at its end or a little later: that little is stored.
    """
    n = len(columns[0])
    most = 40 * n + 256
    memory = scratch(kernels.encode_bytes(n) + most)
    out = memory[-most:]
    length = kernels.encode_records(as_structure(columns), _lasts(frozenset(lasting)), memory, out)
    return out[:length].tobytes()


def decode_records(data: bytes, room: Room | None = None) -> RecordChunk:
    """The inverse of :func:`encode_records`, into the columns that ``room`` returns, or new ones.

    Raises :class:`FormatError` on anything inconsistent.
    """
    if len(data) < _HEAD.size:
        raise FormatError(f"RECORDS chunk of {len(data)} bytes is shorter than its header")
    lines, records, base, unit = _HEAD.unpack_from(data)
    if records > MAX_RECORDS or lines > records or not 1 <= unit <= 1_000_000:
        raise FormatError(
            f"RECORDS chunk header is invalid: {records} records of {lines} lines, unit {unit} ns"
        )
    cursor = ColumnCursor(data, _HEAD.size)
    line = cursor.column(lines, np.uint32)
    count = cursor.column(lines, np.uint32).astype(np.int64)
    if int(count.sum()) != records or (lines and int(count.min()) < 1):
        raise FormatError(f"RECORDS chunk: lines have {int(count.sum())} records, not {records}")
    start = np.zeros(lines + 1, dtype=np.int64)
    np.cumsum(count, out=start[1:])
    time, node, event, value = new_columns(records) if room is None else room(records)
    kind = np.empty(records, np.uint32)
    cursor.fill(time)
    cursor.fill(node)
    cursor.fill(kind)
    number = kernels.count_odd(kind, records)
    # One more than there are: the kernel looks at the next one in any case.
    odd = np.ones(number + 1, np.uint64)
    cursor.fill(odd[:number])
    fault = kernels.decode_times(start, lines, base, unit, kind, odd, time, event, value)
    if fault:
        raise FormatError(f"RECORDS chunk: {_FAULTS[fault]}")
    return RecordChunk(line, start, time, node, event, value)


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
    back = cursor.column(count, np.uint32).astype(np.int64)
    frame = cursor.column(count, np.uint64)
    parent = np.arange(first, first + count, dtype=np.int64) - back
    if count and (int(back.min()) < 1 or int(parent.min()) < 0):
        raise FormatError("CCT chunk: a parent does not precede its child")
    return first, parent.astype(np.uint32), frame
