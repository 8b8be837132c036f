"""The communication of one job: everything the calls of its ranks say, worked out when asked."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from hpcd.analysis.messages import clock_offsets, traffic
from hpcd.analysis.messages.call_arrays import CallArrays
from hpcd.analysis.messages.clock_offsets import HostClocks
from hpcd.analysis.messages.communicator_creation import rebuild_communicators
from hpcd.analysis.messages.communicators import UNKNOWN
from hpcd.analysis.messages.late_ranks import LateRanks
from hpcd.analysis.messages.matching import (
    Collectives,
    Endpoints,
    Messages,
    endpoints,
    match,
    match_collectives,
)
from hpcd.analysis.messages.operations import Operations, operations
from hpcd.analysis.messages.requests import Requests, pair
from hpcd.analysis.messages.vector_counts import VectorCounts, vector_counts
from hpcd.analysis.messages.wait_states import (
    Dependencies,
    WaitStates,
    dependencies,
    wait_states,
)
from hpcd.array_types import I64, Mask
from hpcd.model.mpi_functions import COLLECTIVES, Role

_CARRYING = (
    Role.SEND, Role.RECEIVE, Role.RECEIVE_POST, Role.SEND_INIT, Role.RECEIVE_INIT, Role.START,
    Role.MATCHED, Role.MATCHED_RECEIVE, Role.COMPLETE, Role.COMPLETE_MANY, Role.COMPLETE_SOME,
    *COLLECTIVES,
)  # fmt: skip


class Communication:
    """Messages, collectives, traffic and wait states of the ranks of one job.

    ``rank_of_line`` ``int64[lines]`` (-1: of no rank), ``host_of_rank`` ``int64[ranks]``,
    ``started_before`` ``bool[ranks]``: whose processes started before their recording (None: of no
    rank).
    """

    def __init__(
        self,
        calls: CallArrays,
        rank_of_line: I64,
        host_of_rank: I64,
        started_before: Mask | None = None,
    ) -> None:
        self.calls = calls
        self.rank_of_line = rank_of_line
        self._hosts = host_of_rank
        self.recorded: Operations = operations(calls, rank_of_line)
        self.ranks: I64 = np.unique(rank_of_line[rank_of_line >= 0])
        self.communicators = rebuild_communicators(self.recorded, self.ranks)
        self.requests: Requests = pair(self.recorded)
        self.sends: Endpoints
        self.receives: Endpoints
        self.sends, self.receives = endpoints(self.recorded, self.requests, self.communicators)
        if started_before is None:
            started_before = np.zeros(len(host_of_rank), bool)
        self.late = LateRanks.of(
            self.recorded, self.communicators, self.requests, self.receives, started_before,
            host_of_rank,
        )  # fmt: skip

    @property
    def whole(self) -> Communication:
        """The communication of the whole run, of which this may be a part."""
        return self

    @cached_property
    def in_mpi(self) -> float:
        """Seconds that ranks were in calls of MPI."""
        calls = np.unique(self.recorded.call[self._counted()])
        return float((self.recorded.end - self.recorded.begin)[calls].sum()) / 1e9

    def _counted(self) -> Mask:
        """Return ``bool[operations]``: whether an operation belongs to this communication."""
        return np.ones(len(self.recorded), bool)

    @property
    def size(self) -> int:
        """One more than the highest rank."""
        return int(self.ranks.max(initial=-1)) + 1

    @cached_property
    def is_sampled(self) -> bool:
        """Whether some calls that carry messages represent several: sums hold, but messages cannot
        be matched. Calls that only ask, such as ``MPI_Iprobe`` in a loop, may."""
        return bool((self.recorded.weight[self.recorded.are(*_CARRYING)] != 1).any())

    @cached_property
    def messages(self) -> Messages:
        """Matched messages; none where calls are sampled."""
        if self.is_sampled:
            none = np.zeros(0, np.int64)
            return Messages(self.sends, self.receives, none, none, np.zeros(0, bool))
        return match(self.recorded, self.sends, self.receives, self.late)

    @cached_property
    def collectives(self) -> Collectives:
        """Matched collective operations."""
        return match_collectives(self.recorded, self.requests, self.communicators, self.late)

    @cached_property
    def clocks(self) -> HostClocks:
        """Offsets of the hosts' clocks."""
        return clock_offsets.estimate(self.recorded, self.messages, self.collectives, self._hosts)

    @cached_property
    def operations(self) -> Operations:
        """The operations at times of one clock."""
        if len(self.clocks.offset) < 2:
            return self.recorded
        host = self._hosts[self.recorded.rank]
        return replace(
            self.recorded,
            begin=self.clocks.corrected(host, self.recorded.begin),
            end=self.clocks.corrected(host, self.recorded.end),
        )

    @cached_property
    def dependencies(self) -> Dependencies:
        """The operations that need others to have begun; none where calls are sampled."""
        if self.is_sampled:
            none = np.zeros(0, np.int64)
            return Dependencies(none, none, none, none, np.zeros(1, np.int64))
        return dependencies(self.operations, self.messages, self.collectives, self.communicators)

    @cached_property
    def waits(self) -> WaitStates:
        """Wait states; none where calls are sampled."""
        return wait_states(self.operations, self.dependencies)

    @cached_property
    def point_to_point(self) -> traffic.Matrix:
        """Messages sent from rank to rank."""
        return traffic.point_to_point(self.sends, self.messages)

    @cached_property
    def collective_flow(self) -> traffic.Matrix:
        """Bytes that collectives carry from rank to rank."""
        return traffic.collective_flow(
            self.recorded, self.communicators, self.collectives, self.counts
        )

    @cached_property
    def counts(self) -> VectorCounts:
        """Bytes that collectives with a count for each rank pass to each."""
        return vector_counts(self.recorded, self.communicators)

    def by_function(self) -> list[traffic.CollectiveRow]:
        """Collective operations by function and communicator, most time first."""
        return traffic.by_function(
            self.recorded, self.communicators, self.collectives, self.payload
        )

    @cached_property
    def payload(self) -> I64:
        """``int64[n]`` bytes that each operation's caller passes, MISSING where it is not known."""
        return self.counts.totals(self.recorded)

    @cached_property
    def one_sided(self) -> traffic.Matrix:
        """Bytes that puts and gets carry from rank to rank."""
        return traffic.one_sided(self.recorded, self.communicators)

    @property
    def to_other_jobs(self) -> int:
        """Messages on communicators whose other group are processes of another job."""
        foreign = [
            one.number
            for one in self.communicators.all
            if one.remote is not None and not len(one.remote)
        ]
        return sum(int(np.isin(ends.number, foreign).sum()) for ends in (self.sends, self.receives))

    @property
    def unknown_communicators(self) -> int:
        """Operations on communicators whose creation was not recorded."""
        used = self.recorded.named("communicator") != np.iinfo(np.int64).min
        return int((used & (self.communicators.number == UNKNOWN)).sum())
