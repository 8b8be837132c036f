"""The heap of this process: freed memory is returned to the system.

Tables pass through a recorder by the hundred megabytes on their way into the kernel's memory.
"""

from __future__ import annotations

import ctypes
import resource
from pathlib import Path

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # malloc.h
# Bigger pieces go back to the system as they are freed. By itself the library raises this limit to
# the biggest piece that was ever freed, and what comes after leaves holes in the heap.
_OWN_MAPPING_BYTES = 1 << 18
_STATM = Path("/proc/self/statm")
_LIBC = ctypes.CDLL(None)


def limit_arenas() -> None:
    """Make all threads allocate from one heap (a thread that ends leaves its own behind), and big
    pieces have mappings of their own."""
    if hasattr(_LIBC, "mallopt"):  # musl has none
        _LIBC.mallopt(_M_ARENA_MAX, 1)
        _LIBC.mallopt(_M_MMAP_THRESHOLD, _OWN_MAPPING_BYTES)


def trim_heap() -> None:
    """Return free memory to the system. Takes some milliseconds."""
    if hasattr(_LIBC, "malloc_trim"):
        _LIBC.malloc_trim(0)


def resident_bytes() -> int:
    """Memory this process has at this moment (proc_pid_statm(5))."""
    return int(_STATM.read_text().split()[1]) * resource.getpagesize()
