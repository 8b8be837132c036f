"""The events of parts, each once in a database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hpcd.array_types import U16
from hpcd.model.identity import Event

UNKNOWN_EVENT = Event(0, "unknown", "", 0.0, "")
"""Records of an event whose announcement was lost still count as samples."""


def unite_events(tables: Sequence[Sequence[Event]]) -> tuple[list[Event], list[U16]]:
    """The events of the database (ids from 0) and, per table of a part's events, its ids' new
    ones."""
    distinct = {event_key(event): event for table in tables for event in table}
    unknown = event_key(UNKNOWN_EVENT)
    keys = sorted(distinct, key=lambda key: (key == unknown, key))
    numbers = {key: number for number, key in enumerate(keys)}
    events = [replace(distinct[key], id=number) for key, number in numbers.items()]
    maps = [np.array([numbers[event_key(event)] for event in table], np.uint16)
            for table in tables]  # fmt: skip
    return events, maps


def event_key(event: Event) -> tuple[object, ...]:
    """Return a key that is equal for events that are the same in a database."""
    return (event.metric, event.name, event.unit, event.scale, event.frequency, event.interval)
