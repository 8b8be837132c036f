"""The ELF reader that recorder and analysis share: their answers agree, and are pyelftools'."""

from __future__ import annotations

import io
import random
import struct
import sys
import tracemalloc
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from hpcd.elf.elf_file import ElfFile
from hpcd.elf.elf_view import ElfView
from hpcd.errors import FormatError
from tests.support.elf_mutations import default_sources, mutate

PROGRAM = Path(sys.executable).resolve()


def test_sections_segments_and_build_id_are_those_of_pyelftools() -> None:
    with PROGRAM.open("rb") as file, ElfFile.open(PROGRAM) as elf:
        expected = ELFFile(file)
        assert [
            (section.name, section.address, section.offset, section.size, section.link)
            for section in elf.sections
        ] == [
            (
                section.name,
                section["sh_addr"],
                section["sh_offset"],
                section["sh_size"],
                section["sh_link"],
            )
            for section in expected.iter_sections()
        ]
        assert elf.segment_table[["offset", "address", "size"]].tolist() == [
            (segment["p_offset"], segment["p_vaddr"], segment["p_filesz"])
            for segment in expected.iter_segments()
        ]
        notes = expected.get_section_by_name(".note.gnu.build-id").iter_notes()
        assert [elf.build_id()] == [note["n_desc"] for note in notes]


def build_ids(data: bytes) -> tuple[str, str]:
    """By the recorder's reader and by that of the analysis."""
    return ElfView(memoryview(data)).build_id(), ElfFile(io.BytesIO(data), "copy").build_id()


def test_recorder_and_analysis_agree_on_build_ids_of_mutants() -> None:
    compared = 0
    for source in default_sources()[:2]:
        for number in range(300):
            data = mutate(source, random.Random(f"build id {number}"))
            try:
                recorded, analysed = build_ids(data)
            except FormatError:
                continue
            assert recorded == analysed
            compared += 1
    assert compared > 200


@pytest.mark.parametrize("kept", ["section", "nothing"])
def test_build_id_without_note_segments(kept: str) -> None:
    data = bytearray(PROGRAM.read_bytes())
    with ElfFile.open(PROGRAM) as elf:
        expected, header = elf.build_id(), elf.header
    for number in range(header.segment_count):
        at = header.segments + number * header.segment_size
        if data[at : at + 4] == b"\x04\0\0\0":
            data[at : at + 4] = bytes(4)
    if kept == "nothing":
        struct.pack_into("<Q", data, 40, 0)  # e_shoff
    recorded, analysed = build_ids(bytes(data))
    assert recorded == analysed
    assert recorded == expected if kept == "section" else recorded.startswith("hash-")


def test_sections_that_share_a_long_name_take_little_memory() -> None:
    count, text = 60_000, b"a" * (60 << 10)
    head = bytearray(64)
    head[:6] = b"\x7fELF\x02\x01"
    struct.pack_into("<Q", head, 40, 64)
    struct.pack_into("<3H", head, 58, 64, count, 0)
    strings = struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, 64 + 64 * count, len(text), 0, 0, 1, 0)
    other = struct.pack("<IIQQQQIIQQ", 0, 1, 0, 0, 0, 0, 0, 0, 1, 0)
    data = bytes(head) + strings + other * (count - 1) + text
    tracemalloc.start()
    try:
        elf = ElfFile(io.BytesIO(data), "long names")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(elf.sections) == count
    assert peak < 100 << 20
