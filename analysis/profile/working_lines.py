"""Which trace lines did the work: pictures and statistics begin with these.

MPI libraries, launchers and run-time systems keep threads that sleep all the time; beside one or
two working threads a rank they fill most of a picture and water down every mean.
"""

from __future__ import annotations

import numpy as np

from hpcd.analysis.database import Database
from hpcd.array_types import Mask

# What all lines left out may have used together: threads of a percent or more are never among them.
_LEFT_OUT = 0.005


def working_lines(db: Database) -> Mask:
    """``bool[lines]``: the busiest lines, which together used 99.5 % of the CPU time, and each
    rank's busiest one. All lines where no CPU time was measured. O(lines · log lines)."""
    count = len(db.lines)
    if "cpu_time" not in db.metrics.names or not count:
        return np.ones(count, bool)
    cost = db.line_totals("cpu_time")
    order = np.argsort(cost, kind="stable")
    rest = np.cumsum(cost[order])
    if rest[-1] <= 0:
        return np.ones(count, bool)
    working = np.zeros(count, bool)
    working[order[rest > _LEFT_OUT * rest[-1]]] = True
    # Of each rank the busiest line, also of a rank that did next to nothing: that is news.
    ranked = order[db.lines.rank[order] >= 0]
    _, code = db.lines.texts("job")
    rank_of = db.lines.rank[ranked].astype(np.int64)
    key = code[ranked].astype(np.int64) * (int(rank_of.max(initial=0)) + 1) + rank_of
    _, busiest = np.unique(key[::-1], return_index=True)
    working[ranked[::-1][busiest]] = True
    return working
