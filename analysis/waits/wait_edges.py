"""Edges between threads: waits, and who ended each, by a wake-up or by a message."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hpcd.array_types import I64, U8, U32, U64, Mask
from hpcd.kernels.library import kernels
from hpcd.rows import take_rows

MESSAGE = kernels.CAUSE_MESSAGE
"""The kind of a wait for another rank, which came to its call of MPI when it ended."""


@dataclass(frozen=True, slots=True)
class WaitEdges:
    """Waits by trace line, in order of time, without overlaps.

    Trace line ``line`` ``int64[n]`` waited from ``begin`` to ``end`` ``int64[n]``. ``kind``
    ``uint8[n]`` is a :class:`~hpcd.model.codes.Waker` or :data:`MESSAGE`. ``node``, ``waker``,
    ``path``, ``futex``, ``other`` and ``again`` are as in
    :class:`~hpcd.analysis.database.recorded_waits.RecordedWaits`.
    """

    line: I64
    begin: I64
    end: I64
    node: U32
    kind: U8
    waker: I64
    path: U32
    futex: U64
    other: U32
    again: Mask

    def __len__(self) -> int:
        return len(self.line)

    def first(self, lines: int) -> I64:
        """``int64[lines + 1]``: the first wait of each of ``lines``, and the number of waits."""
        return np.searchsorted(self.line, np.arange(lines + 1)).astype(np.int64)

    def of(self, line: int) -> slice:
        """The place of the waits of a line."""
        return slice(*np.searchsorted(self.line, [line, line + 1]).tolist())

    def outside(self, others: WaitEdges) -> WaitEdges:
        """Return what is outside of ``others``: of a wait that one of these is within, the part
        ahead of it. O(n log n)."""
        begin, end = self.begin.copy(), self.end.copy()
        for line in np.unique(others.line).tolist():
            own, windows = self.of(line), others.of(line)
            # Ahead of a further one, of no length, that is never reached.
            opens = np.append(others.begin[windows], np.iinfo(np.int64).max)
            closes = np.append(others.end[windows], np.iinfo(np.int64).max)
            at = np.searchsorted(closes[:-1], begin[own], "right")
            inside = opens[at] <= begin[own]
            begin[own] = np.where(inside, closes[at], begin[own])
            end[own] = np.minimum(end[own], opens[at + inside])
        return take_rows(replace(self, begin=begin, end=end), begin < end)
