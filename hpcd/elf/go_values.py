"""Values by program counter of Go programs: frame sizes, files, lines, inlined calls.

A sequence is pairs of varints: by how much the value changes (zigzag), and for how many units of
code it holds then. It begins with the value -1 at its function's entry and ends at a zero byte.
(golang.org/s/go12symtab; src/runtime/symtab.go: step.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hpcd.array_types import I64, U8
from hpcd.errors import FormatError

# Bounds for all sequences that are read at once: all of kubectl, a program of 57 MB, have 4.4 MB.
# Sequences may overlap and be shared, so that a small table could mean any amount.
_MAX_BYTES, _MAX_STEPS = 128 << 20, 1 << 25
_MAX_VARINT = 5


class GoValues(NamedTuple):
    """Values of code: from address ``start`` up to ``end`` it is ``value``; ``int64[n]`` each,
    ascending, not overlapping."""

    start: I64
    end: I64
    value: I64

    def at(self, addresses: I64) -> I64:
        """``int64[n]``: the value at each address, -1 where none is known."""
        if not len(self.start):
            return np.full(len(addresses), -1, np.int64)
        row = np.searchsorted(self.start, addresses, side="right") - 1
        inside = (row >= 0) & (addresses < self.end[row])
        values: I64 = np.where(inside, self.value[row], -1)
        return values


def read_values(data: U8, offset: I64, entry: I64, end: I64, unit: int) -> GoValues:
    """The values of functions from ``entry`` up to ``end``, ascending, whose sequences begin at
    ``offset`` in ``data``; an offset of 0 is none. Code has units of ``unit`` bytes.

    Raises :class:`FormatError`.
    """
    has = offset > 0
    offset, entry, end = offset[has], entry[has], end[has]
    if not len(offset):
        return GoValues(offset, offset, offset)
    first, which = np.unique(offset, return_inverse=True)
    change, size, pairs = _pairs(data, first)
    before = np.cumsum(pairs) - pairs
    value, reach = _sums_within(change, before, pairs), _sums_within(size, before, pairs)
    if int(pairs[which].sum()) > _MAX_STEPS:
        raise FormatError("values of Go's functions are too many")
    function, row = ragged(before[which], pairs[which])
    stop = np.minimum(entry[function] + reach[row] * unit, end[function])
    start = entry[function] + (reach[row] - size[row]) * unit
    kept = start < stop
    return GoValues(start[kept], stop[kept], value[row][kept] - 1)


def _pairs(data: U8, first: I64) -> tuple[I64, I64, I64]:
    """Changes and sizes of the sequences at ``first``, end to end, and how many each has."""
    zeros = np.flatnonzero(data == 0)
    # A first change of 0 is one: the value stays -1.
    place = np.searchsorted(zeros, first + 1)
    if int(first[-1]) >= len(data) or int(place[-1]) >= len(zeros):
        raise FormatError("values of a Go function do not end")
    length = zeros[place] - first
    if int(length.sum()) > _MAX_BYTES:
        raise FormatError("values of Go's functions are too long")
    _, where = ragged(first, length)
    octets = data[where].astype(np.int64)
    last = octets < 0x80
    bounds = np.cumsum(length)
    if not bool(last[bounds - 1].all()):
        raise FormatError("values of a Go function are cut off")
    ends = np.flatnonzero(last) + 1
    begins = np.concatenate([[0], ends[:-1]])
    if int((ends - begins).max()) > _MAX_VARINT:
        raise FormatError("a value of a Go function is too long")
    number = np.repeat(np.arange(len(ends)), ends - begins)
    parts = (octets & 0x7F) << 7 * (np.arange(len(octets)) - begins[number])
    numbers = np.add.reduceat(parts, begins)
    count = np.diff(np.searchsorted(ends, bounds, side="right"), prepend=0)
    if bool((count % 2).any()):
        raise FormatError("a value of a Go function has no size")
    change = numbers[0::2]
    return (change >> 1) ^ -(change & 1), numbers[1::2], count // 2


def ragged(first: I64, count: I64) -> tuple[I64, I64]:
    """Return the number of each entry's stretch, and each entry's place, of stretches of ``count``
    entries from ``first`` on."""
    owner = np.repeat(np.arange(len(first)), count)
    inside = np.arange(len(owner)) - (np.cumsum(count) - count)[owner]
    return owner, first[owner] + inside


def _sums_within(numbers: I64, first: I64, count: I64) -> I64:
    """Sums of ``numbers`` up to each, anew for each stretch of ``count`` from ``first`` on."""
    sums = np.cumsum(numbers)
    before = np.where(first > 0, sums[np.maximum(first, 1) - 1], 0)
    within: I64 = sums - np.repeat(before, count)
    return within
