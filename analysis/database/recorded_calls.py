"""Recorded calls of a database: what system calls and probed functions did (docs/calls.md)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hpcd.analysis.arrays.column_files import open_bounds, open_column, open_narrow
from hpcd.analysis.arrays.heap_blocks import HeapBlocks, heap_blocks
from hpcd.analysis.database.column_bounds import require_times
from hpcd.array_types import I64, U16, U32, U64, Array, Mask
from hpcd.errors import FormatError, UsageError
from hpcd.masks import marked
from hpcd.model.calls import MAX_VALUES, CalledFunction, CallValue, Group, ValueKind

CALL = np.dtype(
    [
        ("line", "<u4"),
        ("time", "<i8"),
        ("duration", "<i8"),
        ("node", "<u4"),
        ("function", "<u2"),
        ("weight", "<u4"),
        ("value", "<u8", MAX_VALUES),
    ]
)
"""One call as :meth:`RecordedCalls.select` gives it; times in ns since the origin."""


class ObjectRow(NamedTuple):
    """An object that values of calls refer to. ``measurement`` is the one it was met in."""

    id: int
    measurement: int
    kind: str
    name: str
    file_system: str
    mount: str
    peer: str
    details: dict[str, Any]


Rows = Callable[..., Iterable[tuple[Any, ...]]]


class RecordedCalls:
    """The calls of a database by trace line, in order of time.

    ``first`` ``int64[lines + 1]``: line ``i`` has calls ``first[i]`` to ``first[i + 1] - 1``;
    ``time``, ``duration`` ``int64[n]`` ns, ``node`` ``uint32[n]``, ``function`` ``uint16[n]``,
    ``weight`` ``uint32[n]`` and ``value(k)`` ``uint64[n]`` are those columns. A database of
    measurements that recorded no calls has none.
    """

    def __init__(self, folder: Path, lines: int, nodes: int, calls: int, rows: Rows) -> None:
        """Open the columns. Raises :class:`FormatError` unless their numbers are in range."""
        self._rows = rows
        self._folder = folder
        self._calls = calls
        self._columns: dict[str, Array] = {}
        if not calls:
            self.first: I64 = np.zeros(lines + 1, np.int64)
            self.time: I64 = np.zeros(0, np.int64)
            self.duration: I64 = np.zeros(0, np.int64)
            self.node: U32 = np.zeros(0, np.uint32)
            self.function: U16 = np.zeros(0, np.uint16)
            return
        self.first = open_bounds(folder / "first.npy", lines, calls)
        self.time = open_column(folder / "time.npy", np.int64, calls)
        self.duration = open_column(folder / "duration.npy", np.int64, calls)
        self.node = open_column(folder / "node.npy", np.uint32, calls)
        self.function = open_column(folder / "function.npy", np.uint16, calls)
        require_times(self.time, folder)
        require_times(self.duration, folder)
        if int(self.node.max()) >= nodes or int(self.duration.min()) < 0:
            raise FormatError(f"{folder}: calls are damaged")
        names = ("weight", *(f"value-{number}" for number in range(MAX_VALUES)))
        self._columns = {name: open_narrow(folder / f"{name}.npy", calls) for name in names}

    def __len__(self) -> int:
        return self._calls

    @cached_property
    def weight(self) -> U32:
        """``uint32[n]``: the number of calls that each represents."""
        if not self._calls:
            return np.zeros(0, np.uint32)
        return self._columns["weight"].astype(np.uint32)

    def value(self, number: int) -> U64:
        """``uint64[n]``: value ``number`` of every call."""
        if not self._calls:
            return np.zeros(0, np.uint64)
        return self._columns[f"value-{number}"].astype(np.uint64)

    @cached_property
    def line(self) -> U32:
        """``uint32[n]``: the trace line of every call."""
        return np.repeat(np.arange(len(self.first) - 1, dtype=np.uint32), np.diff(self.first))

    @cached_property
    def functions(self) -> list[CalledFunction]:
        """The recorded functions, by id. Raises :class:`FormatError`."""
        values: dict[int, list[CallValue]] = {}
        try:
            for function, name, kind, unit in self._rows(
                "SELECT function, name, kind, unit FROM called_value ORDER BY function, number"
            ):
                values.setdefault(function, []).append(CallValue(name, ValueKind(kind), unit))
            functions = [
                CalledFunction(id, name, library, group, tuple(values.get(id, ())))
                for id, name, library, group in self._rows(
                    "SELECT id, name, library, call_group FROM called_function ORDER BY id"
                )
            ]
        except ValueError:
            raise FormatError(f"{self._folder}: values of recorded functions are damaged") from None
        if [function.id for function in functions] != list(range(len(functions))) or (
            self._calls and int(self.function.max()) >= len(functions)
        ):
            raise FormatError(f"{self._folder}: recorded functions are missing")
        return functions

    @cached_property
    def objects(self) -> dict[int, ObjectRow]:
        """The objects that values of calls refer to, by id from 1. Raises :class:`FormatError`."""
        try:
            return {
                id: ObjectRow(id, measurement, kind, name, fs or "", mount or "", peer or "",
                              json.loads(details))
                for id, measurement, kind, name, fs, mount, peer, details in self._rows(
                    "SELECT id, measurement, kind, name, file_system, mount, peer, details"
                    " FROM called_object ORDER BY id"
                )
            }  # fmt: skip
        except (ValueError, TypeError):
            raise FormatError(f"{self._folder}: the table of objects is damaged") from None

    @cached_property
    def heap(self) -> tuple[npt.NDArray[np.void], HeapBlocks, I64]:
        """The calls of the heap's functions (:data:`CALL`), the blocks they allocated, and
        ``int64[lines + 1]``: between which of them those of each line are."""
        functions = self.of_group(Group.HEAP)
        calls = self.select(functions=functions) if functions else np.zeros(0, CALL)
        names = ("function", "time", "duration", "weight", "value")
        blocks = heap_blocks(functions, *(calls[name] for name in names))
        bounds = np.searchsorted(calls["line"][blocks.call], np.arange(len(self.first)))
        return calls, blocks, bounds

    def of_group(self, *groups: str) -> list[CalledFunction]:
        """The functions recorded for any of ``groups``."""
        return [function for function in self.functions if function.group in groups]

    def find(self, name: str) -> CalledFunction:
        """The recorded function called ``name``. Raises :class:`UsageError`."""
        for function in self.functions:
            if function.name == name:
                return function
        raise UsageError(f"no calls of {name} were recorded")

    def select(
        self,
        lines: Iterable[int] | None = None,
        t0: int | None = None,
        t1: int | None = None,
        functions: Sequence[CalledFunction] | None = None,
        most: int | None = None,
    ) -> npt.NDArray[np.void]:
        """Calls (:data:`CALL`) of ``lines`` that began in [t0, t1), of ``functions``; None: all.

        In order of line and time. Of more than ``most`` every k-th, with k times its weight.
        O(lines · log n) and what is selected; with ``functions`` all calls of [t0, t1) instead.
        """
        whole = lines is None and t0 is None and t1 is None
        if whole and functions is not None:
            at = np.flatnonzero(self.are(functions)[self.function])
        elif whole:
            at = np.arange(self._calls)
        else:
            _, begin, end = self.spans(lines, t0, t1)
            count = end - begin
            last = np.cumsum(count)
            total = int(count.sum())
            if functions is None and most is not None:
                every = max(1, -(-total // most))
                place = np.arange(0, total, every)
                return self._calls_at(
                    place + (end - last)[np.searchsorted(last, place, side="right")], every
                )
            at = np.repeat(end - last, count) + np.arange(total)
            if functions is not None:
                at = at[self.are(functions)[self.function[at]]]
        every = 1 if most is None else max(1, -(-len(at) // most))
        return self._calls_at(at[::every], every)

    def _calls_at(self, at: I64, every: int) -> npt.NDArray[np.void]:
        """Calls by their positions, in order, of which each counts ``every`` times."""
        calls = np.zeros(len(at), CALL)
        calls["line"] = np.searchsorted(self.first, at, side="right") - 1
        for name in ("time", "duration", "node", "function"):
            calls[name] = getattr(self, name)[at]
        if len(at):
            calls["weight"] = self._columns["weight"][at]
            calls["weight"] *= every
            for number in range(MAX_VALUES):
                calls["value"][:, number] = self._columns[f"value-{number}"][at]
        return calls

    def are(self, functions: Sequence[CalledFunction]) -> Mask:
        """``bool[functions]``: which of all are among ``functions``."""
        return marked(max(len(self.functions), 1), [function.id for function in functions])

    def spans(
        self, lines: Iterable[int] | None, t0: int | None = None, t1: int | None = None
    ) -> tuple[I64, I64, I64]:
        """Return the positions of the calls of ``lines`` that began in [t0, t1): of each line that
        has any its number, the first of them and the one after the last, ``int64[k]``. O(lines ·
        log n).
        """
        selected = range(len(self.first) - 1) if lines is None else lines
        spans = []
        for line in selected:
            begin, end = int(self.first[line]), int(self.first[line + 1])
            if begin == end:
                continue
            time = self.time[begin:end]
            low = 0 if t0 is None else int(np.searchsorted(time, t0))
            high = len(time) if t1 is None else int(np.searchsorted(time, t1))
            if low < high:
                spans.append((line, begin + low, begin + high))
        columns = np.array(spans, np.int64).reshape(-1, 3).T
        return columns[0], columns[1], columns[2]
