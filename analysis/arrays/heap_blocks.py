"""Blocks of memory: recorded allocations with the calls that freed them, and the bytes held."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpcd.array_types import F64, I64, U32, U64, Mask
from hpcd.model.calls import CalledFunction

NEVER = (1 << 63) - 1
"""When a block was freed that was not."""
# Bound on a block's size, so that sums of a damaged file's values do not overflow.
_MOST_BYTES = 1 << 44


@dataclass(frozen=True, slots=True)
class HeapBlocks:
    """Recorded blocks, in the order of the calls that allocated them.

    ``call`` ``int64[n]`` is the number of that call, ``born`` when it returned and ``died`` when
    the block was freed (:data:`NEVER`: it was not), ``bytes`` the weighted size,
    ``variance`` ``float64[n]`` its part of the variance of a sum of bytes: for a block chosen
    with probability 1/weight (Horvitz and Thompson, JASA 1952).
    """

    call: I64
    born: I64
    died: I64
    bytes: I64
    variance: F64


def heap_blocks(
    functions: Iterable[CalledFunction],
    function: npt.NDArray[np.integer],
    time: I64,
    duration: I64,
    weight: U32,
    value: U64,
) -> HeapBlocks:
    """The blocks of calls of ``functions``, by the columns of these calls (``value`` ``uint64[n,
    k]``); other calls may be among them. O(n log n)."""
    allocated, freed, serial = np.zeros((3, len(time)), np.uint64)
    for one in functions:
        mine = function == one.id
        for name, column in (("allocated", allocated), ("freed", freed), ("serial", serial)):
            place = one.value(name)
            if place is not None:
                column[mine] = value[mine, place]
    born = np.flatnonzero((allocated > 0) & (serial > 0))
    gone = np.flatnonzero(freed > 0)
    gone = gone[np.argsort(serial[gone], kind="stable")]
    at, known = _places(serial[gone], serial[born])
    died = np.full(len(born), NEVER, np.int64)
    died[known] = time[gone[at[known]]]
    size, count = allocated[born].astype(np.float64), weight[born].astype(np.float64)
    total = np.minimum(size * count, _MOST_BYTES)
    return HeapBlocks(
        born, time[born] + duration[born], died, total.astype(np.int64),
        total * size * np.maximum(count - 1, 0),
    )  # fmt: skip


def _places(ordered: U64, wanted: U64) -> tuple[I64, Mask]:
    """Return where ``wanted`` are in ``ordered``, and whether they are there."""
    at = np.searchsorted(ordered, wanted)
    known = at < len(ordered)
    known[known] = ordered[at[known]] == wanted[known]
    return at, known


def held_over_time(born: I64, died: I64, size: I64, begin: int) -> tuple[I64, I64]:
    """Return the times at which the bytes held change, from the last one before ``begin`` on, and
    the bytes held from each time on."""
    ended = died < NEVER
    moments = np.concatenate([born, died[ended]])
    change = np.concatenate([size, -size[ended]])
    order = np.argsort(moments, kind="stable")
    held = np.cumsum(change[order])
    since = max(int(np.searchsorted(moments[order], begin)) - 1, 0)
    return moments[order][since:], held[since:]
