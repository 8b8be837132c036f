"""The metrics of the heap, as events: no record is of them, their sums are of its calls."""

from __future__ import annotations

from hpcd.model.identity import Event

ALLOCATED, HELD = "heap_allocated", "heap_held"
"""Events of bytes allocated, and of allocated bytes still held at the end."""


def heap_events(first: int) -> list[Event]:
    """The events of the heap, numbered from ``first``."""
    return [
        Event(number, name.replace("_", "-"), "B", 1.0, name)
        for number, name in enumerate((ALLOCATED, HELD), first)
    ]
