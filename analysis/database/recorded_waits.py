"""Waits of a database, each with its waker (:mod:`hpcd.model.waits`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from hpcd.analysis.arrays.column_files import open_bounds, open_column, open_narrow
from hpcd.analysis.database.column_bounds import require_times
from hpcd.array_types import I64, U8, U32, U64, Mask
from hpcd.errors import FormatError
from hpcd.model.codes import Waker
from hpcd.model.waits import AGAIN, WAIT, OtherWaker

Rows = Callable[[str], Iterable[tuple[Any, ...]]]


class RecordedWaits:
    """The waits of a database by trace line, in order of time.

    ``first`` ``int64[lines + 1]``: line ``i`` has waits ``first[i]`` to ``first[i + 1] - 1``;
    ``begin``, ``end`` ``int64[n]`` in ns since the origin, from when the line left its CPU until it
    was woken; ``node`` ``uint32[n]``, the context that it left in; ``kind`` ``uint8[n]``, a
    :class:`~hpcd.model.codes.Waker`; ``waker`` ``int64[n]``, the trace line that woke it, or -1;
    ``path`` ``uint32[n]``, the context that this one woke it in, 0 where not known; ``futex``
    ``uint64[n]``, what it waited for, in its process (:data:`~hpcd.model.waits.WAIT`); ``other``
    ``uint32[n]``, who woke it and is no recorded thread, an index of ``others``, names; ``again``
    ``bool[n]``: it came straight from the line's wait before, in the same context and for the same.
    """

    def __init__(self, folder: Path, lines: int, nodes: int, waits: int, rows: Rows) -> None:
        """Open the columns; ``rows`` returns those of a query of the database. Raises
        :class:`FormatError` unless their numbers are in range."""
        self.others: tuple[str, ...] = ("",)
        if not waits:
            self.first: I64 = np.zeros(lines + 1, np.int64)
            self.begin: I64 = np.zeros(0, np.int64)
            self.end: I64 = self.begin
            self.node: U32 = np.zeros(0, np.uint32)
            self.kind: U8 = np.zeros(0, np.uint8)
            self.waker: I64 = self.begin
            self.path: U32 = self.node
            self.futex: U64 = np.zeros(0, np.uint64)
            self.other: U32 = self.node
            self.again: Mask = np.zeros(0, bool)
            return
        self.first = open_bounds(folder / "first.npy", lines, waits)
        self.begin = open_column(folder / "time.npy", np.int64, waits)
        duration = open_column(folder / "duration.npy", np.int64, waits)
        self.node = open_column(folder / "node.npy", np.uint32, waits)
        waker, kind, path, futex, other = (
            open_narrow(folder / f"value-{number}.npy", waits) for number in range(len(WAIT.values))
        )
        require_times(self.begin, folder)
        require_times(duration, folder)
        wrong = int(duration.min()) < 0 or max(int(self.node.max()), int(path.max())) >= nodes
        if (
            wrong
            or int(waker.max()) > lines
            or int((kind & np.uint8(AGAIN - 1)).max()) > max(Waker)
        ):
            raise FormatError(f"{folder}: waits are damaged")
        self.end = self.begin + duration
        inside = np.ones(waits - 1, bool)
        starts = self.first[1:-1]
        inside[starts[(starts > 0) & (starts < waits)] - 1] = False
        if bool((self.begin[1:] < self.end[:-1])[inside].any()):
            raise FormatError(f"{folder}: waits of a trace line overlap")
        self.waker = waker.astype(np.int64) - 1
        self.kind = kind.astype(np.uint8) & np.uint8(AGAIN - 1)
        self.again = kind >= AGAIN
        self.path = path.astype(np.uint32)
        self.futex = futex.astype(np.uint64)
        self.other = other.astype(np.uint32)
        if int(other.max()):
            self.others, index = object_names(rows)
            if int(other.max()) >= len(index):
                raise FormatError(f"{folder}: waits are damaged")
            self.other = index[other]

    def __len__(self) -> int:
        return len(self.begin)


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
