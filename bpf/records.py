"""What the BPF programs send: numpy dtypes and structs, as in ``records.h`` and ``unwind.h``."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

import numpy as np

SAMPLE = np.dtype(
    [
        ("time", "<u8"),
        ("value", "<u8"),
        ("thread", "<u4"),
        ("stack", "<u4"),
        ("cache", "<u2"),
        ("event", "<u2"),
        ("pad", "<u4"),
    ]
)
"""One firing of an event, or one switch of a thread (:class:`Switch`), 32 bytes."""


class Switch(IntEnum):
    """Numbers in a sample's ``event`` that are no event's: a thread left a CPU, or came to one."""

    IN = 16
    RUNNABLE = 17
    SLEEPING = 18
    IO = 19
    UNINTERRUPTIBLE = 20
    FAULT = 21
    STOPPED = 22


MAX_EVENTS = 8
"""Perf events one sampler can have."""

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
        ("cache", "<u2"),
    ]
)
"""Header of a new stack; ``kernel_frames + user_frames`` frames of 8 bytes follow."""

THREAD_EVENT = struct.Struct("<QIIIIQQI4x16s")


class ThreadEvent(NamedTuple):
    """``struct thread_event``, as :data:`THREAD_EVENT` unpacks it: there are as many as threads, so
    each is unpacked in one step."""

    time: int
    kind: int
    tgid: int
    tid: int
    thread: int
    start: int
    runtime: int
    other: int
    comm: bytes


CACHE_SET_BITS = 13
GENERATION_BITS = 14
SLOT_BITS = CACHE_SET_BITS + 1
"""A sample's ``stack`` is ``generation << SLOT_BITS | slot`` of its stack cache."""


class EventKind(IntEnum):
    """Kinds of the event ring's records."""

    STACK = 1
    THREAD = 2
    EXIT = 3
    FORK = 4
    EXEC = 5
    REFRESH = 6
    MOVED = 7


DROPS = ("sample ring full", "event ring full", "thread table full", "thread exiting")
"""Names of ``struct counters.dropped``, by index."""

COUNTERS = np.dtype(
    [
        ("taken", "<u8"),
        ("recorded", "<u8"),
        ("kernel_mode", "<u8"),
        ("switches", "<u8"),
        ("thinned", "<u8"),
        ("dropped", "<u8", 8),
        ("ending", "<u8", 16),
    ]
)
