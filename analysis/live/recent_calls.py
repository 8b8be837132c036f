"""Calls in the last seconds of a measurement: files, ranks, probed functions.

Each chunk of calls is summed up once, when it is read; a window is the sums of its chunks. Chunks
come about once a second, and calls are in the one of their end.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from hpcd.analysis.live.recent_messages import Sent, SentMessages, recent_arrays
from hpcd.analysis.messages.grouping import groups_of
from hpcd.analysis.messages.operations import Operations, operations
from hpcd.array_types import F64, I64, Mask
from hpcd.masks import marked
from hpcd.measurement.call_codec import Calls
from hpcd.measurement.reader import Measurement
from hpcd.model.calls import CalledFunction, Group, ValueKind
from hpcd.model.mpi_functions import Role
from hpcd.model.mpi_records import MISSING

# What is given to MPI by the call itself.
_CARRYING = (
    Role.SEND, Role.PUT, Role.ALL_TO_ALL, Role.FROM_ROOT, Role.TO_ROOT, Role.PREFIX,
    Role.NEIGHBOURS,
)  # fmt: skip
# Calls as long may have begun before the window; those of MPI are kept one by one.
_LONG_NS = 500_000_000
_UNKNOWN = "(no file)"

_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class FileUse:
    """A file or connection: calls that named it, how many failed, bytes, seconds in the calls."""

    name: str
    calls: float
    errors: float
    read: float
    written: float
    seconds: float


@dataclass(frozen=True, slots=True)
class RankUse:
    """A process that called MPI: its place, its calls, bytes handed to sends and collectives,
    seconds in MPI."""

    job: str
    rank: int | None
    pid: int
    name: str
    calls: float
    bytes: float
    seconds: float


@dataclass(frozen=True, slots=True)
class MpiUse:
    """A function of MPI: its calls, bytes handed to it to be sent, seconds in them, of all
    processes."""

    name: str
    calls: float
    bytes: float
    seconds: float


@dataclass(frozen=True, slots=True)
class PeerUse:
    """Messages and bytes that a rank sent to another, ``target`` None where it is not known to
    which: point-to-point messages, of ranks that the launcher's environment says."""

    job: str
    source: int
    target: int | None
    messages: float
    bytes: float


@dataclass(frozen=True, slots=True)
class FunctionUse:
    """A probed function: its calls, seconds in them; ``mean_s`` None where returns are not seen."""

    name: str
    library: str
    calls: float
    seconds: float
    mean_s: float | None


@dataclass(frozen=True, slots=True)
class RecentCalls:
    """Calls that ended in a window of ``seconds``: files by bytes and calls, processes and
    functions of MPI by their time, pairs of ranks by bytes, probed functions by calls."""

    seconds: float
    files: list[FileUse]
    ranks: list[RankUse]
    mpi: list[MpiUse]
    peers: list[PeerUse]
    functions: list[FunctionUse]


@dataclass(slots=True)
class _Sums:
    """Sums of the calls of a chunk, by the ids of objects, processes and functions."""

    begin: int
    end: int
    files: dict[int, F64] = field(default_factory=lambda: defaultdict(lambda: np.zeros(5)))
    """Calls, errors, bytes read, bytes written, seconds."""
    processes: dict[int, F64] = field(default_factory=lambda: defaultdict(lambda: np.zeros(3)))
    """Calls, bytes, seconds; of the calls in ``long`` without these."""
    mpi: dict[int, F64] = field(default_factory=lambda: defaultdict(lambda: np.zeros(3)))
    """Sums of a chunk's calls by function of MPI."""
    long: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Process, function, begin and end of calls of MPI."""
    sent: Sent = field(default_factory=dict)
    functions: dict[int, F64] = field(default_factory=lambda: defaultdict(lambda: np.zeros(3)))
    """Calls, those whose return was seen, seconds."""


class CallWindow:
    """Follows the calls of a measurement over its last ``seconds``."""

    def __init__(self, measurement: Measurement, seconds: float) -> None:
        self._measurement = measurement
        self._length_ns = int(seconds * 1e9)
        self._chunks = 0
        self._sent = SentMessages(measurement)
        self._messages: deque[tuple[_Sums, Calls]] = deque()
        # Parts of calls of MPI that have not returned: requests are recorded ahead of the wait.
        self._parts = Calls.none()
        self._sums: deque[_Sums] = deque()

    @property
    def end(self) -> int:
        """When the last call ended, monotonic ns; 0 without calls."""
        return max((sums.end for sums in self._sums), default=0)

    def refresh(self) -> None:
        """Take in what was written since."""
        end = self.end
        for chunk in self._measurement.call_chunks(self._chunks):
            calls = Calls.joined([self._parts, chunk])
            returned = self._returned(calls)
            calls, self._parts = calls[returned], calls[~returned]
            if not len(calls):
                continue
            sums = self._summed(calls)
            self._sums.append(sums)
            end = max(end, sums.end)
            self._parts = self._parts[self._parts.time.astype(np.int64) >= end - self._length_ns]
            self._messages.append((sums, self._sent.learn(calls)))
            while self._messages[0][0].end < end - self._length_ns:
                self._messages.popleft()
        for sums, calls in self._messages:
            sums.sent = self._sent.sent(calls)
        # Other ranks may say what its handles mean in the next chunk only.
        while len(self._messages) > 1:
            self._messages.popleft()
        self._chunks = self._measurement.number_of_call_chunks

    def snapshot(self, end: int, limit: int) -> RecentCalls | None:
        """The window that ends at ``end``, the first ``limit`` of each kind; None where no calls
        are recorded."""
        if not self._measurement.has_calls:
            return None
        oldest = end - self._length_ns
        while self._sums and self._sums[0].end < oldest:
            self._sums.popleft()
        begin = max(min((sums.begin for sums in self._sums), default=end), oldest)
        return RecentCalls(
            (end - begin) / 1e9,
            self._files()[:limit],
            self._ranks(begin)[:limit],
            self._mpi(begin)[:limit],
            self._peers()[:limit],
            self._functions()[:limit],
        )

    # --- a chunk ---

    def _returned(self, calls: Calls) -> Mask:
        """``bool[n]``: calls, and parts of these: a part has its call's line and begin."""
        parts = [
            number for number, function in self._measurement.functions.items()
            if function.group == Group.MPI and "/" in function.name
        ]  # fmt: skip
        part = np.isin(calls.function, parts)
        group, count = groups_of(calls.line.astype(np.int64), calls.time.astype(np.int64))
        returned = marked(count, group[~part])
        mask: Mask = returned[group]
        return mask

    def _summed(self, calls: Calls) -> _Sums:
        end = calls.time + calls.duration
        # Calls come in the chunk after their end: long ones began before what it is about.
        short = calls.time[calls.duration < _LONG_NS]
        sums = _Sums(int(min(end.min(), short.min(initial=end.min()))), int(end.max()))
        functions = self._measurement.functions
        for number in np.unique(calls.function).tolist():
            function = functions[number]
            mine = calls[np.flatnonzero(calls.function == number)]
            if function.group == Group.IO:
                _add_files(sums, function, mine)
            elif function.group != Group.MPI and function.library:
                seen = mine.weight[mine.duration > 0].sum()
                lasted = float((mine.duration * mine.weight.astype(float)).sum()) / 1e9
                sums.functions[number] += (float(mine.weight.sum()), float(seen), lasted)
        self._add_messages(sums, calls)
        return sums

    def _add_messages(self, sums: _Sums, calls: Calls) -> None:
        functions = self._measurement.functions
        known = sorted(functions)
        is_mpi = np.array([functions[number].group == Group.MPI for number in known], bool)
        selected = is_mpi[np.searchsorted(known, calls.function)]
        if not selected.any():
            return
        arrays, lines = recent_arrays(calls[np.flatnonzero(selected)], functions)
        owner = np.array([self._measurement.threads[n].process for n in lines.tolist()], np.int64)
        mpi_calls = operations(arrays, owner)
        _add_operations(sums, mpi_calls, np.array(known, np.int64))

    # --- the window ---

    def _files(self) -> list[FileUse]:
        total = _summed((sums.files for sums in self._sums), 5)
        objects = self._measurement.objects
        files = [
            FileUse(objects[number].name if number in objects else _UNKNOWN, *row.tolist())
            for number, row in total.items()
        ]
        return sorted(files, key=lambda use: (-use.read - use.written, -use.calls, use.name))

    def _ranks(self, oldest: int) -> list[RankUse]:
        total = _summed((sums.processes for sums in self._sums), 3)
        for owner, _, seconds in self._long(oldest):
            total[owner][2] += seconds
        processes = self._measurement.processes
        ranks = [
            RankUse(process.job, process.rank, process.pid, process.name, *row.tolist())
            for number, row in total.items()
            if (process := processes.get(number))
        ]
        return sorted(ranks, key=lambda use: (-use.seconds, -use.calls, use.pid))

    def _mpi(self, oldest: int) -> list[MpiUse]:
        total = _summed((sums.mpi for sums in self._sums), 3)
        for _, function, seconds in self._long(oldest):
            total[function][2] += seconds
        functions = self._measurement.functions
        # The library may be there twice, in two implementations.
        named: dict[str, F64] = defaultdict(lambda: np.zeros(3))
        for number, row in total.items():
            named[functions[number].name] += row
        uses = [MpiUse(name, *row.tolist()) for name, row in named.items() if row[0]]
        return sorted(uses, key=lambda use: (-use.seconds, -use.calls, use.name))

    def _long(self, oldest: int) -> Iterable[tuple[int, int, float]]:
        """Process, function and seconds since ``oldest`` of the long calls of MPI."""
        for sums in self._sums:
            for process, function, begin, end in sums.long:
                yield process, function, max(end - max(begin, oldest), 0) / 1e9

    def _peers(self) -> list[PeerUse]:
        total = _summed((sums.sent for sums in self._sums), 2)
        uses = [
            PeerUse(job, source, None if target < 0 else target, *row.tolist())
            for (job, source, target), row in total.items()
        ]
        return sorted(uses, key=lambda use: (-use.bytes, -use.messages, use.job, use.source))

    def _functions(self) -> list[FunctionUse]:
        total = _summed((sums.functions for sums in self._sums), 3)
        uses = []
        for number, row in total.items():
            function = self._measurement.functions[number]
            calls, seen, seconds = row.tolist()
            mean = seconds / seen if seen else None
            uses.append(FunctionUse(function.name, function.library, calls, seconds, mean))
        return sorted(uses, key=lambda use: (-use.calls, use.name))


def _summed(
    parts: Iterable[Mapping[_Key, F64 | tuple[float, ...]]], columns: int
) -> dict[_Key, F64]:
    """Return the rows of ``parts``, ``columns`` numbers each, added up by their keys."""
    total: dict[_Key, F64] = defaultdict(lambda: np.zeros(columns))
    for part in parts:
        for key, row in part.items():
            total[key] += row
    return total


def _add_files(sums: _Sums, function: CalledFunction, calls: Calls) -> None:
    """Add calls of ``function``, one of input and output; one that moves bytes between two files
    counts for both."""
    weight = calls.weight.astype(float)
    objects = [n for n, value in enumerate(function.values) if value.kind is ValueKind.OBJECT]
    if not objects:
        return
    columns = np.zeros((5, len(calls)))
    columns[0], columns[4] = weight, weight * calls.duration / 1e9
    moved = np.zeros(len(calls))
    for number, value in enumerate(function.values):
        amount = weight * calls.value[:, number].astype(np.int64)
        if value.kind is ValueKind.ERROR:
            columns[1] = weight * (calls.value[:, number] != 0)
        elif value.kind is ValueKind.BYTES and value.name == "read":
            columns[2] = amount
        elif value.kind is ValueKind.BYTES and value.name in ("written", "moved"):
            columns[3] = amount
            if value.name == "moved":
                moved = amount
    _add_by(sums.files, calls.value[:, objects[0]].astype(np.int64), columns)
    if len(objects) > 1 and moved.any():
        source = np.zeros((5, len(calls)))
        source[0], source[2] = weight, moved
        _add_by(sums.files, calls.value[:, objects[1]].astype(np.int64), source)


def _add_operations(sums: _Sums, mpi_calls: Operations, number: I64) -> None:
    """Add the operations of MPI; what is called their rank is the process. ``number`` are the ids
    of their functions."""
    carried = np.where(
        mpi_calls.are(*_CARRYING) & (mpi_calls.payload != MISSING), mpi_calls.payload, 0
    )
    first = mpi_calls.call == np.arange(len(mpi_calls))
    lasted = np.maximum(mpi_calls.end - mpi_calls.begin, 0)
    long = first & (lasted >= _LONG_NS) & (mpi_calls.weight == 1)
    columns = np.zeros((3, len(mpi_calls)))
    columns[0] = np.where(first, mpi_calls.weight, 0)
    columns[1] = np.maximum(carried, 0) * mpi_calls.weight
    columns[2] = np.where(first & ~long, lasted * mpi_calls.weight / 1e9, 0)
    _add_by(sums.processes, mpi_calls.rank, columns)
    # A second record of a call, as of the message that MPI_Sendrecv receives, is no call.
    function = number[mpi_calls.function[mpi_calls.call]]
    _add_by(sums.mpi, function, columns)
    rows = mpi_calls.rank[long], function[long], mpi_calls.begin[long], mpi_calls.end[long]
    sums.long += list(zip(*(row.tolist() for row in rows), strict=True))


def _add_by(total: dict[int, F64], key: I64, columns: F64) -> None:
    """Add ``columns[:, n]`` up by ``key[n]``."""
    keys, group = np.unique(key, return_inverse=True)
    for row, number in enumerate(keys.tolist()):
        total[number] += columns[:, group == row].sum(axis=1)
