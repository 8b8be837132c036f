"""Recorded calls of MPI as messages, collective operations and communicators of an OTF2 archive.

A job's ranks are places in one list of locations, of which communicators' groups name some. Ranks
in events are numbered in the communicator.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import _otf2
import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.messages.communication import Communication
from hpcd.analysis.messages.communicators import UNKNOWN, Communicator, Communicators
from hpcd.analysis.messages.database_calls import communication
from hpcd.analysis.messages.matching import Endpoints
from hpcd.analysis.messages.operations import Operations
from hpcd.analysis.messages.requests import NONE
from hpcd.analysis.messages.traffic import one_sided_calls, sent_sizes
from hpcd.array_types import I64, Mask
from hpcd.errors import UsageError
from hpcd.interchange.numbering import Numbering
from hpcd.interchange.otf2 import otf2_conventions as conventions
from hpcd.interchange.otf2.otf2_events import UNDEFINED_32, CallEventKind, CallEvents
from hpcd.interchange.output.export_selection import ExportSelection
from hpcd.model.calls import Group
from hpcd.model.mpi_functions import Role
from hpcd.model.mpi_records import MISSING

# Collectives that OTF2 names otherwise, or not at all.
_OTHER_NAMES = {"NEIGHBOR_ALLTOALL": "ALLTOALL", "NEIGHBOR_ALLGATHER": "ALLGATHER"}
# OTF2_CollectiveRoot.
_ROOT_IS_SELF, _ROOT_IN_THIS_GROUP = UNDEFINED_32 - 1, UNDEFINED_32 - 2
_ALLOCATES = "WIN_ALLOCATE"


class ArchivedMessages:
    """The communication of every job of a database, as far as it is selected.

    ``notes`` are sentences on data that is left out.
    """

    def __init__(self, selection: ExportSelection, strings: Numbering[str]) -> None:
        """Match messages: O(n · log n) in the number of MPI calls, which are all in memory."""
        self._strings = strings
        self.notes: list[str] = []
        self._groups: Numbering[tuple[str, tuple[int, ...]]] = Numbering(first=1)
        self._comms: list[tuple[str, int, int]] = []
        self._windows: list[tuple[str, int]] = []
        self.locations: list[int] = []
        """Trace lines that represent ranks, job after job."""
        parts = [
            part for traffic in _jobs(selection.db) for part in self._events(selection, traffic)
        ]
        self._all = CallEvents.join(parts)
        lines = np.arange(len(selection.db.lines) + 1)
        self._first = np.searchsorted(self._all.line, lines)

    def of_line(self, line: int) -> CallEvents:
        """Return the events of trace line ``line``, in order."""
        return self._all[slice(self._first[line], self._first[line + 1])]

    def _events(self, selection: ExportSelection, traffic: Communication) -> Iterator[CallEvents]:
        if traffic.is_sampled:
            self.notes.append(
                "calls of MPI were passed over to keep the budget: messages and collectives are"
                " left out"
            )
            return
        if len(traffic.communicators.guessed_worlds):
            self.notes.append(
                f"of {len(traffic.communicators.guessed_worlds):,} ranks MPI_COMM_WORLD is the"
                " communicator that they used most: they were in MPI before the recording began"
            )
        if traffic.unknown_communicators:
            self.notes.append(
                f"{traffic.unknown_communicators:,} operations on communicators that are not known"
                " are left out"
            )
        first = self._define(traffic)
        names = [function.name.partition("/")[0] for function in traffic.calls.functions]
        strings = np.array([self._strings[name] for name in names] + [0], np.int64)
        calls = traffic.recorded
        selected = selection.select_calls(calls.line, calls.begin, calls.end, calls.node)
        job = _Job(traffic, first, strings, selected)
        yield from job.sends()
        yield from job.receives()
        yield from job.collectives()
        yield from job.one_sided(self._windows)

    def _define(self, traffic: Communication) -> int:
        """Add the job's locations and communicators; returns the number of the first of these."""
        place = dict(zip(traffic.ranks.tolist(), range(len(self.locations), 1 << 62), strict=False))
        self.locations += _lines_of_ranks(traffic)
        first = len(self._comms)
        for communicator in traffic.communicators.all:
            # Both groups of an intercommunicator: OTF2 counts the ranks of either.
            members = tuple(
                place[rank] for rank in communicator.everybody.tolist() if rank in place
            )
            group = self._groups[_group_name(communicator), members]
            self._comms.append(
                (
                    communicator.name,
                    group,
                    UNDEFINED_32 if communicator.parent < 0 else first + communicator.parent,
                )
            )
        return first

    def define_strings(self) -> None:
        """Number all strings of the definitions."""
        if self._comms:
            names = [name for name, _, _ in self._comms] + [name for name, _ in self._windows]
            shapes = [shape for shape, _ in self._groups]
            for text in ("MPI", *names, *shapes):
                self._strings[text]

    def write_definitions(self, writer: Any) -> None:
        """Write groups and communicators; locations must have been written."""
        if not self._comms:
            return
        strings, paradigm = self._strings, _otf2.PARADIGM_MPI
        _otf2.GlobalDefWriter_WriteParadigm(
            writer, paradigm, strings["MPI"], _otf2.PARADIGM_CLASS_PROCESS
        )
        _otf2.GlobalDefWriter_WriteGroup(
            writer, 0, strings["MPI"], _otf2.GROUP_TYPE_COMM_LOCATIONS, paradigm,
            _otf2.GROUP_FLAG_NONE, self.locations,
        )  # fmt: skip
        for (shape, members), number in self._groups.items():
            _otf2.GlobalDefWriter_WriteGroup(
                writer, number, strings[shape], _otf2.GROUP_TYPE_COMM_GROUP, paradigm,
                _otf2.GROUP_FLAG_NONE, members,
            )  # fmt: skip
        for number, (name, group, parent) in enumerate(self._comms):
            _otf2.GlobalDefWriter_WriteComm(
                writer, number, strings[name], group, parent, _otf2.COMM_FLAG_NONE
            )
        for number, (name, comm) in enumerate(self._windows):
            _otf2.GlobalDefWriter_WriteRmaWin(
                writer, number, strings[name], comm, _otf2.RMA_WIN_FLAG_NONE
            )


class _Job:
    """The events of one job. ``first`` is the number of its first communicator, ``functions``
    int64[functions + 1] are strings, ``selected`` bool[operations]."""

    def __init__(self, traffic: Communication, first: int, functions: I64, selected: Mask) -> None:
        self._found = traffic
        self._operations: Operations = traffic.recorded
        self._first = first
        self._functions = functions
        self._selected = selected
        # Where a call begins when another ends, the end comes first.
        self._turn = 2 * np.arange(len(traffic.recorded))
        self._place = _MemberRanks(traffic.communicators)

    def sends(self) -> Iterator[CallEvents]:
        """Yield all sends whose receiver is known."""
        sends = self._found.sends
        at = self._which(sends, sends.peer)
        receiver = self._place.of(sends.number[at], sends.peer[at])
        size = sent_sizes(sends, self._found.messages)[at]
        yield from self._message(
            sends, at, receiver, np.maximum(sends.tag[at], 0), np.maximum(size, 0), sent=True
        )

    def receives(self) -> Iterator[CallEvents]:
        """Yield all receives with a known sender; values missing in a receive are taken from the
        message."""
        receives, messages = self._found.receives, self._found.messages
        peer, tag, size = receives.peer.copy(), receives.tag.copy(), receives.size.copy()
        send = messages.send
        peer[messages.receive] = messages.sends.rank[send]
        tag[messages.receive] = messages.sends.tag[send]
        size[messages.receive] = messages.size
        at = self._which(receives, peer)
        sender = self._place.of(receives.number[at], peer[at])
        yield from self._message(
            receives, at, sender, np.maximum(tag[at], 0), np.maximum(size[at], 0), sent=False
        )

    def _which(self, ends: Endpoints, peer: I64) -> I64:
        known = (ends.number != UNKNOWN) & (peer >= 0)
        return np.flatnonzero(known & self._selected[ends.operation])

    def _message(
        self, ends: Endpoints, at: I64, peer: I64, tag: I64, size: I64, *, sent: bool
    ) -> Iterator[CallEvents]:
        """Yield events of ``ends[at]``; the other arguments are by ``at``."""
        begun, ended = ends.operation[at], ends.ended[at]
        number = self._first + ends.number[at]
        request = 3 * at + (0 if sent else 1)
        blocking = begun == ended
        done = ~blocking & (ended != NONE) & self._selected[np.maximum(ended, 0)]
        envelope = peer, number, tag, size
        if sent:
            yield self._events_of(CallEventKind.MPI_SEND, begun, blocking, envelope)
            yield self._events_of(CallEventKind.MPI_ISEND, begun, ~blocking, (*envelope, request))
            yield self._events_of(
                CallEventKind.MPI_ISEND_COMPLETE, ended, done, (request,), end=True
            )
        else:
            yield self._events_of(CallEventKind.MPI_RECEIVE, begun, blocking, envelope, end=True)
            yield self._events_of(CallEventKind.MPI_IRECEIVE_REQUEST, begun, ~blocking, (request,))
            yield self._events_of(
                CallEventKind.MPI_IRECEIVE, ended, done, (*envelope, request), end=True
            )

    def collectives(self) -> Iterator[CallEvents]:
        """Yield collective operations, including operations that lack ranks.

        Bytes are the caller's: received bytes on all ranks but the root of an operation from a
        root, else sent bytes.
        """
        operations, communicators = self._operations, self._found.communicators
        at, ended = self._found.collectives.operation, self._found.collectives.ended
        kept = self._selected[at]
        at, ended = at[kept], ended[kept]
        number = communicators.number[at]
        root = operations.named("root")[at]
        is_root = communicators.job_rank(number, root, operations.rank[at]) == operations.rank[at]
        # Between two groups the root names itself, and the ranks of its group name none.
        between, flavour = communicators.between[number], operations.flavour
        is_root = np.where(between, root == flavour.root, is_root)
        beside = between & (root == flavour.proc_null)
        payload = self._found.payload[at]
        payload = np.where(payload == MISSING, 0, payload)
        received = (operations.role[at] == Role.FROM_ROOT) & ~is_root & ~beside
        codes = np.array([_code(f.name) for f in self._found.calls.functions] + [0], np.int64)
        arguments = (
            codes[operations.function[at]], self._first + number,
            np.select(
                [root == MISSING, between & is_root, beside],
                [UNDEFINED_32, _ROOT_IS_SELF, _ROOT_IN_THIS_GROUP], root,
            ),
            np.where(received, 0, payload), np.where(received, payload, 0),
        )  # fmt: skip
        blocking = at == ended
        done = ~blocking & (ended != NONE) & self._selected[np.maximum(ended, 0)]
        request = 3 * at + 2
        yield self._events_of(CallEventKind.MPI_COLLECTIVE_BEGIN, at, blocking, ())
        yield self._events_of(CallEventKind.MPI_COLLECTIVE_END, at, blocking, arguments, end=True)
        yield self._events_of(CallEventKind.COLLECTIVE_REQUEST, at, ~blocking, (request,))
        yield self._events_of(
            CallEventKind.COLLECTIVE_COMPLETE, ended, done, (*arguments, request), end=True
        )

    def one_sided(self, windows: list[tuple[str, int]]) -> Iterator[CallEvents]:
        """Yield windows, appended to ``windows`` as (name, communicator), puts and gets."""
        operations, communicators = self._operations, self._found.communicators
        collectives = self._found.collectives
        # Calls that make a window are one operation on all ranks.
        is_new = operations.role[collectives.operation] == Role.NEW_WINDOW
        instances, place = np.unique(collectives.instance[is_new], return_inverse=True)
        window = np.full(len(operations) + 1, -1, np.int64)
        window[collectives.operation[is_new]] = len(windows) + place
        number = communicators.number[collectives.operation[collectives.first[instances]]]
        windows += [
            (f"window of {communicators.all[place].name}", self._first + place)
            for place in number.tolist()
        ]
        new = collectives.operation[is_new]
        yield self._events_of(
            CallEventKind.WINDOW_CREATE, new, self._selected[new], (window[new],), end=True
        )
        at, creation = one_sided_calls(operations)
        peer = operations.named("peer")[at]
        size = operations.payload[at]
        known = (window[creation] >= 0) & self._selected[at]
        known &= (
            communicators.job_rank(communicators.number[creation], peer, operations.rank[at]) >= 0
        )
        transfer = window[creation], peer, np.where(size == MISSING, 0, size), 3 * at + 2
        for kind, role in ((CallEventKind.PUT, Role.PUT), (CallEventKind.GET, Role.GET)):
            yield self._events_of(kind, at, known & (operations.role[at] == role), transfer)
        complete = transfer[0], transfer[3]
        yield self._events_of(CallEventKind.TRANSFER_COMPLETE, at, known, complete, end=True)

    def _events_of(
        self,
        kind: CallEventKind,
        at: I64,
        which: Mask,
        arguments: tuple[I64, ...],
        *,
        end: bool = False,
    ) -> CallEvents:
        """Return events of operations ``at[which]``, at their begin or ``end``."""
        operations, at = self._operations, at[which]
        return CallEvents.of_kind(
            kind, operations.line[at], (operations.end if end else operations.begin)[at],
            self._turn[at] + end, operations.node[at], self._functions[operations.function[at]],
            [column[which] for column in arguments],
            duration=(operations.end - operations.begin)[at],
        )  # fmt: skip


class _MemberRanks:
    """Ranks of communicators by ranks of the job."""

    def __init__(self, communicators: Communicators) -> None:
        members = [communicator.everybody for communicator in communicators.all]
        size = np.array([len(ranks) for ranks in members], np.int64)
        rank = np.concatenate(members)
        self._spread = int(rank.max(initial=0)) + 1
        key = np.repeat(np.arange(len(size)), size) * self._spread + rank
        self._order = np.argsort(key)
        self._key = key[self._order]
        self._start = np.cumsum(size) - size

    def of(self, number: I64, rank: I64) -> I64:
        """Return int64[n]: the place of members ``rank`` in communicators ``number``."""
        at = np.searchsorted(self._key, number * self._spread + rank)
        return self._order[at] - self._start[number]


def _jobs(db: Database) -> Iterator[Communication]:
    """Yield the communication of every job that has ranks and called MPI."""
    functions = db.calls.of_group(Group.MPI)
    if not functions or not len(db.calls):
        return
    calling = np.unique(db.calls.line[db.calls.are(functions)[db.calls.function]])
    jobs, names = db.lines.groups("job")
    for number in np.unique(jobs[calling]).tolist():
        try:
            yield communication(db, names[number])
        except UsageError:
            # Processes without ranks have no messages.
            continue


def _group_name(communicator: Communicator) -> str:
    """Return the name of a communicator's group, with facts that the list of members lacks."""
    if communicator.remote is not None:
        return conventions.name_two_groups(len(communicator.members), len(communicator.remote))
    if communicator.dims:
        return conventions.name_grid(communicator.dims, communicator.periods)
    return conventions.name_plain(ordered=communicator.ordered)


def _lines_of_ranks(traffic: Communication) -> list[int]:
    """Return for every rank the trace line that calls MPI most, or its first one."""
    calls = np.bincount(traffic.recorded.line, minlength=len(traffic.rank_of_line))
    ranked = np.flatnonzero(traffic.rank_of_line >= 0)
    order = ranked[np.lexsort((ranked, -calls[ranked], traffic.rank_of_line[ranked]))]
    _, first = np.unique(traffic.rank_of_line[order], return_index=True)
    lines: list[int] = order[first].tolist()
    return lines


def _code(function: str) -> int:
    """Return OTF2's number of a collective operation or of an operation that makes a handle."""
    name = function.removeprefix("MPI_").upper()
    codes = vars(_otf2)
    for plain in (name, name.removeprefix("I")):
        plain = _OTHER_NAMES.get(plain, plain)
        code = codes.get(f"COLLECTIVE_OP_{plain}")
        if code is not None:
            return int(code.value)
    if name == _ALLOCATES:
        return int(_otf2.COLLECTIVE_OP_CREATE_HANDLE_AND_ALLOCATE.value)
    return int(_otf2.COLLECTIVE_OP_CREATE_HANDLE.value)
