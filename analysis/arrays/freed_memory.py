"""Settings of the C library for memory that work in batches frees and takes again at once."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # malloc.h
# Larger than any array of a batch; what is kept at most.
_OWN_MAPPING_BYTES = 8 << 20
_KEPT_BYTES = 32 << 20


def keep_freed_memory() -> None:
    """Make this process keep what it frees for its next batch, up to 32 MiB.

    By itself the C library gives arrays of 128 KiB back to the kernel, which fills the next ones
    with zeros page by page: a third of the time of decoding blocks.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # musl has none
        libc.mallopt(_M_MMAP_THRESHOLD, _OWN_MAPPING_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def share_freed_memory() -> None:
    """Make this process, in which threads take turns, keep what they free in one arena.

    Otherwise each thread would keep its own, as large as the largest work it ever did.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_ARENA_MAX, 1)
    keep_freed_memory()
