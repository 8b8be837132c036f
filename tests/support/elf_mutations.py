"""Mutated and generated ELF files, and whether the table builder decodes or refuses them."""

from __future__ import annotations

import ctypes
import functools
import random
import struct
import time
import traceback
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hpcd.daemon.unwind.packed_table import from_bytes, packed, to_bytes
from hpcd.daemon.unwind.table_builder import build_table
from hpcd.elf.elf_view import ElfView
from hpcd.errors import FormatError

_MAX_GROWTH = 64 << 10

# Values at which counts, offsets and signs go wrong.
EDGES = (
    0, 1, 2, 7, 8, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF,
    0x80000000, 0xFFFFFFF0, 0xFFFFFFFF, 1 << 32, 1 << 40, 1 << 47, (1 << 63) - 1, 1 << 63,
    (1 << 64) - 4096, (1 << 64) - 1,
)  # fmt: skip


@dataclass(frozen=True)
class Original:
    """A file to mutate, and where its interesting parts are: (offset, size)."""

    name: str
    data: bytes
    headers: list[tuple[int, int]]
    frames: list[tuple[int, int]]
    code: list[tuple[int, int]]
    section_headers: dict[str, int]
    """Section name → where in the file its header is."""


def original(name: str, data: bytes) -> Original:
    """Find the parts of an ELF file."""
    phoff, shoff = struct.unpack_from("<QQ", data, 32)
    phnum, shnum = struct.unpack_from("<H", data, 56)[0], struct.unpack_from("<H", data, 60)[0]
    headers = [(0, 64), (phoff, 56 * phnum), (shoff, 64 * shnum)]
    elf = ElfView(memoryview(data))
    parts = elf.sections.values()
    frames = [(s.offset, s.size) for s in parts if "eh_frame" in s.name or "debug_fr" in s.name]
    rest = [(s.offset, s.size) for s in parts if s.name in (".symtab", ".dynsym")]
    notes = [(s.offset, s.size) for s in parts if s.name.startswith(".note")]
    code = [(s.offset, s.size) for s in parts if s.executable]
    headers = [(at, size) for at, size in headers + notes + rest if size]
    names_at = struct.unpack_from("<H", data, 62)[0]
    names = struct.unpack_from("<Q", data, shoff + 64 * names_at + 24)[0]
    by_name = {}
    for at in range(shoff, shoff + 64 * shnum, 64):
        start = names + struct.unpack_from("<I", data, at)[0]
        by_name[data[start : data.index(b"\0", start)].decode()] = at
    return Original(name, data, headers, [part for part in frames if part[1]], code, by_name)


def mutate(source: Original, random_: random.Random) -> bytes:
    """One mutant: a few changes, most of them where the decoder reads."""
    data = bytearray(source.data)
    for _ in range(random_.choice((1, 1, 1, 2, 3, 8, 40))):
        random_.choice(_CHANGES)(data, source, random_)
        if len(data) > len(source.data) + _MAX_GROWTH:
            break
    return bytes(data)


def _inside(parts: list[tuple[int, int]], data: bytearray, random_: random.Random) -> int:
    at, size = random_.choice(parts) if parts else (0, len(data))
    return min(at + random_.randrange(size), len(data) - 1) if len(data) else 0


def _header_field(data: bytearray, source: Original, random_: random.Random) -> None:
    at = _inside(source.headers, data, random_) & ~random_.choice((1, 3, 7))
    width = random_.choice((1, 2, 4, 8))
    value = random_.choice(EDGES) if random_.random() < 0.6 else random_.randrange(len(source.data))
    data[at : at + width] = (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")


def _frame_bytes(data: bytearray, source: Original, random_: random.Random) -> None:
    at = _inside(source.frames, data, random_)
    length = random_.choice((1, 1, 2, 4, 16))
    data[at : at + length] = random_.randbytes(length)


def _frame_field(data: bytearray, source: Original, random_: random.Random) -> None:
    """A length or a pointer to a CIE, where these usually stand."""
    at = _inside(source.frames, data, random_) & ~3
    data[at : at + 4] = (random_.choice(EDGES) & 0xFFFFFFFF).to_bytes(4, "little")


def _frame_splice(data: bytearray, source: Original, random_: random.Random) -> None:
    if source.frames:
        start, size = random_.choice(source.frames)
        length = random_.randrange(1, 256)
        a, b = random_.randrange(size), random_.randrange(size)
        piece = bytes(data[start + a : start + a + length])
        data[start + b : start + b + len(piece)] = piece


def _flip(data: bytearray, source: Original, random_: random.Random) -> None:
    if data:
        data[random_.randrange(len(data))] ^= 1 << random_.randrange(8)


def _code_bytes(data: bytearray, source: Original, random_: random.Random) -> None:
    at = _inside(source.code, data, random_)
    data[at : at + 8] = random_.randbytes(8)


def _cut(data: bytearray, source: Original, random_: random.Random) -> None:
    if random_.random() < 0.3:
        del data[random_.randrange(len(data) + 1) :]


def _long_number(data: bytearray, source: Original, random_: random.Random) -> None:
    at = _inside(source.frames, data, random_)
    length = random_.choice((3, 9, 10, 30))
    data[at : at + length] = b"\xff" * (length - 1) + b"\x7f"


# --- frame sections from a grammar: what random bytes never hit ---


def uleb(value: int) -> bytes:
    """An unsigned LEB128 number."""
    out = bytearray()
    while True:
        value, low = value >> 7, value & 127
        out.append(low | (128 if value else 0))
        if not value:
            return bytes(out)


def _operand(random_: random.Random) -> bytes:
    if random_.random() < 0.5:
        return uleb(random_.randrange(64))
    return uleb(random_.choice(EDGES)) if random_.random() < 0.9 else b"\xff" * 12


def _instruction(random_: random.Random) -> bytes:
    """One call frame instruction with operands of the kinds it takes."""
    op = random_.choice((*range(0x17), 0x2C, 0x2D, 0x2E, 0x2F, 0x40, 0x80, 0xC0, 0x3F))
    if op in (0x40, 0x80, 0xC0):
        code = bytes([op | random_.randrange(64)])
        return code + (_operand(random_) if op == 0x80 else b"")
    if op in (0x02, 0x03, 0x04):
        return bytes([op]) + random_.randbytes(1 << (op - 2))
    if op == 0x01:
        return bytes([op]) + struct.pack("<Q", random_.choice(EDGES))
    count = {0x06: 1, 0x07: 1, 0x08: 1, 0x0D: 1, 0x0E: 1, 0x13: 1, 0x2E: 1}.get(op, 2)
    count = 0 if op in (0x00, 0x0A, 0x0B, 0x2C, 0x2D, 0x3F) else count
    if op in (0x0F, 0x10, 0x16):
        expression = random_.choice((b"\x76\x10\x06", b"\x77\x08\x06\x23\x08", b"", b"\x70\xff"))
        register = uleb(random_.randrange(20)) if op != 0x0F else b""
        return bytes([op]) + register + uleb(len(expression)) + expression
    return bytes([op]) + b"".join(_operand(random_) for _ in range(count))


def _program(random_: random.Random) -> bytes:
    return b"".join(_instruction(random_) for _ in range(random_.randrange(8)))


def frames(random_: random.Random, *, debug: bool) -> bytes:
    """A frame section: sound in its frame, anything in its programs; sometimes amplified."""
    align = uleb(random_.choice((1, 1, 1, 4, *EDGES)))
    own = _program(random_) if random_.random() < 0.5 else b"\x0c\x07\x08\x90\x01"
    large = random_.random() < 0.04
    if large and random_.random() < 0.5:
        own = (own or b"\0") * (100_000 // max(1, len(own)))
    augmentation = b"\0" if debug else b"zR\0"
    tail = b"" if debug else b"\x01\x00"
    header = b"\x01" + augmentation + align + b"\x78\x10" + tail + own
    ident = b"\xff" * 4 if debug else b"\0" * 4
    out = bytearray(struct.pack("<I", len(ident + header)) + ident + header)
    pc = random_.choice((0x1000, 0x1000, *EDGES))
    for _ in range(2000 if large else random_.randrange(1, 6)):
        body = _program(random_)
        if large and random_.random() < 0.002:
            # Many registers to keep, then many times kept and restored.
            many = b"".join(b"\x05" + uleb(n) + b"\x01" for n in range(100, 10100))
            body = many + b"\x0a" + b"\x0b\x0a" * 10_000
        cie = 0 if debug else len(out) + 4
        addresses = struct.pack("<QQ", pc & ((1 << 64) - 1), random_.choice((16, 64, *EDGES)))
        entry = struct.pack("<I", cie) + addresses + (b"" if debug else b"\0") + body
        out += struct.pack("<I", len(entry)) + entry
        pc += 64
    return bytes(out)


def _replace_section(data: bytearray, header: int, contents: bytes, flags: int) -> None:
    if header + 64 <= len(data):
        struct.pack_into("<IQ", data, header + 4, 1, flags)  # PROGBITS
        struct.pack_into("<QQ", data, header + 24, len(data), len(contents))
        data += contents


def _generated_frames(data: bytearray, source: Original, random_: random.Random) -> None:
    header = source.section_headers.get(".eh_frame")
    if header:
        _replace_section(data, header, frames(random_, debug=False), 2)


@functools.cache
def _bomb() -> bytes:
    """256 MiB of zeros in 1.1 MB."""
    return zlib.compress(bytes(256 << 20), 1)


def _debug_frames(data: bytearray, source: Original, random_: random.Random) -> None:
    """The lookup table's section becomes a .debug_frame, as a rule a compressed one."""
    header = source.section_headers.get(".eh_frame_hdr")
    at = data.find(b".eh_frame_hdr\0")
    if not header or at < 0:
        return
    data[at : at + 13] = b".debug_frame\0"
    contents = frames(random_, debug=True)
    kind = random_.random()
    if kind < 0.2:
        _replace_section(data, header, contents, 0)
        return
    size = len(contents)
    if kind < 0.6:
        size = random_.choice(EDGES)
    packed = _bomb() if kind < 0.3 else zlib.compress(contents, 1)
    if random_.random() < 0.2:
        packed = packed[: random_.randrange(len(packed))]
    head = struct.pack("<IIQQ", random_.choice((1, 1, 1, 2)), 0, size & ((1 << 64) - 1), 1)
    _replace_section(data, header, head + packed, 0x800)


_CHANGES: tuple[Callable[[bytearray, Original, random.Random], None], ...] = (
    _header_field, _header_field, _header_field, _frame_bytes, _frame_bytes, _frame_field,
    _frame_splice, _flip, _code_bytes, _cut, _long_number, _generated_frames,
    _generated_frames, _debug_frames,
)  # fmt: skip


def mutant(sources: list[Original], seed: int, number: int) -> tuple[Original, bytes]:
    """Mutant ``number``, always the same for one seed and one list of sources."""
    source = sources[number % len(sources)]
    return source, mutate(source, random.Random(seed << 40 | number))


class TooSlow(BaseException):
    """A mutant took over its time."""


def attempt(data: bytes) -> tuple[str, float]:
    """("table", "refused" or a finding, CPU seconds) of one mutant."""
    start = time.process_time()
    try:
        from_bytes(to_bytes(packed(build_table(memoryview(data)))))
        result = "table"
    except FormatError:
        result = "refused"
    except TooSlow:
        result = "too slow"
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        result = f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"
    return result, time.process_time() - start


def vdso() -> bytes:
    """The kernel's shared object, as mapped here."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith("[vdso]"):
            start, end = (int(part, 16) for part in line.split()[0].split("-"))
            return ctypes.string_at(start, end - start)
    return b""


def default_sources() -> list[Original]:
    """The vDSO and some small programs and libraries of this machine."""
    names = (
        "/usr/bin/true", "/usr/bin/env", "/lib/x86_64-linux-gnu/libdl.so.2",
        "/lib/x86_64-linux-gnu/libanl.so.1", "/lib/x86_64-linux-gnu/libz.so.1",
    )  # fmt: skip
    sources = [("vdso", vdso())] + [(n, Path(n).read_bytes()) for n in names if Path(n).exists()]
    return [original(name, data) for name, data in sources if data]
