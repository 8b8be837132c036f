"""Go programs as they are shipped, and their tables of functions as earlier Go had them."""

from __future__ import annotations

import itertools
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from hpcd.elf.elf_reader import SECTION
from hpcd.elf.elf_view import ElfView
from tests.support.paths import ROOT

needs_go = pytest.mark.skipif(not shutil.which("go"), reason="needs Go: apt install golang")
SOURCE = ROOT / "tests/programs/goroutines.go"


STRIPPED = "-ldflags=-s -w"
"""How programs in containers are built."""


def build(program: Path, *flags: str, source: Path = SOURCE) -> Path:
    """Build ``program`` with ``flags``."""
    subprocess.run(["go", "build", *flags, "-o", str(program), str(source)], check=True)
    return program


def code_symbols(program: Path) -> dict[int, set[str]]:
    """Names of code by address, by ``nm``, as Go's table has them: without the marks of Go's
    calling conventions and without type arguments."""
    names: dict[int, set[str]] = {}
    listing = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    for line in listing.splitlines():
        address, kind, name = line.split(maxsplit=2)
        if kind in "tT":
            if "[" in name:
                name = f"{name[: name.index('[')]}[...]{name[name.rindex(']') + 1 :]}"
            names.setdefault(int(address, 16), set()).add(name.removesuffix(".abi0"))
    return names


def without_section_headers(data: bytes) -> bytes:
    """An ELF file whose section headers are gone."""
    head = bytearray(data)
    struct.pack_into("<Q", head, 40, 0)
    struct.pack_into("<HHH", head, 58, 0, 0, 0)
    return bytes(head)


def table_section(data: bytes) -> tuple[int, int]:
    """Return where the table of a Go program is in its file, and its size."""
    for section in ElfView(memoryview(data)).all_sections:
        if section.name.endswith(".gopclntab"):
            return section.offset, section.size
    raise AssertionError("no table")


def with_table(data: bytes, table: bytes) -> bytes:
    """A Go program with another table of functions."""
    for section in ElfView(memoryview(data)).all_sections:
        if section.name.endswith(".gopclntab"):
            header = struct.unpack_from("<Q", data, 40)[0] + section.number * SECTION.itemsize
            changed = bytearray(data)
            struct.pack_into("<QQ", changed, header + 24, len(data), len(table))
            return bytes(changed) + table
    raise AssertionError("no table")


def as_go_1_16(table: bytes, text: int) -> bytes:
    """A table of Go 1.18 as Go 1.16 has it."""
    count, files, _, *parts = struct.unpack_from("<8Q", table, 8)
    head = 8 + 7 * 8
    pieces = [table[low:high] for low, high in itertools.pairwise(parts)]
    places = np.cumsum([head, *map(len, pieces)]).tolist()
    words = struct.pack("<7Q", count, files, *places)
    return b"\xfa" + table[1:8] + words + b"".join(pieces) + _functions(table, text, 44)


def as_go_1_2(table: bytes, text: int) -> bytes:
    """A table of Go 1.18 as Go 1.2 has it; of source files it has the first unit's."""
    count, _, _, names, units, files, values, functions = struct.unpack_from("<8Q", table, 8)
    rows = 16 * count + 8
    behind = 16 + rows + 4 + 36 * count - names
    """How much farther from the head everything is than before."""
    own = _functions(table, text, 36, behind + names, behind + values)
    places = np.frombuffer(own[:rows], "<u8").copy()
    places[1::2] += 16 + 4
    listed = np.frombuffer(table[units:files], "<u4").astype(np.int64) + behind + files
    listed[0] = len(listed)
    parts = [
        b"\xfb" + table[1:8], struct.pack("<Q", count), places.tobytes(),
        struct.pack("<I", behind + functions), own[rows:], table[names:functions],
        listed.astype("<u4").tobytes(), bytes(64),
    ]  # fmt: skip
    return b"".join(parts)


def _functions(table: bytes, text: int, size: int, names: int = 0, values: int = 0) -> bytes:
    """The functions of a table of Go 1.18 with whole addresses, and records of ``size`` bytes whose
    names and values are farther behind."""
    count, base = struct.unpack_from("<Q", table, 8)[0], struct.unpack_from("<Q", table, 64)[0]
    rows = np.frombuffer(table, "<u4", 2 * count + 1, base).tolist()
    out, records = [], []
    for number in range(count):
        entry, at = text + rows[2 * number], base + rows[2 * number + 1]
        out += [entry, 16 * count + 8 + size * number]
        field = list(struct.unpack_from("<8I", table, at + 4))
        field[0] += names
        field[3:6] = [offset + values if offset else 0 for offset in field[3:6]]
        field[6] = 0
        records.append((struct.pack("<Q8I", entry, *field) + bytes(4))[:size])
    out.append(text + rows[2 * count])
    return struct.pack(f"<{len(out)}Q", *out) + b"".join(records)
