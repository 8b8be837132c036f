"""Groups of entries that agree in several integer columns: one sort each, O(n log n)."""

from __future__ import annotations

import numpy as np

from hpcd.array_types import I64
from hpcd.distinct import begins_run


def groups_of(*keys: I64) -> tuple[I64, int]:
    """``int64[n]``: a number from 0 for each entry, the same for those with the same keys, in the
    order of the keys, the first one foremost; and how many there are."""
    count = len(keys[0])
    order = np.lexsort(keys[::-1])
    group = np.empty(count, np.int64)
    group[order] = np.cumsum(begins_run(*(key[order] for key in keys))) - 1
    return group, int(group.max(initial=-1)) + 1


def firsts_of(group: I64, count: int) -> I64:
    """``int64[count]``: an entry of each group."""
    first = np.zeros(count, np.int64)
    first[group[::-1]] = np.arange(len(group))[::-1]
    return first


def ranks_within(*keys: I64) -> I64:
    """``int64[n]``: how many entries with the same keys stand before each one."""
    count = len(keys[0])
    order = np.lexsort((np.arange(count), *keys))
    new = begins_run(*(key[order] for key in keys))
    place = np.arange(count)
    within = np.empty(count, np.int64)
    within[order] = place - np.maximum.accumulate(np.where(new, place, 0))
    return within
