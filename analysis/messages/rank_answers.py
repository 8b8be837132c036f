"""The order of a communicator's members, by the rank that MPI returned to each process."""

from __future__ import annotations

from bisect import bisect_left
from functools import cached_property

import numpy as np

from hpcd.analysis.messages.operations import Operations
from hpcd.array_types import I64
from hpcd.model.mpi_functions import Role

_FOREVER = np.iinfo(np.int64).max
# Times, and ranks, by rank of the job and handle.
_Times = dict[tuple[int, int], tuple[list[int], list[int]]]


class RankAnswers:
    """Ranks that ``MPI_Comm_rank`` returned, by process and handle."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    def order(self, at: I64, rank: I64, handle: I64) -> tuple[I64, bool]:
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
        by_handle: _Times = {}
        columns = (
            operations.rank,
            operations.named("communicator"),
            operations.begin,
            operations.named("rank"),
        )
        for rank, handle, begin, answer in zip(*(c[at].tolist() for c in columns), strict=True):
            times, values = by_handle.setdefault((rank, handle), ([], []))
            times.append(begin)
            values.append(answer)
        return by_handle
