"""Regularity of a callee's returns: what makes a stretch of a trace an iteration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpcd.analysis.parallel.waiting import Stretches
from hpcd.array_types import F64, I64, Mask

LEAST = 3
"""Iterations there must be: two may be chance."""
LEAST_SHARE = 0.1
"""Share of a line's time that iterations of interest take."""
GOOD = 0.5
"""Against the best: of such patterns the outermost, of such callees the most frequent is taken."""
_MOST_SPREAD = 0.5
"""Iterations differ from the next; a callee whose returns differ more than this begins none."""
_PATTERN_LENGTH = 12


@dataclass(frozen=True)
class Callee:
    """A callee that may mark iterations of a context, as one line shows it.

    ``context`` and ``node`` are nodes, ``reference`` the line's position, ``score`` from
    :func:`score_of`; ``first`` is when the first of its ``visits`` began (ns), ``cost`` what they
    took (ns), ``waiting`` (ns) of it for others.
    """

    context: int
    node: int
    reference: int
    score: float
    visits: int
    first: int
    cost: float
    waiting: float


def choose(callees: Sequence[Callee]) -> Callee:
    """The callee that marks iterations best.

    Callees of every iteration are visited equally often, those often too short to be seen are not:
    the number of visits is that of the callees that cost most together, waits for others apart, and
    among these of one that works: ranks may wait for others before the first iteration and after
    the last, and look more than once whether they need wait.
    """
    best = max(callee.score for callee in callees)
    good = [callee for callee in callees if callee.score >= GOOD * best]

    def alike(one: Callee) -> list[Callee]:
        return [callee for callee in good if abs(callee.visits - one.visits) <= 0.1 * one.visits]

    def work(one: Callee) -> float:
        return sum(callee.cost - callee.waiting for callee in alike(one))

    group = alike(max(good, key=lambda one: (work(one), one.score)))
    working = [callee for callee in group if callee.waiting < 0.5 * callee.cost]
    top = max(working or group, key=lambda callee: callee.score)
    # Iterations begin with the procedure that is called first.
    return min(
        (callee for callee in group if callee.visits == top.visits), key=lambda callee: callee.first
    )


def runs_of(mask: Mask, line: Stretches) -> I64:
    """``int64[k, 2]``: begin and end of each run of stretches where ``mask`` holds."""
    edge = np.diff(np.concatenate(([False], mask, [False])).astype(np.int8))
    low, high = np.flatnonzero(edge == 1), np.flatnonzero(edge == -1)
    return np.stack([line.begin[low], line.end[high - 1]], axis=1)


def iterations_of(starts: I64, visits: I64) -> tuple[I64, I64, I64]:
    """Which visit each iteration is in, its begin and its end.

    An iteration lasts from one of ``starts`` to the next within the same of ``visits``, the last
    of a visit as long as the median, if the visit does.
    """
    begin = starts[:, 0]
    visit = np.searchsorted(visits[:, 0], begin, side="right") - 1
    limit = visits[np.maximum(visit, 0), 1] if len(visits) else begin
    end = limit.copy()
    follows = np.flatnonzero(visit[1:] == visit[:-1])
    end[follows] = begin[follows + 1]
    if len(follows):
        last = np.setdiff1d(np.arange(len(begin)), follows)
        usual = int(np.median(end[follows] - begin[follows]))
        end[last] = np.minimum(end[last], np.maximum(begin[last] + usual, starts[last, 1]))
    return visit, begin, end


def spread_of(length: F64) -> float:
    """The median difference from one length to the next, by the median length."""
    middle = float(np.median(length))
    return float(np.median(np.abs(np.diff(length)))) / middle if middle > 0 else np.inf


def score_of(begin: I64, end: I64, clocks: Sequence[Clock], whole: float) -> float:
    """Rate a pattern: 1 if it takes all the time and is regular by any of ``clocks``."""
    share = float((end - begin).sum()) / (whole or 1.0)
    spread = min(spread_of(clock.between(begin, end)) for clock in clocks)
    if share < LEAST_SHARE or spread > _MOST_SPREAD:
        return 0.0
    return share * (1 - spread)


class Clock:
    """A line's own time, which stands still while ``still`` ``bool[k]`` holds."""

    def __init__(self, line: Stretches, still: Mask | None) -> None:
        length = (line.end - line.begin).astype(np.float64)
        if still is not None:
            length *= ~still
        self._moment = np.append(line.begin, line.end[-1:])
        self._time = np.concatenate(([0.0], np.cumsum(length)))[: len(self._moment)]

    def between(self, begin: I64, end: I64) -> F64:
        """``float64[n]``: own time from each ``begin`` to its ``end``, in ns."""
        if not len(self._moment):
            return (end - begin).astype(np.float64)
        own: F64 = np.interp(end, self._moment, self._time)
        own -= np.interp(begin, self._moment, self._time)
        return own


def clocks_of(line: Stretches) -> list[Clock]:
    """Clocks of a line that stand still while it waits for a CPU; and for others; and never.

    On a busy machine, or beside a rank that is slow, only some of them show that iterations take
    equally long.
    """
    ready = np.zeros(len(line.begin), bool) if line.ready is None else line.ready
    return [Clock(line, ready), Clock(line, ready | line.idle), Clock(line, None)]


def common_order(token: I64, line: Stretches, windows: I64) -> tuple[tuple[int, ...], int]:
    """The most common order of callees in an iteration, and how many iterations have it.

    ``token`` ``int64[k]`` is the callee of each stretch of ``line``, 0 for none; ``windows``
    ``int64[count, 2]`` are the iterations.
    """
    changed = np.flatnonzero(np.diff(token, prepend=-1))
    changed = changed[token[changed] > 0]
    at = np.searchsorted(windows[:, 0], line.begin[changed], side="right") - 1
    inside = (at >= 0) & (line.begin[changed] < windows[np.maximum(at, 0), 1])
    orders: dict[int, list[int]] = {}
    for window, call in zip(at[inside].tolist(), token[changed[inside]].tolist(), strict=True):
        order = orders.setdefault(window, [])
        if len(order) < _PATTERN_LENGTH and (not order or order[-1] != call):
            order.append(call)
    counts = Counter(tuple(order) for order in orders.values())
    return counts.most_common(1)[0] if counts else ((), 0)
