"""Delays: what the delaying ranks did, by call path, while others came to wait for them.

Before a wait state the two ranks met last in some operation, and from there on one took longer than
the other. What it did more of, call path by call path, is the delay; the wait's severity is shared
among these in proportion (Böhme et al., *Identifying the root causes of wait states*, ICPP 2010:
short-term delay costs). Of a delaying rank's own time in MPI the same is said: that share of the
wait was caused by others in turn.

Call paths come from the trace: samples and waits of either rank between the two operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.messages.grouping import firsts_of, groups_of
from hpcd.analysis.messages.matching import Collectives, Messages
from hpcd.analysis.messages.operations import Operations
from hpcd.analysis.messages.wait_states import WaitStates
from hpcd.array_types import F64, I64

Stretches = tuple[I64, I64, I64]
"""Stretches of one trace line: begins and ends in ns, ascending, and the CCT node of each."""

# Waits whose stretches are laid side by side at once.
_BATCH = 4096
_MAX_STRETCHES = 8 << 20


@dataclass(frozen=True)
class Delays:
    """Seconds of waiting caused, by (delaying rank, CCT node), each pair once, most first.

    ``rank``, ``node`` ``int64[d]``, ``seconds`` ``float64[d]``. ``unexplained``: seconds of waits
    before which the trace says nothing of the delaying rank, or nothing that it did more of.
    """

    rank: I64
    node: I64
    seconds: F64
    unexplained: float


def delays(
    operations: Operations,
    messages: Messages,
    collectives: Collectives,
    waits: WaitStates,
    activity: Callable[[int], Stretches],
) -> Delays:
    """Share all waits among what delaying ranks did. ``activity`` gives a line's stretches.

    O(pairs of ranks that wait for each other · what they took part in + stretches within the
    intervals before waits).
    """
    since_waiter, since_delayer = _last_meetings(operations, messages, collectives, waits)
    lines: dict[int, Stretches] = {}

    def of_line(line: int) -> Stretches:
        if line not in lines:
            lines[line] = activity(line)
        return lines[line]

    ranks, nodes, costs = [], [], []
    unexplained = 0.0
    for batch in _batches(len(waits)):
        severity = waits.severity[batch] / 1e9
        delayer, waiter = waits.delayer[batch], waits.operation[batch]
        late = _time_by_node(
            operations.line[delayer], since_delayer[batch], operations.begin[delayer], of_line
        )
        early = _time_by_node(
            operations.line[waiter], since_waiter[batch], operations.begin[waiter], of_line
        )
        wait, node, excess = _excess(late, early)
        whole = np.bincount(wait, excess, len(batch))
        unexplained += float(severity[whole <= 0].sum())
        share = severity[wait] * excess / np.where(whole[wait] > 0, whole[wait], 1)
        ranks.append(operations.rank[delayer][wait])
        nodes.append(node)
        costs.append(share)
    none = np.zeros(0, np.int64)
    rank, node = np.concatenate([none, *ranks]), np.concatenate([none, *nodes])
    cost = np.concatenate([np.zeros(0), *costs])
    rank, node, seconds = _summed(rank, node, cost)
    order = np.argsort(-seconds, kind="stable")
    return Delays(rank[order], node[order], seconds[order], unexplained)


def _batches(count: int) -> Iterator[I64]:
    for first in range(0, count, _BATCH):
        yield np.arange(first, min(first + _BATCH, count))


def _last_meetings(
    operations: Operations, messages: Messages, collectives: Collectives, waits: WaitStates
) -> tuple[I64, I64]:
    """``int64[w]`` twice: when waiter and delayer had last ended an operation in which both took
    part before the wait; where there is none, when each ended its first operation."""
    waiter, delayer = operations.rank[waits.operation], operations.rank[waits.delayer]
    low, high = np.minimum(waiter, delayer), np.maximum(waiter, delayer)
    pairs = np.unique(np.stack([low, high], 1), axis=0)
    since_waiter, since_delayer = np.zeros((2, len(waits)), np.int64)
    first_end = _first_ends(operations)
    ended = messages.receives.ended[messages.receive]
    sent = np.where(
        messages.sends.ended[messages.send] >= 0,
        messages.sends.ended[messages.send],
        messages.sends.operation[messages.send],
    )
    sender, receiver = messages.sends.rank[messages.send], messages.receives.rank[messages.receive]
    size = int(max(operations.rank.max(initial=0), 0)) + 1
    key = np.minimum(sender, receiver) * size + np.maximum(sender, receiver)
    usable = np.flatnonzero((ended >= 0) & (sender != receiver))
    usable = usable[np.argsort(key[usable], kind="stable")]
    key_of_usable = key[usable]
    of_rank = _by_rank(operations, collectives)
    for one, other in pairs.tolist():
        code = one * size + other
        slots = slice(*np.searchsorted(key_of_usable, [code, code + 1]).tolist())
        mine = usable[slots]
        forward = sender[mine] == one
        at_one = np.where(forward, sent[mine], ended[mine])
        at_other = np.where(forward, ended[mine], sent[mine])
        both = _shared(of_rank, one, other)
        at_one, at_other = np.concatenate([at_one, both[0]]), np.concatenate([at_other, both[1]])
        order = np.argsort(operations.end[at_one], kind="stable")
        at_one, at_other = at_one[order], at_other[order]
        selected = np.flatnonzero((low == one) & (high == other))
        for place, delaying in ((selected[waiter[selected] == one], other),
                                (selected[waiter[selected] == other], one)):  # fmt: skip
            mine_at, theirs_at = (at_one, at_other) if delaying == other else (at_other, at_one)
            begins = operations.begin[waits.operation[place]]
            # Meetings end in the same order on both, but for overlapping requests.
            ends = np.maximum.accumulate(operations.end[mine_at]) if len(mine_at) else begins[:0]
            last = np.searchsorted(ends, begins, side="right") - 1
            met = last >= 0
            since_waiter[place] = first_end[operations.rank[waits.operation[place]]]
            since_delayer[place] = first_end[delaying]
            since_waiter[place[met]] = operations.end[mine_at[last[met]]]
            since_delayer[place[met]] = operations.end[theirs_at[last[met]]]
    return since_waiter, since_delayer


def _by_rank(operations: Operations, collectives: Collectives) -> dict[int, tuple[I64, I64]]:
    """Return by rank the collective operations it took part in, ascending, and what ended them."""
    known = np.flatnonzero(collectives.ended >= 0)
    if not len(known):
        return {}
    rank = operations.rank[collectives.operation[known]]
    order = known[np.argsort(rank, kind="stable")]
    numbers, first = np.unique(np.sort(rank), return_index=True)
    return {
        number: (collectives.instance[part], collectives.ended[part])
        for number, part in zip(numbers.tolist(), np.split(order, first[1:]), strict=True)
    }


def _shared(of_rank: dict[int, tuple[I64, I64]], one: int, other: int) -> tuple[I64, I64]:
    """Collective operations that both ranks took part in: the operations that ended them."""
    none = np.zeros(0, np.int64)
    first, second = of_rank.get(one, (none, none)), of_rank.get(other, (none, none))
    _, left, right = np.intersect1d(first[0], second[0], assume_unique=True, return_indices=True)
    return first[1][left], second[1][right]


def _first_ends(operations: Operations) -> I64:
    """``int64[ranks]``: when each rank ended its first operation."""
    ends = np.zeros(int(operations.rank.max(initial=0)) + 1, np.int64)
    rank, first = np.unique(operations.rank, return_index=True)
    ends[rank] = operations.end[first]
    return ends


_Times = tuple[I64, I64, F64]
"""Seconds by (wait, node), each pair once, sorted."""


def _time_by_node(line: I64, begin: I64, end: I64, activity: Callable[[int], Stretches]) -> _Times:
    """Return the activity of ``line[i]`` from ``begin[i]`` to ``end[i]``."""
    waits, nodes, seconds = [], [], []
    for one in np.unique(line).tolist():
        mine = np.flatnonzero((line == one) & (end > begin))
        starts, stops, node = activity(one)
        first = np.searchsorted(stops, begin[mine], side="right")
        last = np.maximum(np.searchsorted(starts, end[mine], side="left"), first)
        count = last - first
        # An interval of more stretches than memory is for is left unexplained.
        count[np.cumsum(count) > _MAX_STRETCHES] = 0
        wait = np.repeat(mine, count)
        offset = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
        at = np.repeat(first, count) + offset
        length = np.minimum(stops[at], end[wait]) - np.maximum(starts[at], begin[wait])
        waits.append(wait)
        nodes.append(node[at].astype(np.int64))
        seconds.append(np.maximum(length, 0) / 1e9)
    none = np.zeros(0, np.int64)
    return _summed(
        np.concatenate([none, *waits]), np.concatenate([none, *nodes]),
        np.concatenate([np.zeros(0), *seconds]),
    )  # fmt: skip


def _excess(late: _Times, early: _Times) -> _Times:
    """Return the excess of ``late`` over ``early``, by wait and node."""
    wait, node, seconds = _summed(
        np.concatenate([late[0], early[0]]),
        np.concatenate([late[1], early[1]]),
        np.concatenate([late[2], -early[2]]),
    )
    more = seconds > 0
    return wait[more], node[more], seconds[more]


def _summed(wait: I64, node: I64, seconds: F64) -> _Times:
    group, count = groups_of(wait, node)
    first = firsts_of(group, count)
    return wait[first], node[first], sum_by(group, seconds, count)
