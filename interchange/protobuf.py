"""The wire format of protocol buffers, written and read.

https://protobuf.dev/programming-guides/encoding: a message is a sequence of fields, each a number
and a value: a varint, 8 bytes, a length and that many bytes, or 4 bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

import numpy as np

from hpcd.array_types import I64
from hpcd.elf.leb128 import uleb128
from hpcd.errors import FormatError

_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5
_U64 = (1 << 64) - 1
_CUT_OFF = "a number is cut off or too long"

# --- writing ---


def encode_varint(value: int) -> bytes:
    """Return ``value`` as a varint; negative ones as 64-bit two's complement."""
    value &= _U64
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def encode_varints(values: I64) -> list[bytes]:
    """Return each of ``values`` int64[n], none negative, as a varint."""
    length = max(-(-int(values.max(initial=0)).bit_length() // 7), 1)
    if int(values.min(initial=1 << 62)).bit_length() <= 7 * (length - 1):
        return [encode_varint(value) for value in values.tolist()]
    # All have the same length, like times since 1970.
    digits = (values[:, None] >> (7 * np.arange(length))) & 0x7F
    digits[:, :-1] |= 0x80
    data = digits.astype(np.uint8).tobytes()
    return [data[at : at + length] for at in range(0, len(data), length)]


def integer(field: int, value: int) -> bytes:
    """Return a field of any integer type but sint and fixed; bool and enum too."""
    return encode_varint(field << 3 | _VARINT) + encode_varint(value)


def fixed64(field: int, value: int) -> bytes:
    """Return a field of type fixed64."""
    return encode_varint(field << 3 | _EIGHT_BYTES) + struct.pack("<Q", value)


def message(field: int, *parts: bytes) -> bytes:
    """Return a field that is a message of ``parts``, or bytes."""
    body = b"".join(parts)
    if len(body) < 0x80 and field < 16:
        return bytes((field << 3 | _LENGTH, len(body))) + body
    return encode_varint(field << 3 | _LENGTH) + encode_varint(len(body)) + body


def text(field: int, value: str) -> bytes:
    """Return a field of type string."""
    return message(field, value.encode("utf-8", "backslashreplace"))


def packed(field: int, values: Iterable[int]) -> bytes:
    """Return a packed repeated field of integers."""
    return message(field, b"".join(map(encode_varint, values)))


# --- reading: all of it may be hostile ---


def fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield (number, value) of each field, as :func:`placed_fields` does."""
    for number, value, _ in placed_fields(data):
        yield number, value


def placed_fields(data: memoryview) -> Iterator[tuple[int, int | memoryview, int]]:
    """Yield (number, value, end) of each field; the value is an int, or the bytes of a string,
    message or packed numbers, which end at ``end`` in ``data``. Fields of 8 and 4 bytes
    are skipped.

    Raises FormatError if a field is cut off or of an unknown kind.
    """
    at, end = 0, len(data)
    while at < end:
        key = data[at]
        at += 1
        if key >= 0x80:
            key, at = _decode_varint(data, at - 1)
        number, kind = key >> 3, key & 7
        if kind == _LENGTH:
            size = data[at] if at < end else 0x80
            at += 1
            if size >= 0x80:
                size, at = _decode_varint(data, at - 1)
            if size > end - at:
                raise FormatError(f"field {number} is cut off")
            yield number, data[at : at + size], at + size
            at += size
        elif kind == _VARINT:
            value, at = _decode_varint(data, at)
            yield number, value, at
        elif kind in (_EIGHT_BYTES, _FOUR_BYTES):
            at += 8 if kind == _EIGHT_BYTES else 4
            if at > end:
                raise FormatError(f"field {number} is cut off")
        else:
            raise FormatError(f"field {number} is of an unknown kind")


def integers(value: int | memoryview) -> list[int]:
    """Return the values of a repeated integer: one, or a packed field. Raises FormatError."""
    if isinstance(value, int):
        return [value]
    if len(value) < 32:
        result, at = [], 0
        while at < len(value):
            decoded, at = _decode_varint(value, at)
            result.append(decoded)
        return result
    raw = np.frombuffer(value, np.uint8)
    ends = np.flatnonzero(raw < 0x80)
    if not len(ends) or int(ends[-1]) != len(raw) - 1:
        raise FormatError(_CUT_OFF)
    begins = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - begins + 1
    if int(lengths.max()) > 10:
        raise FormatError(_CUT_OFF)
    shift = (np.arange(len(raw)) - np.repeat(begins, lengths)) * 7
    parts = (raw & 0x7F).astype(np.uint64) << shift.astype(np.uint64)
    summed: list[int] = np.add.reduceat(parts, begins).tolist()
    return summed


def integers_by_field(data: memoryview) -> dict[int, int]:
    """Return the integers of a message by field number, of the first 15 fields, whose numbers take
    a byte; 0 in place of anything else."""
    return {
        number: value if isinstance(value, int) else 0
        for number, value in fields(data)
        if number < 16
    }


def signed(value: int) -> int:
    """Return the int64 that a varint holds."""
    return value - (1 << 64) if value >> 63 else value


def _decode_varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the varint at ``at`` and the position after it. Raises FormatError."""
    try:
        value, at = uleb128(data, at)
    except (IndexError, ValueError):
        raise FormatError(_CUT_OFF) from None
    return value & _U64, at
