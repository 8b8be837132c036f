"""Sums of waits by their wakers, and by the causes at the ends of chains of waits.

This is cascaded redistribution (Zhou et al., wPerf, OSDI 2018). While a thread waits for another,
the time in which that thread waits itself is passed on to its own waker, and so on. Each hop is
clipped to the window of the wait before it, so that the parts of a wait add up to it, however long
the chain: the cause is the activity of the chain's last thread in the window.

A wait for a lock is divided among those who held the lock meanwhile, and a wake-up in vain ends no
wait: it goes on until the thread was woken for good.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.parallel.waiting import StretchReader
from hpcd.analysis.waits.false_wakeups import enders, woken_in_vain
from hpcd.analysis.waits.locks import Locks, locks_of
from hpcd.analysis.waits.rank_messages import RankMessages, read_edges
from hpcd.analysis.waits.requested_events import with_requests
from hpcd.analysis.waits.wait_edges import MESSAGE, WaitEdges
from hpcd.array_types import I64, U8, U32
from hpcd.kernels.library import CStructure, kernels, structure
from hpcd.model.codes import Waker
from hpcd.rows import take_rows

_LEAST_PLACES = 1 << 12
_LEAST_STEPS = 1 << 12
# A kind of kernels is a Cause in this number of bits, and above it an index of names.
_KIND_BITS = np.uint32(8)


class Cause(IntEnum):
    """Causes of waiting: the wakers of :class:`~hpcd.model.codes.Waker`, whose line is that of the
    thread that waited, and what recorded threads did (``enum cause`` of ``kernels.h``)."""

    NOT_SEEN = Waker.NOT_SEEN
    OUTSIDE = Waker.THREAD
    """A thread that is not recorded."""
    KERNEL_THREAD = Waker.KERNEL_THREAD
    TIMER = Waker.TIMER
    SOFTIRQ = Waker.SOFTIRQ
    INTERRUPT = Waker.INTERRUPT
    UNKNOWN = Waker.UNKNOWN
    THREAD = kernels.CAUSE_THREAD
    RUNNABLE = kernels.CAUSE_RUNNABLE
    UNBORN = kernels.CAUSE_UNBORN
    MESSAGE = kernels.CAUSE_MESSAGE
    """A recorded thread whose call of MPI was waited for."""

    @property
    def label(self) -> str:
        """Its name in JSON."""
        return self.name.lower().replace("_", "-")


@dataclass(frozen=True, slots=True)
class Pieces:
    """Holds what trace lines did while they did not wait, of each line in order of time.

    ``first`` ``int64[lines + 1]``; ``begin``, ``end`` ``int64[n]`` ns; ``node`` ``uint32[n]``;
    ``kind`` ``uint8[n]``, a :class:`Cause`.
    """

    first: I64
    begin: I64
    end: I64
    node: U32
    kind: U8


@dataclass(frozen=True, slots=True)
class Waits:
    """Holds waits by trace line, in order of time.

    ``first`` is as in :class:`~hpcd.analysis.database.recorded_waits.RecordedWaits`, ``begin`` to
    ``other`` as in :class:`~hpcd.analysis.waits.wait_edges.WaitEdges`. ``ender`` ``int64[n]`` is
    the wait whose end ended each: if the thread was woken in vain, a later wait of its line.
    ``locks`` are those that they waited for.
    """

    first: I64
    begin: I64
    end: I64
    waker: I64
    node: U32
    kind: U8
    path: U32
    other: U32
    ender: I64
    locks: Locks


@dataclass(frozen=True, slots=True)
class WaitGraph:
    """Holds the ``edges`` of a database, as ``waits``, and the ``pieces`` of what lines did between
    them; ``structure`` has both as kernels take them. Contexts are those of the user's code."""

    edges: WaitEdges
    waits: Waits
    pieces: Pieces
    structure: CStructure


@dataclass(frozen=True, slots=True)
class Causes:
    """Waiting, summed: ``ns`` ``int64[n]`` of the waits at ``node`` ``uint32[n]`` were caused by
    ``line`` ``uint32[n]`` in ``cause_node`` ``uint32[n]`` (0: not known), for the reason ``kind``
    ``uint32[n]``, a :class:`Cause`; ``other`` ``uint32[n]`` says who that was, as of waits;
    ``count`` ``int64[n]`` are the parts that were summed. Contexts are those of the user's code:
    what the kernel does there is theirs.
    """

    node: U32
    line: U32
    cause_node: U32
    kind: U32
    other: U32
    ns: I64
    count: I64


@dataclass(frozen=True, slots=True)
class WaitSteps:
    """Holds what lines did, step by step: from ``begin`` to ``end`` ``int64[n]``, ns since the
    origin, ``line`` ``uint32[n]`` did ``kind`` ``uint8[n]``, a :class:`Cause`, in the context
    ``node`` ``uint32[n]`` (0: not known). ``other`` ``uint32[n]`` says who ended a wait, as of
    waits. Contexts are those of the user's code."""

    begin: I64
    end: I64
    line: U32
    node: U32
    kind: U8
    other: U32


def wait_causes(db: Database) -> tuple[Waits, Causes, Causes]:
    """Return ``db``'s waits, their sums by who ended them, and those by the causes at ends of
    chains. Each adds up to the waits. Raises :class:`FormatError`.

    O(n log n) in waits, times the number of pieces that a wait is divided into.
    """
    graph = read_graph(db)
    return graph.waits, *sum_causes(graph.structure, graph.waits.node)


def read_graph(db: Database, lines: I64 | None = None) -> WaitGraph:
    """Return ``db``'s waits, with what ``lines`` (ascending; None: those that ended waits) did
    between theirs. Raises :class:`FormatError`."""
    user, messages = user_nodes(db), RankMessages(db)
    edges = read_edges(db, messages)
    if lines is None:
        lines = np.unique(edges.waker[edges.waker >= 0])
    return _graph_of(db, edges, read_pieces(db, lines, user, messages, edges), user)


def path_graph(db: Database, graph: WaitGraph | None = None) -> WaitGraph:
    """Return the graph that a run's length follows from, of all lines: with requests of events
    (:mod:`~hpcd.analysis.waits.requested_events`). ``graph`` is :func:`read_graph` of all lines, if
    it has been read. Raises :class:`FormatError`."""
    graph = read_graph(db, np.arange(len(db.lines))) if graph is None else graph
    return _graph_of(db, with_requests(db, graph.edges), graph.pieces, user_nodes(db))


def _graph_of(db: Database, edges: WaitEdges, pieces: Pieces, user: U32) -> WaitGraph:
    waits = waits_of(db, edges, user[edges.node], user)
    return WaitGraph(edges, waits, pieces, wait_graph(waits, pieces))


def user_nodes(db: Database) -> U32:
    """``uint32[nodes]``: the innermost context outside of the kernel on the path to each."""
    return db.cct.innermost(~db.procedures.kernel[db.procedure_of_node])


def waits_of(db: Database, edges: WaitEdges, node: U32, user: U32) -> Waits:
    """Return ``db``'s ``edges`` as waits in the contexts ``node`` ``uint32[n]``; ``user`` is
    :func:`user_nodes`."""
    locks = locks_of(db.lines.process[edges.line], edges.futex, edges.end, edges.kind)
    vain = woken_in_vain(db, edges, locks)
    return Waits(
        edges.first(len(db.lines)), edges.begin, edges.end, edges.waker, node, edges.kind,
        user[edges.path], edges.other, enders(vain), locks,
    )  # fmt: skip


def root_causes(db: Database) -> tuple[I64, I64, Causes]:
    """Return the causes at the ends of chains by thread and context: ``int64[g]`` trace lines and
    ``int64[g]`` contexts, ordered by both, and :class:`Causes` whose ``node`` is a row of these.
    Contexts of waits at the ends of chains are the kernel's, if they were recorded so.

    Raises :class:`FormatError`.
    """
    user, messages = user_nodes(db), RankMessages(db)
    edges = read_edges(db, messages)
    keys, group = np.unique(edges.line * len(db.cct) + edges.node, return_inverse=True)
    wakers = np.unique(edges.waker[edges.waker >= 0])
    pieces = read_pieces(db, wakers, user, messages, edges)
    graph = wait_graph(waits_of(db, edges, edges.node, user), pieces)
    _, roots = sum_causes(graph, group.astype(np.uint32))
    return keys // len(db.cct), keys % len(db.cct), roots


def read_pieces(
    db: Database, lines: I64, node_of: U32, messages: RankMessages, edges: WaitEdges
) -> Pieces:
    """Return what each of ``lines`` (ascending) did, of all other lines nothing; contexts are
    ``node_of`` ``uint32[nodes]`` those of the database, times on the clock of ``messages``.

    Between a sample and a wait for a message (of ``edges``) the thread is taken to have been where
    the sample saw it, as ahead of other waits (:meth:`StretchReader.stretches`).
    """
    reader = StretchReader(db, node_of, np.zeros(len(db.cct), bool))
    counts = np.zeros(len(db.lines) + 1, np.int64)
    none = np.zeros(0, np.int64)
    begins, ends = [none], [none]
    contexts, kinds = [none.astype(np.uint32)], [none.astype(np.uint8)]
    for line in lines.tolist():
        part = reader.stretches(line)
        if not len(part.begin):
            continue
        kind = np.full(len(part.begin), Cause.THREAD, np.uint8)
        kind[part.ready] = Cause.RUNNABLE
        kind[part.asleep] = Cause.NOT_SEEN
        end = part.end.copy()
        # Behind the last record it ran on to its end.
        if kind[-1] != Cause.NOT_SEEN:
            end[-1] = max(int(end[-1]), int(db.lines.end[line]))
        of_line = np.full(len(kind), line)
        begin, end = (messages.on_one_clock(of_line, time) for time in (part.begin, end))
        of_this = take_rows(edges, edges.of(line))
        begin, end, node, kind = _up_to_messages(begin, end, part.node, kind, of_this)
        begin, end, node, kind = once_woken(begin, end, node, kind, of_this)
        new = np.ones(len(kind), bool)
        new[1:] = (kind[1:] != kind[:-1]) | (node[1:] != node[:-1]) | (begin[1:] != end[:-1])
        first = np.flatnonzero(new)
        begins.append(begin[first])
        ends.append(end[np.append(first[1:], len(new)) - 1])
        contexts.append(node[first])
        kinds.append(kind[first])
        counts[line + 1] = len(first)
    return Pieces(
        np.cumsum(counts), np.concatenate(begins), np.concatenate(ends),
        np.concatenate(contexts), np.concatenate(kinds),
    )  # fmt: skip


def _up_to_messages(
    begin: I64, end: I64, node: U32, kind: U8, edges: WaitEdges
) -> tuple[I64, I64, U32, U8]:
    """Return the pieces of a line, each between two records, with those divided in which a wait
    for a message began: up to then the thread was where the record before it saw it, unless that
    is the end of a sleep."""
    waits = take_rows(edges, edges.kind == MESSAGE)
    at = np.searchsorted(begin, waits.begin, "right") - 1
    ran = kind == Cause.THREAD
    divided = (at > 0) & (begin[at] < waits.begin) & (waits.begin < end[at])
    divided &= ran[at] & (kind[at - 1] != Cause.NOT_SEEN) & (end[at - 1] == begin[at])
    divided[1:] &= waits.end[:-1] <= begin[at[1:]]
    at, cut = at[divided], waits.begin[divided]
    return (
        np.insert(begin, at + 1, cut), np.insert(end, at, cut),
        np.insert(node, at, node[at - 1]), np.insert(kind, at, kind[at]),
    )  # fmt: skip


def once_woken(
    begin: I64, end: I64, node: U32, kind: U8, edges: WaitEdges
) -> tuple[I64, I64, U32, U8]:
    """Return the pieces of a line (as those of :class:`Pieces`), of which sleep that is recorded
    after a wait of ``edges`` has ended is time in which the line could run.

    Sleep is recorded as far as it has lasted when a recorder writes: that a thread has been woken
    is only known once it is on a CPU.
    """
    waits = take_rows(edges, edges.kind != MESSAGE)
    asleep = kind == Cause.NOT_SEEN
    at = np.searchsorted(begin, waits.end, "right") - 1
    cut = (at >= 0) & asleep[at] & (begin[at] < waits.end) & (waits.end < end[at])
    at, time = at[cut], waits.end[cut]
    begin, end = np.insert(begin, at + 1, time), np.insert(end, at, time)
    node, kind = np.insert(node, at, node[at]), np.insert(kind, at, kind[at])
    asleep = kind == Cause.NOT_SEEN
    goes_on = asleep.copy()
    goes_on[1:] &= asleep[:-1] & (begin[1:] == end[:-1])
    goes_on[:1] = False
    # Where each stretch of sleep began, and which wait was the last to begin by each piece.
    first = np.maximum.accumulate(np.where(goes_on, 0, np.arange(len(kind))))
    last = np.searchsorted(waits.begin, begin, "right") - 1
    ended = np.where(last >= 0, waits.end[last], 0) if len(waits.end) else np.zeros_like(begin)
    ready = asleep & (last >= 0) & (begin[first] < ended) & (ended <= begin)
    return begin, end, node, np.where(ready, np.uint8(Cause.RUNNABLE), kind)


def wait_graph(waits: Waits, pieces: Pieces) -> CStructure:
    """Return ``waits`` and what their lines did between them, as kernels take them."""
    locks = waits.locks
    return structure(
        "wait_graph", wait_first=np.ascontiguousarray(waits.first),
        begin=np.ascontiguousarray(waits.begin), end=np.ascontiguousarray(waits.end),
        waker=np.ascontiguousarray(waits.waker), node=np.ascontiguousarray(waits.node),
        kind=waits.kind | waits.other << _KIND_BITS, path=np.ascontiguousarray(waits.path),
        ender=waits.ender, lock=locks.lock, lock_first=locks.first, handover=locks.handover,
        piece_first=pieces.first, piece_begin=pieces.begin, piece_end=pieces.end,
        piece_node=pieces.node, piece_kind=pieces.kind, lines=len(waits.first) - 1,
    )  # fmt: skip


def sum_causes(graph: CStructure, group: U32) -> tuple[Causes, Causes]:
    """:func:`wait_causes` of the waits of a graph, summed by ``group`` ``uint32[n]``, which is the
    ``node`` of causes."""
    # As many sums as waits, at first: pages of the table that are not used take no memory.
    places = max(_LEAST_PLACES, 1 << len(group).bit_length())
    while True:
        tables = [_Sums(places), _Sums(places)]
        if kernels.sum_wait_causes(graph, group, tables[0].structure, tables[1].structure):
            return tables[0].causes(), tables[1].causes()
        places *= 4


def list_steps(kernel: Callable[[CStructure], int]) -> WaitSteps:
    """Return the steps that ``kernel`` lists, which returns their number, or one more than there is
    room for: then it is called again."""
    room = _LEAST_STEPS
    while True:
        bounds = np.zeros((2, room), np.int64)
        numbers = np.zeros((3, room), np.uint32)
        steps = structure(
            "path_steps", begin=bounds[0], end=bounds[1], line=numbers[0], node=numbers[1],
            kind=numbers[2], room=room,
        )  # fmt: skip
        count = kernel(steps)
        if count <= room:
            (begin, end), (line, node, kinds) = bounds[:, :count], numbers[:, :count]
            kind, other = _split(kinds)
            return WaitSteps(begin, end, line, node, kind.astype(np.uint8), other)
        room *= 4


class _Sums:
    """A table that the kernel sums in."""

    def __init__(self, places: int) -> None:
        self._key: U32 = np.zeros((places, 4), np.uint32)
        self._ns, self._count = np.zeros(places, np.int64), np.zeros(places, np.int64)
        self.structure: CStructure = structure(
            "wait_sums", key=self._key, ns=self._ns, count=self._count, places=places
        )

    def causes(self) -> Causes:
        """Return the sums, the greatest first, equal sums in the order of their keys."""
        taken = np.flatnonzero(self._count)
        key = self._key[taken].view(np.uint64)  # two columns are compared at once
        taken = taken[np.lexsort((key[:, 0], key[:, 1], -self._ns[taken]))]
        node, line, context, kinds = self._key[taken].T
        return Causes(node, line, context, *_split(kinds), self._ns[taken], self._count[taken])


def _split(kinds: U32) -> tuple[U32, U32]:
    """The kinds of causes, and who else than a recorded thread they are, of a graph's numbers."""
    other = kinds >> _KIND_BITS
    return kinds ^ other << _KIND_BITS, other
