"""Java's methods and compiled code, from memory that may hold anything."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcd.daemon.runtimes.java.hotspot_layouts import HotSpotLayout, ScopesApart, ScopesInCode
from hpcd.daemon.runtimes.java.methods import (
    CompiledCode,
    JavaMethod,
    read_blobs,
    read_lines,
    read_number,
)
from tests.support.target_memory import memory_reader


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


METADATA = struct.pack("<QQ", 4096, 8192)
# The caller's scope is at 1, the inlined method's at 4.
SCOPES = bytes([0, 0, 1, 8, 1, 2, 3])
PLACES = struct.pack("<iiii", 10, 1, 0, 0) + struct.pack("<iiii", 20, 4, 0, 0)
AT, NAME = 0x10000, 0x20000


def layout(scopes: ScopesInCode | ScopesApart) -> HotSpotLayout:
    """With the name of a CodeBlob at 0, its number at 8, its method at 16."""
    nothing = dict.fromkeys(HotSpotLayout._fields, 0)
    return HotSpotLayout(**nothing)._replace(
        version=17, blob_bytes=72, compile_id=8, nmethod_method=16, pc_bytes=16, scopes=scopes
    )


def blob(contents: dict[int, bytes], scopes: ScopesInCode | ScopesApart) -> CompiledCode:
    return read_blobs(memory_reader(contents), layout(scopes), [AT])[AT]


def test_scopes_in_the_code() -> None:
    head = struct.pack("<QQQ", NAME, 7, 4096)
    pcs = 80 + len(METADATA) + len(SCOPES)
    head += struct.pack("<iiQi", 80, pcs, AT + 80 + len(METADATA), pcs + len(PLACES))
    code = head.ljust(80, b"\0") + METADATA + SCOPES + PLACES
    contents = {AT: code, NAME: b"nmethod\0"}
    compiled = blob(contents, ScopesInCode(metadata=24, data=32, pcs=28, dependencies=40))
    assert (compiled.compile_id, compiled.method) == (7, 4096)
    assert compiled.frames(11, 0) == [(8192, 2), (4096, 7)]


def test_scopes_apart() -> None:
    head = struct.pack("<QQQQQ", NAME, 7, 4096, 0x30000, 0x40000)
    apart = b"dependencies" + PLACES + SCOPES
    head += struct.pack("<iiiii", 8 + len(METADATA), 8, len(apart), 12, 12 + len(PLACES))
    contents = {AT: head.ljust(80, b"\0"), NAME: b"nmethod\0"}
    contents |= {0x30000: bytes(8) + METADATA, 0x40000: apart}
    compiled = blob(
        contents,
        ScopesApart(
            mutable=24, mutable_bytes=40, relocation_bytes=44,
            immutable=32, immutable_bytes=48, pcs=52, data=56,
        ),
    )  # fmt: skip
    assert compiled.frames(10, 0) == [(4096, 7)]
    assert compiled.frames(11, 0) == [(8192, 2), (4096, 7)]


@given(head=st.binary(min_size=80, max_size=80))
def test_scopes_of_any_head_are_bounded(head: bytes) -> None:
    for scopes in (ScopesInCode(24, 32, 28, 40), ScopesApart(24, 40, 44, 32, 48, 52, 56)):
        named = struct.pack("<Q", NAME) + head[8:]
        assert blob({AT: named, NAME: b"nmethod\0"}, scopes).kept_bytes < 8 << 20
