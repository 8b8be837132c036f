"""Whom the messages of a running job were sent to, chunk by chunk.

What a communicator's handle, a persistent request or a datatype means follows from calls that may
have been made long before: these are kept, and put before the calls of each chunk.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

import numpy as np

from hpcd.analysis.messages.call_arrays import CallArrays, RecordedFunction
from hpcd.analysis.messages.communicator_creation import rebuild_communicators
from hpcd.analysis.messages.communicators import UNKNOWN
from hpcd.analysis.messages.matching import endpoints
from hpcd.analysis.messages.operations import operations
from hpcd.analysis.messages.requests import pair
from hpcd.analysis.messages.traffic import matrix_of
from hpcd.array_types import I64, Mask
from hpcd.measurement.call_codec import Calls
from hpcd.measurement.reader import Measurement
from hpcd.model.calls import CalledFunction, Group
from hpcd.model.identity import MOST_RANKS, Process
from hpcd.model.mpi_functions import CREATIONS, Role
from hpcd.model.mpi_records import roles_by_record

_DEFINING = (
    *CREATIONS, Role.FREE_COMMUNICATOR, Role.CARTESIAN_PERIODS, Role.SEND_INIT,
    Role.RECEIVE_INIT, Role.DATATYPE,
)  # fmt: skip
# The same question is asked again and again.
_ANSWERS = (Role.OWN_RANK, Role.OWN_SIZE, Role.DATATYPE_SIZE)
# Calls of one job that are kept: with more, what its handles mean is unknown.
MOST_KEPT = 100_000

Sent = dict[tuple[str, int, int], tuple[float, float]]
"""Messages and bytes by job, rank of the sender and rank of the receiver (-1: not known)."""


def recent_arrays(calls: Calls, functions: Mapping[int, CalledFunction]) -> tuple[CallArrays, I64]:
    """``calls`` as arrays whose ``line`` counts from 0, and ``int64[lines]`` the trace lines meant.

    ``functions`` by number; a position in the arrays' is that among the numbers, ascending.
    """
    known = sorted(functions)
    lines, line = np.unique(calls.line, return_inverse=True)
    arrays = CallArrays(
        line.astype(np.int64),
        calls.time.astype(np.int64),
        calls.duration.astype(np.int64),
        calls.node.astype(np.int64),
        np.searchsorted(known, calls.function).astype(np.int64),
        calls.weight.astype(np.float64),
        calls.value.astype(np.int64),
        [
            RecordedFunction(one.name, tuple((v.name, v.unit) for v in one.values))
            for one in (functions[number] for number in known)
        ],
    )
    return arrays, lines.astype(np.int64)


def _rank_of(process: Process) -> int | None:
    """Return the rank of ``process``; None where a damaged measurement says one that cannot be."""
    rank = process.rank
    return rank if rank is not None and 0 <= rank < MOST_RANKS else None


class SentMessages:
    """Messages of the calls of MPI in a measurement. All calls are learned from, in the order
    in which they were written; what some of them sent is then known, as far as ranks have come."""

    def __init__(self, measurement: Measurement) -> None:
        self._measurement = measurement
        self._kept: dict[str, list[Calls]] = defaultdict(list)
        self._answered: set[tuple[int, ...]] = set()
        self._roles = roles_by_record()

    def learn(self, calls: Calls) -> Calls:
        """Keep what the next ``calls`` say of handles; the others of MPI, for :meth:`sent`."""
        functions = self._measurement.functions
        if not any(function.group == Group.MPI for function in functions.values()):
            return Calls.none()
        of_function = np.full(max(functions) + 1, -1, np.int64)
        for number, function in functions.items():
            of_function[number] = int(self._roles.get(function.name, -1))
        role = of_function[calls.function]
        defining = np.isin(role, np.array([*_DEFINING, *_ANSWERS], np.int64))
        definitions, of_definition = calls[defining], role[defining]
        for job, mine, _ in self._jobs(definitions):
            kept = self._kept[job]
            if sum(map(len, kept)) <= MOST_KEPT:
                kept.append(definitions[mine][self._new(definitions[mine], of_definition[mine])])
        return calls[(role >= 0) & ~defining]

    def sent(self, calls: Calls) -> Sent:
        """Return the messages of ``calls``, as :meth:`learn` gave them."""
        sent: Sent = {}
        for job, mine, ranks in self._jobs(calls):
            kept = self._kept[job]
            known = sum(map(len, kept)) <= MOST_KEPT
            rows = self._sent(Calls.joined([*kept, calls[mine]]) if known else calls[mine],
                              ranks if known else 0)  # fmt: skip
            for source, target, messages, volume in rows:
                sent[job, source, target] = messages, volume
        return sent

    def _jobs(self, calls: Calls) -> Iterator[tuple[str, I64, int]]:
        """Yield the calls of each job, and its number of ranks."""
        measurement = self._measurement
        lines, line = np.unique(calls.line, return_inverse=True)
        jobs: dict[str, list[int]] = defaultdict(list)
        for at, number in enumerate(lines.tolist()):
            process = measurement.processes.get(measurement.threads[number].process)
            if process and _rank_of(process) is not None:
                jobs[process.job].append(at)
        sizes: dict[str, int] = defaultdict(int)
        for process in measurement.processes.values():
            rank = _rank_of(process)
            if rank is not None:
                size = min(process.size or 0, MOST_RANKS)
                sizes[process.job] = max(sizes[process.job], rank + 1, size)
        for job, of_job in jobs.items():
            yield job, np.flatnonzero(np.isin(line, of_job)), sizes[job]

    def _new(self, calls: Calls, role: I64) -> Mask:
        """``bool[n]``: the calls that say something new, of equal answers one."""
        kept: Mask = np.isin(role, np.array(_DEFINING, np.int64))
        if bool(np.isin(role, np.array([*CREATIONS, Role.DATATYPE], np.int64)).any()):
            self._answered.clear()  # handles are used again
        asked = np.flatnonzero(np.isin(role, np.array(_ANSWERS, np.int64)))
        value = calls.value[asked, :2].astype(np.int64)
        keys = np.column_stack([calls.line[asked], calls.function[asked], value]).astype(np.int64)
        for row, at in zip(*np.unique(keys, axis=0, return_index=True), strict=True):
            key = tuple(row.tolist())
            if key not in self._answered:
                self._answered.add(key)
                kept[asked[at]] = True
        return kept

    def _sent(self, calls: Calls, ranks: int) -> list[tuple[int, int, float, float]]:
        """Sender, receiver, messages and bytes of the sends in ``calls`` of one job; with ``ranks``
        0 the receivers are unknown."""
        measurement = self._measurement
        arrays, lines = recent_arrays(calls, measurement.functions)
        owners = [
            _rank_of(measurement.processes[measurement.threads[n].process]) for n in lines.tolist()
        ]
        rank = np.array([-1 if owner is None else owner for owner in owners], np.int64)
        recorded = operations(arrays, rank)
        if not len(recorded):
            return []
        communicators = rebuild_communicators(recorded, np.arange(max(ranks, int(rank.max()) + 1)))
        sends, _ = endpoints(recorded, pair(recorded), communicators)
        peer = sends.peer if ranks else np.full(len(sends), UNKNOWN)
        pairs = matrix_of(sends.rank, peer, sends.size, sends.weight)
        columns = pairs.source, pairs.target, pairs.messages, pairs.bytes
        return list(zip(*(column.tolist() for column in columns), strict=True))
