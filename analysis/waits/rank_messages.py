"""Waits of ranks for one another, as their recorded calls of MPI tell.

Ranks spin in memory that they share: nobody wakes them, and a scheduler sees them at work. When
each of them came to which call says who waited for whom, and which operations could not have ended
before others had begun, waited for or not (:mod:`hpcd.analysis.messages.wait_states`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.messages.communication import Communication
from hpcd.analysis.messages.database_calls import communication
from hpcd.analysis.messages.wait_states import (
    Dependencies,
    WaitKind,
    join_dependencies,
    wait_states,
)
from hpcd.analysis.waits.wait_edges import MESSAGE, WaitEdges
from hpcd.array_types import I64
from hpcd.errors import UsageError
from hpcd.rows import join_rows, take_rows


@dataclass(frozen=True, slots=True)
class Needs:
    """Holds what lines could not pass before others had come to a meeting.

    ``line`` ``int64[n]`` waited from ``begin`` to ``time`` ``int64[n]`` ns, not at all where these
    are equal, for meeting ``meeting`` ``int64[n]`` of ``meetings``. Line ``member_line``
    ``int64[m]`` came to ``member_meeting`` ``int64[m]`` at ``member_time`` ``int64[m]``, none later
    than those times.
    """

    line: I64
    begin: I64
    time: I64
    meeting: I64
    member_line: I64
    member_time: I64
    member_meeting: I64
    meetings: int


_NONE = np.zeros(0, np.int64)
NO_NEEDS = Needs(_NONE, _NONE, _NONE, _NONE, _NONE, _NONE, _NONE, 0)


class RankMessages:
    """The waits of all ranks in a database for one another, of each job by its own messages.

    Hosts of a job whose clocks differ by its messages are put on one clock.
    """

    def __init__(self, db: Database) -> None:
        """O(n log n) in calls of MPI. Raises :class:`FormatError`."""
        self._job_of_line, names = db.lines.groups("job")
        self._host_of_line, _ = db.lines.groups("host")
        self._jobs: dict[int, tuple[Communication, Dependencies]] = {}
        for number, name in enumerate(names):
            try:
                job = communication(db, name)
            except UsageError:  # none of this job called MPI, or it has no ranks
                continue
            self._jobs[number] = job, join_dependencies([job.dependencies, _end_of_job(job)])

    def edges(self) -> WaitEdges:
        """Return the waits."""
        rows = [np.zeros((6, 0), np.int64)]
        for job, dependencies in self._jobs.values():
            operations, waits = job.operations, wait_states(job.operations, dependencies)
            waiter, delayer = waits.operation, waits.delayer
            rows.append(np.stack([
                operations.line[waiter], operations.begin[waiter], operations.begin[delayer],
                operations.line[delayer], operations.node[waiter], operations.node[delayer],
            ]))  # fmt: skip
        line, begin, end, waker, node, path = np.concatenate(rows, axis=1)
        none = np.zeros(len(line), np.uint32)
        edges = WaitEdges(
            line, begin, end, node.astype(np.uint32), np.full(len(line), MESSAGE, np.uint8), waker,
            path.astype(np.uint32), none.astype(np.uint64), none, none.astype(bool),
        )  # fmt: skip
        edges = take_rows(edges, np.lexsort((begin, line)))
        # Calls of a line do not overlap; those of a damaged database may.
        apart = np.ones(len(edges), bool)
        for line in np.unique(edges.line).tolist():
            own = edges.of(line)
            apart[own][1:] = edges.begin[own][1:] >= np.maximum.accumulate(edges.end[own])[:-1]
        return take_rows(edges, apart)

    def needs(self) -> Needs:
        """Return all that operations needed of other ranks. O(n log n).

        Of a send it is not known whether it needs its receive, unless it waited for it.
        """
        rows, members, meetings = [np.zeros((4, 0), np.int64)], [np.zeros((3, 0), np.int64)], 0
        for job, needs in self._jobs.values():
            operations, member = job.operations, needs.member
            begin = operations.begin[needs.operation]
            arrival = operations.begin[needs.last(operations.begin)]
            needed = (arrival < operations.end[needs.operation]) & (
                (needs.kind != WaitKind.LATE_RECEIVER) | (arrival > begin)
            )
            line = operations.line[needs.operation]
            rows.append(np.stack([line, begin, arrival, needs.group + meetings])[:, needed])
            of_member = np.repeat(np.arange(len(needs.first) - 1), np.diff(needs.first))
            came = operations.line[member], operations.begin[member], of_member + meetings
            members.append(np.stack(came))
            meetings += len(needs.first) - 1
        line, begin, arrival, meeting = np.concatenate(rows, axis=1)
        order = np.lexsort((arrival, begin, line))
        line, begin, arrival, meeting = (one[order] for one in (line, begin, arrival, meeting))
        time = np.maximum(begin, arrival)
        # A call that needed several ranks waits for each from the end of the wait before.
        again = (line[1:] == line[:-1]) & (begin[1:] == begin[:-1])
        since = begin.copy()
        since[1:][again] = time[:-1][again]
        member_line, member_time, member_meeting = np.concatenate(members, axis=1)
        return Needs(line, since, time, meeting, member_line, member_time, member_meeting, meetings)

    def on_one_clock(self, line: I64, time: I64) -> I64:
        """Return the ``time`` ``int64[n]`` of ``line`` ``int64[n]`` on the clock of their jobs."""
        for number, (job, _) in self._jobs.items():
            if len(job.clocks.offset) > 1:
                host = np.minimum(self._host_of_line[line], len(job.clocks.offset) - 1)
                mine = (self._job_of_line[line] == number) & (host == self._host_of_line[line])
                time = np.where(mine, job.clocks.corrected(host, time), time)
        return time


def _end_of_job(job: Communication) -> Dependencies:
    """Return what calls of MPI_Finalize need: all ranks meet there, as far as none returned before
    the last one called it; the standard does not ask for it."""
    operations = job.operations
    names = [one.name == "MPI_Finalize" for one in operations.calls.functions]
    calls = np.flatnonzero(np.array([*names, False])[operations.function])
    if len(calls) != len(job.ranks) or operations.end[calls].min() <= operations.begin[calls].max():
        calls = calls[:0]
    group = np.zeros(len(calls), np.int64)
    return Dependencies(
        np.full(len(calls), WaitKind.WAIT_AT_BARRIER), calls, group, calls,
        np.array([0, len(calls)]),
    )  # fmt: skip


def read_edges(db: Database, messages: RankMessages) -> WaitEdges:
    """Return all waits of ``db``. What is recorded of a thread while it waits for a message, sleep
    now and then, is left out: until the other rank comes to its call that is one wait.

    O(n log n). Raises :class:`FormatError`.
    """
    waits = db.waits
    line = np.repeat(np.arange(len(waits.first) - 1), np.diff(waits.first))
    begin, end = (messages.on_one_clock(line, time) for time in (waits.begin, waits.end))
    recorded = WaitEdges(
        line, begin, end, waits.node, waits.kind, waits.waker, waits.path, waits.futex, waits.other,
        waits.again,
    )  # fmt: skip
    inferred = messages.edges()
    edges = join_rows([recorded.outside(inferred), inferred])
    return take_rows(edges, np.lexsort((edges.begin, edges.line)))
