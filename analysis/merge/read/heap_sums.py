"""Bytes of the heap as sums of a part: allocated, and held at the end, by trace line and node."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hpcd.analysis.arrays.heap_blocks import NEVER, heap_blocks
from hpcd.analysis.arrays.sparse_sums import Cells
from hpcd.analysis.merge.read.measurement_batch import BatchMember
from hpcd.array_types import U32
from hpcd.measurement.call_codec import Calls, decode_calls
from hpcd.model.calls import Group
from hpcd.model.heap_events import ALLOCATED, HELD
from hpcd.model.identity import Event


def heap_sums(member: BatchMember, events: Sequence[Event], number: U32) -> list[Cells]:
    """The sums of the heap of a measurement, if it was recorded; ``number`` is the part's number of
    each node of its tree, ``events`` are the part's. They have no records. O(n log n) in calls."""
    functions = [one for one in member.contents.functions.values() if one.group == Group.HEAP]
    by_name = {event.metric: event.id for event in events}
    if not functions or not {ALLOCATED, HELD} <= set(by_name):
        return []
    ids = [function.id for function in functions]
    chunks = (decode_calls(payload) for payload in member.calls)
    calls = Calls.joined([chunk[np.isin(chunk.function, ids)] for chunk in chunks])
    blocks = heap_blocks(
        functions, calls.function, calls.time.view(np.int64), calls.duration.view(np.int64),
        calls.weight, calls.value,
    )  # fmt: skip
    rows = member.rows_of(calls.line[blocks.call])
    if rows is None:
        return []
    node = calls.node[blocks.call]
    node = number[node if member.node is None else member.node[node]]
    result = []
    for name, which in ((ALLOCATED, blocks.died >= 0), (HELD, blocks.died == NEVER)):
        count = int(which.sum())
        result.append(
            Cells(
                rows[which].astype(np.uint32), node[which],
                np.full(count, by_name[name], np.uint16), np.zeros(count, np.uint64),
                blocks.bytes[which].astype(np.uint64),
            )
        )  # fmt: skip
    return result
