"""Traffic: which rank sent how much to which, how large messages were, what collectives carried."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.messages.communicators import Communicators
from hpcd.analysis.messages.grouping import firsts_of, groups_of
from hpcd.analysis.messages.matching import Collectives, Endpoints, Messages
from hpcd.analysis.messages.operations import Operations
from hpcd.analysis.messages.vector_counts import VectorCounts
from hpcd.array_types import F64, I64, Mask
from hpcd.model.mpi_functions import Role
from hpcd.model.mpi_records import MISSING

# Collectives that say for each rank what it gets, or gives.
_VECTORS = ("allgatherv", "alltoallv", "alltoallw", "gatherv", "scatterv")


@dataclass(frozen=True)
class Matrix:
    """Traffic from ``source[k]`` to ``target[k]`` (ranks of the job), pairs once, sorted.

    ``messages`` and ``bytes`` ``float64[k]``: sums over calls, each as often as it stands for.
    ``unknown`` ``float64[k]``: how many of the messages are of unknown size.
    """

    source: I64
    target: I64
    messages: F64
    bytes: F64
    unknown: F64

    def dense(self, ranks: int) -> tuple[F64, F64]:
        """Messages and bytes as ``float64[ranks, ranks]``, senders in rows."""
        messages, volume = np.zeros((ranks, ranks)), np.zeros((ranks, ranks))
        messages[self.source, self.target] = self.messages
        volume[self.source, self.target] = self.bytes
        return messages, volume


def point_to_point(sends: Endpoints, messages: Messages) -> Matrix:
    """Return the messages that were sent, received or not."""
    size = sent_sizes(sends, messages)
    known = (sends.peer >= 0) & (sends.number >= 0)
    return matrix_of(sends.rank[known], sends.peer[known], size[known], sends.weight[known])


def sent_sizes(sends: Endpoints, messages: Messages) -> I64:
    """``int64[n]``: bytes of every send, -1 where not known; what only the receive says is taken
    from there."""
    size = sends.size.copy()
    unsure = size[messages.send] < 0
    size[messages.send[unsure]] = messages.size[unsure]
    return size


def one_sided(
    operations: Operations, communicators: Communicators, chosen: Mask | None = None
) -> Matrix:
    """Puts from their caller, gets to it; of windows whose communicator is known. Of operations
    that are ``chosen`` (``bool[n]``), or all."""
    at, window_maker = one_sided_calls(operations)
    if chosen is not None:
        kept = chosen[at]
        at, window_maker = at[kept], window_maker[kept]
    number = np.where(
        window_maker >= 0, communicators.number[window_maker], communicators.number[at]
    )
    peer = communicators.job_rank(number, operations.named("peer")[at], operations.rank[at])
    size = operations.payload[at]
    size = np.where(size == MISSING, -1, size)
    known = peer >= 0
    get = operations.role[at] == Role.GET
    own = operations.rank[at]
    return matrix_of(
        np.where(get, peer, own)[known], np.where(get, own, peer)[known], size[known],
        operations.weight[at][known],
    )  # fmt: skip


def one_sided_calls(operations: Operations) -> tuple[I64, I64]:
    """Puts and gets, and of each the operation that made its window, -1 where none is known; both
    ``int64[n]``."""
    at = np.flatnonzero(operations.are(Role.PUT, Role.GET))
    window = operations.named("window")[at]
    window_makers = np.flatnonzero(operations.are(Role.NEW_WINDOW))
    created = operations.named("new_window")[window_makers].tolist()
    owners = zip(operations.rank[window_makers].tolist(), created, strict=True)
    maker = dict(zip(owners, window_makers.tolist(), strict=True))
    pairs = zip(operations.rank[at].tolist(), window.tolist(), strict=True)
    return at, np.array([maker.get(pair, -1) for pair in pairs], np.int64)


def collective_flow(
    operations: Operations,
    communicators: Communicators,
    collectives: Collectives,
    counts: VectorCounts,
) -> Matrix:
    """Return the bytes that collectives carry from rank to rank by their meaning, however the
    library sends it.

    Broadcast and scatter: from the root to all others. Reduce and gather: from all others to it.
    Gather to all and all to all: from each to each other, where counts differ what each passes to
    each; no message is counted for a count of 0. Neighbourhood collectives: to Cartesian
    neighbours. Reductions to all, prefix reductions and barriers are left out: which rank's data
    reaches which is not said by them; so is what is done between two groups. Memory O(sum of
    instances' pairs, distinct).
    """
    source, target, size, weight = [], [], [], []
    payload = np.where(operations.payload == MISSING, -1, operations.payload)
    for number, name, root, bytes_each, times in _signatures(
        operations, communicators, collectives, payload
    ):
        members = communicators.members(number)
        if communicators.all[number].remote is not None:
            continue
        pairs = _pairs(communicators, number, name, root)
        if pairs is None:
            continue
        origin, destination = pairs
        source.append(members[origin])
        target.append(members[destination])
        size.append(np.full(len(origin), bytes_each))
        weight.append(np.full(len(origin), float(times)))
    none = np.zeros(0, np.int64)
    different = _vector_flow(operations, communicators, collectives, counts)
    for parts, column in zip((source, target, size, weight), different, strict=True):
        parts.append(column)
    return matrix_of(
        np.concatenate([none, *source]), np.concatenate([none, *target]),
        np.concatenate([none, *size]), np.concatenate([np.zeros(0), *weight]),
    )  # fmt: skip


def _signatures(
    operations: Operations,
    communicators: Communicators,
    collectives: Collectives,
    payload: I64,
) -> list[tuple[int, str, int, int, int]]:
    """Distinct (communicator, kind, root, bytes) of instances, and how many there are of each."""
    first = collectives.operation[collectives.first[:-1]]
    if not len(first):
        return []
    role = operations.role[first]
    # A root may pass no size of its own; of two callers one is no root.
    last = collectives.operation[collectives.first[1:] - 1]
    root = operations.named("root")[first]
    members = np.maximum(communicators.number[first], 0)
    whole = np.isin(role, (Role.ALL_TO_ALL, Role.FROM_ROOT, Role.TO_ROOT, Role.NEIGHBOURS))
    whole &= ~_named(operations, _VECTORS)[operations.function[first]]
    size = np.maximum(payload[first], payload[last])
    keys = np.stack([members, operations.function[first], root, size], 1)[whole]
    distinct, count = np.unique(keys, axis=0, return_counts=True)
    functions = operations.calls.functions
    return [
        (number, functions[function].name, place, volume, times)
        for (number, function, place, volume), times in zip(
            distinct.tolist(), count.tolist(), strict=True
        )
    ]


def _named(operations: Operations, names: Sequence[str]) -> Mask:
    """``bool[functions]``: those of ``names``, also in their nonblocking forms."""
    plain = [_plain(function.name) for function in operations.calls.functions]
    return np.array([name in names for name in plain], bool)


def _plain(name: str) -> str:
    return name.removeprefix("MPI_").removeprefix("I").lower()


def _vector_flow(
    operations: Operations,
    communicators: Communicators,
    collectives: Collectives,
    counts: VectorCounts,
) -> tuple[I64, I64, I64, F64]:
    """Source, target, bytes and weight of what calls with a count for each rank carry."""
    columns: list[tuple[I64, I64, I64, F64]] = []

    def add(source: I64, target: I64, size: I64, weight: F64) -> None:
        kept = (source != target) & (source >= 0) & (target >= 0) & (size != 0)
        columns.append((source[kept], target[kept], size[kept], weight[kept]))

    def calls(*names: str) -> I64:
        called = _named(operations, names)[operations.function[collectives.operation]]
        at: I64 = collectives.operation[called]
        return at[~communicators.between[communicators.number[at]]]

    payload = np.where(operations.payload == MISSING, -1, operations.payload)
    rank, number, weight = operations.rank, communicators.number, operations.weight
    for name in ("gatherv", "scatterv"):
        at = calls(name)
        root = communicators.job_rank(number[at], operations.named("root")[at], rank[at])
        ends = (rank[at], root) if name == "gatherv" else (root, rank[at])
        add(*ends, payload[at], weight[at])
    # Equal calls of a rank go to all others as one.
    # Of imported calls all bytes together are known.
    vector_all_to_all = _named(operations, ("alltoallv", "alltoallw"))[operations.function]
    payload[vector_all_to_all & (operations.named("bytes") != MISSING)] = -1
    at = calls("allgatherv", "alltoallv", "alltoallw")
    at = at[~np.isin(at, counts.call)]
    group, groups = groups_of(number[at], rank[at], payload[at])
    first = at[firsts_of(group, groups)]
    sums = sum_by(group, weight[at], groups)
    size = np.array([len(one.members) for one in communicators.all], np.int64)[number[first]]
    whose = np.repeat(np.arange(groups), size)
    place = np.arange(len(whose)) - (np.cumsum(size) - size)[whose]
    of = first[whose]
    receiver = communicators.job_rank(number[of], place, rank[of])
    add(rank[of], receiver, payload[of], sums[whose])
    mine = np.isin(counts.call, calls("alltoallv"))
    of, place = counts.call[mine], counts.place[mine]
    receiver = communicators.job_rank(number[of], place, rank[of])
    add(rank[of], receiver, counts.bytes[mine], weight[of])
    source, target, volume, times = zip(*columns, strict=True)
    return tuple(map(np.concatenate, (source, target, volume, times)))  # type: ignore[return-value]


def _pairs(
    communicators: Communicators, number: int, name: str, root: int
) -> tuple[I64, I64] | None:
    """From which to which place of communicator ``number`` the function carries data."""
    size = len(communicators.members(number))
    places = np.arange(size)
    plain = _plain(name)
    targets = places[places != root]
    if plain.startswith(("bcast", "scatter", "reduce", "gather")) and not 0 <= root < size:
        return None
    if plain in ("bcast", "scatter"):
        return np.full(len(targets), root), targets
    if plain in ("reduce", "gather"):
        return targets, np.full(len(targets), root)
    if plain in ("allgather", "alltoall"):
        origin, destination = np.nonzero(~np.eye(size, dtype=bool))
        return origin, destination
    if plain.startswith("neighbor"):
        return _neighbours(communicators.all[number].dims, communicators.all[number].periods, size)
    return None


def _neighbours(
    dims: tuple[int, ...], periods: tuple[int, ...], size: int
) -> tuple[I64, I64] | None:
    if not dims or min(dims) < 1 or math.prod(dims) != size:
        return None
    places = np.arange(size)
    coordinates = np.array(np.unravel_index(places, dims))
    origin, destination = [], []
    for axis, (extent, wraps) in enumerate(zip(dims, periods, strict=True)):
        for step in (-1, 1):
            moved = coordinates.copy()
            moved[axis] += step
            inside = np.ones(size, bool) if wraps else (moved[axis] >= 0) & (moved[axis] < extent)
            moved[axis] %= extent
            origin.append(places[inside])
            destination.append(np.ravel_multi_index(tuple(moved[:, inside]), dims))
    return np.concatenate(origin), np.concatenate(destination)


@dataclass(frozen=True)
class Sizes:
    """Messages by size: those of ``least[k]`` to ``most[k]`` bytes, powers of two; all
    ``[k]``."""

    least: I64
    most: I64
    messages: F64
    bytes: F64


def message_sizes(sends: Endpoints, messages: Messages) -> Sizes:
    """Point-to-point messages of known size by powers of two. O(m)."""
    return sizes_of(sent_sizes(sends, messages), sends.weight)


def sizes_of(size: I64, weight: F64) -> Sizes:
    """Messages of ``size`` bytes, where known, by powers of two; each counts ``weight`` times."""
    known = size >= 0
    size, weight = size[known], weight[known]
    # Position of the highest bit: 0 for no byte, 1 for one, 2 for two and three ...
    level = np.where(size > 0, np.frexp(size.astype(np.float64))[1], 0)
    present = np.unique(level)
    count = np.bincount(level, weight, minlength=1)
    volume = np.bincount(level, weight * size, minlength=1)
    least = np.where(present > 0, 1 << np.maximum(present - 1, 0), 0)
    most = np.where(present > 0, (1 << present) - 1, 0)
    return Sizes(least, most, count[present], volume[present])


@dataclass(frozen=True)
class CollectiveRow:
    """Collective ``operations`` of one function on one communicator: ``calls`` summed over ranks,
    ``seconds`` in them, ``bytes`` passed by the callers (None: not known)."""

    function: str
    communicator: int
    operations: int
    calls: float
    seconds: float
    bytes: float | None


def by_function(
    operations: Operations, communicators: Communicators, collectives: Collectives, payload: I64
) -> list[CollectiveRow]:
    """Collective operations by function and communicator, most time first; ``payload``
    ``int64[n]``: what each operation's caller passes, MISSING where it is not known."""
    at = collectives.operation
    if not len(at):
        return []
    keys = np.stack([operations.function[at], communicators.number[at]], 1)
    distinct, group = np.unique(keys, axis=0, return_inverse=True)
    group = group.reshape(-1)
    count, weight = len(distinct), operations.weight[at]
    calls = np.bincount(group, weight, count)
    seconds = np.bincount(group, weight * (operations.end - operations.begin)[at] / 1e9, count)
    payload = payload[at]
    volume = np.bincount(group, weight * np.where(payload == MISSING, 0, payload), count)
    unsure = np.bincount(group, payload == MISSING, count) > 0
    starts = np.unique(np.stack([group, collectives.instance], 1), axis=0)[:, 0]
    instances = np.bincount(starts, minlength=count)
    functions = operations.calls.functions
    rows = [
        CollectiveRow(
            functions[function].name, number, int(instances[k]), float(calls[k]),
            float(seconds[k]), None if unsure[k] else float(volume[k]),
        )
        for k, (function, number) in enumerate(distinct.tolist())
    ]  # fmt: skip
    return sorted(rows, key=lambda row: -row.seconds)


def matrix_of(source: I64, target: I64, size: I64, weight: F64) -> Matrix:
    """The traffic of single messages, each ``weight`` times; -1: a size that is not known."""
    group, count = groups_of(source, target)
    first = firsts_of(group, count)
    known = size >= 0
    return Matrix(
        source[first],
        target[first],
        sum_by(group, weight, count),
        sum_by(group, weight * np.where(known, size, 0), count),
        sum_by(group, weight * ~known, count),
    )
