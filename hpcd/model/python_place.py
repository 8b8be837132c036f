"""The offset of a frame in the load module of a Python source file: a function and a line of it.

===========  ======================================================================
bits         meaning
===========  ======================================================================
39..23       first line of the function (as its code object says, decorators included)
22..17       6 bits of a hash of its qualified name: functions may begin in one line
16..0        line; 0: not known
===========  ======================================================================

So a function takes :data:`FUNCTION_BYTES` offsets, and has the same ones in each process, on each
rank and in each run of the same source. Lines beyond :data:`MOST_LINE` count as that one.
"""

from __future__ import annotations

import numpy as np

from hpcd.array_types import U64

_LINE_BITS, _NAME_BITS = 17, 6
MOST_LINE = (1 << _LINE_BITS) - 1
FUNCTION_BYTES = 1 << _LINE_BITS
MOST_JAVA_LINE = (1 << 16) - 1
"""Class files have no more; a first line beyond it is that of a function without lines."""


def python_offset(first_line: int, name_hash: int, line: int) -> int:
    """Return the offset of ``line`` in the function that begins in ``first_line``."""
    function = min(first_line, MOST_LINE) << _NAME_BITS | name_hash & ((1 << _NAME_BITS) - 1)
    return function << _LINE_BITS | min(line, MOST_LINE)


def nameless_line(name_hash: int) -> int:
    """Return a first line for a function of Java's that has none: such functions differ by it."""
    return MOST_JAVA_LINE + 1 | name_hash >> _NAME_BITS & MOST_JAVA_LINE


def lines_of(offsets: U64) -> U64:
    """Return the line u64[n] of each offset."""
    return offsets & np.uint64(MOST_LINE)


def first_lines_of(offsets: U64) -> U64:
    """Return the first line u64[n] of the function of each offset."""
    return offsets >> np.uint64(_LINE_BITS + _NAME_BITS)
