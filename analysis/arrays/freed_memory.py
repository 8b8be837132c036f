"""Settings of the C library for memory that work in batches frees and takes again at once."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # malloc.h
# Larger than any array of a batch; bound on the kept memory.
_OWN_MAPPING_BYTES = 8 << 20
_KEPT_BYTES = 32 << 20


def keep_freed_memory() -> None:
    """Make this process keep freed memory for its next batch, up to 32 MiB.

    By default the C library returns arrays of 128 KiB to the kernel, which then zeroes the next
    arrays page by page: a third of the time of decoding blocks.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # musl has none
        libc.mallopt(_M_MMAP_THRESHOLD, _OWN_MAPPING_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def share_freed_memory() -> None:
    """Make this process, whose threads take turns, keep freed memory in one arena.

    Otherwise each thread would keep its own, as large as its largest task ever needed.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_ARENA_MAX, 1)
    keep_freed_memory()
