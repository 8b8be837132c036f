"""Totals of recorded calls: how many, how long, how much, how fast, by what they have in common.

Bytes of a call are read from its file or written to it, as its function declares; a call that moves
bytes between two files (sendfile, splice) reads from one and writes to the other, and counts for
both where calls are grouped by what they were made with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from hpcd.analysis.arrays.sparse_sums import sum_whole
from hpcd.analysis.database.database import Database
from hpcd.analysis.database.recorded_calls import CALL, ObjectRow
from hpcd.analysis.profile.groups import PHASES
from hpcd.analysis.profile.marked_phases import MarkedPhases
from hpcd.analysis.profile.row_text import CALLED_BY
from hpcd.array_types import F64, I64, Mask
from hpcd.errors import UsageError
from hpcd.model.calls import CalledFunction, Group, ValueKind
from hpcd.rows import take_rows

READ, WRITTEN, MOVED = "read", "written", "moved"
"""Names of values of kind ``bytes`` that say what became of them."""

TIME = "time"
_MOST_STRETCHES = 50
_STRETCHES = [digit * 10**power for power in range(19) for digit in (1, 2, 5)]  # ns

UNKNOWN = "(no file)"
"""The group of calls with paths, or with files that are not known."""


@dataclass(frozen=True, slots=True)
class CallTotals:
    """Totals of ``n`` groups of calls, those with most time first; files, file systems,
    mounts and peers those with most bytes, stretches of time the earliest.

    ``key`` names what they are grouped by, ``name`` each group, ``node`` ``int64[n]`` its CCT node
    where they are grouped by call path (else -1). Calls that stand for several count as these.
    ``calls``, ``errors``, ``read``, ``written``, ``size`` ``int64[n]``: how many, how many of them
    failed, bytes; ``size`` are those that probed functions declare, such as what was allocated.
    ``seconds`` ``float64[n]``: their time. Bandwidth in bytes per second, of calls that moved
    bytes: ``bandwidth`` all bytes over all their time; ``least``, ``mean``, ``most``, ``stddev`` of
    one call (NaN where none moved any). ``shortest`` and ``longest`` in seconds.
    """

    key: str
    name: list[str]
    node: I64
    calls: I64
    errors: I64
    read: I64
    written: I64
    size: I64
    seconds: F64
    shortest: F64
    longest: F64
    bandwidth: F64
    least: F64
    mean: F64
    most: F64
    stddev: F64

    def __len__(self) -> int:
        return len(self.name)

    def first(self, count: int | None) -> CallTotals:
        """The first ``count`` groups; None: all."""
        return CallTotals(
            self.key,
            *(getattr(self, field.name)[:count] for field in fields(self) if field.name != "key"),
        )


@dataclass(frozen=True, slots=True)
class _Flows:
    """Calls with their bytes: ``call`` :data:`CALL` [n], ``object`` i64[n], ``read``, ``written``,
    ``size`` and ``error`` i64[n]."""

    call: npt.NDArray[np.void]
    object: I64
    read: I64
    written: I64
    size: I64
    error: I64


def total_calls(
    db: Database,
    by: str = "function",
    functions: Sequence[CalledFunction] | None = None,
    t0: int | None = None,
    t1: int | None = None,
    lines: Sequence[int] | None = None,
    most: int | None = None,
    within: MarkedPhases | None = None,
) -> CallTotals:
    """Totals of the calls of ``functions`` (None: all) on ``lines`` (None: all) that began in
    [t0, t1), ns since the origin, and ``within`` phases; of more than ``most`` calls estimates from
    every k-th. Further records of a call are no calls.

    ``by`` is one of :data:`GROUPINGS`, or ``phase=solve`` and the like
    (:mod:`hpcd.analysis.profile.marked_phases`): the phase a call begins in. Raises
    :class:`UsageError` when it is not. O(n log n) in the calls that are read.
    """
    grouping: Callable[[Database, _Flows], _Grouping]
    if by.startswith(PHASES):
        grouping = partial(_by_phase, MarkedPhases(db, by.removeprefix(PHASES)))
    elif by in GROUPINGS:
        grouping = GROUPINGS[by]
    else:
        known = ", ".join(GROUPINGS)
        raise UsageError(f"calls are not grouped by {by}; by {known}, phase=FUNCTION")
    # Further records of a call have its time again.
    wanted = db.calls.functions if functions is None else functions
    wanted = [function for function in wanted if not function.is_part]
    calls = db.calls.select(lines, t0, t1, wanted, most)
    if within is not None:
        calls = calls[_phases_of(within, calls) > 0]
    flows = _flows(calls, wanted, both=by in _OF_OBJECTS)
    group, names, node = grouping(db, flows)
    shown = group >= 0
    if not shown.all():
        flows = take_rows(flows, shown)
        group = group[shown]
    return _summed(by, flows, group, names, node)


@dataclass(frozen=True, slots=True)
class BytesMoved:
    """Bytes ``read`` and ``written`` ``int64[n]`` by calls that began at ``time`` (ns)."""

    time: I64
    read: I64
    written: I64


def bytes_moved(
    db: Database, t0: int, t1: int, lines: Sequence[int] | None, most: int | None
) -> BytesMoved:
    """Return the bytes that calls on files, begun in [t0, t1) on ``lines`` (None: all), moved; of
    more than ``most`` calls estimates from every k-th."""
    wanted = [function for function in db.calls.of_group(Group.IO) if not function.is_part]
    calls = db.calls.select(lines, t0, t1, wanted, most)
    flows = _flows(calls, wanted, both=False)
    weight = calls["weight"].astype(np.int64)
    return BytesMoved(calls["time"].astype(np.int64), flows.read * weight, flows.written * weight)


def _flows(
    calls: npt.NDArray[np.void], functions: Sequence[CalledFunction], *, both: bool
) -> _Flows:
    """``calls`` with their bytes; with ``both``, calls that have two files are there for each."""
    count = len(calls)
    called, read, written, size, error, source = (np.zeros(count, np.int64) for _ in range(6))
    for function in functions:
        mine = np.flatnonzero(calls["function"] == function.id)
        if not len(mine):
            continue
        values = calls["value"][mine].astype(np.int64)
        objects = [n for n, value in enumerate(function.values) if value.kind is ValueKind.OBJECT]
        # Those of imported messages are communicators.
        if objects and function.group != Group.MPI:
            called[mine] = values[:, objects[0]]
        for number, value in enumerate(function.values):
            if value.kind is ValueKind.ERROR:
                error[mine] = values[:, number]
            elif value.kind is ValueKind.BYTES and value.name == READ:
                read[mine] = values[:, number]
            elif value.kind is ValueKind.BYTES and value.name in (WRITTEN, MOVED):
                written[mine] = values[:, number]
                if value.name == MOVED:
                    source[mine] = values[:, objects[1]] if len(objects) > 1 else 0
                    if not both:
                        read[mine] = values[:, number]
        if function.library:
            size[mine] = _declared_size(function, values)
    if not both or not source.any():
        return _Flows(calls, called, read, written, size, error)
    two = np.flatnonzero(source)
    nothing = np.zeros(len(two), np.int64)
    return _Flows(
        np.concatenate([calls, calls[two]]),
        np.concatenate([called, source[two]]),
        np.concatenate([read, written[two]]),
        np.concatenate([written, nothing]),
        np.concatenate([size, nothing]),
        np.concatenate([error, error[two]]),
    )


def _declared_size(function: CalledFunction, values: I64) -> I64:
    """Return int64[n]: the bytes that calls of a probed function say, ``values`` int64[n, 6], those
    of ``calloc(count, size)`` and MPI's ``count`` of a datatype the product of both."""
    columns = [
        (values[:, number], value)
        for number, value in enumerate(function.values)
        if value.name not in (READ, WRITTEN, MOVED)
    ]
    size = np.zeros(len(values), np.int64)
    for column, value in columns:
        size += column if value.kind is ValueKind.BYTES else 0
    for column, value in columns:
        size *= np.maximum(column, 0) if value.name == "count" else 1
    return size


def _summed(by: str, flows: _Flows, group: I64, names: Sequence[str], node: I64) -> CallTotals:
    size = len(names)
    weight = flows.call["weight"].astype(np.int64)
    seconds = flows.call["duration"] / 1e9
    calls, errors, read, written, declared = (
        sum_whole(group, weight * amount, size)
        for amount in (1, flows.error > 0, flows.read, flows.written, flows.size)
    )
    shortest, longest = np.full(size, np.inf), np.zeros(size)
    np.minimum.at(shortest, group, seconds)
    np.maximum.at(longest, group, seconds)
    moved = np.maximum(flows.read, flows.written)
    moving = np.flatnonzero((moved > 0) & (seconds > 0))
    speed, owner, of = moved[moving] / seconds[moving], group[moving], weight[moving]
    samples = np.bincount(owner, of, size)
    moved_bytes = np.bincount(owner, of * moved[moving].astype(np.float64), size)
    moving_time = np.bincount(owner, of * seconds[moving], size)
    least, most = np.full(size, np.inf), np.full(size, -np.inf)
    np.minimum.at(least, owner, speed)
    np.maximum.at(most, owner, speed)
    none = samples == 0
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(owner, of * speed, size) / samples
        squares = np.bincount(owner, of * (speed - mean[owner]) ** 2, size) / samples
        bandwidth = moved_bytes / moving_time
    least[none] = most[none] = np.nan
    time = np.bincount(group, weight * seconds, size).astype(np.float64)
    # Files are ordered by the bytes that were read and written, all else by time.
    size_order = -(read + written + declared)
    keys = (-time, size_order) if by in _OF_OBJECTS else (size_order, -time)
    order = np.arange(size) if by == TIME else np.lexsort((np.arange(size), *keys))
    order = order[calls[order] > 0]
    return CallTotals(
        by,
        [names[at] for at in order.tolist()],
        node[order],
        calls[order],
        errors[order],
        read[order],
        written[order],
        declared[order],
        time[order],
        shortest[order],
        longest[order],
        bandwidth[order],
        least[order],
        mean[order],
        most[order],
        np.sqrt(squares)[order],
    )


# --- what calls have in common: (group of each or -1, names, CCT node of each group) ---

_Grouping = tuple[I64, Sequence[str], I64]


def _grouped(keys: Sequence[str], of: I64) -> _Grouping:
    """Groups of equal names: ``keys`` by index, ``of`` i64[n] an index for each call, or -1."""
    names = sorted(set(keys))
    place = {name: number for number, name in enumerate(names)}
    table = np.array([place[key] for key in keys] or [0], np.int64)
    return np.where(of >= 0, table[np.maximum(of, 0)], -1), names, np.full(len(names), -1)


def _by_time(db: Database, flows: _Flows) -> _Grouping:
    begun = flows.call["time"].astype(np.int64)
    if not len(begun):
        return begun, [], begun
    edges, names = time_stretches(int(begun.min()), int(begun.max()))
    stretch = np.searchsorted(edges, begun, side="right") - 1
    return stretch, names, np.full(len(names), -1)


def time_stretches(first: int, last: int) -> tuple[I64, list[str]]:
    """Return stretches of time from ``first`` to ``last`` (ns), each of 1, 2 or 5 of a unit, at
    most 50: their edges, ``int64[n + 1]``, and names."""
    step = next(step for step in _STRETCHES if last // step - first // step < _MOST_STRETCHES)
    digits = max(9 - len(str(step)) + 1, 0)
    edges = np.arange(first // step, last // step + 2) * step
    texts = [f"{edge / 1e9:.{digits}f}" for edge in edges.tolist()]
    return edges, [f"{begin} to {end} s" for begin, end in pairwise(texts)]


def _by_function(db: Database, flows: _Flows) -> _Grouping:
    names = [function.name for function in db.calls.functions]
    return _grouped(names, flows.call["function"].astype(np.int64))


def _by_object(by: str, db: Database, flows: _Flows) -> _Grouping:
    name_of, unknown = _OF_OBJECTS[by], None if by == "peer" else UNKNOWN
    ids = np.unique(flows.object)
    names: list[str] = []
    known: Mask = np.ones(len(ids), bool)
    for at, number in enumerate(ids.tolist()):
        row = db.calls.objects.get(number)
        name = name_of(row) if row else unknown
        known[at] = name is not None
        names.append(name or "")
    place = np.searchsorted(ids, flows.object)
    return _grouped(names, np.where(known[place], place, -1) if len(ids) else place)


def _file_system(row: ObjectRow) -> str:
    return row.file_system or row.kind


def _mount(row: ObjectRow) -> str:
    if not row.mount:
        return _file_system(row)
    return f"{row.mount} ({row.file_system}, {row.details.get('source', '')})"


_OF_OBJECTS: dict[str, Callable[[ObjectRow], str | None]] = {
    "file": lambda row: row.name, "filesystem": _file_system, "mount": _mount,
    "peer": lambda row: (row.peer or row.name) if row.kind == "socket" else None,
}  # fmt: skip
"""Groupings by what calls were made with: its name in each, None where it is in no group."""


def path_name(db: Database, node: int) -> str:
    """A call path in words, innermost procedure first."""
    return CALLED_BY.join(reversed(db.path_names(node))) or "[unknown]"


def calls_by_process(
    db: Database, functions: Sequence[CalledFunction], processes: Iterable[int] | None,
    t1: int | None,
) -> Iterator[tuple[int, npt.NDArray[np.void]]]:  # fmt: skip
    """Yield each of ``processes`` (rows of the table; None: all) that has calls of ``functions``
    begun before ``t1``, and these calls in order of time. O(n log n) in them."""
    lines = None
    if processes is not None:
        lines = np.flatnonzero(np.isin(db.lines.process, list(processes))).tolist()
    calls = db.calls.select(lines, None, t1, functions)
    process = db.lines.process[calls["line"]] if len(calls) else np.zeros(0, np.uint32)
    for number in np.unique(process).tolist():
        mine = np.flatnonzero(process == number)
        yield number, calls[mine[np.argsort(calls["time"][mine], kind="stable")]]


def path_groups(db: Database, nodes: I64) -> _Grouping:
    """Groups of nodes whose paths lead through the same procedures: the group of each, their names,
    the first node of each."""
    distinct, index = np.unique(nodes, return_inverse=True)
    names = [path_name(db, node) for node in distinct.tolist()]
    first: dict[str, int] = {}
    place = np.array([first.setdefault(name, len(first)) for name in names], np.int64)
    node = np.zeros(len(first), np.int64)
    node[place[::-1]] = distinct[::-1]
    return place[index], list(first), node


def _by_path(db: Database, flows: _Flows) -> _Grouping:
    return path_groups(db, flows.call["node"].astype(np.int64))


def _by_thread(db: Database, flows: _Flows) -> _Grouping:
    lines, group = np.unique(flows.call["line"], return_inverse=True)
    names = list(db.lines.labels(lines.tolist()))
    return group.astype(np.int64), names, np.full(len(names), -1)


def _by_rank(db: Database, flows: _Flows) -> _Grouping:
    group, names = db.lines.groups("rank")
    return group[flows.call["line"]], names, np.full(len(names), -1)


def _by_phase(phases: MarkedPhases, db: Database, flows: _Flows) -> _Grouping:
    return _phases_of(phases, flows.call), phases.name, np.full(len(phases), -1)


def _phases_of(phases: MarkedPhases, calls: npt.NDArray[np.void]) -> I64:
    """``int64[n]``: the group of phases that each of ``calls`` begins in, 0: none."""
    line, time = calls["line"], calls["time"]
    group = np.zeros(len(line), np.int64)
    order = np.argsort(line, kind="stable")
    cuts = np.searchsorted(line[order], np.stack([phases.lines, phases.lines + 1]))
    for number, low, high in zip(phases.lines.tolist(), *cuts.tolist(), strict=True):
        mine = order[low:high]
        group[mine] = phases.segments(number).at(time[mine])
    return group


GROUPINGS: dict[str, Callable[[Database, _Flows], _Grouping]] = {
    "function": _by_function,
    **{by: partial(_by_object, by) for by in _OF_OBJECTS},
    "path": _by_path,
    "thread": _by_thread,
    "rank": _by_rank,
    TIME: _by_time,
}
"""The groupings of calls, besides phases."""

assert CALL.names is not None
