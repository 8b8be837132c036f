"""The tables that libjvm has of its own structures."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcd.daemon.runtimes.java.hotspot_layouts import read_layout
from hpcd.daemon.runtimes.java.vm_structs import UnknownStructuresError, VmStructs

NAMES = {0x5000: b"CodeHeap", 0x5100: b"_memory", 0x5200: b"CodeCache", 0x5300: b"_heaps"}
FIELDS = [(0x5000, 0x5100, 0, 0, 0, 8, 0), (0x5200, 0x5300, 0, 1, 0, 0, 0x7F0012345678)]
TYPES = [(0x5000, 0, 0, 0, 0, 344)]


def memory(fields: bytes, types: bytes) -> dict[int, bytes]:
    pointers = {0x1000: struct.pack("<Q", 0x2000), 0x1100: struct.pack("<Q", 0x3000)}
    return pointers | {0x2000: fields, 0x3000: types} | {at: n + b"\0" for at, n in NAMES.items()}


def tables(*, end: bool = True) -> dict[int, bytes]:
    fields = b"".join(struct.pack("<QQQiiQQ", *row) for row in FIELDS)
    types = b"".join(struct.pack("<QQiiiiQ", *row[:5], 0, row[5]) for row in TYPES)
    return memory(fields + bytes(56 * end), types + bytes(40 * end))


def vm_structs(contents: dict[int, bytes]) -> VmStructs:
    def read(pieces: Sequence[tuple[int, int]]) -> list[bytes | None]:
        return [contents[at][:size] if at in contents else None for at, size in pieces]

    return VmStructs.read(read, 0x1000, 0x1100)


def test_fields_and_sizes() -> None:
    vm = vm_structs(tables())
    assert vm.at("CodeHeap", "_memory") == 8
    assert vm.at("CodeCache", "_heaps") == 0x7F0012345678
    assert vm.first(("CodeBlob", "_size"), ("CodeHeap", "_memory")) == 8
    assert vm.size("CodeHeap") == 344
    with pytest.raises(UnknownStructuresError, match="no CodeBlob::_size in libjvm"):
        vm.at("CodeBlob", "_size")
    with pytest.raises(UnknownStructuresError, match="no size of PcDesc in libjvm"):
        vm.size("PcDesc")


def test_tables_that_cannot_be_read() -> None:
    with pytest.raises(UnknownStructuresError, match="cannot be read"):
        vm_structs({})
    with pytest.raises(UnknownStructuresError, match="have no end"):
        vm_structs(tables(end=False))


def refusal(version: int, more: Sequence[bytes]) -> str:
    """Why structures with this version and one field more are refused."""
    strings = [b"Abstract_VM_Version", b"_vm_major_version", *more]
    names = {0x6000 + 0x100 * number: text for number, text in enumerate(strings)}
    at = list(names)
    fields = [(at[0], at[1], 0, 1, 0, 0, 0x4000)]
    fields += [(at[2], at[3], 0, 1, 0, 0, 8)] if more else []
    rows = b"".join(struct.pack("<QQQiiQQ", *row) for row in fields)
    contents = memory(rows + bytes(56), bytes(40)) | {0x4000: struct.pack("<I", version)}
    contents |= {at: text + b"\0" for at, text in names.items()}

    def read(pieces: Sequence[tuple[int, int]]) -> list[bytes | None]:
        return [contents[at][:size] if at in contents else None for at, size in pieces]

    with pytest.raises(UnknownStructuresError) as caught:
        read_layout(read, 0x1000, 0x1100)
    return str(caught.value)


def test_other_versions_are_refused_by_name() -> None:
    assert refusal(23, ()) == "Java 23"
    assert refusal(25, ()) == "no CodeBlob::_code_begin in libjvm"
    # HotSpot 25 is also that of Java 8.
    assert refusal(25, (b"CodeCache", b"_heap")) == "Java 8 or older"


@given(st.binary(max_size=400), st.binary(max_size=400))
def test_any_memory_is_refused(fields: bytes, types: bytes) -> None:
    contents = memory(fields, types)

    def read(pieces: Sequence[tuple[int, int]]) -> list[bytes | None]:
        assert all(0 <= at < 1 << 64 and 0 <= size < 1 << 20 for at, size in pieces)
        return [contents[at][:size] if at in contents else None for at, size in pieces]

    with pytest.raises(UnknownStructuresError):
        read_layout(read, 0x1000, 0x1100)
