"""Intervals in a trace: from one record with a length to two entries of a database's trace.

The trace of a database is read by "the record closest in time" (ICS 2011, section 5.2). A wait of a
second is one record at its beginning; with a second entry of the same node at its end, every moment
of it is closest to the wait, and readers of a trace need no knowledge of intervals.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from hpcd.analysis.trace.states import EventStates
from hpcd.array_types import F64, I64, U8, U16, U32, U64
from hpcd.kernels.library import CStructure, kernels, structure
from hpcd.measurement.codec import RecordChunk
from hpcd.model.identity import Event


class Intervals:
    """Knows which events are intervals and how long a unit of their value is."""

    def __init__(self, events: Iterable[Event]) -> None:
        events = list(events)
        self.key = tuple(sorted(
            (event.id, event.length_ns)
            for event in events
            if event.length_ns != 0 and 0 <= event.id < 1 << 16
        ))  # fmt: skip
        """Interval events, and the duration of one unit of their value in ns."""
        self.states = EventStates.of(
            (event.id, event.unit, event.metric, event.length_ns != 0, event.scale)
            for event in events
        )

    @cached_property
    def length_ns(self) -> F64:
        """``float64[65536]``: duration of one unit of each event's value; 0 for no interval."""
        table = np.zeros(1 << 16)
        for code, length in self.key:
            table[code] = length
        return table

    def expand(self, records: RecordChunk, resumed: U32 | None = None) -> Entries:
        """Return the entries of ``records``: one more at the end of each interval, of the same
        event, with value 0. The end is never after the next record of the line. Its node is that
        which ``resumed`` ``uint32[n]`` has for the record, the interval's own if that is NO_NODE.
        """
        event, value = np.ascontiguousarray(records.event), np.ascontiguousarray(records.value)
        total = kernels.count_entries(event, value, len(event), self.length_ns)
        start, time = np.empty(len(records.start), np.int64), np.empty(total, np.int64)
        node, events = np.empty(total, np.uint32), np.empty(total, np.uint16)
        states, values = np.empty(total, np.uint8), np.empty(total, np.uint64)
        is_plain = kernels.expand_records(
            records.start, len(records.line), np.ascontiguousarray(records.time_ns),
            np.ascontiguousarray(records.node), event, value, resumed,
            self.as_numbering(nodes=np.iinfo(np.uint32).max),
            structure(
                "laid_out", start=start, times=time, nodes=node, states=states, events=events,
                values=values,
            ),
        )  # fmt: skip
        some = states if bool(states.any()) else None
        if is_plain:
            return Entries(start, time, node, some, None, None)
        return Entries(start, time, node, some, events, values)

    def as_numbering(self, **fields: Any) -> CStructure:
        """Return a ``struct numbering`` with these ``fields`` besides those of events."""
        return structure("numbering", length=self.length_ns, state_of=self.states.state, **fields)


class Entries(NamedTuple):
    """Entries of trace lines: line ``i`` has ``start[i]:start[i + 1]`` (``int64``) of ``time``
    ``int64[n]`` in ticks, ``node`` ``uint32[n]``, ``state`` ``uint8[n]`` (None where all are
    SAMPLED), ``event`` ``uint16[n]`` and ``value`` ``uint64[n]`` (None where all are 0 and 1)."""

    start: I64
    time: I64
    node: U32
    state: U8 | None
    event: U16 | None
    value: U64 | None
