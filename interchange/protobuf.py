"""Writing protocol buffers: the wire format, as bytes (https://protobuf.dev/programming-guides/encoding)."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import numpy as np

from hpcd.array_types import I64


def varint(value: int) -> bytes:
    """``value`` as a varint; negative ones as 64-bit two's complement."""
    value &= (1 << 64) - 1
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def varints(values: I64) -> list[bytes]:
    """Each of ``values`` ``int64[n]``, none negative, as a varint."""
    length = max(-(-int(values.max(initial=0)).bit_length() // 7), 1)
    if int(values.min(initial=1 << 62)).bit_length() <= 7 * (length - 1):
        return [varint(value) for value in values.tolist()]
    # All are of one length, as times since 1970 are.
    digits = (values[:, None] >> (7 * np.arange(length))) & 0x7F
    digits[:, :-1] |= 0x80
    data = digits.astype(np.uint8).tobytes()
    return [data[at : at + length] for at in range(0, len(data), length)]


def integer(field: int, value: int) -> bytes:
    """A field of any integer type but sint and fixed; bool and enum too."""
    return varint(field << 3) + varint(value)


def double(field: int, value: float) -> bytes:
    """A field of type double."""
    return varint(field << 3 | 1) + struct.pack("<d", value)


def message(field: int, *parts: bytes) -> bytes:
    """A field that is a message of ``parts``, or bytes."""
    body = b"".join(parts)
    if len(body) < 0x80 and field < 16:
        return bytes((field << 3 | 2, len(body))) + body
    return varint(field << 3 | 2) + varint(len(body)) + body


def text(field: int, value: str) -> bytes:
    """A field of type string."""
    return message(field, value.encode("utf-8", "backslashreplace"))


def packed(field: int, values: Iterable[int]) -> bytes:
    """A packed repeated field of integers."""
    return message(field, b"".join(map(varint, values)))


def fixed64(field: int, value: int) -> bytes:
    """A field of type fixed64."""
    return varint(field << 3 | 1) + struct.pack("<Q", value)
