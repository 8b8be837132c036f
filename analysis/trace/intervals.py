"""Intervals in a trace: from one record with a length to two entries of a database's trace.

The trace of a database is read by "the record closest in time" (ICS 2011, section 5.2). A wait of a
second is one record at its beginning; with a second entry of the same node at its end, every moment
of it is closest to itself, and nothing that reads a trace needs to know of intervals.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from hpcd.array_types import F64, I64, U16, U32, U64
from hpcd.kernels.library import kernels, structure
from hpcd.measurement.codec import RecordChunk
from hpcd.model.identity import Event


class Intervals:
    """Knows which events are intervals and how long a unit of their value is."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.key = tuple(sorted(
            (event.id, event.length_ns)
            for event in events
            if event.length_ns != 0 and 0 <= event.id < 1 << 16
        ))  # fmt: skip
        """The events that are intervals, and how long one of their value lasts."""

    @cached_property
    def length_ns(self) -> F64:
        """``float64[65536]``: how long one of each event's value lasts; 0 for no interval."""
        table = np.zeros(1 << 16)
        for code, length in self.key:
            table[code] = length
        return table

    def expand(self, records: RecordChunk) -> Entries:
        """The entries of ``records``: one more at the end of each interval, of the same node and
        event, with value 0. The end is never after the next record of the line."""
        event, value = np.ascontiguousarray(records.event), np.ascontiguousarray(records.value)
        total = kernels.count_entries(event, value, len(event), self.length_ns)
        start, time = np.empty(len(records.start), np.int64), np.empty(total, np.int64)
        node, events = np.empty(total, np.uint32), np.empty(total, np.uint16)
        values = np.empty(total, np.uint64)
        is_plain = kernels.expand_records(
            records.start, len(records.line), np.ascontiguousarray(records.time_ns),
            np.ascontiguousarray(records.node), event, value, self.length_ns,
            structure("laid_out", start, time, node, events, values, *[None] * 7),
        )  # fmt: skip
        if is_plain:
            return Entries(start, time, node, None, None)
        return Entries(start, time, node, events, values)


class Entries(NamedTuple):
    """Entries of trace lines: line ``i`` has ``start[i]:start[i + 1]`` (``int64``) of ``time``
    ``int64[n]`` in ticks, ``node`` ``uint32[n]``, ``event`` ``uint16[n]`` and ``value``
    ``uint64[n]``, the last two None where all are 0 and 1."""

    start: I64
    time: I64
    node: U32
    event: U16 | None
    value: U64 | None
