"""What checking a database does with each record, compiled by numba.

The same as decoding blocks by :mod:`hpcd.analysis.trace.blocks` and looking at what comes out, but
nothing comes out: a record costs some nanoseconds rather than some tens. What these functions do
not accept numpy decodes, and says what is wrong with it.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

_compiled = numba.njit(cache=True, nogil=True)
# As in blocks.py: kinds of values, and what the bits of a block's width say.
_ZERO, _STEP, _OTHER = 1, 2, 3
_CHAINED, _OTHER_SHIFT = 1 << 14, 10
_MOST_PLANES, _OTHER_BYTES = 4, 8
_WORD = 1 << 32


@_compiled
def _number(data: Any, at: Any, planes: Any, stride: Any) -> Any:
    """The number of ``planes`` bytes, the lowest at ``at``, ``stride`` apart."""
    value = np.int64(data[at])
    for plane in range(1, planes):
        value |= np.int64(data[at + plane * stride]) << (8 * plane)
    return value


@_compiled
def check_places(
    data: Any, begin: Any, end: Any, count: Any, width: Any, least: Any, nodes: Any, length: Any,
    bad: Any,
) -> Any:  # fmt: skip
    """Fill in how many ticks each block lasts, and whether it has nodes from ``nodes`` on.

    Times and nodes of block ``i`` are in ``data`` from ``begin[i]`` on, before ``end[i]``. False
    where they cannot be.
    """
    for block in range(len(count)):
        n, at = np.int64(count[block]), begin[block]
        bits, smallest = np.int64(width[block]), np.int64(least[block])
        times, planes = bits & 15, bits >> 4 & 15
        if n < 1 or at < 0 or min(times, planes) < 1 or max(times, planes) > _MOST_PLANES:
            return False
        if at + n * (times + planes) > end[block]:
            return False
        total = np.int64(0)
        if times < _MOST_PLANES and smallest < _WORD - (1 << (8 * times)):
            for plane in range(times):
                # Slices, counted from 0: else the compiler looks for places below 0.
                row = data[at + plane * n + 1 : at + plane * n + n]
                part = np.int64(0)
                for number in range(len(row)):
                    part += np.int64(row[number])
                total += part << (8 * plane)
            total += smallest * (n - 1)
        else:
            for place in range(at + 1, at + n):
                total += (_number(data, place, times, n) + smallest) % _WORD
        length[block] = total
        at += times * n
        top, none = _codes_of_nodes(data, at, n, planes)
        bad[block] = top > nodes or none if bits & _CHAINED else top >= nodes
    return True


@_compiled
def _codes_of_nodes(data: Any, at: Any, n: Any, planes: Any) -> Any:
    """The greatest of ``n`` numbers, and whether the first, or two in a row, are 0."""
    if planes == 1:
        row = data[at : at + n]
        top, none = row[0], row[0] == 0
        for number in range(1, len(row)):
            top = max(top, row[number])
            none |= row[number] | row[number - 1] == 0
        return np.int64(top), none
    if planes == 2:
        low, high = data[at : at + n], data[at + n : at + 2 * n]
        most = np.uint16(low[0]) | np.uint16(high[0]) << np.uint16(8)
        none = most == 0
        for number in range(1, len(low)):
            most = max(most, np.uint16(low[number]) | np.uint16(high[number]) << np.uint16(8))
            none |= low[number] | high[number] | low[number - 1] | high[number - 1] == 0
        return np.int64(most), none
    greatest, last = np.int64(0), np.int64(0)
    none = False
    for place in range(at, at + n):
        value = _number(data, place, planes, n)
        greatest = max(greatest, value)
        none |= value | last == 0
        last = value
    return greatest, none


@_compiled
def check_codes(
    data: Any, begin: Any, end: Any, count: Any, width: Any, interval: Any, bad: Any, places: Any,
    place: Any, least: Any,
) -> Any:  # fmt: skip
    """Fill in which blocks have events from ``len(interval)`` on; how many records only mark where
    an interval ends, those of events that are ``interval`` ``bool[events]``.

    Codes of block ``i`` are in ``data`` from ``begin[i]`` on, before ``end[i]``; a block without
    has -1. Its times are in ``places`` from ``place[i]`` on. -1 where they cannot be.
    """
    ends = 0
    events = len(interval)
    for block in range(len(count)):
        n, at, bits = np.int64(count[block]), begin[block], np.int64(width[block])
        if at < 0:
            bad[block] = events == 0
            continue
        planes, early = bits >> 8 & 3, not bits & _CHAINED
        wide = _OTHER_BYTES if early else bits >> _OTHER_SHIFT & 15
        if planes < 1 or at + n * planes > end[block] or wide > _OTHER_BYTES:
            return -1
        others = 0
        for record in range(at, at + n):
            others += data[record] & 3 == _OTHER
        first = at + n * planes
        if first + others * wide > end[block]:
            return -1
        stride = 1 if early else others
        wrong, seen = False, 0
        for record in range(n):
            code = np.int64(data[at + record])
            if planes > 1:
                code = _number(data, at + record, planes, n)
            event, kind = (code >> 2) & 0xFFFF, code & 3
            seen += kind == _OTHER
            if event >= events:
                wrong = True
            elif interval[event]:
                if kind == _ZERO:
                    ends += 1
                elif kind == _STEP:
                    step = np.int64(0)
                    if record + 1 < n:
                        step = _number(places, place[block] + record + 1, bits & 15, n)
                        step = (step + np.int64(least[block])) % _WORD
                    ends += step == 0
                elif kind == _OTHER:
                    byte = first + (seen - 1) * (_OTHER_BYTES if early else 1)
                    some = False
                    for plane in range(wide):
                        some |= data[byte + plane * stride] != 0
                    ends += not some
        bad[block] = wrong
    return ends
