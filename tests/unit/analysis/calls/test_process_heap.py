"""Blocks of the heap, from calls that are known."""

from __future__ import annotations

import numpy as np

from hpcd.analysis.arrays.heap_blocks import NEVER, heap_blocks, held_over_time
from hpcd.model.calls import CalledFunction, CallValue, Group, ValueKind

VALUES = tuple(
    CallValue(name, kind)
    for name, kind in (
        ("allocated", ValueKind.BYTES),
        ("freed", ValueKind.BYTES),
        ("address", ValueKind.ADDRESS),
        ("serial", ValueKind.NUMBER),
    )
)
MALLOC, REALLOC, OTHER = 0, 1, 2
FUNCTIONS = [CalledFunction(MALLOC, "malloc", "libc", Group.HEAP, VALUES),
             CalledFunction(REALLOC, "realloc", "libc", Group.HEAP, VALUES)]  # fmt: skip
CALLS = [
    # function, time, duration, weight, allocated, freed, address, serial
    (MALLOC, 10, 5, 4, 1000, 0, 64, 7),
    (MALLOC, 20, 5, 1, 30_000, 0, 128, 9),
    (REALLOC, 30, 0, 4, 0, 1000, 64, 7),
    (REALLOC, 30, 5, 1, 50_000, 0, 64, 8),
    (OTHER, 35, 5, 1, 9999, 0, 0, 8),
    (MALLOC, 40, 5, 1, 70_000, 0, 0, 0),  # left without a return
    (REALLOC, 50, 0, 1, 0, 77, 4, 99),  # of a block that is not known
    (REALLOC, 60, 0, 1, 0, 50_000, 64, 8),
    (MALLOC, 70, 5, 1 << 32 - 1, 1 << 62, 0, 64, 10),  # nonsense
]


def test_blocks_live_from_their_allocation_to_their_free() -> None:
    function, time, duration, weight, *values = (
        np.array(column) for column in zip(*CALLS, strict=True)
    )
    value = np.stack(values, axis=1).astype(np.uint64)
    blocks = heap_blocks(FUNCTIONS, function, time, duration, weight.astype(np.uint32), value)
    assert blocks.call.tolist() == [0, 1, 3, 8]
    assert blocks.born.tolist() == [15, 25, 35, 75]
    assert blocks.died.tolist() == [30, NEVER, 60, NEVER]
    assert blocks.bytes.tolist()[:3] == [4000, 30_000, 50_000] and blocks.bytes[3] > 0
    assert blocks.variance.tolist()[:3] == [1000**2 * 4 * 3, 0, 0]
    moments, held = held_over_time(blocks.born[:3], blocks.died[:3], blocks.bytes[:3], 31)
    assert moments.tolist() == [30, 35, 60] and held.tolist() == [30_000, 80_000, 30_000]


def test_no_calls_have_no_blocks() -> None:
    none = np.zeros(0, np.int64)
    blocks = heap_blocks(
        FUNCTIONS, none, none, none, none.astype(np.uint32), np.zeros((0, 6), np.uint64)
    )
    assert not len(blocks.call)
    assert [len(column) for column in held_over_time(none, none, none, 0)] == [0, 0]
