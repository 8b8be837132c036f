"""Memory that was freed: the C library keeps it for later, and later never comes.

Tables pass through a recorder by the hundred megabytes on their way into the kernel's memory.
"""

from __future__ import annotations

import ctypes

_M_ARENA_MAX = -8  # malloc.h
_LIBC = ctypes.CDLL(None)


def use_one_arena() -> None:
    """Have all threads allocate from one heap: one that ends otherwise leaves its own behind."""
    if hasattr(_LIBC, "mallopt"):  # musl's has nothing to tell it
        _LIBC.mallopt(_M_ARENA_MAX, 1)


def give_back() -> None:
    """Give the system what is free. Some milliseconds."""
    if hasattr(_LIBC, "malloc_trim"):
        _LIBC.malloc_trim(0)
