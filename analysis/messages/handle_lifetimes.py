"""The communicator that a handle of a rank means, from when on."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hpcd.analysis.messages.communicators import UNKNOWN
from hpcd.analysis.messages.grouping import groups_of
from hpcd.array_types import I64
from hpcd.model.mpi_records import MISSING


@dataclass
class HandleLifetimes:
    """Beginnings of meanings: appended to, then searched."""

    rank: list[I64] = field(default_factory=list)
    handle: list[I64] = field(default_factory=list)
    since: list[I64] = field(default_factory=list)
    number: list[I64] = field(default_factory=list)

    def add(self, rank: I64, handle: I64, since: I64, number: I64) -> None:
        """From ``since`` (ns) on ``handle`` of ``rank`` means communicator ``number``; int64[k]."""
        self.rank.append(rank)
        self.handle.append(handle)
        self.since.append(since)
        self.number.append(number)

    def meaning(self, rank_of: I64, handle_of: I64, time_of: I64) -> I64:
        """Return int64[n]: the communicator that each rank means by a handle at a time (ns), as far
        as lifetimes are known; else UNKNOWN. O(n log n)."""
        rank, handle = np.concatenate(self.rank), np.concatenate(self.handle)
        since, number = np.concatenate(self.since), np.concatenate(self.number)
        used = np.flatnonzero(handle_of != MISSING)
        group, _ = groups_of(
            np.concatenate([rank, rank_of[used]]), np.concatenate([handle, handle_of[used]])
        )
        time = np.concatenate([since, time_of[used]])
        is_use = np.arange(len(time)) >= len(since)
        order = np.lexsort((is_use, time, group))
        at = np.maximum.accumulate(np.where(is_use[order], -1, np.arange(len(order))))
        source = order[np.maximum(at, 0)]
        right = (at >= 0) & is_use[order] & (group[source] == group[order])
        meant = np.full(len(handle_of), UNKNOWN, np.int64)
        meant[used[order[right] - len(since)]] = number[source[right]]
        return meant
