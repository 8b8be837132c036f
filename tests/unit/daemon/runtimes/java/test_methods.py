"""Java's methods and compiled code, from memory that may hold anything."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcd.daemon.runtimes.java.methods import CompiledCode, JavaMethod, read_lines, read_number


def written(value: int, zero_excluded: int) -> bytes:
    """A number as HotSpot writes it (``UNSIGNED5``)."""
    low = 192 - zero_excluded
    data = bytearray()
    for _ in range(4):
        if value < low:
            break
        value -= low
        data.append(zero_excluded + low + (value & 63))
        value >>= 6
    data.append(zero_excluded + value)
    return bytes(data)


@pytest.mark.parametrize("zero_excluded", [0, 1])
@given(values=st.lists(st.integers(0, (1 << 31) - 1), max_size=20))
def test_numbers_are_those_written(zero_excluded: int, values: list[int]) -> None:
    data = b"".join(written(value, zero_excluded) for value in values)
    at, numbers = 0, []
    while at < len(data):
        value, at = read_number(data, at, zero_excluded)
        numbers.append(value)
    assert numbers == values


@given(data=st.binary(max_size=200), offset=st.integers(0, 1 << 24))
def test_scopes_of_any_memory_end(data: bytes, offset: int) -> None:
    places = np.array([[0, 1], [8, 3], [40, 150], [90, -5 & 0x7FFFFFFF]], np.int32)
    metadata = np.array([4096, 0, 1 << 63], np.uint64)
    code = CompiledCode("nmethod", 1, 4096, places, data, metadata)
    for method, bytecode in code.frames(offset, 0):
        assert method in (4096, 0, 1 << 63)
        assert bytecode >= 0


def test_inlined_methods_are_frames() -> None:
    # The caller's scope is at 1: no caller, metadata 1, bytecode 7 (less 1); what it inlines at 4.
    data = bytes([0, 0, 1, 8, 1, 2, 3])
    places = np.array([[10, 1], [20, 4]], np.int32)
    code = CompiledCode("nmethod", 5, 4096, places, data, np.array([4096, 8192], np.uint64))
    assert code.frames(10, 0) == [(4096, 7)]
    assert code.frames(11, 0) == [(8192, 2), (4096, 7)]
    assert code.frames(21, 0) == [(4096, 0)]
    native = CompiledCode("native nmethod", 5, 4096)
    assert native.frames(1, 0) == [(4096, 0)]


def test_lines() -> None:
    # Bytecode 0 in line 10: does not fit in a byte (5 bits for the one, 3 for the other).
    first = b"\xff" + written(0, 0) + written(20, 0)
    table = first + bytes([4 << 3 | 1, 2 << 3 | 7]) + b"\xff" + written(20, 0) + written(9, 0)
    rows = read_lines(table + b"\0" + b"\x77", 0)
    assert rows == [(0, 10), (4, 11), (6, 18), (16, 13)]
    bytecodes, lines = zip(*rows, strict=True)
    method = JavaMethod("Main.java", "Main.work", bytecodes, lines, 1)
    assert [method.line(at) for at in (0, 3, 4, 15, 16, 900)] == [10, 10, 11, 18, 13, 13]
    assert method.first_line == 10
    assert JavaMethod("Main.java", "Main.work", (), (), 1).line(4) == 0


@given(st.binary(max_size=300))
def test_lines_of_any_memory_are_lines(data: bytes) -> None:
    for bytecode, line in read_lines(data, 0):
        assert 0 < line < 1 << 16
        assert struct.pack("<q", bytecode)
