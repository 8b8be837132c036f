"""Columns about the trace lines of a database: when they began and ended, and whose they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hpcd.analysis.merge.publish.table_rows import ClockOffsets
from hpcd.analysis.merge.unite.line_order import NO_NUMBER, LineOrder, ProcessTable, ThreadTable
from hpcd.analysis.trace.part_contents import MeasurementContents
from hpcd.analysis.trace.trace_lines import NO_RANK, LineColumns
from hpcd.array_types import I64


def line_columns(
    measurements: Sequence[MeasurementContents],
    order: LineOrder,
    rows: Sequence[I64],
    processes: ProcessTable,
    threads: ThreadTable,
    clock: ClockOffsets,
    windows: I64,
) -> LineColumns:
    """The columns of lines in ``order``; ``rows`` are the rows of each measurement
    (:meth:`LineOrder.rows`), ``windows`` ``int64[measurements, 2]`` its time window."""
    every = np.concatenate(rows)
    records, first, last = (np.empty(len(every), np.int64) for _ in range(3))
    records[every] = np.concatenate([contents.counts for contents in measurements])
    first[every] = np.concatenate([contents.first_ns for contents in measurements])
    last[every] = np.concatenate([contents.last_ns for contents in measurements])
    opened, closed = windows[order.measurement].T
    born = threads.start_ns
    died = np.where(threads.end_ns == NO_NUMBER, closed, threads.end_ns)
    # A line lasts while its thread was watched; a record or call outside of that time extends it.
    born = np.minimum(np.clip(born, opened, closed), first)
    died = np.maximum(np.clip(died, opened, closed), last)
    shift = (np.array(clock.offsets, np.int64) - clock.origin_ns)[order.measurement]
    start, end = born + shift, np.maximum(born, died) + shift
    ranks = np.where(processes.rank == NO_NUMBER, NO_RANK, processes.rank)
    return LineColumns(
        start=start,
        end=end,
        first=np.concatenate(([0], np.cumsum(records))).astype(np.int64),
        rank=ranks.astype(np.int32)[order.process],
        process=order.process,
        pid=processes.pid[order.process],
        tid=threads.tid,
    )
