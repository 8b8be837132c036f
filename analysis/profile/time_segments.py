"""Stretches of a trace line's time that do not overlap, each of a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_whole
from hpcd.array_types import I64
from hpcd.distinct import distinct


@dataclass(frozen=True, slots=True)
class TimeSegments:
    """``begin``, ``end`` (ns since the origin, the end not included) and ``group``, ``int64[n]``
    each, in order of time; they do not overlap."""

    begin: I64
    end: I64
    group: I64

    def __len__(self) -> int:
        return len(self.begin)

    @staticmethod
    def of_windows(windows: Sequence[tuple[int, int]]) -> TimeSegments:
        """``windows`` (begin, end) that do not overlap, in order of time, as group 1."""
        edges = np.array(windows, np.int64).reshape(-1, 2)
        return TimeSegments(edges[:, 0], edges[:, 1], np.ones(len(edges), np.int64))

    @staticmethod
    def innermost(begin: I64, end: I64, group: I64) -> TimeSegments:
        """Return the innermost intervals: of those around a moment the one that began last counts,
        of those that began together the shortest.

        Of (0, 100), (20, 60) and (50, 80) the first has 0 to 20 and 80 to 100, the second 20 to
        50, the third 50 to 80. O(n log n), whole arrays at a time.
        """
        lasting = end > begin
        begin, end, group = begin[lasting], end[lasting], group[lasting]
        order = np.lexsort((-end, begin))
        begin, end, group = begin[order], end[order], group[order]
        edges = distinct(np.concatenate([begin, end]))
        first, last = np.searchsorted(edges, begin), np.searchsorted(edges, end)
        # The latest interval over each stretch between two edges. An interval is the union of two
        # stretches whose lengths are the same power of two; each is handed down to its halves.
        power = np.frexp((last - first).astype(np.float64))[1] - 1
        number = np.arange(len(begin))
        top = np.full(len(edges), -1, np.int64)
        for level in range(int(power.max(initial=-1)), -1, -1):
            if level + 1 <= int(power.max(initial=-1)):
                half = 1 << level
                lower = top.copy()
                np.maximum(lower[half:], top[:-half], out=lower[half:])
                top = lower
            mine = power == level
            np.maximum.at(top, first[mine], number[mine])
            np.maximum.at(top, last[mine] - (1 << level), number[mine])
        inside = np.flatnonzero(top[:-1] >= 0) if len(top) else np.zeros(0, np.int64)
        owner = group[top[inside]]
        if not len(inside):
            return TimeSegments(*(np.zeros(0, np.int64) for _ in range(3)))
        # What goes on beyond an edge is one.
        starts = np.ones(len(inside), bool)
        starts[1:] = (np.diff(inside) > 1) | (np.diff(owner) != 0)
        ends = np.append(starts[1:], True)
        return TimeSegments(edges[inside[starts]], edges[inside[ends] + 1], owner[starts])

    def within(self, other: TimeSegments) -> TimeSegments:
        """The parts that are in ``other``, with their own groups. O((n + m) log m)."""
        low = np.searchsorted(other.end, self.begin, "right")
        high = np.searchsorted(other.begin, self.end, "left")
        mine, theirs = ranges(low, np.maximum(high, low))
        return TimeSegments(
            np.maximum(self.begin[mine], other.begin[theirs]),
            np.minimum(self.end[mine], other.end[theirs]),
            self.group[mine],
        )

    def at(self, time: I64) -> I64:
        """``int64[len(time)]``: the group at each moment, 0 where there is none."""
        if not len(self):
            return np.zeros(len(time), np.int64)
        place = np.searchsorted(self.begin, time, "right") - 1
        inside = (place >= 0) & (time < self.end[place])
        return np.where(inside, self.group[place], 0)

    def lengths(self, groups: int) -> I64:
        """``int64[groups]``: how long each group has, ns."""
        return sum_whole(self.group, self.end - self.begin, groups)


def ranges(low: I64, high: I64) -> tuple[I64, I64]:
    """All pairs of ``i`` and a number from ``low[i]`` to ``high[i] - 1``, as two ``int64[n]``."""
    count = high - low
    which = np.repeat(np.arange(len(count)), count)
    before = np.cumsum(count) - count
    return which, np.arange(len(which)) - before[which] + low[which]
