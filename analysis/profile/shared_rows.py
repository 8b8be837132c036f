"""Rows of the trace view that several threads of a process share, as they lived one after another.

A server that starts a thread a request has thousands of threads, each of a few milliseconds: with a
row each, their picture is a thin diagonal. As rows that are reused it is that of a thread pool.
"""

from __future__ import annotations

import heapq

import numpy as np

from hpcd.analysis.database import Database
from hpcd.array_types import I64, Mask

# A thread is brief that lived for less of its process's time than this.
_BRIEF_SHARE = 0.1
# Fewer threads have a row each, and so have threads if fewer than _A_ROW fit a row.
_FEWEST, _A_ROW = 16, 2


def shared_rows(start: I64, end: I64, process: I64, may_share: Mask) -> I64:
    """``int64[n]``: for each of n threads the thread that represents its row, itself for most.

    ``start`` and ``end`` are times, ``process`` numbers the processes. Of the threads that
    ``may_share`` those lived briefly that lived for less than a tenth of the time from the first to
    the last moment of their process; where a process has at least sixteen of these, each shares a
    row with some that ended before it began, the first of the row standing for it. Nothing is
    shared where fewer than two threads a row would come of it. O(n log n).

    Threads that live from 0 to 2, 1 to 3, 2 to 4 and 3 to 5 have two rows: the first and the third,
    and the second and the fourth.
    """
    stands_for = np.arange(len(start), dtype=np.int64)
    if not len(start):
        return stands_for
    count = int(process.max()) + 1
    first, last = np.full(count, np.iinfo(np.int64).max), np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(first, process, start)
    np.maximum.at(last, process, end)
    brief = may_share & (end - start < _BRIEF_SHARE * (last - first)[process])
    many = np.bincount(process[brief], minlength=count) >= _FEWEST
    selected = np.flatnonzero(brief & many[process])
    selected = selected[np.lexsort((start[selected], process[selected]))]
    for threads in np.split(selected, np.flatnonzero(np.diff(process[selected])) + 1):
        rows = _rows(threads, start[threads].tolist(), end[threads].tolist())
        if len(threads) >= _A_ROW * len(np.unique(rows)):
            stands_for[threads] = rows
    return stands_for


def lines_that_share(db: Database, lines: I64, may_share: Mask) -> dict[int, I64]:
    """Return those ``lines`` that share a row, in order of time, by the first of each row.

    ``may_share`` ``bool[len(lines)]`` says who may (:func:`shared_rows`).
    """
    columns = db.lines
    start, end, process = (
        column[lines].astype(np.int64) for column in (columns.start, columns.end, columns.process)
    )
    stands_for = shared_rows(start, end, process, may_share)
    heads = np.unique(stands_for[stands_for != np.arange(len(lines))])
    if not len(heads):
        return {}
    members = np.flatnonzero(np.isin(stands_for, heads))
    members = members[np.lexsort((start[members], stands_for[members]))]
    rows = np.split(lines[members], np.searchsorted(stands_for[members], heads[1:]))
    return dict(zip(lines[heads].tolist(), rows, strict=True))


def _rows(threads: I64, start: list[int], end: list[int]) -> I64:
    """For each of ``threads``, in order of their starts, the first of its row."""
    rows = np.empty(len(threads), np.int64)
    # When each row's last thread ended, and the thread that represents it.
    free: list[tuple[int, int]] = []
    for at, (begins, ends, thread) in enumerate(zip(start, end, threads.tolist(), strict=True)):
        if free and free[0][0] <= begins:
            row = heapq.heapreplace(free, (ends, free[0][1]))[1]
        else:
            row = thread
            heapq.heappush(free, (ends, row))
        rows[at] = row
    return rows
