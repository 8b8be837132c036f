"""Which process started which, as far as both were recorded."""

from __future__ import annotations

import numpy as np

from hpcd.analysis.database import Database
from hpcd.array_types import F64, I64

StartedProcess = tuple[int, int, int, int, str]
"""A process: its number, its measurement's, its pid, its parent's pid, its name."""


def processes_by_start(db: Database) -> list[StartedProcess]:
    """Return all processes in order of their starts."""
    query = "SELECT id, measurement, pid, parent_pid, name FROM process ORDER BY start_ns"
    return [
        (int(number), int(measurement), int(pid), int(parent_pid), str(name))
        for number, measurement, pid, parent_pid, name in db.rows(query)
    ]


def parents(processes: list[StartedProcess], count: int) -> I64:
    """``int64[count]``: the number of each process's parent, -1 where it was not recorded.

    ``processes`` are in order of their starts: of those that had a pid one after another, the
    parent is the one that had it last. Numbers from ``count`` on are passed over.
    """
    newest: dict[tuple[int, int], int] = {}
    parent: I64 = np.full(count, -1, np.int64)
    for number, measurement, pid, parent_pid, _ in processes:
        if 0 <= number < count:
            parent[number] = newest.get((measurement, parent_pid), -1)
            newest[measurement, pid] = number
    return parent


def sum_of_descendants(parent: I64, values: F64) -> F64:
    """``float64[n]``: of each process the sum of ``values`` ``float64[n]`` over its descendants."""
    below = np.zeros(len(parent))
    for number in np.argsort(-tree_order(parent), kind="stable").tolist():
        if parent[number] >= 0:
            below[parent[number]] += below[number] + values[number]
    return below


def tree_order(parent: I64) -> I64:
    """``int64[n]``: the place of each process where all stand below their parents, those of one
    parent in order of their numbers."""
    below: list[list[int]] = [[] for _ in parent]
    pending: list[int] = []
    for number, above in enumerate(parent.tolist()):
        (pending if above < 0 else below[above]).append(number)
    pending.reverse()
    place = np.zeros(len(parent), np.int64)
    for at in range(len(parent)):
        number = pending.pop()
        place[number] = at
        pending.extend(reversed(below[number]))
    return place
