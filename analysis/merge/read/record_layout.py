"""Records made entries and sums in one pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpcd.analysis.arrays.sparse_sums import Cells
from hpcd.analysis.merge.read.record_batches import SLICE_RECORDS, Batch
from hpcd.analysis.trace.intervals import Intervals
from hpcd.array_types import I64, U8, U16, U32, U64, Array
from hpcd.kernels.library import kernels, structure

# Entries of the table that a line's records are counted in, 16 bytes each.
_TABLE_LIMIT = 1 << 22
# Events that are counted in it; recordings have a dozen.
_FEW_SLOTS, _MOST_SLOTS = 4, 32


@dataclass(frozen=True, slots=True)
class LaidOut:
    """Entries of records with the ends of intervals, valid until the next are laid out.

    Line ``i`` has the entries from ``start[i]`` on, blocks begin at ``cuts`` (both ``int64``, with
    an end); ``time`` is in ticks. ``state`` is None if all are SAMPLED, ``event`` and ``value``
    if all are 0 and 1. ``sums`` are sums of the records, in no order.
    """

    start: I64
    cuts: I64
    time: I64
    node: U32
    state: U8 | None
    event: U16 | None
    value: U64 | None
    sums: Cells


class RecordLayout:
    """Lays out the records of one measurement, some lines at a time."""

    def __init__(self, number: U32, intervals: Intervals) -> None:
        """``number`` is the part's number of each node."""
        self._number = number
        self._intervals = intervals
        self._used = 0
        self._room = 0
        self._slots = 0
        self._slot_of = np.full(1 << 16, -1, np.int32)
        self._event_of = np.zeros(1 << 16, np.uint16)

    def lay_out(
        self, rows: I64, batch: Batch, low: int, high: int, resumed: U32 | None,
        lines: tuple[I64, I64, I64],
    ) -> LaidOut | None:  # fmt: skip
        """Lines ``low`` to ``high`` of ``batch``, whose rows are ``rows``; None where a line is out
        of order, or there are too many nodes or events to count them in a table.

        ``resumed`` is the result of :class:`.resumed_paths.ResumedPaths` for the batch. ``lines``
        are the number of entries of all lines so far, and the ticks of their first and last ones,
        which are updated.
        """
        time, node, event, value = batch.columns
        stretches = structure(
            "line_records", rows=rows, lines=len(rows), first=batch.first[low : high + 1],
            begin=batch.begin, end=batch.end, time=time, node=node, event=event, value=value,
        )  # fmt: skip
        counts, earliest, latest = lines
        so_far = structure("lines_so_far", counts=counts, earliest=earliest, latest=latest)
        used = np.array([self._used], np.int32)
        records = kernels.examine_records(stretches, so_far, self._slot_of, self._event_of, used)
        self._used = int(used[0])
        if records < 0 or not self._table_fits():
            return None
        if records > self._room:
            self._make_room(records)
        numbering = self._intervals.as_numbering(
            number=self._number,
            nodes=len(self._number),
            slot_of=self._slot_of,
            event_of=self._event_of,
            slots=self._slots,
            table=self._table,
        )
        sizes = np.empty(5, np.int64)
        if not kernels.lay_out_records(
            stretches, resumed, numbering, so_far, structure("laid_out", **self._columns), sizes
        ):
            raise IndexError("records of nodes that do not exist")
        entries, blocks, cells, plain, sampled = sizes.tolist()
        columns = self._columns
        names = ("sum_row", "sum_node", "sum_event", "sum_records", "sum_value")
        sums = [columns[name][:cells].copy() for name in names]
        return LaidOut(
            columns["start"][: len(rows) + 1], columns["cuts"][: blocks + 1],
            columns["times"][:entries], columns["nodes"][:entries],
            None if sampled else columns["states"][:entries],
            None if plain else columns["events"][:entries],
            None if plain else columns["values"][:entries],
            Cells(*sums),
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

    def _make_room(self, records: int) -> None:
        """Allocate columns for ``records`` records, each of which may be an interval and take a
        whole block."""
        self._room = room = max(records, 2 * SLICE_RECORDS)
        most = 2 * room + 1
        self._columns: dict[str, Array] = {
            "start": np.empty(room + 1, np.int64), "times": np.empty(most, np.int64),
            "nodes": np.empty(most, np.uint32), "states": np.empty(most, np.uint8),
            "events": np.empty(most, np.uint16), "values": np.empty(most, np.uint64),
            "cuts": np.empty(most, np.int64), "sum_key": np.empty(room, np.int64),
            "sum_row": np.empty(room, np.uint32), "sum_node": np.empty(room, np.uint32),
            "sum_event": np.empty(room, np.uint16), "sum_records": np.empty(room, np.uint64),
            "sum_value": np.empty(room, np.uint64),
        }  # fmt: skip
