"""Calls of recorded functions as bytes: the columns of a CALLS chunk."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

import numpy as np

from hpcd.array_types import I64, U16, U32, U64, Mask
from hpcd.errors import FormatError
from hpcd.measurement.codec import MONOTONIC_LIMIT
from hpcd.measurement.columns import ColumnCursor, encode_column, encode_ranked
from hpcd.model.calls import MAX_VALUES
from hpcd.rows import join_rows, take_rows

_HEAD = struct.Struct("<IIQI")
_TIME_UNIT_NS = 1
MAX_CALLS = 1 << 20


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls of recorded functions, in any order.

    ``line`` u32[n]; ``time`` u64[n], monotonic ns at which each began; ``duration`` u64[n] ns;
    ``node`` u32[n], the calling CCT node; ``function`` u16[n]; ``weight`` u32[n], the number of
    calls it represents; ``value`` u64[n, MAX_VALUES], signed values in two's complement.
    """

    line: U32
    time: U64
    duration: U64
    node: U32
    function: U16
    weight: U32
    value: U64

    def __len__(self) -> int:
        return len(self.time)

    def __getitem__(self, which: slice | I64 | Mask) -> Calls:
        return take_rows(self, which)

    def with_nodes(self, node: U32) -> Calls:
        """Return these calls in other nodes, ``node`` u32[n]."""
        return replace(self, node=node)

    @staticmethod
    def none() -> Calls:
        """No calls."""
        return Calls(
            np.zeros(0, np.uint32),
            np.zeros(0, np.uint64),
            np.zeros(0, np.uint64),
            np.zeros(0, np.uint32),
            np.zeros(0, np.uint16),
            np.zeros(0, np.uint32),
            np.zeros((0, MAX_VALUES), np.uint64),
        )

    @staticmethod
    def joined(parts: list[Calls]) -> Calls:
        """Concatenate ``parts``."""
        return join_rows([Calls.none(), *parts])

    def in_order(self) -> Calls:
        """Return the calls sorted by line and time; at equal times the longest call first."""
        return self[np.lexsort((~self.duration, self.time, self.line))]


def encode_calls(calls: Calls) -> bytes:
    """Payload of a CALLS chunk; the calls must be sorted by line and time."""
    line = calls.line
    first = np.flatnonzero(np.r_[True, line[1:] != line[:-1]]) if len(line) else np.zeros(0, int)
    count = np.diff(np.r_[first, len(line)])
    time = calls.time.astype(np.int64)
    base = int(time[first].min()) if len(first) else 0
    step = np.diff(time, prepend=base)
    step[first] = time[first] - base
    parts = [_HEAD.pack(len(first), len(line), base, _TIME_UNIT_NS)]
    parts += [encode_column(line[first]), encode_column(count.astype(np.uint32))]
    parts += [encode_column(step.astype(np.uint64)), encode_ranked(calls.node)]
    parts += [encode_column(calls.function), encode_column(calls.duration)]
    parts += [encode_column(calls.weight)]
    parts += [encode_column(calls.value[:, number]) for number in range(MAX_VALUES)]
    return b"".join(parts)


def decode_calls(data: bytes) -> Calls:
    """The inverse of :func:`encode_calls`; :class:`FormatError` on anything inconsistent."""
    if len(data) < _HEAD.size:
        raise FormatError(f"CALLS chunk of {len(data)} bytes is shorter than its header")
    lines, count, base, unit = _HEAD.unpack_from(data)
    if count > MAX_CALLS or lines > count or not 0 < unit <= 1_000_000_000:
        raise FormatError(f"CALLS chunk header is invalid: {lines} lines, {count} calls")
    cursor = ColumnCursor(data, _HEAD.size)
    line = cursor.column(lines, np.uint32)
    counts = cursor.column(lines, np.uint32).astype(np.int64)
    if int(counts.sum()) != count or (lines and int(counts.min()) < 1):
        raise FormatError("CALLS chunk: its lines have another number of calls than it says")
    if bool((line[1:] <= line[:-1]).any()):
        raise FormatError("CALLS chunk: lines are not in order")
    step = cursor.column(count, np.uint64)
    starts = np.cumsum(counts) - counts
    # Each line's times start again from 0; forged steps wrap around to times refused as too late.
    total = np.cumsum(step, dtype=np.uint64)
    before = np.where(starts > 0, total[starts - 1], np.uint64(0)) if count else total
    ticks = total - np.repeat(before, counts) + np.uint64(base)
    limit = np.uint64((MONOTONIC_LIMIT - 1) // unit)
    if count and (int(step.max()) > limit or int(ticks.max()) > limit):
        raise FormatError("CALLS chunk: times are out of range")
    node = cursor.column(count, np.uint32)
    function = cursor.column(count, np.uint16)
    duration = cursor.column(count, np.uint64)
    weight = cursor.column(count, np.uint32)
    value: U64 = np.empty((count, MAX_VALUES), np.uint64)
    for number in range(MAX_VALUES):
        value[:, number] = cursor.column(count, np.uint64)
    if count and int(duration.max()) >= MONOTONIC_LIMIT:
        raise FormatError("CALLS chunk: durations are out of range")
    return Calls(
        np.repeat(line, counts),
        ticks * np.uint64(unit),
        duration,
        node,
        function,
        weight,
        value,
    )
