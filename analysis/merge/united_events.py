"""The events of measurements, each once in a database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hpcd.analysis.trace.part_contents import PartContents
from hpcd.array_types import U16
from hpcd.model.identity import Event


def unite_events(measurements: Sequence[PartContents]) -> tuple[list[Event], list[U16]]:
    """The events of the database (ids from 0) and, per measurement, its ids' new ones."""
    distinct = {_event_key(e): e for contents in measurements for e in contents.events.values()}
    events = [
        replace(e, id=number)
        for number, (_, e) in enumerate(sorted(distinct.items(), key=lambda item: item[0]))
    ]
    ids = {_event_key(e): e.id for e in events}
    lost = {
        code
        for contents in measurements
        for code in contents.events_used
        if code not in contents.events
    }
    if lost:
        # Records of an event whose announcement was lost still count as samples.
        events.append(Event(len(events), "unknown", "", 0.0, ""))
    maps = []
    for contents in measurements:
        codes = max(
            [*contents.events, *contents.events_used], default=0
        )  # at most 16 bits, as scanned
        table = np.full(codes + 1, max(len(events) - 1, 0), np.uint16)
        for e in contents.events.values():
            table[e.id] = ids[_event_key(e)]
        maps.append(table)
    return events, maps


def _event_key(event: Event) -> tuple[object, ...]:
    return (event.metric, event.name, event.unit, event.scale, event.frequency, event.interval)
