"""Which trace lines did the work: reports, statistics, pictures, the viewer and ``hpcd top`` begin
with these.

MPI libraries, launchers and run-time systems keep threads that sleep all the time (helper
threads); beside one or two working threads a rank they fill most of a picture and lower every mean.
"""

from __future__ import annotations

import numpy as np

from hpcd.analysis.database import Database
from hpcd.array_types import F64, I64, Mask

# A thread that runs for less of its life than this serves others; MPI's helpers run for 0.1 %.
_IDLE_SHARE = 0.01
# Threads that used as much of their process's CPU time together are what it is about: those that
# share the load of a server each run for a moment at a time.
_HELPERS_SHARE = 0.5
# What the CPU time of all idle processes may be together, of that of all processes.
_IDLE_PROCESSES_SHARE = 0.005


def working_lines(db: Database) -> Mask:
    """``bool[lines]``: all lines but helper threads and idle processes (:func:`select_working`).

    All lines where no CPU time was measured. O(lines · log lines).
    """
    lines = db.lines
    if "cpu_time" not in db.metrics.names or not len(lines):
        return np.ones(len(lines), bool)
    rank = np.full(len(lines), -1, np.int64)
    ranked = np.flatnonzero(lines.rank >= 0)
    if len(ranked):
        of_line = lines.rank[ranked].astype(np.int64)
        job = lines.texts("job")[1][ranked].astype(np.int64)
        rank[ranked] = job * (int(of_line.max()) + 1) + of_line
    life = (lines.end - lines.start) / 1e9
    return select_working(db.line_totals("cpu_time"), life, lines.process.astype(np.int64), rank)


def select_working(cpu: F64, life: F64, process: I64, rank: I64) -> Mask:
    """``bool[n]``: which of n threads did the work.

    ``cpu`` and ``life`` are seconds, ``process`` numbers the processes, ``rank`` the ranks (-1: of
    none). Not among them are helper threads: those besides the busiest of their process that ran
    for less than 1 % of their lives, unless they used half of its CPU time together; and all
    threads of the least busy processes, which together used at most 0.5 % of all CPU time. The
    busiest thread of each rank is always among them, also of one that did next to nothing: that is
    news. All are where nothing ran.

    Four threads of a process with 2, 1, 0.02 and 0 s in ten seconds: the last two are helpers,
    running for 0.2 % and 0 % of their lives, 0.7 % of the process's CPU time together.
    """
    count = len(cpu)
    total = float(cpu.sum())
    if not count or total <= 0:
        return np.ones(count, bool)
    _, of_line = np.unique(process, return_inverse=True)
    of_process = np.bincount(of_line, cpu)
    order = np.lexsort((cpu, of_line))
    busiest = np.zeros(count, bool)
    busiest[order[np.append(of_line[order][1:] != of_line[order][:-1], True)]] = True
    helper = (cpu < _IDLE_SHARE * life) & ~busiest
    together = np.bincount(of_line[helper], cpu[helper], len(of_process))
    # A process without CPU time is idle as a whole.
    helper &= ((together < _HELPERS_SHARE * of_process) | (of_process == 0))[of_line]
    least = np.argsort(of_process, kind="stable")
    idle = np.zeros(len(of_process), bool)
    idle[least] = np.cumsum(of_process[least]) <= _IDLE_PROCESSES_SHARE * total
    working: Mask = ~helper & ~idle[of_line]
    by_rank = np.lexsort((cpu, rank))
    top = np.append(rank[by_rank][1:] != rank[by_rank][:-1], True)
    working[by_rank[top & (rank[by_rank] >= 0)]] = True
    return working
