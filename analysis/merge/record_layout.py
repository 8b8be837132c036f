"""Records made blocks and sums by compiled loops: each is looked at once, while it is in the cache.

What :mod:`hpcd.analysis.merge.part_output` does step by step with columns of numpy, with the same
result to the byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hpcd.analysis.arrays.sparse_sums import Cells
from hpcd.analysis.merge.record_batches import SLICE_RECORDS, Batch
from hpcd.analysis.trace import blocks
from hpcd.analysis.trace.intervals import Intervals
from hpcd.array_types import I64, U32

# Entries of the table that a line's records are counted in, 16 bytes each.
_TABLE_LIMIT = 1 << 22
# Events that are counted in it; recordings have a dozen.
_FEW_SLOTS, _MOST_SLOTS = 4, 32


@dataclass(frozen=True, slots=True)
class LaidOut:
    """What a part has of records: the rows, first times, first nodes and numbers of records of
    ``blocks``, and these ``encoded``; ``sums`` in no order. Their entries' ``time`` (ticks) and
    ``node``, of each line from ``start`` on, are valid until the next are laid out."""

    blocks: tuple[I64, I64, U32, I64]
    encoded: blocks.Encoded
    sums: Cells
    start: I64
    time: I64
    node: U32


class RecordLayout:
    """Lays out the records of one measurement, some lines at a time."""

    def __init__(self, kernels: Any, number: U32, intervals: Intervals) -> None:
        """``kernels`` are :mod:`hpcd.analysis.trace.kernels`, ``number`` the part's number of each
        node."""
        self._kernels = kernels
        self._number = number
        self._intervals = intervals
        self._used = 0
        self._room = 0
        self._slots = 0
        self._start = np.zeros(0, np.int64)
        if kernels is not None:
            self._slot_of = np.full(1 << 16, -1, np.int32)

    def lay_out(
        self, rows: I64, batch: Batch, low: int, high: int, lines: tuple[I64, I64, I64]
    ) -> LaidOut | None:
        """Lines ``low`` to ``high`` of ``batch``, whose rows are ``rows``; None where a line is out
        of order, or there are too many nodes or events to count them in a table.

        ``lines`` are how many entries all lines have so far, and the ticks of their first and last
        ones, which are brought up to date.
        """
        stretches = (batch.first[low : high + 1], batch.begin, batch.end)
        records, self._used = self._kernels.examine(
            rows, *stretches, batch.columns[0], batch.columns[2], lines[0], lines[2],
            self._slot_of, self._used,
        )  # fmt: skip
        if records < 0 or not self._table_fits():
            return None
        if records > self._room or len(rows) >= len(self._start):
            self._make_room(records, len(rows))
        made, frames, code_frames, cells, plain = self._kernels.lay_out(
            rows, stretches, batch.columns,
            (self._number, self._intervals.length_ns, self._slot_of), lines, self._table,
            self._slots, self._buffers, blocks.PLACES_TOGETHER, blocks.CODES_TOGETHER,
        )  # fmt: skip
        found = self._blocks[:made]
        encoded = blocks.packed(
            found, self._data, self._frames[: frames + 1],
            *(() if plain else (self._codes, self._code_frames[: code_frames + 1])),
        )  # fmt: skip
        key, row, counted, value = (column[:cells] for column in self._sums)
        sums = Cells(
            row.astype(np.uint32), (key // self._slots).astype(np.uint32),
            self._event_of()[key % self._slots], counted.copy(), value.copy(),
        )  # fmt: skip
        start = self._start[: len(rows) + 1]
        return LaidOut(
            (found[:, 0].copy(), found[:, 1].copy(), found[:, 2].astype(np.uint32),
             found[:, 3].copy()),
            encoded, sums, start, self._time, self._node,
        )  # fmt: skip

    def _table_fits(self) -> bool:
        """Whether there is a table with a slot for each event."""
        if self._used > self._slots:
            slots = max(_FEW_SLOTS, 1 << (self._used - 1).bit_length())
            if self._used > _MOST_SLOTS or slots * len(self._number) > _TABLE_LIMIT:
                return False
            self._slots = slots
            self._table = np.zeros((slots * len(self._number), 2), np.uint64)
        return self._used <= self._slots

    def _event_of(self) -> Any:
        events = np.flatnonzero(self._slot_of >= 0)
        event_of = np.zeros(self._slots, np.uint16)
        event_of[self._slot_of[events]] = events
        return event_of

    def _make_room(self, records: int, lines: int) -> None:
        """Buffers for so many records, each of which may last and be a block of its own."""
        self._room = max(records, 2 * SLICE_RECORDS)
        most = 2 * self._room
        self._start = np.zeros(max(lines, SLICE_RECORDS) + 1, np.int64)
        self._time, self._node = np.empty(most, np.int64), np.empty(most, np.uint32)
        self._data, self._codes = np.empty(8 * most, np.uint8), np.empty(11 * most, np.uint8)
        self._blocks = np.empty((most, 11), np.int64)
        self._frames, self._code_frames = (np.empty(most + 1, np.int64) for _ in range(2))
        self._sums = (np.empty(self._room, np.int64), np.empty(self._room, np.int64),
                      np.empty(self._room, np.uint64), np.empty(self._room, np.uint64))  # fmt: skip
        self._buffers = (
            self._start, self._time, self._node, np.empty(most, np.uint16),
            np.empty(most, np.uint64), self._data, self._codes, self._blocks, self._frames,
            self._code_frames, self._sums,
        )  # fmt: skip
