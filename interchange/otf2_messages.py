"""Recorded calls of MPI as messages, collective operations and communicators of an OTF2 archive.

A job's ranks are places in one list of locations, of which communicators' groups name some. Ranks
in events are those of the communicator.
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
from hpcd.interchange.export_selection import ExportSelection
from hpcd.interchange.otf2_events import UNDEFINED_32, CallEvents, EventKind, Strings
from hpcd.model.calls import Group
from hpcd.model.mpi_functions import Role
from hpcd.model.mpi_records import MISSING

# Of collectives that OTF2 names otherwise, or not at all.
_OTHER_NAMES = {"NEIGHBOR_ALLTOALL": "ALLTOALL", "NEIGHBOR_ALLGATHER": "ALLGATHER"}
# OTF2_CollectiveRoot.
_ROOT_IS_SELF, _ROOT_IN_THIS_GROUP = UNDEFINED_32 - 1, UNDEFINED_32 - 2
_ALLOCATES = "WIN_ALLOCATE"


class ArchivedMessages:
    """The communication of every job of a database, as far as it is selected.

    ``notes`` says what is left out.
    """

    def __init__(self, selection: ExportSelection, strings: Strings) -> None:
        """O(n · log n) in the calls of MPI, all of which are in memory."""
        self._strings = strings
        self.notes: list[str] = []
        self._groups: dict[tuple[str, tuple[int, ...]], int] = {}
        self._comms: list[tuple[str, int, int]] = []
        self._windows: list[tuple[str, int]] = []
        self.locations: list[int] = []
        """Trace lines that stand for ranks, job after job."""
        parts = [part for found in _jobs(selection.db) for part in self._events(selection, found)]
        self._all = CallEvents.joined(parts)
        lines = np.arange(len(selection.db.lines) + 1)
        self._first = np.searchsorted(self._all.line, lines)

    def of_line(self, line: int) -> CallEvents:
        """The events of trace line ``line``, in order."""
        return self._all[slice(self._first[line], self._first[line + 1])]

    def _events(self, selection: ExportSelection, found: Communication) -> Iterator[CallEvents]:
        if found.is_sampled:
            self.notes.append(
                "calls of MPI were passed over to keep the budget: messages and collectives are"
                " left out"
            )
            return
        if len(found.communicators.guessed_worlds):
            self.notes.append(
                f"of {len(found.communicators.guessed_worlds):,} ranks MPI_COMM_WORLD is the"
                " communicator that they used most: they were in MPI before the recording began"
            )
        if found.unknown_communicators:
            self.notes.append(
                f"{found.unknown_communicators:,} operations on communicators that are not known"
                " are left out"
            )
        first = self._define(found)
        names = [function.name.partition("/")[0] for function in found.calls.functions]
        job = _Job(
            found, first, np.array([self._strings[name] for name in names] + [0], np.int64),
            selection.select_calls(
                found.recorded.line, found.recorded.begin, found.recorded.end, found.recorded.node
            ),
        )  # fmt: skip
        yield from job.sends()
        yield from job.receives()
        yield from job.collectives()
        yield from job.one_sided(self._windows)

    def _define(self, found: Communication) -> int:
        """Take in the job's locations and communicators; the number of the first of these."""
        place = dict(zip(found.ranks.tolist(), range(len(self.locations), 1 << 62), strict=False))
        self.locations += _lines_of_ranks(found)
        first = len(self._comms)
        for one in found.communicators.all:
            # Of one between two groups both: OTF2 counts the ranks of either.
            members = tuple(place[rank] for rank in one.everybody.tolist() if rank in place)
            group = self._groups.setdefault((_shape(one), members), len(self._groups) + 1)
            self._comms.append(
                (one.name, group, UNDEFINED_32 if one.parent < 0 else first + one.parent)
            )
        return first

    def define_strings(self) -> None:
        """Have all strings of the definitions numbered."""
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
    ``int64[functions + 1]`` strings, ``taken`` ``bool[operations]``."""

    def __init__(self, found: Communication, first: int, functions: I64, taken: Mask) -> None:
        self._found = found
        self._operations: Operations = found.recorded
        self._first = first
        self._functions = functions
        self._taken = taken
        # Of calls that begin when another ends, the end comes first.
        self._turn = 2 * np.arange(len(found.recorded))
        self._place = _Places(found.communicators)

    def sends(self) -> Iterator[CallEvents]:
        """All sends whose receiver is known."""
        sends = self._found.sends
        at = self._which(sends, sends.peer)
        receiver = self._place.of(sends.number[at], sends.peer[at])
        size = sent_sizes(sends, self._found.messages)[at]
        yield from self._message(
            sends, at, receiver, np.maximum(sends.tag[at], 0), np.maximum(size, 0), sent=True
        )

    def receives(self) -> Iterator[CallEvents]:
        """All receives whose sender is known; what they do not say themselves is taken from the
        message that they got."""
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
        return np.flatnonzero(known & self._taken[ends.operation])

    def _message(
        self, ends: Endpoints, at: I64, peer: I64, tag: I64, size: I64, *, sent: bool
    ) -> Iterator[CallEvents]:
        """``at``: which of ``ends``; the others of each of these."""
        begun, ended = ends.operation[at], ends.ended[at]
        number = self._first + ends.number[at]
        request = 3 * at + (0 if sent else 1)
        blocking = begun == ended
        done = ~blocking & (ended != NONE) & self._taken[np.maximum(ended, 0)]
        envelope = peer, number, tag, size
        if sent:
            yield self._made(EventKind.MPI_SEND, begun, blocking, envelope)
            yield self._made(EventKind.MPI_ISEND, begun, ~blocking, (*envelope, request))
            yield self._made(EventKind.MPI_ISEND_COMPLETE, ended, done, (request,), end=True)
        else:
            yield self._made(EventKind.MPI_RECEIVE, begun, blocking, envelope, end=True)
            yield self._made(EventKind.MPI_IRECEIVE_REQUEST, begun, ~blocking, (request,))
            yield self._made(EventKind.MPI_IRECEIVE, ended, done, (*envelope, request), end=True)

    def collectives(self) -> Iterator[CallEvents]:
        """Collective operations, also those that lack ranks.

        Bytes are those that the caller passes: of what comes from a root they are received by all
        but it, else sent.
        """
        operations, communicators = self._operations, self._found.communicators
        at, ended = self._found.collectives.operation, self._found.collectives.ended
        kept = self._taken[at]
        at, ended = at[kept], ended[kept]
        number = communicators.number[at]
        root = operations.named("root")[at]
        is_root = communicators.job_rank(number, root, operations.rank[at]) == operations.rank[at]
        # Between two groups the root's own says that it is it, or that it is of its group.
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
        done = ~blocking & (ended != NONE) & self._taken[np.maximum(ended, 0)]
        request = 3 * at + 2
        yield self._made(EventKind.MPI_COLLECTIVE_BEGIN, at, blocking, ())
        yield self._made(EventKind.MPI_COLLECTIVE_END, at, blocking, arguments, end=True)
        yield self._made(EventKind.COLLECTIVE_REQUEST, at, ~blocking, (request,))
        yield self._made(
            EventKind.COLLECTIVE_COMPLETE, ended, done, (*arguments, request), end=True
        )

    def one_sided(self, windows: list[tuple[str, int]]) -> Iterator[CallEvents]:
        """Windows, which are appended as (name, communicator), and what puts and gets carry."""
        operations, communicators = self._operations, self._found.communicators
        collectives = self._found.collectives
        # Calls that make a window are one operation on all ranks.
        is_new = operations.role[collectives.operation] == Role.NEW_WINDOW
        instances, place = np.unique(collectives.instance[is_new], return_inverse=True)
        window = np.full(len(operations) + 1, -1, np.int64)
        window[collectives.operation[is_new]] = len(windows) + place
        number = communicators.number[collectives.operation[collectives.first[instances]]]
        windows += [
            (f"window of {communicators.all[one].name}", self._first + one)
            for one in number.tolist()
        ]
        new = collectives.operation[is_new]
        yield self._made(EventKind.WINDOW_CREATE, new, self._taken[new], (window[new],), end=True)
        at, made = one_sided_calls(operations)
        peer = operations.named("peer")[at]
        size = operations.payload[at]
        known = (window[made] >= 0) & self._taken[at]
        known &= communicators.job_rank(communicators.number[made], peer, operations.rank[at]) >= 0
        transfer = window[made], peer, np.where(size == MISSING, 0, size), 3 * at + 2
        for kind, role in ((EventKind.PUT, Role.PUT), (EventKind.GET, Role.GET)):
            yield self._made(kind, at, known & (operations.role[at] == role), transfer)
        complete = transfer[0], transfer[3]
        yield self._made(EventKind.TRANSFER_COMPLETE, at, known, complete, end=True)

    def _made(
        self,
        kind: EventKind,
        at: I64,
        which: Mask,
        arguments: tuple[I64, ...],
        *,
        end: bool = False,
    ) -> CallEvents:
        """Events of operations ``at[which]``, when these begin or ``end``."""
        operations, at = self._operations, at[which]
        return CallEvents.made(
            kind, operations.line[at], (operations.end if end else operations.begin)[at],
            self._turn[at] + end, operations.node[at], self._functions[operations.function[at]],
            [column[which] for column in arguments],
            duration=(operations.end - operations.begin)[at],
        )  # fmt: skip


class _Places:
    """Which rank of a communicator a rank of the job is."""

    def __init__(self, communicators: Communicators) -> None:
        members = [one.everybody for one in communicators.all]
        size = np.array([len(one) for one in members], np.int64)
        rank = np.concatenate(members)
        self._spread = int(rank.max(initial=0)) + 1
        key = np.repeat(np.arange(len(size)), size) * self._spread + rank
        self._order = np.argsort(key)
        self._key = key[self._order]
        self._start = np.cumsum(size) - size

    def of(self, number: I64, rank: I64) -> I64:
        """``int64[n]``: the place of members ``rank`` in communicators ``number``."""
        at = np.searchsorted(self._key, number * self._spread + rank)
        return self._order[at] - self._start[number]


def _jobs(db: Database) -> Iterator[Communication]:
    """The communication of every job that has ranks and called MPI."""
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


def _shape(one: Communicator) -> str:
    """What the list of members does not say of a communicator: the name of its group."""
    if one.remote is not None:
        return f"two groups: {len(one.members)} and {len(one.remote)}"
    if one.dims:
        wraps = " ".join(str(int(bool(period))) for period in one.periods)
        return f"grid: {' x '.join(map(str, one.dims))}, wraps: {wraps}"
    return "" if one.ordered else "in an unknown order"


def _lines_of_ranks(found: Communication) -> list[int]:
    """Of every rank the trace line that calls MPI most, or its first one."""
    calls = np.bincount(found.recorded.line, minlength=len(found.rank_of_line))
    ranked = np.flatnonzero(found.rank_of_line >= 0)
    order = ranked[np.lexsort((ranked, -calls[ranked], found.rank_of_line[ranked]))]
    _, first = np.unique(found.rank_of_line[order], return_index=True)
    lines: list[int] = order[first].tolist()
    return lines


def _code(function: str) -> int:
    """OTF2's number of a collective operation. What makes communicators or windows is one, too."""
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
