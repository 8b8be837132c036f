"""The communicators of a job: their ranks, and those that operations are on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpcd.array_types import I64, Mask

UNKNOWN = -1
WORLD = 0


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


@dataclass(frozen=True)
class Communicators:
    """The communicators of a job, by number.

    ``number`` int64[n] is the communicator that each operation is on, UNKNOWN if not known.
    ``guessed_worlds`` are ranks of which nothing but its use says which communicator is the world.
    With ``joint_ranks`` operations on communicators between two groups count the ranks of both.
    """

    all: list[Communicator]
    number: I64
    guessed_worlds: I64
    joint_ranks: bool = False

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
            if self.joint_ranks:
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
