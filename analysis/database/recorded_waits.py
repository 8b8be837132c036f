"""Waits of a database, each with its waker or interferers (:mod:`hpcd.model.waits`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from hpcd.analysis.arrays.column_files import open_bounds, open_column, open_narrow
from hpcd.analysis.database.column_bounds import require_times
from hpcd.array_types import I64, U8, U32, U64, Array, Mask
from hpcd.errors import FormatError
from hpcd.model.calls import CalledFunction
from hpcd.model.codes import Interferer, Waker
from hpcd.model.waits import AGAIN, INTERFERENCE, WAIT, OtherWaker

Rows = Callable[[str], Iterable[tuple[Any, ...]]]


class _RecordedStretches:
    """Stretches of time that trace lines waited, in order of time, as calls of ``function``.

    ``first`` ``int64[lines + 1]``: line ``i`` has stretches ``first[i]`` to ``first[i + 1] - 1``;
    ``begin``, ``duration`` ``int64[n]`` in ns, times since the origin; ``node`` ``uint32[n]``, the
    context that the line left its CPU in; ``thread`` ``int64[n]``, the trace line of another
    thread, or -1; ``other`` ``uint32[n]``, who else it was, an index of ``others``, names.
    """

    def __init__(
        self, folder: Path, lines: int, nodes: int, count: int, rows: Rows, function: CalledFunction
    ) -> None:
        """Open the columns; ``rows`` returns those of a query of the database. Raises
        :class:`FormatError` unless their numbers are in range."""
        self._folder = folder
        self.others: tuple[str, ...] = ("",)
        values: list[Array] = [np.zeros(0, np.uint8)] * len(function.values)
        self.first: I64 = np.zeros(lines + 1, np.int64)
        self.begin: I64 = np.zeros(0, np.int64)
        self.duration: I64 = self.begin
        self.node: U32 = np.zeros(0, np.uint32)
        if count:
            self.first = open_bounds(folder / "first.npy", lines, count)
            self.begin = open_column(folder / "time.npy", np.int64, count)
            self.duration = open_column(folder / "duration.npy", np.int64, count)
            self.node = open_column(folder / "node.npy", np.uint32, count)
            values = [open_narrow(folder / f"value-{at}.npy", count) for at in range(len(values))]
            require_times(self.begin, folder)
            require_times(self.duration, folder)
        thread, self._kind, *self._more, other = values
        self._require(self.duration >= 0, self.node < nodes, thread <= lines)
        self.thread: I64 = thread.astype(np.int64) - 1
        self.other: U32 = other.astype(np.uint32)
        if other.any():
            self.others, index = object_names(rows)
            self._require(other < len(index))
            self.other = index[other]

    def _require(self, *sound: Mask) -> None:
        if not all(column.all() for column in sound):
            raise FormatError(f"{self._folder}: waits are damaged")

    def __len__(self) -> int:
        return len(self.begin)


class RecordedInterference(_RecordedStretches):
    """Parts of waits for a CPU by interferer. In each wait they are one after another: how long
    each interferer ran is known, not in which order.

    ``thread`` is of the process that ran; ``kind`` ``uint8[n]``, an
    :class:`~hpcd.model.codes.Interferer`.
    """

    def __init__(self, folder: Path, lines: int, nodes: int, parts: int, rows: Rows) -> None:
        super().__init__(folder, lines, nodes, parts, rows, INTERFERENCE)
        self._require(self._kind <= max(Interferer))
        self.kind: U8 = self._kind.astype(np.uint8)


class RecordedWaits(_RecordedStretches):
    """Waits from when a line left its CPU until it was woken, at ``end`` ``int64[n]``.

    ``waker`` ``int64[n]`` is the trace line that woke it, or -1; ``kind`` ``uint8[n]``, a
    :class:`~hpcd.model.codes.Waker`; ``path`` ``uint32[n]``, the context that it was woken in, 0
    where not known; ``futex`` ``uint64[n]``, what it waited for, in its process
    (:data:`~hpcd.model.waits.WAIT`); ``again`` ``bool[n]``: it came straight from the line's wait
    before, in the same context and for the same.
    """

    def __init__(self, folder: Path, lines: int, nodes: int, waits: int, rows: Rows) -> None:
        super().__init__(folder, lines, nodes, waits, rows, WAIT)
        path, futex = self._more
        self.kind: U8 = self._kind.astype(np.uint8) & np.uint8(AGAIN - 1)
        self._require(path < nodes, self.kind <= max(Waker))
        self.again: Mask = self._kind >= AGAIN
        self.waker = self.thread
        self.path: U32 = path.astype(np.uint32)
        self.futex: U64 = futex.astype(np.uint64)
        self.end: I64 = self.begin + self.duration
        inside = np.ones(max(waits - 1, 0), bool)
        starts = self.first[1:-1]
        inside[starts[(starts > 0) & (starts < waits)] - 1] = False
        if bool((self.begin[1:] < self.end[:-1])[inside].any()):
            raise FormatError(f"{folder}: waits of a trace line overlap")


def object_names(rows: Rows) -> tuple[tuple[str, ...], U32]:
    """The distinct names of objects that are :class:`OtherWaker`, the first empty; and
    ``uint32[objects + 1]``, the index of each object's. Raises :class:`FormatError`."""
    objects = list(rows("SELECT id, kind, name, details FROM called_object"))
    names = {"": 0}
    index = np.zeros(len(objects) + 1, np.uint32)
    try:
        for number, kind, name, details in objects:
            if kind in list(OtherWaker):
                pid = json.loads(details).get("pid") if kind == OtherWaker.PROCESS else None
                text = f"{name} {pid}" if isinstance(pid, int) else str(name)
                index[number] = names.setdefault(text, len(names))
    except (ValueError, TypeError, AttributeError, IndexError, OverflowError, RecursionError):
        raise FormatError("the table of objects is damaged") from None
    return tuple(names), index
