"""Functions of call frame information, wherever a damaged file says that it is."""

from __future__ import annotations

import struct

import pytest

from hpcd.elf.frame_records import function_spans

RELATIVE, ABSOLUTE = 0x1B, 0x04
FIRST = 28
"""Where the section has the begin of its first function."""
SIZE = 64


def frames(encoding: int, *begins: int) -> bytes:
    """A section of functions of :data:`SIZE` bytes."""
    data = struct.pack("<II9B3x", 16, 0, 1, *b"zR\0", 1, 0x78, 16, 1, encoding)
    kind = struct.Struct("<IIQQ4x" if encoding == ABSOLUTE else "<IIii4x")
    for begin in begins:
        data += kind.pack(kind.size - 4, len(data) + 4, begin, SIZE)
    return data


@pytest.mark.parametrize("address", [0, 0x1000, 3_607_134_968, (1 << 47) - 128, (1 << 62) - 1])
def test_functions_are_relative_to_any_address(address: int) -> None:
    start, end = function_spans(frames(RELATIVE, -FIRST, 100), address)
    within = [at for at in (address, address + FIRST + 20 + 100) if at + SIZE < 1 << 47]
    assert start.tolist() == within
    assert end.tolist() == [at + SIZE for at in within]


def test_a_function_beyond_64_bits_loses_itself_only() -> None:
    start, _ = function_spans(frames(ABSOLUTE, (1 << 64) - 8, 0x4000, 1 << 63), 0)
    assert start.tolist() == [0x4000]
