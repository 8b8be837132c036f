"""Trace records and nodes of the calling context tree as columns (:mod:`.columns`).

Records of one chunk are sorted by line, then time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hpcd.array_types import I64, U16, U32, U64, Mask
from hpcd.errors import FormatError
from hpcd.kernels.library import kernels
from hpcd.masks import marked
from hpcd.measurement.columns import ColumnCursor, encode_column
from hpcd.measurement.record_columns import Columns, as_structure, scratch

# Microseconds, as in the paper (ICS 2011, section 3): finer than sampling can place anything, and a
# nanosecond's noise would cost 1.3 bytes a record.
TIME_UNIT_NS = 1000
_HEAD = struct.Struct("<IIQI")
_FAULTS = ("", "a time step exceeds 2^44 units", "a record lasts longer than 2^44 units",
           "an event is out of range")  # fmt: skip
_CCT_HEAD = struct.Struct("<II")
MAX_RECORDS = 1 << 20
MAX_NODES = 1 << 20
# 36 years of uptime, and the year 2116: sums and differences of two stay within 64 bits.
MONOTONIC_LIMIT = 1 << 60
REALTIME_LIMIT = 1 << 62


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


@lru_cache(8)
def _lasts(events: frozenset[int]) -> Mask:
    """``bool[65536]``: whether an event is in ``events``."""
    return marked(1 << 16, list(events))


def encode_records(columns: Columns, lasting: Collection[int]) -> bytes:
    """Payload of a RECORDS chunk of the records ``columns``, sorted by line and time.

    ``lasting`` are events whose value is their duration in time units. The next record begins at
    the end of such a record or a little later: that difference is stored.
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
