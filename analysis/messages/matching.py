"""Which send and which receive are one message, and which calls are one collective operation.

Messages of one communicator, sender and tag are received in the order in which they were sent, by
receives in the order in which they were posted (MPI 3.1, section 3.5), so the k-th of either are
one message. A receive from any source or of any tag takes part with what its status says; where
that was ignored, it takes the earliest message that nothing else received. O(n · log n).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hpcd.analysis.messages.communicators import UNKNOWN, Communicators
from hpcd.analysis.messages.grouping import groups_of, ranks_within
from hpcd.analysis.messages.late_ranks import LateRanks
from hpcd.analysis.messages.operations import Operations
from hpcd.analysis.messages.requests import NONE, Requests
from hpcd.array_types import F64, I64, Mask
from hpcd.distinct import begins_run
from hpcd.model.mpi_functions import COLLECTIVES, Role
from hpcd.model.mpi_records import MISSING


@dataclass(frozen=True)
class Endpoints:
    """Sends, or receives, of messages; by rank and the order in which they were posted, those
    of messages that a probe took in its place.

    All ``int64[n]``: ``operation`` by which it was posted; ``ended`` the operation that ended it
    (itself where it blocks, NONE where none is known); ``awaits`` the first that could not end
    before the other side had begun: the same, or the probe; ``number`` of the communicator;
    ``rank`` of its own and ``peer`` of the other side in the job; ``tag``; ``size`` in bytes.
    Negative where not known.
    """

    operation: I64
    ended: I64
    awaits: I64
    number: I64
    rank: I64
    peer: I64
    tag: I64
    size: I64
    weight: F64

    def __len__(self) -> int:
        return len(self.operation)


@dataclass(frozen=True)
class Messages:
    """Messages whose send and receive were both recorded.

    ``send`` and ``receive`` ``int64[m]`` are positions in ``sends`` and ``receives``; ``size``
    ``int64[m]`` in bytes, -1 where neither side says. ``guessed`` ``bool[m]``: by time, since the
    receive does not say from whom. ``unsure`` sends are not matched: which receive is theirs cannot
    be told, since calls before the recording are missing.
    """

    sends: Endpoints
    receives: Endpoints
    send: I64
    receive: I64
    guessed: Mask
    unsure: int = 0

    def __len__(self) -> int:
        return len(self.send)

    @cached_property
    def size(self) -> I64:
        """Bytes of each message: what was received, or else what was sent."""
        sent, received = self.sends.size[self.send], self.receives.size[self.receive]
        return np.where(received >= 0, received, sent)


def endpoints(
    operations: Operations, requests: Requests, communicators: Communicators
) -> tuple[Endpoints, Endpoints]:
    """Sends and receives, without those to or from no process."""
    posts = operations.are(Role.SEND, Role.RECEIVE, Role.RECEIVE_POST, Role.START, Role.MATCHED)
    at = np.flatnonzero(posts)
    at = at[requests.parameters[at] != NONE]
    source = requests.parameters[at]
    role = operations.role[source]
    sends = np.isin(role, (Role.SEND, Role.SEND_INIT))
    received = requests.received_by[at]
    posted = np.where(received != NONE, received, at)
    blocking = (operations.named("request")[posted] == MISSING) & np.isin(
        operations.role[posted], (Role.SEND, Role.RECEIVE, Role.MATCHED_RECEIVE)
    )
    ended = np.where(blocking, posted, requests.ended_by[posted])
    real = operations.named("peer")[source] != operations.flavour.proc_null
    at, source, posted, ended, sends = (one[real] for one in (at, source, posted, ended, sends))
    receives = ~sends
    args = operations, communicators
    return (
        _sends(*args, at[sends], source[sends], ended[sends]),
        _receives(*args, at[receives], source[receives], posted[receives], ended[receives]),
    )


def _sends(
    operations: Operations, communicators: Communicators, at: I64, source: I64, ended: I64
) -> Endpoints:
    number = communicators.number[source]
    size = operations.payload[source]
    return Endpoints(
        operation=at, ended=ended, awaits=ended, number=number, rank=operations.rank[at],
        peer=communicators.job_rank(
            number, operations.named("peer")[source], operations.rank[at]
        ),
        tag=operations.named("tag")[source], size=np.where(size == MISSING, -1, size),
        weight=operations.weight[at],
    )  # fmt: skip


def _receives(
    operations: Operations, communicators: Communicators, at: I64, source: I64, posted: I64,
    ended: I64,
) -> Endpoints:  # fmt: skip
    """Receives, with what the status of the operation that ended each says, or that of the
    probe."""
    probed = operations.role[at] == Role.MATCHED
    flavour = operations.flavour
    number = communicators.number[source]
    place, tag = operations.named("peer")[source], operations.named("tag")[source]
    status = np.maximum(ended, 0)

    def said(name: str) -> I64:
        column = operations.status_bytes if name == "bytes" else operations.named(f"status_{name}")
        value = np.where(ended != NONE, column[status], MISSING)
        of_probe = column[at if name == "bytes" else source]
        return np.where(probed & (value == MISSING), of_probe, value)

    actual, actual_tag, size = said("source"), said("tag"), said("bytes")
    size = np.where(size == MISSING, operations.named("bytes")[source], size)
    place = np.where((place == flavour.any_source) & (actual != MISSING), actual, place)
    tag = np.where((tag == flavour.any_tag) & (actual_tag != MISSING), actual_tag, tag)
    named = communicators.job_rank(number, place, operations.rank[at])
    peer = np.where(place == flavour.any_source, UNKNOWN, named)
    return Endpoints(
        operation=posted, ended=ended, awaits=np.where(probed, source, ended), number=number,
        rank=operations.rank[at], peer=peer,
        tag=np.where(tag == flavour.any_tag, UNKNOWN, tag),
        size=np.where(size == MISSING, -1, size), weight=operations.weight[at],
    )  # fmt: skip


def match(
    operations: Operations, sends: Endpoints, receives: Endpoints, late: LateRanks
) -> Messages:
    """Match sends and receives."""
    possible = np.flatnonzero((sends.number != UNKNOWN) & (sends.peer >= 0))
    certain = np.flatnonzero(
        (receives.number != UNKNOWN) & (receives.peer >= 0) & (receives.tag >= 0)
    )
    sent = _envelopes(sends, possible, sends.rank, sends.peer)
    received = _envelopes(receives, certain, receives.peer, receives.rank)
    unsure = 0
    if late.late.any():
        known, known_receives = late.align_messages(
            sends, receives, sent, received, possible, certain
        )
        unsure = int(np.count_nonzero(~known))
        sent, possible = sent[known], possible[known]
        received, certain = received[known_receives], certain[known_receives]
    send, receive = _join(sent, received, possible, certain)
    more_sends, more_receives = _guess(operations, sends, receives, send, receive, late)
    return Messages(
        sends, receives,
        send=np.concatenate([send, more_sends]),
        receive=np.concatenate([receive, more_receives]),
        guessed=np.arange(len(send) + len(more_sends)) >= len(send),
        unsure=unsure,
    )  # fmt: skip


def _envelopes(ends: Endpoints, at: I64, source: I64, target: I64) -> I64:
    """``int64[k, 5]``: communicator, sender, receiver, tag, and the number among equal ones."""
    keys = ends.number[at], source[at], target[at], ends.tag[at]
    return np.stack([*keys, ranks_within(*keys)], 1)


def _join(left: I64, right: I64, left_at: I64, right_at: I64) -> tuple[I64, I64]:
    """Pairs of equal rows, of which each side has every one once."""
    key, _ = groups_of(*np.concatenate([left, right]).T)
    _, first, second = np.intersect1d(
        key[: len(left)], key[len(left) :], assume_unique=True, return_indices=True
    )
    return left_at[first], right_at[second]


def _guess(
    operations: Operations, sends: Endpoints, receives: Endpoints, send: I64, receive: I64,
    late: LateRanks,
) -> tuple[I64, I64]:  # fmt: skip
    """Receives that do not say from whom or with which tag, in the order of their ends, each with
    the earliest message left that it can be. A loop: such receives are few."""
    free = np.ones(len(sends), bool)
    free[send] = False
    free &= (sends.number != UNKNOWN) & (sends.peer >= 0)
    # Which message is left on these is not known.
    free &= ~late.communicators_before[np.maximum(sends.number, 0)]
    open_receives = (receives.number != UNKNOWN) & ((receives.peer < 0) | (receives.tag < 0))
    open_receives[receive] = False
    waiting = np.flatnonzero(open_receives)
    queues: dict[tuple[int, int], list[int]] = {}
    left = np.flatnonzero(free)
    left = left[np.argsort(operations.begin[sends.operation[left]], kind="stable")]
    for at in left.tolist():
        queues.setdefault((int(sends.number[at]), int(sends.peer[at])), []).append(at)
    ended = np.where(receives.ended >= 0, receives.ended, receives.operation)[waiting]
    chosen_sends: list[int] = []
    chosen_receives: list[int] = []
    for at in waiting[np.argsort(operations.end[ended], kind="stable")].tolist():
        queue = queues.get((int(receives.number[at]), int(receives.rank[at])), [])
        peer, tag = int(receives.peer[at]), int(receives.tag[at])
        for place, one in enumerate(queue):
            if (peer < 0 or sends.rank[one] == peer) and (tag < 0 or sends.tag[one] == tag):
                chosen_sends.append(queue.pop(place))
                chosen_receives.append(at)
                break
    return np.array(chosen_sends, np.int64), np.array(chosen_receives, np.int64)


def probed_messages(
    operations: Operations, communicators: Communicators, messages: Messages
) -> tuple[I64, I64]:
    """Probes that took no message, and the send of that which each found: ``int64[p]`` twice.

    It is the message from the same sender with the same tag that the rank receives next. Where the
    probe does not say these, or nothing is received, it is not known.
    """
    leaving = operations.are(Role.PROBE) & (operations.named("flag") != 0)
    leaving[operations.call[operations.are(Role.MATCHED)]] = False
    at = np.flatnonzero(leaving & (communicators.number != UNKNOWN))
    place, tag = (
        np.where(asked == wildcard, operations.named(f"status_{said}")[at], asked)
        for said, asked, wildcard in (
            ("source", operations.named("peer")[at], operations.flavour.any_source),
            ("tag", operations.named("tag")[at], operations.flavour.any_tag),
        )
    )
    peer = communicators.job_rank(communicators.number[at], place, operations.rank[at])
    known = (place >= 0) & (peer >= 0) & (tag >= 0)
    at, peer, tag = at[known], peer[known], tag[known]
    sends, receives, sent, got = messages.sends, messages.receives, messages.send, messages.receive
    first = receives.operation[got]
    first = np.minimum(first, np.where(receives.awaits[got] >= 0, receives.awaits[got], first))
    group, _ = groups_of(*np.concatenate([
        np.stack([sends.number[sent], sends.rank[sent], receives.rank[got], sends.tag[sent]], 1),
        np.stack([communicators.number[at], peer, operations.rank[at], tag], 1),
    ]).T)  # fmt: skip
    spread = len(operations) + 1
    key = group[: len(sent)] * spread + first
    order = np.argsort(key, kind="stable")
    following = np.searchsorted(key[order], group[len(sent) :] * spread + at)
    inside = following < len(order)
    message = order[np.minimum(following, len(order) - 1)[inside]]
    at, of_probe = at[inside], group[len(sent) :][inside]
    same = group[message] == of_probe
    return at[same], sent[message[same]]


@dataclass(frozen=True)
class Collectives:
    """Calls of collective operations, sorted by the operation they are part of.

    ``operation`` ``int64[k]``; ``instance`` ``int64[k]`` which are one, from 0 without gaps;
    ``first`` ``int64[i + 1]`` where each instance begins in ``operation``; ``ended`` ``int64[k]``
    the operation that ended it; ``complete`` ``bool[i]``: all members of its communicator called
    it, and the same function; ``meeting`` ``bool[i]``: so that all of them met, which those between
    two groups do not: there each meets the other group.
    """

    operation: I64
    instance: I64
    first: I64
    ended: I64
    complete: Mask
    meeting: Mask

    def __len__(self) -> int:
        return len(self.first) - 1


def match_collectives(
    operations: Operations, requests: Requests, communicators: Communicators, late: LateRanks
) -> Collectives:
    """The k-th collective call of each rank on a communicator is one operation."""
    at = np.flatnonzero(operations.are(*COLLECTIVES))
    at = at[communicators.number[at] != UNKNOWN]
    number, rank = communicators.number[at], operations.rank[at]
    blocking = operations.named("request")[at] == MISSING
    ended = np.where(blocking, at, requests.ended_by[at])
    turn = ranks_within(number, rank)
    if late.late.any():
        turn = late.align_collectives(at, ended, turn)
    order = np.lexsort((rank, turn, number))
    at, number, turn, ended = at[order], number[order], turn[order], ended[order]
    new = begins_run(number, turn)
    instance = np.cumsum(new) - 1
    first = np.append(np.flatnonzero(new), len(at))
    count = np.diff(first)
    of = number[first[:-1]]
    function = operations.function[at]
    equal = np.ones(len(count), bool)
    np.logical_and.at(equal, instance, function == function[first[:-1]][instance])
    complete = equal & (count == communicators.sizes[of])
    return Collectives(
        operation=at,
        instance=instance,
        first=first,
        ended=ended,
        complete=complete,
        meeting=complete & ~communicators.between[of],
    )
