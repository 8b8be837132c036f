"""Recorded calls of all measurements as columns of the database, and their totals.

Calls are placed by trace line, then sorted by time within each; memory is bounded by a chunk of the
measurement and by the calls of one line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hpcd.analysis.arrays.column_files import create_column, map_column, save_column
from hpcd.analysis.trace.part_contents import MeasurementContents, load_calls
from hpcd.array_types import I64, U16, U32, U64, Array, Mask
from hpcd.distinct import begins_run
from hpcd.errors import FormatError
from hpcd.measurement.call_codec import Calls
from hpcd.model.calls import MAX_VALUES, CalledFunction, CalledObject, ValueKind

COLUMNS: dict[str, npt.DTypeLike] = {
    "time": np.int64,
    "duration": np.int64,
    "node": np.uint32,
    "function": np.uint16,
    "weight": np.uint32,
    **{f"value-{number}": np.uint64 for number in range(MAX_VALUES)},
}
"""The columns of ``calls/`` with one entry a call, and their types."""

NARROW = ("weight", *(f"value-{number}" for number in range(MAX_VALUES)))
"""Columns stored as unsigned integers of the fewest bytes that hold all values."""

# Calls sorted and summed at once, where lines are shorter: about 100 bytes each.
_BATCH_CALLS = 1 << 20
# In place of the number of a function whose calls are left out.
_LEFT_OUT = 0xFFFF
_REFERENCES = (ValueKind.OBJECT, ValueKind.LINE, ValueKind.NODE)
# SQLite's integers, with room for a sum of sums.
_MOST = 1 << 62


@dataclass(frozen=True, slots=True)
class CallSource:
    """The calls of one measurement, and the database's numbers for its lines and nodes.

    ``line`` i64[rows]: the trace lines of ``contents.lines``;
    ``node`` u32[nodes]; ``shift`` is added to its times, ns.
    """

    contents: MeasurementContents
    line: I64
    node: U32
    shift: int


@dataclass(frozen=True, slots=True)
class CallTables:
    """Recorded functions (ids from 0), objects (ids from 1) with the measurement each is of, and
    the files of :data:`COLUMNS`, of ``lines`` trace lines."""

    functions: list[CalledFunction]
    objects: list[tuple[int, CalledObject]]
    folder: Path
    first: I64

    @property
    def calls(self) -> int:
        """The number of recorded calls."""
        return int(self.first[-1])

    def totals(self) -> Iterator[tuple[tuple[Any, ...], list[tuple[Any, ...]]]]:
        """Rows of ``call_total``, each with its rows of ``call_value_total``."""
        if not self.calls:
            return
        columns = {name: map_column(self.folder / f"{name}.npy") for name in COLUMNS}
        number = 0
        for low, high in _batches(self.first):
            span = slice(int(self.first[low]), int(self.first[high]))
            line = np.repeat(np.arange(low, high), np.diff(self.first[low : high + 1]))
            part = {name: np.asarray(column[span]) for name, column in columns.items()}
            for row, values in _totals(self.functions, line, part):
                yield (number, *row), [(number, *value) for value in values]
                number += 1


def unite_calls(
    sources: Sequence[CallSource], lines: int, folder: Path, only: CalledFunction | None
) -> CallTables | None:
    """Write the columns of all calls of functions, or of ``only`` one of :mod:`hpcd.model.waits`,
    into the new directory ``folder``; None, and no directory, where no measurement recorded any.

    Raises :class:`FormatError` and :class:`StorageError`.
    """
    functions, function_maps = _unite_functions(sources, only)
    if not functions:
        return None
    folder.mkdir()
    kinds = _columns_of(only)
    objects: list[tuple[int, CalledObject]] = []
    object_ids: list[I64] = []
    first_ids = []
    for number, source in enumerate(sources):
        ids = sorted(source.contents.objects)
        first_ids.append(len(objects) + 1)
        object_ids.append(np.array(ids, np.int64))
        objects += [
            (number, replace(source.contents.objects[id], id=len(objects) + 1 + at))
            for at, id in enumerate(ids)
        ]
    places = {kind: _places_of(functions, kind) for kind in _REFERENCES}

    def translated(number: int) -> Iterator[Calls]:
        source = sources[number]
        for calls in load_calls(source.contents):
            if len(calls) and int(calls.function.max()) >= len(function_maps[number]):
                raise _damaged(source)
            yield _translated(
                source, calls[function_maps[number][calls.function] != _LEFT_OUT],
                function_maps[number], places, object_ids[number], first_ids[number],
            )  # fmt: skip

    counts = np.zeros(lines, np.int64)
    narrow = [name for name in NARROW if name in kinds]
    most = dict.fromkeys(narrow, 0)
    for number in range(len(sources)):
        for calls in translated(number):
            counts += np.bincount(calls.line, minlength=lines)
            for name in narrow:
                most[name] = max(most[name], int(_column(calls, name).max(initial=0)))
    first = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    save_column(folder / "first.npy", first)
    for name, kind in kinds.items():
        if name in most:
            kind = next(f"<u{width}" for width in (1, 2, 4, 8) if most[name] < 1 << 8 * width)
        create_column(folder / f"{name}.npy", kind, int(first[-1]))
    tables = CallTables(functions, objects, folder, first)
    if tables.calls:
        columns = {name: map_column(folder / f"{name}.npy") for name in kinds}
        following = first[:-1].copy()
        for number in range(len(sources)):
            for calls in translated(number):
                _place(columns, following, calls)
        _sort(columns, first)
    return tables


def _columns_of(function: CalledFunction | None) -> dict[str, npt.DTypeLike]:
    """The columns of calls of all functions, or of one ``function`` alone."""
    if function is None:
        return COLUMNS
    values = (f"value-{number}" for number in range(len(function.values)))
    return {name: COLUMNS[name] for name in ("time", "duration", "node", *values)}


def _places_of(functions: Sequence[CalledFunction], kind: ValueKind) -> Mask:
    """``bool[functions, MAX_VALUES]``: which values of each function are of this kind."""
    places = np.zeros((max(len(functions), 1), MAX_VALUES), bool)
    for function in functions:
        for place, value in enumerate(function.values):
            places[function.id, place] = value.kind is kind
    return places


def _unite_functions(
    sources: Sequence[CallSource], only: CalledFunction | None
) -> tuple[list[CalledFunction], list[U16]]:
    """The functions of the database and, per measurement, its ids' new ones: of all functions,
    or of ``only`` one that is none."""
    distinct = {
        _function_key(function): function
        for source in sources
        for function in source.contents.functions.values()
        if (function.group == only.group if only else function.is_called)
    }
    functions = [
        replace(function, id=number)
        for number, (_, function) in enumerate(sorted(distinct.items(), key=lambda item: item[0]))
    ]
    ids = {_function_key(function): function.id for function in functions}
    maps = []
    for source in sources:
        table = np.full(max(source.contents.functions, default=0) + 1, _LEFT_OUT, np.uint16)
        for function in source.contents.functions.values():
            table[function.id] = ids.get(_function_key(function), _LEFT_OUT)
        maps.append(table)
    return functions, maps


def _function_key(function: CalledFunction) -> tuple[object, ...]:
    values = tuple((value.name, str(value.kind), value.unit) for value in function.values)
    return (function.group, function.library, function.name, values)


def _translated(
    source: CallSource, calls: Calls, function_map: U16,
    places: dict[ValueKind, Mask], object_ids: I64, first_id: int,
) -> Calls:  # fmt: skip
    """``calls`` with the database's lines, nodes, functions, objects and times (as they are)."""
    row = np.searchsorted(source.contents.lines, calls.line)
    if len(calls) and (
        int(row.max()) >= len(source.line) or int(calls.node.max()) >= len(source.node)
    ):
        raise _damaged(source)
    function = function_map[calls.function]
    value = calls.value.copy()
    for place in range(MAX_VALUES):
        at = np.flatnonzero(places[ValueKind.OBJECT][function, place] & (value[:, place] > 0))
        if len(at):
            wanted = np.minimum(value[at, place], np.uint64(1 << 40)).astype(np.int64)
            object_place = np.minimum(
                np.searchsorted(object_ids, wanted), max(len(object_ids) - 1, 0)
            )
            known = (
                object_ids[object_place] == wanted if len(object_ids) else np.zeros(len(at), bool)
            )
            value[at, place] = np.where(known, object_place + first_id, 0)
        at = np.flatnonzero(places[ValueKind.LINE][function, place] & (value[:, place] > 0))
        value[at, place] = _lines_of(source, value[at, place])
        at = np.flatnonzero(places[ValueKind.NODE][function, place])
        if len(at) and int(value[at, place].max()) >= len(source.node):
            raise _damaged(source)
        value[at, place] = source.node[value[at, place]]
    time = calls.time.view(np.int64) + source.shift
    return Calls(
        source.line[row].astype(np.uint32),
        time.view(np.uint64),
        calls.duration,
        source.node[calls.node],
        function,
        calls.weight,
        value,
    )


def _damaged(source: CallSource) -> FormatError:
    return FormatError(
        f"{source.contents.part}: damaged (calls of an unknown line, node or function)"
    )


def _lines_of(source: CallSource, value: U64) -> U64:
    """Values that are trace lines, from 1: the database's in place of the measurement's; 0 of lines
    that it does not have."""
    lines = source.contents.lines
    wanted = np.minimum(value - 1, np.uint64(0xFFFFFFFF)).astype(np.uint32)
    row = np.minimum(np.searchsorted(lines, wanted), max(len(lines) - 1, 0))
    if not len(lines):
        return np.zeros(len(value), np.uint64)
    return np.where(lines[row] == wanted, source.line[row] + 1, 0).astype(np.uint64)


def _place(columns: dict[str, Any], following: I64, calls: Calls) -> None:
    """Write calls, sorted by their measurement's line, behind the earlier calls of their lines."""
    order = np.argsort(calls.line, kind="stable")
    calls = calls[order]
    starts = np.flatnonzero(np.diff(calls.line, prepend=np.uint32(0xFFFFFFFF)) != 0)
    length = np.diff(starts, append=len(calls))
    at = np.repeat(following[calls.line[starts]] - starts, length) + np.arange(len(calls))
    following[calls.line[starts]] += length
    for name, column in columns.items():
        column[at] = _column(calls, name)


def _column(calls: Calls, name: str) -> Array:
    if name.startswith("value-"):
        return calls.value[:, int(name.removeprefix("value-"))]
    values: Array = getattr(calls, name)
    return values.view(np.int64) if name in ("time", "duration") else values


def _batches(first: I64) -> Iterator[tuple[int, int]]:
    """Ranges of lines with about a batch's calls each; at least one line."""
    low, lines = 0, len(first) - 1
    while low < lines:
        high = int(np.searchsorted(first, first[low] + _BATCH_CALLS, side="right")) - 1
        high = min(max(high, low + 1), lines)
        if first[high] > first[low]:
            yield low, high
        low = high


def _sort(columns: dict[str, Any], first: I64) -> None:
    """Sort the calls of each line by time; at equal times the longest call first."""
    for low, high in _batches(first):
        span = slice(int(first[low]), int(first[high]))
        line = np.repeat(np.arange(low, high), np.diff(first[low : high + 1]))
        time, duration = np.array(columns["time"][span]), np.array(columns["duration"][span])
        order = np.lexsort((-duration, time, line))
        if not np.array_equal(order, np.arange(len(order))):
            for column in columns.values():
                column[span] = np.array(column[span])[order]


def _totals(
    functions: Sequence[CalledFunction], line: I64, part: dict[str, Array]
) -> Iterator[tuple[tuple[Any, ...], list[tuple[Any, ...]]]]:
    """Totals by line, function, node and object of calls sorted by line."""
    object_of = np.zeros(len(line), np.uint64)
    summed: dict[int, list[int]] = {}
    for function in functions:
        kinds = [value.kind for value in function.values]
        summed[function.id] = [place for place, kind in enumerate(kinds) if kind.summable]
        if ValueKind.OBJECT in kinds:
            mine = part["function"] == function.id
            object_of[mine] = part[f"value-{kinds.index(ValueKind.OBJECT)}"][mine]
    order = np.lexsort((object_of, part["node"], part["function"], line))
    keys = (line[order], part["function"][order], part["node"][order], object_of[order])
    starts = np.flatnonzero(begins_run(*keys))
    weight = part["weight"][order].astype(np.int64)
    duration = part["duration"][order]
    lists = [
        np.add.reduceat(weight, starts),
        np.diff(starts, append=len(line)),
        _sums(duration, weight, starts),
        np.minimum.reduceat(duration, starts),
        np.maximum.reduceat(duration, starts),
    ]
    places = sorted({place for value_places in summed.values() for place in value_places})
    by_value = {place: _value_totals(part[f"value-{place}"][order], weight, starts)
                for place in places}  # fmt: skip
    rows = zip(*(key[starts].tolist() for key in keys), *(column.tolist() for column in lists),
               strict=True)  # fmt: skip
    for at, (where, function_id, node, called, *figures) in enumerate(rows):
        values = [(place, *(int(figure[at]) for figure in by_value[place]))
                  for place in summed.get(function_id, [])]  # fmt: skip
        yield (function_id, node, called or None, where, *figures), values


def _value_totals(value: U64, weight: I64, starts: I64) -> tuple[I64, I64, I64]:
    bounded = np.minimum(value.astype(np.uint64), np.uint64(_MOST)).astype(np.int64)
    return (
        _sums(bounded, weight, starts),
        np.minimum.reduceat(bounded, starts),
        np.maximum.reduceat(bounded, starts),
    )


def _sums(value: I64, weight: I64, starts: I64) -> I64:
    """Weighted sums, saturated at implausible values."""
    about = np.add.reduceat(value.astype(np.float64) * weight, starts)
    exact: I64 = np.add.reduceat(value * weight, starts)
    return np.where(about < _MOST, exact, _MOST)
