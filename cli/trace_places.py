"""Threads and times of a trace, as verbs take them."""

from __future__ import annotations

import numpy as np

from hpcd.analysis.database import Database
from hpcd.errors import UsageError

# Of a time given in seconds; a longer text is refused before it becomes a number of ns.
_MOST_SECONDS = 1e9


def trace_time(seconds: float) -> int:
    """Return a time since the origin in ns. Raises :class:`UsageError`."""
    if not abs(seconds) < _MOST_SECONDS:
        raise UsageError(f"no time of a recording: {seconds:g} s")
    return round(seconds * 1e9)


def lines_of_thread(db: Database, tid: int) -> list[int]:
    """Return the trace lines of threads with ``tid``: on several nodes, or one after another.
    Raises :class:`UsageError` if there is none."""
    lines: list[int] = np.flatnonzero(np.asarray(db.lines.tid) == tid).tolist()
    if not lines:
        raise UsageError(f"{db.path}: has no such tid")
    return lines
