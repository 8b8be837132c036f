"""What the BPF programs send, as numpy dtypes. The same as ``records.h`` and ``stack/unwind.h``."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

SAMPLE = np.dtype(
    [
        ("time", "<u8"),
        ("value", "<u8"),
        ("thread", "<u4"),
        ("stack", "<u4"),
        ("cpu", "<u2"),
        ("event", "<u2"),
        ("pad", "<u4"),
    ]
)
"""One firing of an event, 32 bytes."""

EVENT_HEADER = np.dtype([("time", "<u8"), ("kind", "<u4"), ("tgid", "<u4")])

STACK_EVENT = np.dtype(
    [
        ("time", "<u8"),
        ("kind", "<u4"),
        ("tgid", "<u4"),
        ("stack", "<u4"),
        ("thread", "<u4"),
        ("kernel_frames", "<u2"),
        ("user_frames", "<u2"),
        ("ending", "<u2"),
        ("cpu", "<u2"),
    ]
)
"""Header of a new stack; ``kernel_frames + user_frames`` frames of 8 bytes follow."""

THREAD_EVENT = np.dtype(
    [
        ("time", "<u8"),
        ("kind", "<u4"),
        ("tgid", "<u4"),
        ("tid", "<u4"),
        ("thread", "<u4"),
        ("start", "<u8"),
        ("runtime", "<u8"),
        ("other", "<u4"),
        ("pad", "<u4"),
        ("comm", "S16"),
    ]
)

CACHE_SET_BITS = 13
GENERATION_BITS = 14
SLOT_BITS = CACHE_SET_BITS + 1
"""A sample's ``stack`` is ``generation << SLOT_BITS | slot`` of its CPU's stack cache."""


class EventKind(IntEnum):
    """Kinds of the event ring's records."""

    STACK = 1
    THREAD = 2
    EXIT = 3
    FORK = 4
    EXEC = 5
    REFRESH = 6


DROPS = ("sample ring full", "event ring full", "thread table full", "thread exiting")
"""Names of ``struct counters.dropped``, by index."""

COUNTERS = np.dtype(
    [
        ("taken", "<u8"),
        ("recorded", "<u8"),
        ("kernel_mode", "<u8"),
        ("dropped", "<u8", 8),
        ("ending", "<u8", 16),
    ]
)
