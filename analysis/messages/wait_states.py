"""Wait states: calls of MPI that waited for another rank, how long, and for which.

The names are Scalasca's. Of each call the longest wait counts, never more than the call took:

- late sender: a receive, or the end of its request, is waited for before the send has begun;
- late receiver: a send, or the end of its request, is waited for before the receive is posted;
- wait at N x N: a collective operation of all with all, before the last rank has entered it; wait
  at barrier likewise;
- late broadcast: an operation from a root to all, before the root has entered it;
- early reduce: the root of an operation from all to it, before the last other rank has entered it.

Between two groups (MPI 3.1, section 5.2.3) each rank waits for the other group alone: for the last
of it to enter an operation of all with all, or a barrier; of one with a root, the group without it
for the root, the root for the last of that group, and the root's own group for no rank. What makes
communicators needs all of both groups.

A call that returned before the other rank began did not wait for it: a small message is buffered,
a small contribution sent off. Böhme et al., *Identifying the root causes of wait states in
large-scale parallel applications* (ICPP 2010).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.messages.communicators import Communicators
from hpcd.analysis.messages.grouping import groups_of
from hpcd.analysis.messages.matching import Collectives, Messages
from hpcd.analysis.messages.operations import Operations
from hpcd.array_types import F64, I64, Mask
from hpcd.distinct import begins_run
from hpcd.model.mpi_functions import CREATIONS, Role


class WaitKind(IntEnum):
    """Kinds of wait states."""

    LATE_SENDER = 0
    LATE_RECEIVER = 1
    WAIT_AT_NXN = 2
    WAIT_AT_BARRIER = 3
    LATE_BROADCAST = 4
    EARLY_REDUCE = 5

    @property
    def label(self) -> str:
        """The name users read."""
        return _LABELS[self]


_LABELS = {
    WaitKind.LATE_SENDER: "late sender", WaitKind.LATE_RECEIVER: "late receiver",
    WaitKind.WAIT_AT_NXN: "wait at NxN", WaitKind.WAIT_AT_BARRIER: "wait at barrier",
    WaitKind.LATE_BROADCAST: "late broadcast", WaitKind.EARLY_REDUCE: "early reduce",
}  # fmt: skip
_NEVER = np.iinfo(np.int64).min
_NXN = (Role.ALL_TO_ALL, Role.NEW_WINDOW, *CREATIONS)


@dataclass(frozen=True)
class WaitStates:
    """Waits, one for each call at most, by operation.

    ``kind`` (:class:`WaitKind`); ``operation`` that waited; ``delayer`` the operation of another
    rank that it waited for; both positions in the operations. ``severity`` in ns. All ``int64[w]``.
    """

    kind: I64
    operation: I64
    delayer: I64
    severity: I64

    def __len__(self) -> int:
        return len(self.kind)

    def seconds(self, kind: WaitKind) -> float:
        """All waiting of one kind."""
        return float(self.severity[self.kind == kind].sum()) / 1e9


def wait_states(
    operations: Operations,
    messages: Messages,
    collectives: Collectives,
    communicators: Communicators,
) -> WaitStates:
    """The wait states of matched messages and complete collectives. O(n · log n)."""
    parts = [
        _late_senders(operations, messages),
        _late_receivers(operations, messages),
        *_at_collectives(operations, collectives, communicators),
    ]
    kind, operation, delayer, severity = (np.concatenate(c) for c in zip(*parts, strict=True))
    longest = np.lexsort((-severity, operations.call[operation]))
    longest = longest[severity[longest] > 0]
    kept = longest[begins_run(operations.call[operation[longest]])]
    return WaitStates(kind[kept], operation[kept], delayer[kept], severity[kept])


_Part = tuple[I64, I64, I64, I64]


def _waits(operations: Operations, kind: I64, waiter: I64, delayer: I64) -> _Part:
    """Waits of ``waiter`` from its begin to that of ``delayer``, none where it had returned."""
    arrival = operations.begin[delayer]
    severity = np.where(arrival < operations.end[waiter], arrival - operations.begin[waiter], 0)
    return kind, waiter, delayer, severity


def _late_senders(operations: Operations, messages: Messages) -> _Part:
    ended = messages.receives.ended[messages.receive]
    known = ended >= 0
    send = messages.sends.operation[messages.send[known]]
    return _waits(operations, np.full(len(send), WaitKind.LATE_SENDER), ended[known], send)


def _late_receivers(operations: Operations, messages: Messages) -> _Part:
    ended = messages.sends.ended[messages.send]
    known = ended >= 0
    receive = messages.receives.operation[messages.receive[known]]
    return _waits(operations, np.full(len(receive), WaitKind.LATE_RECEIVER), ended[known], receive)


def _at_collectives(
    operations: Operations, collectives: Collectives, communicators: Communicators
) -> list[_Part]:
    if not len(collectives):
        return []
    at, instance, first = collectives.operation, collectives.instance, collectives.first
    role, number = operations.role[at], np.maximum(communicators.number[at], 0)
    usable = collectives.complete[instance] & (collectives.ended >= 0)
    between = communicators.between[number]
    side = communicators.is_second(number, operations.rank[at])
    begin = operations.begin[at]
    everybody = _last(begin, first)[instance]
    latest = _last_of_other(begin, side, collectives)
    creates = np.isin(role, CREATIONS)
    last = np.where(between & ~creates, latest, everybody)
    parts = []
    for kind, roles in ((WaitKind.WAIT_AT_NXN, _NXN), (WaitKind.WAIT_AT_BARRIER, (Role.BARRIER,))):
        selected = usable & np.isin(role, roles)
        parts.append(_at(operations, collectives, kind, selected, last))
    is_root = _roots(operations, collectives, communicators)
    root = _position(is_root, instance, len(collectives))[instance]
    # The root's own group takes no part.
    apart = ~between | (side != side[np.maximum(root, 0)])
    selected = usable & (role == Role.FROM_ROOT) & ~is_root & (root >= 0) & apart
    parts.append(_at(operations, collectives, WaitKind.LATE_BROADCAST, selected, root))
    other_begin = np.where(is_root, _NEVER, begin)
    last_other = np.where(between, latest, _last(other_begin, first)[instance])
    selected = usable & (role == Role.TO_ROOT) & is_root
    parts.append(_at(operations, collectives, WaitKind.EARLY_REDUCE, selected, last_other))
    return parts


def _at(
    operations: Operations, collectives: Collectives, kind: WaitKind, selected: Mask, awaited: I64
) -> _Part:
    """Waits of the ``selected`` entries, each k for entry ``awaited[k]`` of its instance."""
    entries = np.flatnonzero(selected)
    delayer = collectives.operation[awaited[entries]]
    waiter = collectives.ended[entries]
    other = operations.rank[waiter] != operations.rank[delayer]
    return _waits(operations, np.full(int(other.sum()), kind), waiter[other], delayer[other])


def _last_of_other(begin: I64, side: Mask, collectives: Collectives) -> I64:
    """``int64[k]``: of each entry the last of those of its instance that are on the other side."""
    by_side = [
        _last(np.where(side == rank_side, begin, _NEVER), collectives.first)
        for rank_side in (False, True)
    ]
    return np.where(side, by_side[0][collectives.instance], by_side[1][collectives.instance])


def _last(begin: I64, first: I64) -> I64:
    """``int64[i]``: of each run from ``first[i]`` the entry with the largest ``begin``."""
    instance = np.repeat(np.arange(len(first) - 1), np.diff(first))
    order = np.lexsort((begin, instance))
    return order[first[1:] - 1]


def _position(selected: Mask, instance: I64, count: int) -> I64:
    """``int64[i]``: of each instance its ``selected`` entry, -1 where it has none."""
    position = np.full(count, -1, np.int64)
    entries = np.flatnonzero(selected)
    position[instance[entries]] = entries
    return position


def _roots(operations: Operations, collectives: Collectives, communicators: Communicators) -> Mask:
    """``bool[k]``: calls by the root of their operation."""
    at = collectives.operation
    number = np.maximum(communicators.number[at], 0)
    named = operations.named("root")[at]
    root = communicators.job_rank(number, named, operations.rank[at])
    is_root: Mask = np.where(
        communicators.between[number],
        named == operations.flavour.root,
        operations.rank[at] == root,
    )
    return is_root


@dataclass(frozen=True)
class LongWait:
    """A wait of a ``rank`` on a trace ``line``: ``begin`` and ``end`` of its call, and
    ``late``, when the other rank came, in ns of the trace; ``seconds`` of waiting."""

    rank: int
    line: int
    begin: int
    end: int
    late: int
    seconds: float


@dataclass(frozen=True)
class WaitGroup:
    """Waits of one kind at one call path for one rank at one of its own: ``count`` of them,
    ``seconds`` in all, ``longest`` (s) of one, ``worst`` some of the longest. ``node`` and
    ``delaying_node`` are of the CCT."""

    kind: WaitKind
    node: int
    delaying_rank: int
    delaying_node: int
    count: int
    seconds: float
    longest: float
    worst: list[LongWait]


def by_path(
    operations: Operations, waits: WaitStates, worst: int = 0, most: int | None = None
) -> tuple[list[WaitGroup], int]:
    """Waits by kind, call path, and whom and what they waited for; most waiting first, at most
    ``most`` groups, and how many there are. ``operations`` are those recorded. O(w · log w)."""
    waiter, delayer = waits.operation, waits.delayer
    node, rank = operations.node, operations.rank
    keys = waits.kind, node[waiter], rank[delayer], node[delayer]
    group, count = groups_of(*keys)
    number = np.bincount(group, minlength=count)
    seconds = sum_by(group, waits.severity / 1e9, count)
    order = np.lexsort((-waits.severity, group))
    first = np.searchsorted(group[order], np.arange(count))

    def wait(at: int) -> LongWait:
        call, other = waiter[at], delayer[at]
        return LongWait(
            int(rank[call]), int(operations.line[call]), int(operations.begin[call]),
            int(operations.end[call]), int(operations.begin[other]), waits.severity[at] / 1e9,
        )  # fmt: skip

    groups = []
    for one in np.argsort(-seconds, kind="stable")[:most].tolist():
        mine = order[first[one] : first[one] + number[one]]
        kind, place, late, cause = (int(key[mine[0]]) for key in keys)
        groups.append(
            WaitGroup(
                WaitKind(kind), place, late, cause, len(mine), float(seconds[one]),
                float(waits.severity[mine[0]]) / 1e9, [wait(at) for at in mine[:worst].tolist()],
            )
        )  # fmt: skip
    return groups, count


@dataclass(frozen=True)
class WaitTotals:
    """Waiting by waiting rank, and by delaying rank, ``float64[ranks]`` in seconds."""

    by_waiter: F64
    by_delayer: F64


def totals(operations: Operations, waits: WaitStates, ranks: int) -> WaitTotals:
    """Sums over all waits. O(w)."""
    seconds = waits.severity / 1e9
    return WaitTotals(
        sum_by(operations.rank[waits.operation], seconds, ranks),
        sum_by(operations.rank[waits.delayer], seconds, ranks),
    )
