"""Requests: which operation began each, and which ended it; and which receives what a probe took.

A request's handle is used again, and MPICH returns the same one for all sends that are done at
once. So beginnings and ends of one handle are paired as parentheses are. O(n · log n).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpcd.analysis.messages.operations import Operations
from hpcd.array_types import I64, Mask
from hpcd.masks import marked
from hpcd.model.mpi_functions import Role
from hpcd.model.mpi_records import MAX_POSITIONS, MAX_REQUESTS, MISSING

NONE = -1
_INITS = (Role.SEND_INIT, Role.RECEIVE_INIT)


@dataclass(frozen=True)
class Requests:
    """All ``int64[n]`` by operation, ``NONE`` where there is none.

    ``parameters``: of a message, the operation that has its peer, tag and communicator: itself, or
    of a started persistent request that which made it. ``ended_by``: the operation that ended the
    request it began. ``received_by``: of a message that a probe took, the operation that receives
    it.
    """

    parameters: I64
    ended_by: I64
    received_by: I64


def pair(operations: Operations) -> Requests:
    """Pair what begins requests with what ends them."""
    count = len(operations)
    request = operations.named("request")
    ends = _ends(operations, request)
    begins = (request != MISSING) & ~operations.are(Role.COMPLETE, Role.LISTED, *_INITS)
    ended_by = np.full(count, NONE, np.int64)
    begun, ended = _parentheses(operations, request, np.flatnonzero(begins), np.flatnonzero(ends))
    ended_by[begun] = operations.call[ended]
    _end_by_next(operations, np.flatnonzero(begins & (ended_by == NONE)), ended_by)
    parameters = np.arange(count)
    starts = np.flatnonzero(operations.are(Role.START))
    parameters[starts] = _last_before(
        operations, request, np.flatnonzero(operations.are(*_INITS)), starts
    )
    message = operations.named("message")
    successful = (operations.named("flag")[operations.call] != 0) & (message != MISSING)
    taken, received = _parentheses(
        operations, message, np.flatnonzero(operations.are(Role.MATCHED) & successful),
        np.flatnonzero(operations.are(Role.MATCHED_RECEIVE) & (message != MISSING)),
    )  # fmt: skip
    received_by = np.full(count, NONE, np.int64)
    received_by[taken] = received
    matched = np.flatnonzero(operations.are(Role.MATCHED))
    parameters[matched] = np.where(successful[matched], operations.call[matched], NONE)
    return Requests(parameters, ended_by, received_by)


def _ends(operations: Operations, request: I64) -> Mask:
    """``bool[n]``: operations that end a request: what waits for one, and of those that wait for
    several each one listed that has ended."""
    call, position = operations.call, operations.named("position")
    # A flag says whether a test found the requests ended.
    ended = (operations.named("flag")[call] != 0) & (request != MISSING)
    index = operations.named("index")[call]
    listed = operations.are(Role.LISTED) & ((index == MISSING) | (index == position))
    some = operations.role[call] == Role.COMPLETE_SOME
    count, among = operations.named("ended")[call], np.zeros(len(call), bool)
    for name, place in (("positions0", 0), ("positions2", 2), ("positions4", 4)):
        pair = operations.named(name)[call]
        for half, shift in ((place, 0), (place + 1, 32)):
            among |= (half < count) & ((pair >> shift) & 0xFFFFFFFF == position)
    mask: Mask = ended & (operations.are(Role.COMPLETE) | (listed & (~some | among)))
    return mask


def _parentheses(operations: Operations, request: I64, begins: I64, ends: I64) -> tuple[I64, I64]:
    """Pairs of a beginning and its end, of the same rank and request."""
    at = np.concatenate([begins, ends])
    is_end = np.arange(len(at)) >= len(begins)
    # The operations' order is that of time, but a call's records share its begin.
    order = np.lexsort((is_end, at, request[at], operations.rank[at]))
    at, is_end = at[order], is_end[order]
    depth = np.cumsum(np.where(is_end, -1, 1))
    level = depth + is_end
    group = np.zeros(len(at), np.int64)
    if len(at):
        group[1:] = np.cumsum(
            (request[at][1:] != request[at][:-1])
            | (operations.rank[at][1:] != operations.rank[at][:-1])
        )
    by_level = np.lexsort((np.arange(len(at)), level, group))
    first, second = by_level[:-1], by_level[1:]
    paired = (
        (group[first] == group[second]) & (level[first] == level[second])
        & ~is_end[first] & is_end[second]
    )  # fmt: skip
    return at[first[paired]], at[second[paired]]


def _end_by_next(operations: Operations, begins: I64, ended_by: I64) -> None:
    """Requests whose end was not recorded one by one end in the next call, of the same rank, that
    waits for several."""
    flag, index = operations.named("flag"), operations.named("index")
    waited = operations.are(Role.COMPLETE_MANY, Role.COMPLETE_SOME)
    many = np.flatnonzero(waited & (flag != 0) & (index == MISSING))
    # Those of which each request was recorded end no others.
    recorded = marked(len(operations), operations.call[operations.are(Role.LISTED)])
    asked = operations.named("requests")[many]
    some = operations.role[many] == Role.COMPLETE_SOME
    partly = (asked > MAX_REQUESTS) | (some & (operations.named("ended")[many] > MAX_POSITIONS))
    many = many[partly | (~recorded[many] & (asked > 0))]
    if not len(many) or not len(begins):
        return
    following = np.searchsorted(many, begins)
    inside = following < len(many)
    end = many[np.minimum(following, len(many) - 1)]
    right = inside & (operations.rank[end] == operations.rank[begins])
    ended_by[begins[right]] = end[right]


def _last_before(operations: Operations, request: I64, inits: I64, starts: I64) -> I64:
    """Return for each of ``starts`` the last of ``inits`` before it with its request, or NONE."""
    at = np.concatenate([inits, starts])
    is_start = np.arange(len(at)) >= len(inits)
    order = np.lexsort((at, request[at], operations.rank[at]))
    place = np.maximum.accumulate(np.where(is_start[order], -1, np.arange(len(at))))
    source = order[np.maximum(place, 0)]
    same = (request[at[source]] == request[at[order]]) & (
        operations.rank[at[source]] == operations.rank[at[order]]
    )
    result = np.full(len(at), NONE, np.int64)
    result[order] = np.where((place >= 0) & same, at[source], NONE)
    return result[is_start]
