"""Headers of DWARF line programs that say what cannot be."""

from __future__ import annotations

import struct

import pytest

from hpcd.analysis.structure.dwarf.line_program_header import LineProgramHeader
from hpcd.errors import FormatError


def program(tables: bytes) -> bytes:
    """A line program of version 4 up to its tables of directories and files."""
    fields = struct.pack("<BBBbBB", 1, 1, 1, -5, 14, 1)
    after_length = struct.pack("<HI", 4, len(fields) + len(tables)) + fields + tables
    return struct.pack("<I", len(after_length)) + after_length


@pytest.mark.parametrize(
    "tables",
    [
        b"/usr/src",  # a directory without its end
        b"\0main.c\0" + b"\xff" * 12,  # a number longer than 64 bits
        b"\0main.c\0\x80",  # a number that is cut off
    ],
)
def test_malformed_headers_are_refused(tables: bytes) -> None:
    with pytest.raises(FormatError, match="line program"):
        LineProgramHeader(program(tables), {})


def test_files_of_a_sound_header() -> None:
    assert LineProgramHeader(program(b"/usr/src\0\0main.c\0\x01\0\0\0"), {}).files == [
        "/usr/src/main.c"
    ]
