"""Curves over time of data other than samples: memory held, bytes moved, messages."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hpcd.analysis import Database
from hpcd.analysis.answers.messages_in_view import Traffic
from hpcd.analysis.calls.memory import memory_over_time
from hpcd.analysis.calls.totals import bytes_moved
from hpcd.array_types import F64, I64
from hpcd.errors import UsageError

_MOST_CALLS = 2_000_000

Series = dict[str, F64]


def curve(
    db: Database,
    traffic: Callable[[], Traffic],
    kind: str,
    lines: I64,
    t0: int,
    t1: int,
    count: int,
) -> dict[str, object]:
    """Return a curve of ``count`` values at even distances over [t0, t1) ns of ``lines``.

    ``kind`` is memory (bytes that the lines' processes hold), bytes (read and written a second) or
    messages (under way between the lines). Raises :class:`UsageError` where that was not recorded.
    """
    edges = np.linspace(t0, t1, count + 1)
    kinds: dict[str, tuple[str, Callable[[], Series]]] = {
        "memory": ("B", lambda: _memory(db, lines, edges)),
        "bytes": ("B/s", lambda: _bytes(db, lines, edges)),
        "messages": ("", lambda: _messages(traffic, lines, edges)),
    }
    if kind not in kinds:
        raise UsageError(f"curves are of {', '.join(kinds)}")
    unit, make = kinds[kind]
    series = make()
    return {
        "unit": unit, "names": list(series),
        "values": [np.round(values, 3).tolist() for values in series.values()],
    }  # fmt: skip


def _memory(db: Database, lines: I64, edges: F64) -> Series:
    held = np.zeros(len(edges) - 1)
    processes = np.unique(db.lines.process[lines]).tolist()
    for moments, bytes_held in memory_over_time(db, processes, int(edges[0]), int(edges[-1])):
        at = np.searchsorted(moments, edges[1:], side="right")
        held += np.append(0, bytes_held)[at]
    return {"held": held}


def _bytes(db: Database, lines: I64, edges: F64) -> Series:
    t0, t1 = int(edges[0]), int(edges[-1])
    moved = bytes_moved(db, t0, t1, np.sort(lines).tolist(), _MOST_CALLS)
    seconds = (edges[1] - edges[0]) / 1e9
    return {
        name: np.histogram(moved.time, edges, weights=values)[0] / seconds
        for name, values in (("read", moved.read), ("written", moved.written))
    }


def _messages(traffic: Callable[[], Traffic], lines: I64, edges: F64) -> Series:
    matched = traffic()
    at = matched.messages_between(lines, int(edges[0]), int(edges[-1]))
    sent, received = (np.sort(times[at]) for times in matched.message_times)
    begun = np.searchsorted(sent, edges[1:], side="right")
    over = np.searchsorted(received, edges[:-1], side="left")
    return {"under way": (begun - over).astype(np.float64)}
