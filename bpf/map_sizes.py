"""Sizes of what the sampler's maps hold, and how much of it.

Without numpy: the programs begin to load, and a command to run, before that is imported.
:mod:`hpcd.bpf.layouts` has the structures, and compares.
"""

from __future__ import annotations

import platform
import struct

from hpcd.errors import PlatformError

MAX_EVENTS = 8
"""Perf events one sampler can have."""

CLOCK_PARTS = 16
"""Events that make up the clock of one CPU, at most."""

CALL_SLOTS = 3
"""Calls of one CPU whose paths may be walked at a time, as one may preempt another."""
FIRST_CALL_CONTEXT = 2
"""The first of the CPU's memories for walks that is a call's, and so for stack caches."""

CACHE_SET_BITS = 13
CACHE_SET_BYTES = 16

MAX_RULES = 1 << 16
"""Unwind rules of a recording, and of a module: rows name them by 16 bits."""
RULE_BYTES = 16

THREAD_CPU_BITS = 10
"""A thread's number is ``counter << THREAD_CPU_BITS | CPU``."""
THREADS_PER_CPU = (1 << (32 - THREAD_CPU_BITS)) - 1
"""Threads that have one; those that come later are counted as dropped."""

PROCESS = struct.Struct("<IIIIIII")
"""``struct process``: word address and number of its mappings, whether they are being read again,
whether it is never recorded, which program the mappings are of, and for how many addresses
in none of them the stack is copied, and the space's number."""
THREAD = struct.Struct("<IIQQQIIIIQQQQQ")
"""``struct thread``: its number, whether it is recorded from its next exec on only, and what it
does."""
SETTINGS = struct.Struct("<QIIIIII")
"""``struct settings``"""
CLOCK_PHASE_BYTES = 16
LONG_WALK_BYTES = 16
EVENT_PACE = struct.Struct("<QQIIIIII")
"""``struct event_pace``"""
KNOWN_RULES_BYTES = 512 * 64
KERNEL_PART_BYTES = 208
MOST_KERNEL_PARTS = 512
COUNTERS_BYTES = 304

COPY_BYTES = 65_536
"""Bytes of a stack that are copied, at most."""
STACK_COPY_BYTES, SAVED_BYTES, COPIER_BYTES = 32, 40, 32
STACK_WORDS = 128

REGISTERS_BYTES = {"x86_64": 168, "aarch64": 288}
"""Size of ``struct registers`` by processor."""
WALK_BYTES = {"x86_64": 10_712, "aarch64": 10_832}
"""Size of ``struct walk`` by processor: the saved registers differ."""

BLOCK_WORDS = 1024
BLOCK_BYTES = 4 * BLOCK_WORDS
"""Table memory is given out in blocks."""
SEGMENT_BLOCKS = 1024
MAX_SEGMENTS = 1024


def walk_bytes() -> int:
    """Size of ``struct walk`` here. Raises :class:`PlatformError` on another processor."""
    return _of_this_processor(WALK_BYTES)


def registers_bytes() -> int:
    """Size of ``struct registers`` here, as :func:`walk_bytes`."""
    return _of_this_processor(REGISTERS_BYTES)


def copier_bytes() -> int:
    """Size of ``struct copier`` here, as :func:`walk_bytes`."""
    return COPIER_BYTES + STACK_COPY_BYTES + registers_bytes() + COPY_BYTES


def saved_bytes() -> int:
    """Size of ``struct saved`` here, as :func:`walk_bytes`."""
    return SAVED_BYTES + registers_bytes() + COPY_BYTES + 8 * STACK_WORDS + walk_bytes()


def _of_this_processor(sizes: dict[str, int]) -> int:
    try:
        return sizes[platform.machine()]
    except KeyError:
        raise PlatformError(f"processor {platform.machine()} is not supported") from None
