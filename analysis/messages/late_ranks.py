"""Ranks that were in MPI before their recording began, whose first calls are missing.

On communicators that existed by then, the k-th recorded calls of two ranks need not belong
together: :mod:`hpcd.analysis.messages.shifts` finds which do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hpcd.analysis.messages.communicators import UNKNOWN, Communicators
from hpcd.analysis.messages.grouping import groups_of
from hpcd.analysis.messages.operations import Operations
from hpcd.analysis.messages.predefined_communicators import INITS
from hpcd.analysis.messages.requests import NONE, Requests
from hpcd.analysis.messages.shifts import RankCalls, find_shift
from hpcd.array_types import I64, Mask
from hpcd.model.mpi_functions import CREATIONS, Role

if TYPE_CHECKING:
    from hpcd.analysis.messages.matching import Endpoints

_UNKNOWN_END = np.iinfo(np.int64).max
# Farther than any two calls that belong together.
_APART = 1 << 40
_ALL_WAIT = (Role.BARRIER, Role.ALL_TO_ALL, Role.NEW_WINDOW, *CREATIONS)


@dataclass(frozen=True)
class LateRanks:
    """``late`` bool[ranks]: ranks whose first calls may be missing. ``host`` int64[ranks].

    ``finished`` bool[ranks]: ranks whose last calls, up to ``MPI_Finalize``, are known. ``last``
    int64[ranks]: the end of each one's last call, ns.
    """

    operations: Operations
    communicators: Communicators
    late: Mask
    host: I64
    finished: Mask
    last: I64

    @staticmethod
    def of(
        operations: Operations, communicators: Communicators, requests: Requests,
        receives: Endpoints, started_before: Mask, host: I64,
    ) -> LateRanks:  # fmt: skip
        """Find the late ranks: those whose processes ``started_before`` (bool[ranks]) the recording
        and whose ``MPI_Init`` is not recorded. O(n)."""
        begun, finished = (
            operations.ranks_that_call(names, len(host)) for names in (INITS, ("MPI_Finalize",))
        )
        # Of these something was sent or received, but not what, or not from whom.
        restarted = operations.are(Role.START) & (requests.parameters == NONE)
        finished[operations.rank[restarted]] = False
        unnamed = (receives.number != UNKNOWN) & ((receives.peer < 0) | (receives.tag < 0))
        finished[receives.rank[unnamed]] = False
        last = np.full(len(host), -1, np.int64)
        np.maximum.at(last, operations.rank, operations.end)
        late = started_before & ~begun
        return LateRanks(operations, communicators, late, host, finished, last)

    @property
    def communicators_before(self) -> Mask:
        """``bool[communicators]``: made before the recording, with a late rank."""
        every = self.communicators.all
        if not self.late.any():
            return np.zeros(len(every), bool)
        return np.array([one.parent < 0 and self.late[one.members].any() for one in every], bool)

    def align_messages(
        self, sends: Endpoints, receives: Endpoints, sent: I64, received: I64,
        sent_at: I64, received_at: I64,
    ) -> tuple[Mask, Mask]:  # fmt: skip
        """Shift the numbers of receives to those of the sends that they belong to.

        ``sent`` and ``received`` int64[k, 5] are communicator, sender, receiver, tag and number of
        the ``sends`` at ``sent_at`` and the ``receives`` at ``received_at``; ``received`` is
        written. Returns bool[k] of each: those of which it is known what they belong to.
        """
        known_sends, known_receives = np.ones(len(sent), bool), np.ones(len(received), bool)
        group, count = groups_of(*np.concatenate([sent, received])[:, :4].T)
        by_group = (group[: len(sent)], group[len(sent) :])
        order = [np.argsort(numbers, kind="stable") for numbers in by_group]
        first = [
            np.searchsorted(numbers[places], np.arange(count + 1))
            for numbers, places in zip(by_group, order, strict=True)
        ]
        for at in np.unique(by_group[0][self._is_unsure(sent)]).tolist():
            mine = order[0][first[0][at] : first[0][at + 1]]
            its = order[1][first[1][at] : first[1][at + 1]]
            if not len(its):
                continue
            shift = find_shift(
                self._ends(sends, sent_at[mine], gives=True),
                self._ends(receives, received_at[its], gives=False),
            )
            if shift is None:
                known_sends[mine] = known_receives[its] = False
            else:
                received[its, 4] += shift
        return known_sends, known_receives

    def _is_unsure(self, envelopes: I64) -> Mask:
        number, source, target = envelopes[:, :3].T
        unsure: Mask = self.communicators_before[number] & (self.late[source] | self.late[target])
        return unsure

    def _ends(self, ends: Endpoints, at: I64, *, gives: bool) -> RankCalls:
        given = np.full(len(at), gives)
        return self._calls(ends.operation[at], ends.awaits[at], ends.size[at], given, ~given)

    def _calls(self, at: I64, ended: I64, label: I64, gives: Mask, takes: Mask) -> RankCalls:
        """The operations ``at``, of one rank at least."""
        operations = self.operations
        rank = int(operations.rank[at[0]]) if len(at) else 0
        known, by = ended != NONE, np.maximum(ended, 0)
        return RankCalls(
            operations.begin[at], np.where(known, operations.begin[by], _UNKNOWN_END),
            np.where(known, operations.end[by], _UNKNOWN_END), label, gives, takes,
            int(self.host[rank]), int(self.last[rank]), bool(self.finished[rank]),
        )  # fmt: skip

    def align_collectives(self, at: I64, ended: I64, turn: I64) -> I64:
        """Return ``turn`` int64[k], the numbers of the collective calls ``at`` among those of their
        rank and communicator, so that calls of one operation have one number."""
        turn = turn.copy()
        number = self.communicators.number[at]
        for communicator in np.flatnonzero(self.communicators_before).tolist():
            mine = np.flatnonzero(number == communicator)
            if len(mine):
                turn[mine] += self._turns(at[mine], ended[mine])
        return turn

    def _turns(self, at: I64, ended: I64) -> I64:
        """Return what to add to the numbers of calls ``at`` on one communicator."""
        operations = self.operations
        rank, role = operations.rank[at], operations.role[at]
        place = operations.named("root")[at]
        root = self.communicators.job_rank(self.communicators.number[at], place, rank)
        roots = root[np.isin(role, (Role.FROM_ROOT, Role.TO_ROOT)) & np.isin(root, rank)]
        reference = int(np.bincount(roots).argmax()) if len(roots) else int(rank.min())
        shift = np.zeros(len(at), np.int64)

        def calls(of: int, other: int) -> RankCalls:
            mine = rank == of
            gives, takes = (
                np.isin(role, _ALL_WAIT)
                | ((role == Role.FROM_ROOT) & (root == giver))
                | ((role == Role.TO_ROOT) & (root == taker))
                for giver, taker in ((of, other), (other, of))
            )
            return self._calls(
                at[mine], ended[mine], operations.function[at[mine]], gives[mine], takes[mine]
            )

        for other in np.setdiff1d(rank, reference).tolist():
            known = find_shift(calls(reference, other), calls(other, reference))
            shift[rank == other] = _APART * (other + 1) if known is None else known
        return shift
