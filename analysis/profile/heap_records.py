"""Allocations as records: their metrics are sums without records, and a part of the time is of
what was allocated in it."""

from __future__ import annotations

import numpy as np

from hpcd.analysis.arrays.heap_blocks import NEVER
from hpcd.analysis.database import Database
from hpcd.analysis.trace.records import Records
from hpcd.model.heap_events import ALLOCATED, HELD


def with_allocations(db: Database, line: int, records: Records, low: int, high: int) -> Records:
    """``records`` of ``line`` and, where the heap was recorded, a record of each event of the heap
    for each block allocated there from ``low`` to before ``high``: these count for no others."""
    calls, blocks, bounds = db.calls.heap
    if not len(blocks.call):
        return records
    first, last = bounds[line : line + 2].tolist()
    born = blocks.born[first:last]
    at = first + np.flatnonzero((born >= low) & (born < high))
    kept = at[blocks.died[at] == NEVER]
    events = dict(db.rows("SELECT metric, id FROM event"))
    block = np.concatenate([at, kept])
    event = np.repeat([events.get(ALLOCATED, 0), events.get(HELD, 0)], [len(at), len(kept)])
    time = np.concatenate([records.time, blocks.born[block]])
    order = np.argsort(time, kind="stable")
    return Records(
        time[order],
        np.concatenate([records.node, calls["node"][blocks.call[block]]])[order],
        np.concatenate([records.event, event.astype(np.uint16)])[order],
        np.concatenate([records.value, blocks.bytes[block].astype(np.uint64)])[order],
    )
