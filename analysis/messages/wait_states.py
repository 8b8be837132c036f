"""Wait states: calls of MPI that waited for another rank, how long, and for which.

The names are Scalasca's. Of each call the longest wait counts, never more than the call took:

- late sender: a receive, or the end of its request, is waited for before the send has begun, or
  its message is probed for;
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

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.messages.communicators import Communicators
from hpcd.analysis.messages.grouping import groups_of
from hpcd.analysis.messages.matching import Collectives, Messages, probed_messages
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


@dataclass(frozen=True)
class Dependencies:
    """Operations that do not end before all of a group of others have begun.

    ``kind`` (:class:`WaitKind`), ``operation`` and ``group`` ``int64[d]``; of group ``i`` are the
    operations ``member[first[i]]`` to ``member[first[i + 1] - 1]``, none of it empty that is one of
    ``group``. Positions in the operations.
    """

    kind: I64
    operation: I64
    group: I64
    member: I64
    first: I64

    def last(self, begin: I64) -> I64:
        """``int64[d]``: the operation of each group that begins last."""
        of_member = np.repeat(np.arange(len(self.first) - 1), np.diff(self.first))
        order = np.lexsort((begin[self.member], of_member))
        return self.member[order[self.first[self.group + 1] - 1]]


def dependencies(
    operations: Operations,
    messages: Messages,
    collectives: Collectives,
    communicators: Communicators,
) -> Dependencies:
    """Return those of matched messages and complete collectives. O(n · log n)."""
    sends, receives = messages.sends, messages.receives
    received, sent = receives.awaits[messages.receive], sends.awaits[messages.send]
    probes, probed = probed_messages(operations, communicators, messages)
    parts = [
        _of_messages(WaitKind.LATE_SENDER, received, sends.operation[messages.send]),
        _of_messages(WaitKind.LATE_SENDER, probes, sends.operation[probed]),
        _of_messages(WaitKind.LATE_RECEIVER, sent, receives.operation[messages.receive]),
        *_of_collectives(operations, collectives, communicators),
    ]
    return join_dependencies(parts)


def join_dependencies(parts: Sequence[Dependencies]) -> Dependencies:
    """Return those of all parts, of one or more."""
    groups = np.cumsum([0, *(len(part.first) - 1 for part in parts)])
    members = np.cumsum([0, *(len(part.member) for part in parts)])
    firsts = [part.first[:-1] + at for part, at in zip(parts, members, strict=False)]
    return Dependencies(
        np.concatenate([part.kind for part in parts]),
        np.concatenate([part.operation for part in parts]),
        np.concatenate([part.group + at for part, at in zip(parts, groups, strict=False)]),
        np.concatenate([part.member for part in parts]),
        np.concatenate([*firsts, members[-1:]]),
    )


def wait_states(operations: Operations, needs: Dependencies) -> WaitStates:
    """The wait states that follow from dependencies. O(n · log n)."""
    delayer = needs.last(operations.begin)
    severity = _waited(operations, needs.operation, delayer)
    longest = np.lexsort((-severity, operations.call[needs.operation]))
    longest = longest[severity[longest] > 0]
    kept = longest[begins_run(operations.call[needs.operation[longest]])]
    return WaitStates(needs.kind[kept], needs.operation[kept], delayer[kept], severity[kept])


def _waited(operations: Operations, waiter: I64, delayer: I64) -> I64:
    """``int64[n]``: ns from the begin of ``waiter`` to that of ``delayer``; 0 where it had
    returned."""
    arrival = operations.begin[delayer]
    return np.where(arrival < operations.end[waiter], arrival - operations.begin[waiter], 0)


def _of_messages(kind: WaitKind, ended: I64, awaited: I64) -> Dependencies:
    known = ended >= 0
    count = int(known.sum())
    group = np.arange(count)
    return Dependencies(
        np.full(count, kind), ended[known], group, awaited[known], np.arange(count + 1)
    )


def _of_collectives(
    operations: Operations, collectives: Collectives, communicators: Communicators
) -> list[Dependencies]:
    if not len(collectives):
        return []
    at, instance, count = collectives.operation, collectives.instance, len(collectives)
    role, number = operations.role[at], np.maximum(communicators.number[at], 0)
    usable = collectives.complete[instance] & (collectives.ended >= 0)
    between = communicators.between[number]
    side = communicators.is_second(number, operations.rank[at])
    is_root = _roots(operations, collectives, communicators)
    root = _position(is_root, instance, count)[instance]
    # Groups of each instance: all, those of either side, the root, all but the root.
    sides = count + 2 * instance
    groups = np.concatenate([
        instance, sides + side, 3 * count + instance[is_root], 4 * count + instance[~is_root]
    ])  # fmt: skip
    member = np.concatenate([at, at, at[is_root], at[~is_root]])
    first = np.searchsorted(np.sort(groups), np.arange(5 * count + 1))
    member = member[np.argsort(groups, kind="stable")]
    other_side = sides + ~side
    # What makes communicators needs all of both groups.
    everybody = np.where(between & ~np.isin(role, CREATIONS), other_side, instance)
    # The root's own group takes no part.
    apart = ~is_root & (root >= 0) & (~between | (side != side[np.maximum(root, 0)]))
    but_root = np.where(between, other_side, 4 * count + instance)
    parts = []
    for kind, roles, takes_part, group in (
        (WaitKind.WAIT_AT_NXN, _NXN, True, everybody),
        (WaitKind.WAIT_AT_BARRIER, (Role.BARRIER,), True, everybody),
        (WaitKind.LATE_BROADCAST, (Role.FROM_ROOT,), apart, 3 * count + instance),
        (WaitKind.EARLY_REDUCE, (Role.TO_ROOT,), is_root, but_root),
    ):
        there = first[group + 1] > first[group]
        entries = np.flatnonzero(usable & np.isin(role, roles) & takes_part & there)
        parts.append((np.full(len(entries), kind), collectives.ended[entries], group[entries]))
    kinds, ended, group = (np.concatenate(column) for column in zip(*parts, strict=True))
    return [Dependencies(kinds, ended, group, member, first)]


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
