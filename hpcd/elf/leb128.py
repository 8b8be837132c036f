"""LEB128 numbers of DWARF (DWARF 5, section 7.6), as hostile files may have them.

The unsigned ones are the varints of protocol buffers, too.

Both return (number, where the next byte is) and raise :class:`IndexError` where the data ends
first and :class:`ValueError` for a number longer than any of 64 bits.
"""

from __future__ import annotations

_BITS = 70


def uleb128(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """The unsigned number at ``at``."""
    value = data[at]
    at += 1
    if value < 128:
        return value, at
    value &= 127
    shift = 7
    while shift < _BITS:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise ValueError("LEB128 number is too long")


def sleb128(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """The signed number at ``at``."""
    value = shift = 0
    while shift < _BITS:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return (value - (1 << shift) if byte & 64 else value), at
    raise ValueError("LEB128 number is too long")
