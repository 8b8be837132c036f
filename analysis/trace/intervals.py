"""Intervals in a trace: from one record with a length to two entries of a database's trace.

The trace of a database is read by "the record closest in time" (ICS 2011, section 5.2). A wait of a
second is one record at its beginning; with a second entry of the same node at its end, every moment
of it is closest to itself, and nothing that reads a trace needs to know of intervals.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from hpcd.array_types import F64
from hpcd.measurement.codec import RecordChunk
from hpcd.model.identity import Event

_SECONDS_NS = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}
# 36 years: beyond it a length is damage, and would not fit.
LONGEST_NS = float(1 << 60)


class Intervals:
    """Knows which events are intervals and how long a unit of their value is."""

    def __init__(self, events: Iterable[Event]) -> None:
        lengths = {
            event.id: event.scale * _SECONDS_NS.get(event.unit, 0.0)
            for event in events
            if event.interval and 0 <= event.id < 1 << 16
        }
        self.key = tuple(sorted((id, length) for id, length in lengths.items() if length != 0))
        """The events that are intervals, and how long one of their value lasts."""

    @cached_property
    def length_ns(self) -> F64:
        """``float64[65536]``: how long one of each event's value lasts; 0 for no interval."""
        table = np.zeros(1 << 16)
        for code, length in self.key:
            table[code] = length
        return table

    def expand(self, part: RecordChunk) -> RecordChunk:
        """``part`` with an entry at the end of each interval: same node and event, value 0."""
        if not self.key:
            return part
        length = self.length_ns[part.event] * part.value
        at = np.flatnonzero(length > 0)
        if not len(at):
            return part
        end = part.time_ns[at] + np.minimum(length[at], LONGEST_NS).astype(np.uint64)
        # Lengths are rounded; the end never lies behind what comes next on the line.
        after = np.append(part.time_ns[1:], np.uint64(0))[at]
        last = np.isin(at, part.start[1:] - 1)
        end = np.where(last, end, np.minimum(end, np.maximum(after, part.time_ns[at])))
        copies = np.ones(len(part), np.int64)
        copies[at] = 2
        source = np.repeat(np.arange(len(part)), copies)
        ends = np.cumsum(copies)[at] - 1
        time, value = part.time_ns[source], part.value[source]
        time[ends], value[ends] = end, 0
        start = np.concatenate(([0], np.cumsum(copies)))[part.start]
        return RecordChunk(part.line, start, time, part.node[source], part.event[source], value)
