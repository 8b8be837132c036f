"""Collecting garbage less often than Python does, for work that makes none."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# Objects made between two collections of garbage.
_ALLOCATIONS = 200_000


@contextmanager
def fewer_collections() -> Iterator[None]:
    """Collect garbage less often while the block runs.

    A merge makes millions of small objects that stay, a recorder some for each program that begins,
    both hardly any cycles: looking through them all again and again costs time.
    """
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], _ALLOCATIONS) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
