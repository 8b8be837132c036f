"""The trace of a line as nested slices: the stretches of time in which frames are on the call path.

A slice is a stretch in which records one after another have a frame on their call path: it begins
at the first of them and ends at the next record without, or where the line ends. All slices of some
thousand records are found at once: where two records follow one another, the frames below the
deepest one they share end and begin; at each depth, the first slice that begins is the first that
ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.array_types import F64, I64, Mask
from hpcd.interchange.context_table import Contexts
from hpcd.interchange.export_selection import TraceBlock

# Slices found at once, some 100 bytes each.
_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class Slices:
    """Slices in order of their ends, the outer one first where several end together.

    ``context`` ``int64[n]``; ``begin``, ``end`` ``int64[n]``: ns since the origin; ``wait``
    ``bool[n]``: the wait of a record in ``context``, a slice within that of its frame; ``cost``
    ``float64[metrics, n]``: what the frame itself cost, without its waits, or what the wait did.
    """

    context: I64
    begin: I64
    end: I64
    wait: Mask
    cost: F64


@dataclass
class _Open:
    """Slices that are open, outermost first; ``cost`` ``float64[metrics, n]``."""

    context: I64
    begin: I64
    cost: F64


class NestedSlices:
    """Makes slices of one trace line; costs have ``metrics`` rows. ``loops`` is
    :class:`ExportLoops` or None."""

    def __init__(self, table: Contexts, metrics: int, loops: Any = None) -> None:
        self._loops = loops
        self._of_node = table.of_node
        self._parent = table.parent.astype(np.int64)
        self._depth = table.depth().astype(np.int64)
        self._piece = max(_AT_ONCE // (int(self._depth.max()) + 1), 1)
        self._metrics = metrics
        self.begin(0)

    def begin(self, start: int) -> None:
        """Go on with another line, which begins at ``start``."""
        self._last = start
        none = np.zeros(0, np.int64)
        self._open = _Open(none, none, np.zeros((self._metrics, 0)))
        if self._loops is not None:
            rows = int(self._depth.max()) + 1
            self._rows = _Open(
                np.zeros(rows, np.int64), np.zeros(rows, np.int64), np.zeros((self._metrics, rows))
            )
            self._opened = 0
        # A stretch whose end is not known yet: that is the begin of the next.
        self._held = _Stretches(none, none, none, np.zeros((self._metrics, 0)))

    def add(self, block: TraceBlock) -> Iterator[Slices]:
        """Records that follow those there were: the slices that are known to have ended."""
        stretches = self._held.followed_by(_stretches(block, self._of_node))
        for at in range(0, len(stretches.context) - 1, self._piece):
            stop = min(at + self._piece, len(stretches.context) - 1)
            yield self._ended(stretches.part(at, stop), stretches.begin[at + 1 : stop + 1])
        self._held = stretches.part(max(len(stretches.context) - 1, 0), len(stretches.context))
        self._last = int(stretches.begin[-1])

    def finish(self, end: int) -> Slices:
        """The slices still open, which end at ``end`` (ns), or 1 µs after the last record."""
        last = np.array([max(end, self._last + 1000)], np.int64)
        nothing = np.zeros(1, np.int64)
        stop = _Stretches(nothing, last, nothing, np.zeros((self._metrics, 1)))
        stretches = self._held.followed_by(stop)
        return self._ended(stretches, np.append(stretches.begin[1:], last))

    def _ended(self, stretches: _Stretches, following: I64) -> Slices:
        """The slices that end where one of ``stretches`` begins, and the waits of these;
        ``following`` are the begins of those after each."""
        if self._loops is not None:
            return self._ended_compiled(stretches, following)
        opened = self._open
        carried = len(opened.context)
        context = stretches.context
        before = np.concatenate((opened.context[-1:] if carried else [0], context[:-1]))
        shared = self._depth[self._common(before, context)]
        depth, depth_before = self._depth[context], self._depth[before]
        # What begins: a row for each frame, in order of depth, then time; carried ones first.
        begun, begun_depth = _below(shared, depth)
        begun_context = self._at_depth(context, begun, begun_depth)
        rows_depth = np.concatenate((np.arange(1, carried + 1), begun_depth))
        rows_at = np.concatenate((np.full(carried, -1), begun))
        order = _by_depth(rows_depth)
        rows_depth, rows_at = rows_depth[order], rows_at[order]
        row_context = np.concatenate((opened.context, begun_context))[order]
        row_begin = np.concatenate((opened.begin, stretches.begin[begun]))[order]
        cost = np.concatenate((opened.cost, np.zeros((self._metrics, len(begun)))), axis=1)
        cost = cost[:, order]
        self._add_costs(cost, rows_depth, rows_at, stretches, depth)
        # What ends, in the same order: the first slice of a depth is the first to end.
        ended, ended_depth = _below(shared, depth_before)
        count = np.bincount(ended_depth, minlength=int(rows_depth.max(initial=0)) + 1)
        rank = np.arange(len(rows_depth)) - np.searchsorted(rows_depth, rows_depth)
        closed = rank < count[rows_depth]
        self._open = _Open(row_context[~closed], row_begin[~closed], cost[:, ~closed])
        waits = np.flatnonzero(stretches.duration)
        begin = stretches.begin[waits]
        until = np.minimum(begin + stretches.duration[waits], following[waits])
        # In order of their ends, a wait after the frame that waits, which is the innermost.
        order = np.empty(len(ended), np.int64)
        order[_by_depth(ended_depth)] = np.arange(len(ended))
        ends = np.searchsorted(ended, waits + 1, side="right")
        order = np.insert(order, ends, len(ended) + np.arange(len(waits)))
        return Slices(
            np.concatenate((row_context[closed], context[waits]))[order],
            np.concatenate((row_begin[closed], begin))[order],
            np.insert(stretches.begin[ended], ends, until),
            order >= len(ended),
            np.concatenate((cost[:, closed], stretches.cost[:, waits]), axis=1)[:, order],
        )

    def _ended_compiled(self, stretches: _Stretches, following: I64) -> Slices:
        """The same, one after another."""
        waits = np.count_nonzero(stretches.duration)
        most = self._opened + int(self._depth[stretches.context].sum()) + waits
        context, begin, end = (np.empty(most, np.int64) for _ in range(3))
        wait, cost = np.empty(most, bool), np.empty((self._metrics, most))
        rows = self._rows
        count, self._opened = self._loops.nested(
            self._parent, self._depth, stretches.context, stretches.begin, stretches.duration,
            following, np.ascontiguousarray(stretches.cost), (rows.context, rows.begin, rows.cost),
            self._opened, (context, begin, end, wait, cost),
        )  # fmt: skip
        return Slices(context[:count], begin[:count], end[:count], wait[:count], cost[:, :count])

    def _add_costs(
        self, cost: F64, rows_depth: I64, rows_at: I64, stretches: _Stretches, depth: I64
    ) -> None:
        """Add what ``stretches`` cost, waits apart, to the innermost slices then open."""
        inside = np.flatnonzero((stretches.duration == 0) & (depth > 0))
        span = len(depth) + 2
        key = rows_depth * span + rows_at + 1
        row = np.searchsorted(key, depth[inside] * span + inside + 1, side="right") - 1
        for total, value in zip(cost, stretches.cost, strict=True):
            total += sum_by(row, value[inside], len(total))

    def _common(self, first: I64, second: I64) -> I64:
        """``int64[n]``: the deepest context above or at both."""
        pairs, place = np.unique(
            np.minimum(first, second) * len(self._parent) + np.maximum(first, second),
            return_inverse=True,
        )
        low, high = np.divmod(pairs, len(self._parent))
        apart = np.flatnonzero(low != high)
        # Parents precede children: of two contexts the later one is not above the other.
        while len(apart):
            above, other = self._parent[high[apart]], low[apart]
            low[apart], high[apart] = np.minimum(above, other), np.maximum(above, other)
            apart = apart[low[apart] != high[apart]]
        return low[place]

    def _at_depth(self, context: I64, entry: I64, depth: I64) -> I64:
        """``int64[n]``: what is at ``depth`` on the call path of ``context[entry]``."""
        distinct, place = np.unique(context, return_inverse=True)
        # The deepest first: those that reach the root are at the end.
        order = np.argsort(-self._depth[distinct], kind="stable")
        length = self._depth[distinct][order]
        start = np.cumsum(length) - length
        path = np.empty(int(length.sum()), np.int64)
        above = distinct[order]
        deeper = np.searchsorted(-length, -np.arange(int(length.max(initial=0))))
        for step, left in enumerate(deeper.tolist()):
            above = above[:left]
            path[start[:left] + length[:left] - step - 1] = above
            above = self._parent[above]
        starts = np.empty(len(order), np.int64)
        starts[order] = start
        found: I64 = path[starts[place[entry]] + depth - 1]
        return found


@dataclass(frozen=True)
class _Stretches:
    """Records that follow one another in a context, as one: ``context``, ``begin``, ``duration`` of
    a wait or 0, ``int64[n]``; ``cost`` ``float64[metrics, n]``."""

    context: I64
    begin: I64
    duration: I64
    cost: F64

    def part(self, start: int, stop: int) -> _Stretches:
        """Those from ``start`` to ``stop``."""
        span = slice(start, stop)
        return _Stretches(
            self.context[span], self.begin[span], self.duration[span], self.cost[:, span]
        )

    def followed_by(self, other: _Stretches) -> _Stretches:
        """These, then those."""
        return _Stretches(
            np.concatenate((self.context, other.context)),
            np.concatenate((self.begin, other.begin)),
            np.concatenate((self.duration, other.duration)),
            np.concatenate((self.cost, other.cost), axis=1),
        )


def _stretches(block: TraceBlock, of_node: np.ndarray) -> _Stretches:
    context: I64 = of_node[block.node].astype(np.int64)
    waits: Mask = block.duration > 0
    new = np.ones(len(context), bool)
    new[1:] = (context[1:] != context[:-1]) | waits[1:] | waits[:-1]
    starts: I64 = np.flatnonzero(new)
    cost = np.add.reduceat(block.cost, starts, axis=1)
    return _Stretches(context[starts], block.time[starts], block.duration[starts], cost)


def _by_depth(depth: I64) -> I64:
    """The order of rows by depth, then as they are; by radix where numpy has it."""
    narrow = depth.astype(np.uint16) if depth.max(initial=0) < 1 << 16 else depth
    return np.argsort(narrow, kind="stable")


def _below(shared: I64, depth: I64) -> tuple[I64, I64]:
    """For each entry the depths from ``shared`` + 1 to ``depth``: entry and depth, flat."""
    count = depth - shared
    entry = np.repeat(np.arange(len(depth)), count)
    first = np.cumsum(count) - count
    return entry, np.arange(len(entry)) - np.repeat(first, count) + np.repeat(shared, count) + 1
