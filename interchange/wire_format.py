"""Protocol Buffers' wire format, as far as messages of numbers, strings and messages need it.

https://protobuf.dev/programming-guides/encoding/: a message is fields, each a number and a value:
a varint, 8 bytes, a length and that many bytes, or 4 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hpcd.elf.leb128 import uleb128
from hpcd.errors import FormatError

_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_U64 = (1 << 64) - 1


def varint(data: memoryview, at: int) -> tuple[int, int]:
    """The varint at ``at`` and where it ends. Raises :class:`FormatError`."""
    try:
        value, at = uleb128(data, at)
    except (IndexError, ValueError):
        raise FormatError("a number is cut off or too long") from None
    return value & _U64, at


def fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """(number, value) of each field: an int, or the bytes of a string, message or packed numbers.

    Raises :class:`FormatError` where a field is cut off or of no known kind.
    """
    at, end = 0, len(data)
    while at < end:
        key = data[at]
        at += 1
        if key >= 0x80:
            key, at = varint(data, at - 1)
        number, kind = key >> 3, key & 7
        if kind == _BYTES:
            size = data[at] if at < end else 0x80
            at += 1
            if size >= 0x80:
                size, at = varint(data, at - 1)
            if size > end - at:
                raise FormatError(f"field {number} is cut off")
            yield number, data[at : at + size]
            at += size
        elif kind == _VARINT:
            value, at = varint(data, at)
            yield number, value
        elif kind in (_EIGHT, _FOUR):
            at += 8 if kind == _EIGHT else 4
            if at > end:
                raise FormatError(f"field {number} is cut off")
        else:
            raise FormatError(f"field {number} is of an unknown kind")


def numbers(value: int | memoryview) -> list[int]:
    """The values of a repeated number: one, or a packed field. Raises :class:`FormatError`."""
    if isinstance(value, int):
        return [value]
    if len(value) < 32:
        result, at = [], 0
        while at < len(value):
            one, at = varint(value, at)
            result.append(one)
        return result
    raw = np.frombuffer(value, np.uint8)
    ends = np.flatnonzero(raw < 0x80)
    if not len(ends) or int(ends[-1]) != len(raw) - 1:
        raise FormatError("a number is cut off or too long")
    begins = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - begins + 1
    if int(lengths.max()) > 10:
        raise FormatError("a number is cut off or too long")
    shift = (np.arange(len(raw)) - np.repeat(begins, lengths)) * 7
    parts = (raw & 0x7F).astype(np.uint64) << shift.astype(np.uint64)
    summed: list[int] = np.add.reduceat(parts, begins).tolist()
    return summed


def signed(value: int) -> int:
    """An int64 that a varint holds."""
    return value - (1 << 64) if value >> 63 else value
