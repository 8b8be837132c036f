"""Waits for a CPU of a database, by interferer (:mod:`hpcd.model.waits`)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hpcd.analysis.arrays.column_files import open_bounds, open_column, open_narrow
from hpcd.analysis.database.column_bounds import require_times
from hpcd.analysis.database.recorded_waits import Rows, object_names
from hpcd.array_types import I64, U8, U32
from hpcd.errors import FormatError
from hpcd.model.codes import Interferer
from hpcd.model.waits import INTERFERENCE


class RecordedInterference:
    """Parts of waits for a CPU by trace line, in order of time.

    ``first`` ``int64[lines + 1]``: line ``i`` has parts ``first[i]`` to ``first[i + 1] - 1``;
    ``begin``, ``duration`` ``int64[n]`` in ns, one after another in each wait: how long each
    interferer ran is known, not in which order; ``node`` ``uint32[n]``, the context that the line
    waited in; ``kind`` ``uint8[n]``, an :class:`~hpcd.model.codes.Interferer`; ``thread``
    ``int64[n]``, the trace line of a thread of the process that ran, or -1; ``other``
    ``uint32[n]``, the name of an interferer that is not recorded, an index of ``others``.
    """

    def __init__(self, folder: Path, lines: int, nodes: int, parts: int, rows: Rows) -> None:
        """Open the columns; ``rows`` returns those of a query of the database. Raises
        :class:`FormatError` unless their numbers are in range."""
        self.others: tuple[str, ...] = ("",)
        if not parts:
            self.first: I64 = np.zeros(lines + 1, np.int64)
            self.begin: I64 = np.zeros(0, np.int64)
            self.duration: I64 = self.begin
            self.node: U32 = np.zeros(0, np.uint32)
            self.kind: U8 = np.zeros(0, np.uint8)
            self.thread: I64 = self.begin
            self.other: U32 = self.node
            return
        self.first = open_bounds(folder / "first.npy", lines, parts)
        self.begin = open_column(folder / "time.npy", np.int64, parts)
        self.duration = open_column(folder / "duration.npy", np.int64, parts)
        self.node = open_column(folder / "node.npy", np.uint32, parts)
        thread, kind, other = (
            open_narrow(folder / f"value-{number}.npy", parts)
            for number in range(len(INTERFERENCE.values))
        )
        require_times(self.begin, folder)
        require_times(self.duration, folder)
        if (
            int(self.duration.min()) < 0
            or int(self.node.max()) >= nodes
            or int(thread.max()) > lines
            or int(kind.max()) > max(Interferer)
        ):
            raise FormatError(f"{folder}: parts of waits are damaged")
        self.thread = thread.astype(np.int64) - 1
        self.kind = kind.astype(np.uint8)
        self.other = other.astype(np.uint32)
        if int(other.max()):
            self.others, index = object_names(rows)
            if int(other.max()) >= len(index):
                raise FormatError(f"{folder}: parts of waits are damaged")
            self.other = index[other]

    def __len__(self) -> int:
        return len(self.begin)
