"""Records and map values that BPF programs and user space exchange, as numpy dtypes and numbers.

``programs`` has them as C: ``records.h`` (the rings), ``values.h`` (the maps) and ``stack/*.h``
(tables and walks). ``tests/unit/bpf/test_layouts.py`` compares each with what compilers for both
processors say.
"""

from __future__ import annotations

import struct
from enum import IntEnum, IntFlag
from typing import NamedTuple

import numpy as np

from hpcd.bpf.map_sizes import (
    CACHE_SET_BITS,
    CLOCK_PHASE_BYTES,
    COUNTERS_BYTES,
    PROCESS,
    SAVED_BYTES,
    SETTINGS,
    STACK_COPY_BYTES,
    THREAD,
)

_CODES = {"<u2": "H", "<u4": "I", "<u8": "Q"}


def _struct_of(dtype: np.dtype[np.void]) -> struct.Struct:
    """``dtype`` for one value at a time; its padding takes no argument."""
    codes = []
    for name in dtype.names or ():
        field = dtype[name]
        plain = f"{field.itemsize}s" if field.kind == "S" else _CODES[field.str]
        codes.append(f"{field.itemsize}x" if name == "pad" else plain)
    return struct.Struct("<" + "".join(codes))


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
"""Header of a new stack. Its ``kernel_frames`` follow, 8 bytes each, then its ``user_frames``, but
no more than :data:`MAX_USER_FRAMES` (``hpcd/kernels/sources/call_paths.c``)."""

THREAD_EVENT_DTYPE = np.dtype(
    [
        ("time", "<u8"),
        ("kind", "<u4"),
        ("tgid", "<u4"),
        ("tid", "<u4"),
        ("thread", "<u4"),
        ("start", "<u8"),
        ("runtime", "<u8"),
        ("other", "<u4"),
        ("image", "<u4"),
        ("comm", "S16"),
    ]
)
THREAD_EVENT = _struct_of(THREAD_EVENT_DTYPE)


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
    image: int
    comm: bytes


PROGRAM_EVENT = np.dtype(
    [
        ("time", "<u8"),
        ("kind", "<u4"),
        ("tgid", "<u4"),
        ("start", "<u8"),
        ("group", "<u8"),
        ("parent", "<u4"),
        ("user", "<u4"),
        ("arguments", "<u4"),
        ("environment", "<u4"),
    ]
)
"""Header of who has begun a program. Its arguments and environment follow, one after the other, cut
where both are longer than there is room."""


class EventKind(IntEnum):
    """Kinds of the event ring's records."""

    STACK = 1
    THREAD = 2
    EXIT = 3
    FORK = 4
    EXEC = 5
    REFRESH = 6
    MOVED = 7
    COPIED = 8
    FREE = 9
    OBJECT = 10
    PROGRAM = 11


CALL_VALUES = 6
"""Values of a call."""

CALL = np.dtype(
    [
        ("time", "<u8"),
        ("duration", "<u8"),
        ("thread", "<u4"),
        ("stack", "<u4"),
        ("cache", "<u2"),
        ("function", "<u2"),
        ("weight", "<u4"),
        ("value", "<u8", CALL_VALUES),
    ]
)
"""One execution of a recorded function, 80 bytes; ``stack`` 0: its path is not known."""


class ObjectFlag(IntFlag):
    """``flags`` of an :data:`OBJECT_EVENT`."""

    DELETED = 1
    CUT = 2


OBJECT_EVENT = np.dtype(
    [
        ("time", "<u8"),
        ("kind", "<u4"),
        ("tgid", "<u4"),
        ("object", "<u4"),
        ("mode", "<u4"),
        ("inode", "<u8"),
        ("device", "<u4"),
        ("mount", "<u4"),
        ("node", "<u4"),
        ("magic", "<u4"),
        ("family", "<u2"),
        ("type", "<u2"),
        ("protocol", "<u2"),
        ("flags", "<u2"),
        ("local_port", "<u2"),
        ("peer_port", "<u2"),
        ("names", "<u4"),
        ("local", "V16"),
        ("peer", "V16"),
        ("file_system", "S16"),
        ("address", "V112"),
    ]
)
"""Header of a file that is seen for the first time. The parts of its path follow, innermost first,
each with a 0 behind it, ``names`` bytes in all."""

NAME_BYTES = 4096
"""Frames kept of a path, at most."""

DROPS = ("sample ring full", "event ring full", "thread table full", "thread exiting")
"""Names of ``struct counters.dropped``, by index."""

COUNTERS = np.dtype(
    [
        ("taken", "<u8"),
        ("recorded", "<u8"),
        ("kernel_mode", "<u8"),
        ("switches", "<u8"),
        ("thinned", "<u8"),
        ("late", "<u8"),
        ("walking", "<u8"),
        ("copied", "<u8"),
        ("not_copied", "<u8"),
        ("fired", "<u8"),
        ("calls", "<u8"),
        ("calls_passed_over", "<u8"),
        ("calls_lost", "<u8"),
        ("objects_lost", "<u8"),
        ("dropped", "<u8", 8),
        ("ending", "<u8", 16),
    ]
)


# --- what the maps hold ---

GENERATION_BITS = 14
SLOT_BITS = CACHE_SET_BITS + 1
"""A sample's ``stack`` is ``generation << SLOT_BITS | slot`` of its stack cache."""

PROCESS_DTYPE = np.dtype(
    [
        ("address", "<u4"),
        ("count", "<u4"),
        ("refresh", "<u4"),
        ("excluded", "<u4"),
        ("image", "<u4"),
        ("credit", "<u4"),
        ("space_number", "<u4"),
    ]
)

MAX_USER_FRAMES, OUTERMOST_FRAMES = 1024, 256
"""Frames the walker keeps of a stack, and how many of them are the outermost of a deeper one."""

THREAD_DTYPE = np.dtype(
    [
        ("number", "<u4"),
        ("hidden", "<u4"),
        ("woken", "<u8"),
        ("left", "<u8"),
        ("entered", "<u8"),
        ("object", "<u4"),
        ("other", "<u4"),
        ("weight", "<u4"),
        ("fault_in_kernel", "<u4"),
        ("fault", "<u8"),
        ("end", "<u8"),
        ("caller", "<u8"),
        ("outer_low", "<u8"),
        ("outer_high", "<u8"),
    ]
)

SYSTEM_CALL_DTYPE = np.dtype(
    [
        ("function", "<u2"),
        ("kind", "u1"),
        ("file", "u1"),
        ("other", "u1"),
        ("size", "u1"),
        ("offset", "u1"),
        ("pad", "u1"),
    ]
)
"""``struct system_call``: the recorded function a system call is, and which argument is what."""

SYSTEM_CALLS_32 = 1024
"""Index of the first system call of 32-bit programs."""
FIRST_REQUEST = 2 * SYSTEM_CALLS_32
"""Index of the first kind of request to io_uring, by opcode; there are :data:`REQUEST_KINDS`."""
REQUEST_KINDS = 128
FIRST_AIO = FIRST_REQUEST + REQUEST_KINDS
"""Index of the first kind of request of io_submit(), by opcode; there are :data:`AIO_KINDS`."""
AIO_KINDS = 16
REQUEST_BYTES = 48
SHOT_KEY_BYTES = 16
NO_ARGUMENT = 255
CALL_SLOTS_BYTES = 16
MAX_FUNCTIONS = 4096
"""Recorded functions of one recording."""
OBJECT_KEY_BYTES = 16


class SystemCallKind(IntEnum):
    """The meaning of a system call's result."""

    IGNORED = 0
    MOVES = 1
    OPENS = 2
    OTHER = 3
    CONNECTS = 4
    MAPS = 5
    MESSAGES = 6
    MAPS_MEMORY = 7
    UNMAPS = 8
    BREAKS = 9
    REMAPS = 10
    DISCARDS = 11
    SUBMITS = 12
    COLLECTS = 13


class RequestLength(IntEnum):
    """The kernel's structure that has the length of a request to io_uring, or, for one that
    opens a file, whether it makes a descriptor (``enum request_length``)."""

    OF_BUFFER = 0
    OF_VECTOR = 1
    OF_MESSAGE = 2
    OF_SPLICE = 3
    OF_OPEN = 4
    OF_ACCEPT = 5
    OF_SOCKET = 6


SETTINGS_DTYPE = np.dtype(
    [
        ("period", "<u8"),
        ("walk_one_in", "<u4"),
        ("passed_over", "<u4"),
        ("first_part", "<u4"),
        ("part_step", "<u4"),
        ("late", "<u4"),
        ("stolen", "<u4"),
    ]
)

CLOCK_PHASE_DTYPE = np.dtype([("due", "<u8"), ("off", "<u8")])
CLOCK_PHASE = _struct_of(CLOCK_PHASE_DTYPE)

COPIED = 1 << 31
"""In a sample's ``stack``: not a slot of the stack cache, but the number of a copied stack."""

STACK_COPY = np.dtype(
    [
        ("time", "<u8"),
        ("start", "<u8"),
        ("tgid", "<u4"),
        ("stack", "<u4"),
        ("size", "<u4"),
        ("cache", "<u2"),
        ("unread", "<u2"),
    ]
)
"""``struct stack_copy``; the registers follow, and ``size`` bytes from address ``start`` on."""

SAVED = np.dtype(
    [
        ("start", "<u8"),
        ("size", "<u4"),
        ("begin", "<u4"),
        ("address", "<u4"),
        ("count", "<u4"),
        ("done", "<u4"),
        ("ending", "<u4"),
        ("frames", "<u4"),
        ("depth", "<u4"),
    ]
)
"""``struct saved``; the registers follow, the copied bytes and ``struct walk``, which ends in its
frames."""

MAX_FRAMES = 127 + 1024

for _packed, _dtype in (
    (PROCESS, PROCESS_DTYPE),
    (THREAD, THREAD_DTYPE),
    (SETTINGS, SETTINGS_DTYPE),
):
    assert _packed.format == _struct_of(_dtype).format
assert CLOCK_PHASE.size == CLOCK_PHASE_BYTES
assert (COUNTERS.itemsize, SAVED.itemsize) == (COUNTERS_BYTES, SAVED_BYTES)
assert STACK_COPY.itemsize == STACK_COPY_BYTES
