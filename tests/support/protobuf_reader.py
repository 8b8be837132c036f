"""Decoding protocol buffers without their schema: field numbers and raw values."""

from __future__ import annotations

import struct
from collections.abc import Iterator

Value = int | float | bytes


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The varint at ``at``, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """(number, value) of each field: integers, doubles, or the bytes of what has a length."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
            yield key >> 3, value
        elif kind == 1:
            yield key >> 3, struct.unpack_from("<d", data, at)[0]
            at += 8
        elif kind == 2:
            size, at = varint(data, at)
            assert at + size <= len(data)
            yield key >> 3, data[at : at + size]
            at += size
        else:
            raise AssertionError(f"wire type {kind}")


def packed(data: bytes) -> list[int]:
    """Integers of a packed field, as signed 64-bit."""
    values, at = [], 0
    while at < len(data):
        value, at = varint(data, at)
        values.append(value - (1 << 64) if value >> 63 else value)
    return values


def message(data: bytes) -> dict[int, list[Value]]:
    """All values of each field."""
    result: dict[int, list[Value]] = {}
    for number, value in fields(data):
        result.setdefault(number, []).append(value)
    return result
