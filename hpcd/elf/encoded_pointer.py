"""Encoded pointers of exception handling frames (LSB 5.0, 10.5.1)."""

from __future__ import annotations

import struct

from hpcd.elf.leb128 import sleb128, uleb128

_FORMATS = {0x00: "<Q", 0x02: "<H", 0x03: "<I", 0x04: "<Q", 0x0A: "<h", 0x0B: "<i", 0x0C: "<q"}


def encoded_pointer(data: bytes, at: int, address: int, encoding: int) -> tuple[int, int]:
    """An encoded pointer (LSB 5.0, 10.5.1): absolute or pc-relative; indirect ones give 0."""
    if encoding == 0xFF:
        return 0, at
    kind = encoding & 0x0F
    if kind == 0x01:
        value, end = uleb128(data, at)
    elif kind == 0x09:
        value, end = sleb128(data, at)
    elif kind in _FORMATS:
        form = _FORMATS[kind]
        (value,) = struct.unpack_from(form, data, at)
        end = at + struct.calcsize(form)
    else:
        raise ValueError("unknown pointer encoding")
    application = encoding & 0x70
    if application == 0x10:
        value += address + at
    elif application:
        raise ValueError("pointer relative to an unknown base")
    return value, end
