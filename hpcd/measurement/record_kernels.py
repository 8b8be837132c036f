"""Reading a chunk's records, compiled by numba: what :mod:`hpcd.measurement.codec` does by numpy.

Only what merges much imports it. Arrays have the types and shapes that the callers document.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

_compiled = numba.njit(cache=True, nogil=True)
_LONGEST = np.uint64(1 << 44)
_ONE = np.uint64(1)


@_compiled
def column(planes: Any, words: Any, values: Any) -> Any:
    """Fill ``values`` with what ``planes`` ``uint8[width, n]`` say, which are places in ``words``
    if it has any; whether there are so many."""
    width = len(planes)
    if width == 0:
        values[:] = 0
    elif width == 1:
        for at in range(len(values)):
            values[at] = planes[0, at]
    elif width == 2:
        for at in range(len(values)):
            values[at] = planes[0, at] | np.uint32(planes[1, at]) << np.uint32(8)
    else:
        for at in range(len(values)):
            values[at] = planes[0, at] | np.uint32(planes[1, at]) << np.uint32(8)
        for plane in range(2, width):
            shift = np.uint64(8 * plane)
            for at in range(len(values)):
                values[at] |= values.dtype.type(np.uint64(planes[plane, at]) << shift)
    if len(words) == 0:
        return True
    most = np.uint64(len(words))
    for at in range(len(values)):
        place = np.uint64(values[at])
        if place >= most:
            return False
        values[at] = words[place]
    return True


@_compiled
def odd_ones(kind: Any) -> Any:
    """How many records have a value that is not 1."""
    number = 0
    for at in range(len(kind)):
        number += kind[at] & 1
    return number


@_compiled
def times_and_values(
    start: Any, base: Any, unit: Any, kind: Any, odd: Any, time: Any, event: Any, value: Any
) -> Any:
    """Make of steps in ``time`` the times, and of ``kind`` and ``odd`` (with one more than there
    are) events and values; 0, or 1
    where a step is too long, 2 where a wait is, 3 where an event is out of range."""
    taken, high = np.int64(0), np.uint32(0)
    steep, long = np.uint64(0), np.uint64(0)
    for line in range(len(start) - 1):
        now, lasted = base, np.uint64(0)
        for at in range(start[line], start[line + 1]):
            what = kind[at]
            # No processor foresees which values are odd: there is always one to look at.
            is_odd = np.int64(what & np.uint32(1))
            amount = odd[taken] if is_odd else _ONE
            taken += is_odd
            long |= lasted
            step = time[at] + lasted
            steep |= step
            now += step
            lasted = amount * np.uint64(what >> np.uint32(1) & np.uint32(1))
            high |= what
            time[at], event[at], value[at] = now * unit, np.uint16(what >> np.uint32(2)), amount
    if long >= _LONGEST:
        return 2
    if steep >= _LONGEST:
        return 1
    return 3 if high >> np.uint32(2) >= 1 << 16 else 0
