"""Memory that was freed: the C library keeps it for later, and later never comes.

Tables pass through a recorder by the hundred megabytes on their way into the kernel's memory.
"""

from __future__ import annotations

import ctypes

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # malloc.h
# Bigger pieces go back to the system as they are freed. By itself the library raises this limit to
# the biggest piece that was ever freed, and what comes after leaves holes in the heap.
_OWN_MAPPING_BYTES = 1 << 18
_LIBC = ctypes.CDLL(None)


def keep_little() -> None:
    """Have all threads allocate from one heap, as one that ends leaves its own behind; big pieces
    have mappings of their own."""
    if hasattr(_LIBC, "mallopt"):  # musl's has nothing to tell it
        _LIBC.mallopt(_M_ARENA_MAX, 1)
        _LIBC.mallopt(_M_MMAP_THRESHOLD, _OWN_MAPPING_BYTES)


def give_back() -> None:
    """Give the system what is free. Some milliseconds."""
    if hasattr(_LIBC, "malloc_trim"):
        _LIBC.malloc_trim(0)
