"""Communicators rebuilt from the calls that made them: which ranks they have, in which order.

A handle means something in one process only, and is used again after the communicator was freed.
What all ranks of a communicator share is the sequence of collective calls on it: the k-th call that
makes a communicator of it is the same on all its ranks. Of those calls, colours, dimensions and
results say who is in the new one. One between two groups (an intercommunicator) is made by a call
on each side, paired in :mod:`hpcd.analysis.messages.group_pairs`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from hpcd.analysis.messages.call_arrays import ToldCommunicator
from hpcd.analysis.messages.group_pairs import Leader, pair_groups
from hpcd.analysis.messages.grouping import groups_of, ranks_within
from hpcd.analysis.messages.operations import Operations
from hpcd.array_types import I64, Mask
from hpcd.model.mpi_functions import CREATIONS, Role
from hpcd.model.mpi_records import MISSING

UNKNOWN = -1
WORLD = 0
# Objects of Open MPI's library lie closer to each other, and the heap farther.
_FAR = 64 << 10
_INITS = ("MPI_Init", "MPI_Init_thread")
_FOREVER = np.iinfo(np.int64).max
_NAMES = {
    Role.NEW_COMMUNICATOR: "copy", Role.SPLIT: "split", Role.SPLIT_HOST: "split by host",
    Role.CARTESIAN: "Cartesian", Role.CARTESIAN_SUB: "part of Cartesian",
    Role.BETWEEN_GROUPS: "between groups", Role.MERGED_GROUPS: "merged groups",
    Role.OTHER_JOB: "to another job",
}  # fmt: skip


_Times = dict[tuple[int, int], tuple[list[int], list[int]]]


@dataclass(frozen=True)
class Communicator:
    """``members`` are ranks of the job, in the communicator's order.

    ``parent`` is the number of that it was made of, -1 of none. Of a Cartesian one, ``dims`` and
    ``periods`` are its extents and which of these wrap around; else they are empty. Of one between
    two groups ``remote`` are the ranks of the other group in its order, none where they are another
    job's; else it is None. Where not ``ordered``, nothing says in which order the members are.
    """

    number: int
    name: str
    parent: int
    members: I64
    dims: tuple[int, ...] = ()
    periods: tuple[int, ...] = ()
    remote: I64 | None = None
    ordered: bool = True

    @property
    def everybody(self) -> I64:
        """The members of both groups."""
        return self.members if self.remote is None else np.append(self.members, self.remote)


@dataclass
class _Lifetimes:
    """Which communicator a handle of a rank means, from when on: appended to, then searched."""

    rank: list[I64] = field(default_factory=list)
    handle: list[I64] = field(default_factory=list)
    since: list[I64] = field(default_factory=list)
    number: list[I64] = field(default_factory=list)

    def add(self, rank: I64, handle: I64, since: I64, number: I64) -> None:
        self.rank.append(rank)
        self.handle.append(handle)
        self.since.append(since)
        self.number.append(number)


class Communicators:
    """The communicators of a job, and what each operation's handle means."""

    def __init__(self, operations: Operations, ranks: I64) -> None:
        """``ranks`` ``int64[r]``: all of the job that were recorded. O(n · log n · generations)."""
        self._operations = operations
        self.all: list[Communicator] = [
            Communicator(WORLD, "MPI_COMM_WORLD", UNKNOWN, np.sort(ranks))
        ]
        self._handle = operations.named("communicator")
        self._new = operations.named("new_communicator")
        self.guessed_worlds: I64 = np.zeros(0, np.int64)
        """Ranks of which nothing but its use says which communicator is the world."""
        self._lifetimes = _Lifetimes()
        self.number: I64 = np.full(len(operations), UNKNOWN, np.int64)
        """``int64[n]``: of each operation the communicator it is on, UNKNOWN where not known."""
        if operations.calls.told:
            self._take(operations.calls.told)
            return
        self._predefined()
        self._parents_of_jobs()
        freed = np.flatnonzero(operations.are(Role.FREE_COMMUNICATOR))
        self._lifetimes.add(
            operations.rank[freed], self._handle[freed], operations.end[freed],
            np.full(len(freed), UNKNOWN),
        )  # fmt: skip
        # What is made of the world first, then what is made of that.
        made = np.flatnonzero(operations.are(*CREATIONS))
        pending = made
        while len(pending):
            self._resolve()
            ready = pending[self.number[pending] != UNKNOWN]
            done = self._create(ready)
            if not len(done):
                break
            pending = np.setdiff1d(pending, done)
        self._resolve()

    def _take(self, told: Sequence[ToldCommunicator]) -> None:
        """Those that the recording describes."""
        self.all = [
            Communicator(
                number, one.name, one.parent, one.members, one.dims, one.periods, one.remote,
                one.ordered,
            )
            for number, one in enumerate(told)
        ]  # fmt: skip
        known = (self._handle >= 0) & (self._handle < len(told))
        self.number = np.where(known, self._handle, UNKNOWN)

    def members(self, number: int) -> I64:
        """Ranks of communicator ``number`` in its order; of one between groups those of the
        first."""
        return self.all[number].members

    @property
    def sizes(self) -> I64:
        """``int64[communicators]``: how many ranks each has, both groups together."""
        return np.array([len(one.everybody) for one in self.all], np.int64)

    @property
    def between(self) -> Mask:
        """``bool[communicators]``: which are between two groups."""
        return np.array([one.remote is not None for one in self.all], bool)

    def job_rank(self, number: I64, place: I64, rank: I64) -> I64:
        """Ranks of the job of what ``rank`` calls ranks ``place`` of communicators ``number``,
        which between two groups are those of the group that it is not in; -1 where there is none
        such, or it is not known. O(n + communicators)."""
        nobody = np.zeros(0, np.int64)
        groups = []
        for one in self.all:
            known = one.members if one.ordered else nobody
            if self._operations.calls.told:
                # Other tools count the ranks of both groups.
                groups += [one.everybody, one.everybody]
                continue
            groups += [known if one.remote is None else one.remote, known]
        first = np.cumsum([0, *map(len, groups)])
        flat = np.concatenate(groups)
        group = 2 * np.maximum(number, 0) + self.is_second(number, rank)
        size = np.diff(first)[group]
        known = (number >= 0) & (place >= 0) & (place < size)
        at = first[group] + np.where(known, place, 0)
        return np.where(known, flat[np.minimum(at, len(flat) - 1)], -1)

    def is_second(self, number: I64, rank: I64) -> Mask:
        """``bool[n]``: where ``rank`` is of the second group of communicator ``number``."""
        second = [(one.number, one.remote) for one in self.all if one.remote is not None]
        if not second:
            return np.zeros(len(number), bool)
        span = int(rank.max(initial=0)) + 1
        keys = np.concatenate([one * span + ranks[ranks < span] for one, ranks in second])
        return np.isin(number * span + rank, keys)

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
        rank, handle = self._lifetimes.rank[0], self._lifetimes.handle[0]
        world[rank] = handle
        null |= np.abs(new - world[operations.rank[at]]) < _FAR
        return null

    def _predefined(self) -> None:
        """Handles that no call made: the world's and each process's own."""
        operations, flavour = self._operations, self._operations.flavour
        rank = operations.rank
        if flavour.world is not None:
            ranks = self.all[WORLD].members
            start = np.full(len(ranks), -_FOREVER)
            self._lifetimes.add(
                ranks, np.full(len(ranks), flavour.world), start, np.zeros(len(ranks), np.int64)
            )
            own = np.unique(rank[self._handle == flavour.own])
            self._own(own, np.full(len(own), flavour.own or 0))
            return
        used = np.flatnonzero(self._handle != MISSING)
        pairs = np.stack([rank[used], self._handle[used]], 1)
        made = np.flatnonzero(operations.are(*CREATIONS))
        new = np.stack([rank[made], self._new[made]], 1)
        unmade, inverse, count = np.unique(
            np.concatenate([pairs, new]), axis=0, return_inverse=True, return_counts=True
        )
        inverse = inverse.reshape(-1)
        is_made = np.zeros(len(unmade), bool)
        is_made[inverse[len(used) :]] = True
        # A communicator of its own has size 1 where that was asked for, and is no other's peer.
        size = operations.named("size")[used]
        peer = operations.named("peer")[used]
        alone = np.ones(len(unmade), bool)
        alone[inverse[: len(used)][(size > 1) | (peer > 0)]] = False
        single = np.zeros(len(unmade), bool)
        single[inverse[: len(used)][size == 1]] = True
        left = np.flatnonzero(~is_made)
        own = left[single[left] & alone[left] & (len(self.all[WORLD].members) > 1)]
        candidates = np.setdiff1d(left, own)
        # Of several that are left one that was told to have the world's size, else that used most.
        told = np.zeros(len(unmade), bool)
        told[inverse[: len(used)][size == len(self.all[WORLD].members)]] = True
        order = candidates[
            np.lexsort((-count[candidates], ~told[candidates], unmade[candidates, 0]))
        ]
        first = np.ones(len(order), bool)
        first[1:] = unmade[order, 0][1:] != unmade[order, 0][:-1]
        world = order[first]
        # Whose MPI_Init was recorded made all others in the recording.
        begun = np.unique(rank[self._are_init()])
        unsure = world[~told[world] & ~np.isin(unmade[world, 0], begun)]
        self.guessed_worlds = unmade[unsure, 0]
        self._lifetimes.add(
            unmade[world, 0], unmade[world, 1], np.full(len(world), -_FOREVER),
            np.full(len(world), WORLD),
        )  # fmt: skip
        self._own(unmade[own, 0], unmade[own, 1])

    def _are_init(self) -> Mask:
        """``bool[n]``: operations with which a rank begins to use MPI."""
        named = [one.name in _INITS for one in self._operations.calls.functions]
        mask: Mask = np.array([*named, False], bool)[self._operations.function]
        return mask

    def _own(self, rank: I64, handle: I64) -> None:
        first = len(self.all)
        self.all += [
            Communicator(first + at, "MPI_COMM_SELF", UNKNOWN, np.array([one], np.int64))
            for at, one in enumerate(rank.tolist())
        ]
        number = first + np.arange(len(rank))
        self._lifetimes.add(rank, handle, np.full(len(rank), -_FOREVER), number)

    def _parents_of_jobs(self) -> None:
        """What MPI_Comm_get_parent() gave: the same to all of a job that another one started."""
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

    def _resolve(self) -> None:
        """Give operations their communicators, as far as lifetimes are known. O(n · log n)."""
        self.number = self._meant(self._handle)

    def _meant(self, handle_of: I64) -> I64:
        """``int64[n]``: the communicator that operations mean by these handles, as far as lifetimes
        are known; else UNKNOWN."""
        parts = self._lifetimes
        rank, handle = np.concatenate(parts.rank), np.concatenate(parts.handle)
        since, number = np.concatenate(parts.since), np.concatenate(parts.number)
        mine = np.flatnonzero(handle_of != MISSING)
        group, _ = groups_of(
            np.concatenate([rank, self._operations.rank[mine]]),
            np.concatenate([handle, handle_of[mine]]),
        )
        time = np.concatenate([since, self._operations.begin[mine]])
        is_use = np.arange(len(time)) >= len(since)
        order = np.lexsort((is_use, time, group))
        at = np.maximum.accumulate(np.where(is_use[order], -1, np.arange(len(order))))
        source = order[np.maximum(at, 0)]
        right = (at >= 0) & is_use[order] & (group[source] == group[order])
        meant = np.full(len(handle_of), UNKNOWN, np.int64)
        meant[mine[order[right] - len(since)]] = number[source[right]]
        return meant

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
        """Who leads the calls of each group, and whom it names as the other's leader."""
        operations = self._operations
        peers = self._meant(operations.named("peer_communicator"))
        found = []
        for half, at in enumerate(halves):
            parent = self.all[int(self.number[at[0]])]
            place = int(operations.named("local_leader")[at[0]])
            own = int(parent.members[place]) if 0 <= place < len(parent.members) else UNKNOWN
            mine = at[operations.rank[at] == own]
            if not len(mine) or not parent.ordered:
                continue
            leading = mine[:1]
            other = self.job_rank(
                peers[leading], operations.named("remote_leader")[leading],
                operations.rank[leading],
            )  # fmt: skip
            found.append(
                Leader(
                    half, own, int(other[0]), int(peers[leading][0]),
                    int(operations.named("tag")[leading][0]), int(operations.begin[leading][0]),
                )
            )  # fmt: skip
        return found

    def _create_together(self, at: I64, role: Role) -> None:
        """What the calls ``at``, one of each rank of a parent, made."""
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
        place = np.zeros(int(in_parent.max()) + 1, np.int64)
        place[in_parent] = np.arange(len(in_parent))
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
                    members, answered = self._ordered_by_answer(at[part], members, handle[part])
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
        """What the calls ``at``, one of each rank of two groups, made: the group that says it is
        the high one comes second. Where both say the same, the library decides."""
        operations = self._operations
        rank, handle = operations.rank[at], self._new[at]
        whole, high = self.all[parent], operations.named("high")[at] != 0
        groups = [whole.members, np.zeros(0, np.int64) if whole.remote is None else whole.remote]
        is_high = [bool(high[np.isin(rank, group)].any()) for group in groups]
        if is_high[0] and not is_high[1]:
            groups.reverse()
        members, ordered = np.concatenate(groups), is_high[0] != is_high[1]
        if not ordered and len(at) == len(members):
            members, ordered = self._ordered_by_answer(at, rank, handle)
        ordered &= whole.ordered and len(groups[0]) > 0 and len(groups[1]) > 0
        number = len(self.all)
        self.all.append(
            Communicator(number, _NAMES[Role.MERGED_GROUPS], parent, members, ordered=bool(ordered))
        )
        self._lifetimes.add(rank, handle, operations.end[at], np.full(len(at), number))

    def _colours(self, at: I64, role: Role, place: I64, parent: int) -> tuple[I64, I64]:
        """Of the calls ``at``: which new communicator each rank is in, and what orders them."""
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

    def _ordered_by_answer(self, at: I64, rank: I64, handle: I64) -> tuple[I64, bool]:
        """Members in the order of what ``MPI_Comm_rank`` told each before the handle was freed,
        where all asked; and whether they did."""
        answer = np.full(len(at), -1, np.int64)
        ends = self._operations.end[at].tolist()
        for place, pair in enumerate(zip(rank.tolist(), handle.tolist(), strict=True)):
            times, values = self._answers.get(pair, ([], []))
            frees, _ = self._frees.get(pair, ([], []))
            later, free = bisect_left(times, ends[place]), bisect_left(frees, ends[place])
            freed = frees[free] if free < len(frees) else _FOREVER
            if later < len(times) and times[later] <= freed:
                answer[place] = values[later]
        if np.array_equal(np.sort(answer), np.arange(len(at))):
            return rank[np.argsort(answer)], True
        return rank, False

    @cached_property
    def _answers(self) -> _Times:
        return self._times(Role.OWN_RANK)

    @cached_property
    def _frees(self) -> _Times:
        return self._times(Role.FREE_COMMUNICATOR)

    def _times(self, role: Role) -> _Times:
        """When calls of ``role`` began, and their ``rank``, by rank and handle."""
        operations = self._operations
        at = np.flatnonzero(operations.are(role))
        found: _Times = {}
        columns = operations.rank, self._handle, operations.begin, operations.named("rank")
        for rank, handle, begin, answer in zip(*(c[at].tolist() for c in columns), strict=True):
            times, values = found.setdefault((rank, handle), ([], []))
            times.append(begin)
            values.append(answer)
        return found

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
