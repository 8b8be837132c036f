"""Perfect balance: ranks that meet all have the mean of their work since they met before."""

from __future__ import annotations

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.waits.rank_messages import Needs
from hpcd.analysis.waits.replay import Runs
from hpcd.array_types import F64, I64


def balance(runs: Runs, needs: Needs) -> tuple[F64, int]:
    """Return the share ``float64[runs]`` by which each run is shorter if meetings are balanced,
    below 0 where it is longer; and how many meetings there are.

    Meetings are collective operations in which each rank needs all: barriers, and all with all. A
    line's work before one are its runs since its last one, or since its begin. A line that has
    none stays without. O(n log n).
    """
    line, time, meeting = _turns(needs)
    saved = np.zeros(len(runs.begin))
    work = np.zeros(len(line))
    bounds = np.searchsorted(line, np.arange(len(runs.first)))
    lines = np.unique(line).tolist()
    turn = np.full(len(saved), -1)
    for number in lines:
        own, mine = (slice(at[number], at[number + 1]) for at in (runs.first, bounds))
        # A run is before the first meeting that is after its begin.
        turn[own] = mine.start + np.searchsorted(time[mine], runs.begin[own], "right")
        turn[own][turn[own] == mine.stop] = -1
    length = runs.end - runs.begin
    before = turn >= 0
    work = sum_by(turn[before], length[before].astype(np.float64), len(line))
    works = work > 0
    count = np.bincount(meeting[works], minlength=needs.meetings)
    mean = sum_by(meeting, work, needs.meetings) / np.maximum(count, 1)
    factor = mean[meeting] / np.where(works, work, 1)
    saved[before] = 1 - factor[turn[before]]
    return saved, len(np.unique(meeting))


def _turns(needs: Needs) -> tuple[I64, I64, I64]:
    """Lines that meet, ``int64[k]``, when the last one came, and the meeting; by line and time."""
    came = np.bincount(needs.member_meeting, minlength=needs.meetings)
    wait = np.bincount(needs.meeting, minlength=needs.meetings)
    last = np.zeros(needs.meetings, np.int64)
    np.maximum.at(last, needs.member_meeting, needs.member_time)
    meets = ((came == wait) & (came > 1))[needs.member_meeting]
    line, meeting = needs.member_line[meets], needs.member_meeting[meets]
    order = np.lexsort((last[meeting], line))
    line, meeting = line[order], meeting[order]
    return line, last[meeting], meeting
