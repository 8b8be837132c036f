"""Communicators rebuilt from the calls that made them: their ranks, in order.

A handle means something in one process only, and is used again after the communicator was freed.
What all ranks of a communicator share is the sequence of collective calls on it: the k-th call that
makes a communicator of it is the same on all its ranks. Colours, dimensions and results of those
calls say who is in the new one. One between two groups (an intercommunicator) is made by a call on
each side: each group's leader names the other leader as a rank of a communicator that both are in,
and both give the same tag (MPI 3.1, section 6.6.2). The k-th of several such pairs of either side
are one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hpcd.analysis.messages.call_arrays import DescribedCommunicator
from hpcd.analysis.messages.communicators import UNKNOWN, WORLD, Communicator, Communicators
from hpcd.analysis.messages.grouping import ranks_within
from hpcd.analysis.messages.handle_lifetimes import HandleLifetimes
from hpcd.analysis.messages.operations import Operations
from hpcd.analysis.messages.predefined_communicators import PredefinedCommunicators
from hpcd.analysis.messages.rank_answers import RankAnswers
from hpcd.array_types import I64, Mask
from hpcd.masks import positions
from hpcd.model.mpi_functions import CREATIONS, Role
from hpcd.model.mpi_records import MISSING

# Objects of Open MPI's library lie closer to each other, and the heap farther.
_FAR = 64 << 10
_FOREVER = np.iinfo(np.int64).max
_NAMES = {
    Role.NEW_COMMUNICATOR: "copy", Role.SPLIT: "split", Role.SPLIT_HOST: "split by host",
    Role.CARTESIAN: "Cartesian", Role.CARTESIAN_SUB: "part of Cartesian",
    Role.BETWEEN_GROUPS: "between groups", Role.MERGED_GROUPS: "merged groups",
    Role.OTHER_JOB: "to another job",
}  # fmt: skip


def rebuild_communicators(operations: Operations, ranks: I64) -> Communicators:
    """Return the communicators of a job; ``ranks`` int64[r] are all of it that were recorded.

    O(n log n generations). Those that the recording describes itself are taken as they are.
    """
    if operations.calls.described:
        return _described(operations, operations.calls.described)
    return _Creation(operations, ranks).run()


def _described(operations: Operations, told: Sequence[DescribedCommunicator]) -> Communicators:
    everything = [
        Communicator(
            number, one.name, one.parent, one.members, one.dims, one.periods, one.remote,
            one.ordered,
        )
        for number, one in enumerate(told)
    ]  # fmt: skip
    handle = operations.named("communicator")
    known = (handle >= 0) & (handle < len(told))
    # Other tools count the ranks of both groups.
    return Communicators(
        everything, np.where(known, handle, UNKNOWN), np.zeros(0, np.int64), joint_ranks=True
    )


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader of group ``half``: its ``own`` rank in the job, that of the ``other`` group's
    leader (-1: not known), the communicator of ``both``, the ``tag``, when it ``began``, ns."""

    half: int
    own: int
    other: int
    both: int
    tag: int
    began: int


def pair_groups(leaders: Sequence[Leader]) -> Iterator[tuple[int, int]]:
    """The two halves of each pair; that whose leader has the lower rank comes first. O(n log n)."""
    waiting: dict[tuple[int, int, int, int], list[int]] = {}
    for leader in sorted(leaders, key=lambda one: one.began):
        if leader.other < 0 or leader.both < 0:
            continue
        key = leader.own, leader.other, leader.both, leader.tag
        other = leader.other, leader.own, leader.both, leader.tag
        if waiting.get(other):
            half = waiting[other].pop(0)
            first, second = (half, leader.half)
            yield (first, second) if leader.other < leader.own else (second, first)
        else:
            waiting.setdefault(key, []).append(leader.half)


class _Creation:
    """Makes the communicators of a job, those first that others are made of."""

    def __init__(self, operations: Operations, ranks: I64) -> None:
        self._operations = operations
        self._handle = operations.named("communicator")
        self._new = operations.named("new_communicator")
        self._lifetimes = HandleLifetimes()
        self._answers = RankAnswers(operations)
        self.all: list[Communicator] = [
            Communicator(WORLD, "MPI_COMM_WORLD", UNKNOWN, np.sort(ranks))
        ]
        self.number: I64 = np.full(len(operations), UNKNOWN, np.int64)
        predefined = PredefinedCommunicators(operations, ranks)
        self._world = predefined.world
        self._guessed_worlds = predefined.guessed_worlds
        self._add_predefined(predefined)

    def run(self) -> Communicators:
        operations = self._operations
        self._parents_of_jobs()
        freed = np.flatnonzero(operations.are(Role.FREE_COMMUNICATOR))
        self._lifetimes.add(
            operations.rank[freed], self._handle[freed], operations.end[freed],
            np.full(len(freed), UNKNOWN),
        )  # fmt: skip
        # What is made of the world first, then what is made of that.
        pending = np.flatnonzero(operations.are(*CREATIONS))
        while len(pending):
            self.number = self._meaning(self._handle)
            ready = pending[self.number[pending] != UNKNOWN]
            done = self._create(ready)
            if not len(done):
                break
            pending = np.setdiff1d(pending, done)
        return self._known(self._meaning(self._handle))

    def _known(self, number: I64) -> Communicators:
        return Communicators(self.all, number, self._guessed_worlds)

    def _meaning(self, handle: I64) -> I64:
        operations = self._operations
        return self._lifetimes.meaning(operations.rank, handle, operations.begin)

    def _add_predefined(self, predefined: PredefinedCommunicators) -> None:
        rank, handle = predefined.world
        start = np.full(len(rank), -_FOREVER)
        self._lifetimes.add(rank, handle, start, np.full(len(rank), WORLD))
        rank, handle = predefined.own
        first = len(self.all)
        self.all += [
            Communicator(first + at, "MPI_COMM_SELF", UNKNOWN, np.array([one], np.int64))
            for at, one in enumerate(rank.tolist())
        ]
        start = np.full(len(rank), -_FOREVER)
        self._lifetimes.add(rank, handle, start, first + np.arange(len(rank)))

    def _are_null(self, at: I64) -> Mask:
        """``bool[k]``: creations whose result is no communicator: MPI_COMM_NULL.

        That is a constant of MPICH. Of Open MPI it is an object of the library next to that of the
        world, where new communicators are on the heap.
        """
        operations, new = self._operations, self._new[at]
        null: Mask = np.isin(new, (MISSING, 0))
        if operations.flavour.null is not None:
            null |= new == operations.flavour.null
            return null
        world = np.full(int(operations.rank.max(initial=0)) + 1, -_FAR, np.int64)
        rank, handle = self._world
        world[rank] = handle
        null |= np.abs(new - world[operations.rank[at]]) < _FAR
        return null

    def _parents_of_jobs(self) -> None:
        """Add the results of MPI_Comm_get_parent(): the same to all of a job that another one
        started.
        """
        operations = self._operations
        at = np.flatnonzero(operations.are(Role.OTHER_JOB) & (self._handle == MISSING))
        at = at[~self._are_null(at)]
        if not len(at):
            return
        number = self._connect(np.unique(operations.rank[at]), WORLD)
        self._lifetimes.add(
            operations.rank[at], self._new[at], operations.end[at], np.full(len(at), number)
        )

    def _connect(self, members: I64, parent: int) -> int:
        """The number of a new communicator of ``members`` to processes of another job."""
        number, nobody = len(self.all), np.zeros(0, np.int64)
        self.all.append(
            Communicator(number, _NAMES[Role.OTHER_JOB], parent, members, remote=nobody)
        )
        return number

    def _create(self, creations: I64) -> I64:
        """Make the communicators that these operations made, whose parents are known; returns those
        that are done with: a group may have to wait for the other one."""
        operations = self._operations
        parent, rank = self.number[creations], operations.rank[creations]
        # The k-th creation of each rank on its parent, counted over all there are: what is ready is
        # ready for all of a parent at once.
        turn = ranks_within(parent, rank)
        role = operations.role[creations]
        order = np.lexsort((rank, turn, parent))
        keys = np.stack([parent, turn], 1)[order]
        bounds = np.flatnonzero(np.any(np.diff(keys, axis=0), axis=1)) + 1
        halves: list[I64] = []
        done = [np.zeros(0, np.int64)]
        for group in np.split(order, bounds) if len(order) else []:
            at, kind = creations[group], Role(int(role[group[0]]))
            if kind == Role.BETWEEN_GROUPS:
                halves.append(at)
                continue
            self._create_together(at, kind)
            done.append(at)
        if halves:
            done += self._join_halves(halves)
        return np.concatenate(done)

    def _join_halves(self, halves: list[I64]) -> list[I64]:
        """Make communicators of the calls of two groups each; returns the calls that have found
        each other."""
        operations = self._operations
        done: list[I64] = []
        leaders = self._leaders(halves)
        for first, second in pair_groups(leaders):
            number = len(self.all)
            groups = []
            for at in (halves[first], halves[second]):
                rank, parent = operations.rank[at], self.all[int(self.number[at[0]])]
                groups.append(parent.members[np.isin(parent.members, rank)])
                self._lifetimes.add(
                    rank, self._new[at], operations.end[at], np.full(len(at), number)
                )
                done.append(at)
            parent_number = int(self.number[halves[first][0]])
            self.all.append(
                Communicator(
                    number, _NAMES[Role.BETWEEN_GROUPS], parent_number, groups[0], remote=groups[1]
                )
            )
        return done

    def _leaders(self, halves: list[I64]) -> list[Leader]:
        """Return the leader of each group's calls, with the other leader that it names."""
        operations = self._operations
        peers = self._meaning(operations.named("peer_communicator"))
        leading_calls = []
        for half, at in enumerate(halves):
            parent = self.all[int(self.number[at[0]])]
            place = int(operations.named("local_leader")[at[0]])
            own = int(parent.members[place]) if 0 <= place < len(parent.members) else UNKNOWN
            mine = at[operations.rank[at] == own]
            if not len(mine) or not parent.ordered:
                continue
            leading = mine[:1]
            other = self._known(self.number).job_rank(
                peers[leading], operations.named("remote_leader")[leading],
                operations.rank[leading],
            )  # fmt: skip
            leading_calls.append(
                Leader(
                    half, own, int(other[0]), int(peers[leading][0]),
                    int(operations.named("tag")[leading][0]), int(operations.begin[leading][0]),
                )
            )  # fmt: skip
        return leading_calls

    def _create_together(self, at: I64, role: Role) -> None:
        """Add the communicators that the calls ``at``, one of each rank of a parent, made."""
        operations = self._operations
        rank, handle, parent = operations.rank[at], self._new[at], int(self.number[at[0]])
        if role == Role.OTHER_JOB:
            number = self._connect(self.all[parent].everybody, parent)
            self._lifetimes.add(rank, handle, operations.end[at], np.full(len(at), number))
            return
        in_parent = self.all[parent].everybody
        if role == Role.MERGED_GROUPS:
            self._merge(at, parent)
            return
        place = positions(int(in_parent.max()) + 1, in_parent, 0)
        color, key = self._colours(at, role, place[rank], parent)
        order = np.lexsort((place[rank], key, color))
        order = order[~self._are_null(at)[order]]
        for group in np.split(order, np.flatnonzero(np.diff(color[order])) + 1):
            if not len(group):
                continue
            number = len(self.all)
            sides, ordered = [], self.all[parent].ordered
            # Elsewhere keys say in which order.
            by_answer = role in (Role.NEW_COMMUNICATOR, Role.CARTESIAN) or not ordered
            for side in self._sides(parent, rank[group]):
                part = group[side]
                members, answered = rank[part], False
                if by_answer:
                    members, answered = self._answers.order(at[part], members, handle[part])
                ordered |= answered
                sides.append(members)
            dims, periods = self._shape(at[group[0]], role, parent)
            self.all.append(
                Communicator(
                    number, _NAMES[role], parent, sides[0], dims, periods,
                    remote=sides[1] if len(sides) > 1 else None, ordered=ordered,
                )
            )  # fmt: skip
            self._lifetimes.add(
                rank[group], handle[group], operations.end[at[group]],
                np.full(len(group), number),
            )  # fmt: skip

    def _sides(self, parent: int, rank: I64) -> list[Mask]:
        """``bool[k]`` each: which of ``rank`` are in each group of ``parent``; one, of all, where
        it has but one group."""
        remote = self.all[parent].remote
        if remote is None:
            return [np.ones(len(rank), bool)]
        second = np.isin(rank, remote)
        return [~second, second]

    def _merge(self, at: I64, parent: int) -> None:
        """Add the merger by the calls ``at``, one of each rank of two groups: the group that says
        it is the high one comes second. Where both say the same, the library decides.
        """
        operations = self._operations
        rank, handle = operations.rank[at], self._new[at]
        whole, high = self.all[parent], operations.named("high")[at] != 0
        groups = [whole.members, np.zeros(0, np.int64) if whole.remote is None else whole.remote]
        is_high = [bool(high[np.isin(rank, group)].any()) for group in groups]
        if is_high[0] and not is_high[1]:
            groups.reverse()
        members, ordered = np.concatenate(groups), is_high[0] != is_high[1]
        if not ordered and len(at) == len(members):
            members, ordered = self._answers.order(at, rank, handle)
        ordered &= whole.ordered and len(groups[0]) > 0 and len(groups[1]) > 0
        number = len(self.all)
        self.all.append(
            Communicator(number, _NAMES[Role.MERGED_GROUPS], parent, members, ordered=bool(ordered))
        )
        self._lifetimes.add(rank, handle, operations.end[at], np.full(len(at), number))

    def _colours(self, at: I64, role: Role, place: I64, parent: int) -> tuple[I64, I64]:
        """Return the new communicator that each of the calls ``at`` joins, and the key of its
        order.
        """
        operations, nothing = self._operations, np.zeros(len(at), np.int64)
        if role in (Role.SPLIT, Role.SPLIT_HOST):
            return operations.named("color")[at], operations.named("key")[at]
        dims = self.all[parent].dims
        if role == Role.CARTESIAN_SUB and dims and min(dims) > 0 and math.prod(dims) < 1 << 31:
            remain = self._array(int(at[0]), "remain", len(dims))
            coordinates = np.unravel_index(np.minimum(place, math.prod(dims) - 1), dims)
            color = nothing
            for extent, coordinate, remains in zip(dims, coordinates, remain, strict=True):
                if not remains:
                    color = color * extent + coordinate
            return color, nothing
        return nothing, nothing

    def _shape(self, at: int, role: Role, parent: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        if role == Role.CARTESIAN:
            count = int(self._operations.named("dimensions")[at])
            dims = self._array(at, "dims", count)
            following = at + 1
            periods = self._array(following, "periods", count)
            return dims, periods
        if role == Role.CARTESIAN_SUB and self.all[parent].dims:
            whole = self.all[parent]
            remain = self._array(at, "remain", len(whole.dims))
            kept = [place for place, remains in enumerate(remain) if remains]
            return (
                tuple(whole.dims[place] for place in kept),
                tuple(whole.periods[place] for place in kept),
            )
        return (), ()

    def _array(self, at: int, name: str, count: int) -> tuple[int, ...]:
        """``count`` integers of an array, of which each value has two; six at most."""
        if at >= len(self._operations):
            return (0,) * min(max(count, 0), 6)
        integers: list[int] = []
        for first in (0, 2, 4):
            pair = int(self._operations.named(f"{name}{first}")[at])
            integers += [0, 0] if pair == MISSING else _signed(pair)
        return tuple(integers[: max(count, 0)])


def _signed(pair: int) -> list[int]:
    low, high = pair & 0xFFFFFFFF, (pair >> 32) & 0xFFFFFFFF
    return [part - (1 << 32) if part >> 31 else part for part in (low, high)]
