"""Trace records in columns, on their way to the measurement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpcd.array_types import I64, U16, U32, U64, Mask
from hpcd.measurement.record_columns import Columns, empty_columns, in_order, join_columns
from hpcd.rows import take_rows


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Trace records: ``line`` u32[n], ``time`` u64[n] ns, ``node`` u32[n], ``event`` u16[n],
    ``value`` u64[n]."""

    line: U32
    time: U64
    node: U32
    event: U16
    value: U64

    def __len__(self) -> int:
        return len(self.line)

    def columns(self) -> Columns:
        """The columns as a tuple, in their order here."""
        return self.line, self.time, self.node, self.event, self.value

    def select(self, which: Mask | I64) -> RecordBatch:
        """Return the records at these positions, or where this mask is true."""
        return take_rows(self, which)

    def in_order(self) -> RecordBatch:
        """Return the records by line and time, those alike in their order here."""
        return RecordBatch(*in_order(self.columns()))


NO_RECORDS = RecordBatch(*empty_columns(0))


def joined(batches: Sequence[RecordBatch]) -> RecordBatch:
    """Return the concatenated records of all ``batches``."""
    batches = [batch for batch in batches if len(batch)]
    if not batches:
        return NO_RECORDS
    if len(batches) == 1:
        return batches[0]
    return RecordBatch(*join_columns([batch.columns() for batch in batches]))
