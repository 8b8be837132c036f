"""Replays of runs that are made up."""

from __future__ import annotations

import numpy as np

from hpcd.analysis.waits.rank_messages import NO_NEEDS, Needs
from hpcd.analysis.waits.replay import Replay, Runs, Wakes, wakes_of
from tests.support.wait_graphs import Wait, edges_of

UNIT = 10_000
"""Times are in units of so many ns: recorded ones are right to 1 µs."""
Run = tuple[int, int, int, int]
"""line, begin, end, group"""


def replay_of(
    lines: int,
    waits: list[Wait],
    runs: list[Run],
    creator: list[int],
    groups: int,
    unit: int = UNIT,
    needs: Needs = NO_NEEDS,
) -> Replay:
    """A replay of lines that begin and end with their first and last runs."""
    waits = [(line, unit * begin, unit * end, *more) for line, begin, end, *more in waits]
    run = np.array(sorted(runs), np.int64).reshape(-1, 4).T
    run[1:3] *= unit
    first = np.searchsorted(run[0], np.arange(lines + 1)).astype(np.int64)
    begin, end = run[1].copy(), run[2].copy()
    some = np.flatnonzero(np.diff(first))
    start, stop = np.zeros(lines, np.int64), np.zeros(lines, np.int64)
    start[some], stop[some] = begin[first[some]], end[first[some + 1] - 1]
    of_runs = Runs(first, begin, end, run[3].astype(np.uint32))
    wakes: Wakes = wakes_of(edges_of(waits), needs, of_runs, start, np.array(creator, np.int64))
    return Replay(of_runs, wakes, start, stop, groups, needs)


def needs_of(count: int, turns: list[tuple[int, int]]) -> Needs:
    """Return the needs of lines that meet ``count`` times: ``turns`` are begins of each line's
    first call and times until its next."""
    member, line = np.arange(count).repeat(len(turns)), np.tile(np.arange(len(turns)), count)
    first, pace = np.array(turns, np.int64)[line].T
    begin = UNIT * (first + pace * member)
    time = begin.reshape(count, -1).max(axis=1)[member]
    order = np.lexsort((begin, line))
    return Needs(line[order], begin[order], time[order], member[order], line, begin, member, count)
