"""Files made to harm: refused or decoded, never a crash, a hang or memory without bound.

``benchmarks/fuzz_elf.py`` is the long version; some of the same kinds of mutants run here.
"""

from __future__ import annotations

import random
import struct
import tracemalloc
import zlib

import pytest

from hpcd.daemon.unwind.cfi import CfiDecoder
from hpcd.daemon.unwind.table_builder import build_table
from hpcd.daemon.unwind.unwind_rules import RuleSet
from hpcd.elf.elf_reader import Section
from hpcd.elf.elf_view import ElfView
from hpcd.errors import FormatError
from tests.support.elf_mutations import Original, attempt, default_sources, frames, mutant, uleb


@pytest.fixture(scope="module")
def sources() -> list[Original]:
    return default_sources()[:2]  # the vDSO and a small program


def test_mutants_are_decoded_or_refused(sources: list[Original]) -> None:
    findings = []
    for number in range(300):
        _, data = mutant(sources, 2, number)
        result, _ = attempt(data)
        if result not in ("table", "refused"):
            findings.append((number, result))
    assert not findings


def test_mutants_are_reproducible(sources: list[Original]) -> None:
    assert mutant(sources, 7, 42)[1] == mutant(sources, 7, 42)[1]
    assert mutant(sources, 7, 42)[1] != mutant(sources, 8, 42)[1]


def test_every_cut_of_a_file(sources: list[Original]) -> None:
    data = sources[0].data
    for length in [*range(0, 1024, 3), *range(1024, len(data), 61)]:
        assert attempt(data[:length])[0] in ("table", "refused")


def test_generated_frame_sections() -> None:
    random_ = random.Random(3)
    for number in range(400):
        debug = number % 2 == 1
        decoder = CfiDecoder("x86_64" if number % 3 else "aarch64", RuleSet())
        decoder.add_section(frames(random_, debug=debug), random_.choice((0, 1 << 46)), debug=debug)
        pc, rule, start, end = decoder.rows()
        assert len(pc) == len(rule)
        assert (pc[1:] > pc[:-1]).all()
        assert (end >= start).all()


# --- small inputs that ask for much work: each would take minutes, were it not bounded ---


def entry(body: bytes) -> bytes:
    return struct.pack("<I", len(body)) + body


def section(cie_program: bytes, bodies: list[bytes]) -> bytes:
    out = entry(b"\0\0\0\0\x01zR\0\x01\x78\x10\x01\x04" + cie_program)
    for number, body in enumerate(bodies):
        place = struct.pack("<IQQ", len(out) + 4, 0x1000 + 256 * number, 256)
        out += entry(place + b"\0" + body)
    return out


def decode(data: bytes) -> CfiDecoder:
    decoder = CfiDecoder("x86_64", RuleSet())
    decoder.add_section(data, 0)
    decoder.rows()
    return decoder


def test_many_registers_remembered_and_restored() -> None:
    many = b"".join(b"\x05" + uleb(100 + n) + b"\x01" for n in range(50_000))
    decoder = decode(section(b"\x90\x01", [many + b"\x0a" + b"\x0b\x0a" * 50_000]))
    assert decoder.functions.bad == 0


def test_long_initial_program_of_many_functions() -> None:
    bodies = [b"\x0e" + uleb(8 * n) for n in range(5000)]
    assert decode(section(b"\x90\x01" + b"\x0e\x10" * 200_000, bodies)).functions.bad == 0


def test_malformed_shared_cie_is_looked_at_once() -> None:
    letters = 200_000
    data = entry(
        b"\0\0\0\0\x01z" + b"L" * letters + b"P\0\x01\x78\x10" + uleb(letters + 1)
        + bytes(letters) + b"\x0d"  # no such pointer encoding
    )  # fmt: skip
    head = len(data)
    for number in range(5000):
        data += entry(struct.pack("<IQQ", head + 4 + 24 * number, 0x1000, 16))
    assert decode(data).functions.bad == 5000


def test_entries_inside_entries_are_no_cies() -> None:
    """Each function names another CIE, all inside one large entry and as long as the rest."""
    fake = b"".join(
        struct.pack("<I", 24_000 * 24 - 24 * n - 4) + b"\0\0\0\0\x01\0\x01\x78\x10\0\0\0\0\0\0\0"
        for n in range(24_000)
    )
    data = entry(b"\xff\xff\xff\x7f" + fake)
    start = 8
    for number in range(5000):
        data += entry(struct.pack("<IQQ", len(data) + 4 - start - 24 * number, 0x1000, 16))
    assert decode(data).functions.bad == 5001


# --- small inputs that ask for much memory ---


def compressed(size: int, contents: bytes) -> tuple[ElfView, Section]:
    data = struct.pack("<IIQQ", 1, 0, size, 1) + zlib.compress(contents, 9)
    view = ElfView.__new__(ElfView)
    view.data = memoryview(data)
    return view, Section(0, ".debug_frame", 1, 0x800, 0, 0, len(data), 0, 0)


@pytest.mark.parametrize("claim", [0, 1, 4096, 1 << 40, (1 << 64) - 1])
def test_compressed_section_is_no_larger_than_it_says(claim: int) -> None:
    view, bomb = compressed(claim, bytes(64 << 20))
    tracemalloc.start()
    try:
        contents = view.contents(bomb)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(contents) <= min(claim, 1 << 20)
    assert peak < 8 << 20


def test_compressed_section_comes_out_whole() -> None:
    contents = bytes(range(256)) * 16
    view, whole = compressed(len(contents), contents)
    assert view.contents(whole) == contents


@pytest.mark.parametrize(
    ("offset", "form", "value"),
    [
        (4, "<B", 1),  # 32-bit
        (5, "<B", 2),  # big-endian
        (18, "<H", 3),  # i386
        (32, "<Q", (1 << 64) - 1),  # program headers at the end of the world
        (54, "<H", 0),  # of size 0
        (56, "<H", 0xFFFF),
        (56, "<H", 0),
    ],
)
def test_headers_out_of_range_are_refused(
    sources: list[Original], offset: int, form: str, value: int
) -> None:
    data = bytearray(sources[0].data)
    struct.pack_into(form, data, offset, value)
    with pytest.raises(FormatError):
        build_table(memoryview(bytes(data)))


@pytest.mark.parametrize("value", [1, 1 << 40, (1 << 64) - 1])
def test_section_headers_out_of_range_are_done_without(sources: list[Original], value: int) -> None:
    """They are for debuggers; .eh_frame is then found through the program headers."""
    whole = build_table(memoryview(sources[0].data))
    data = bytearray(sources[0].data)
    struct.pack_into("<Q", data, 40, value)
    struct.pack_into("<H", data, 60, 0)
    stripped = build_table(memoryview(bytes(data)))
    assert stripped.functions == whole.functions > 0


@pytest.mark.parametrize("value", [(1 << 47) - 1, 1 << 63, (1 << 64) - 1])
@pytest.mark.parametrize("name", [".eh_frame", ".text"])
def test_sections_where_no_program_is_mapped_are_left_out(
    sources: list[Original], name: str, value: int
) -> None:
    """They cost what they would have said; .eh_frame is found through the program headers."""
    for source in sources:
        data = bytearray(source.data)
        struct.pack_into("<Q", data, source.section_headers[name] + 16, value)
        assert name not in ElfView(memoryview(bytes(data))).sections
        assert build_table(memoryview(bytes(data))).functions > 0
