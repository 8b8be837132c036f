"""The processors that this process may use."""

from __future__ import annotations

import os


def processor_count() -> int:
    """Return how many: on Linux those that it is not kept off, elsewhere all there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
