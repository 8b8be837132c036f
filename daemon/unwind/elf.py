"""A bounds-checked view of an ELF file: what unwinding needs of it and no more.

The file belongs to whoever is being measured and may say anything. Every offset and count is
checked against the file's length before use; what does not fit raises :class:`FormatError`.
(System V ABI, ELF-64.)
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpcd.errors import FormatError

_MACHINES = {62: "x86_64", 183: "aarch64"}
_PT_LOAD, _PT_NOTE, _PT_GNU_EH_FRAME = 1, 4, 0x6474E550
_SHT_NOBITS, _SHF_COMPRESSED = 8, 0x800
_STT_FUNC, _STT_IFUNC = 2, 10
# A program whose debug_frame decompresses to more is left to its .eh_frame.
_MAX_SECTION = 512 << 20
# Where programs may be mapped (x86-64 with four levels of page tables, aarch64 with 47 bits): what
# claims to be beyond is left out, and arithmetic on addresses stays within 64 bits.
_ADDRESSES = 1 << 47

_SECTION = np.dtype(
    [
        ("name", "<u4"),
        ("type", "<u4"),
        ("flags", "<u8"),
        ("addr", "<u8"),
        ("offset", "<u8"),
        ("size", "<u8"),
        ("link", "<u4"),
        ("info", "<u4"),
        ("align", "<u8"),
        ("entsize", "<u8"),
    ]
)
_SEGMENT = np.dtype(
    [
        ("type", "<u4"),
        ("flags", "<u4"),
        ("offset", "<u8"),
        ("vaddr", "<u8"),
        ("paddr", "<u8"),
        ("filesz", "<u8"),
        ("memsz", "<u8"),
        ("align", "<u8"),
    ]
)
_SYMBOL = np.dtype(
    [
        ("name", "<u4"),
        ("info", "u1"),
        ("other", "u1"),
        ("shndx", "<u2"),
        ("value", "<u8"),
        ("size", "<u8"),
    ]
)


@dataclass(frozen=True, slots=True)
class Segment:
    """A PT_LOAD segment."""

    offset: int
    vaddr: int
    filesz: int
    executable: bool


@dataclass(frozen=True, slots=True)
class Section:
    """A section with contents in the file."""

    name: str
    addr: int
    offset: int
    size: int
    flags: int
    link: int
    executable: bool


class ElfView:
    """An ELF-64 little-endian file in memory (``bytes`` or an mmap)."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        head = bytes(data[:64])
        if len(head) < 64 or head[:4] != b"\x7fELF":
            raise FormatError("not an ELF file")
        if head[4] != 2 or head[5] != 1:
            raise FormatError("not a 64-bit little-endian ELF file")
        (machine,) = struct.unpack_from("<H", head, 18)
        if machine not in _MACHINES:
            raise FormatError(f"ELF machine {machine} is not supported")
        self.machine = _MACHINES[machine]
        self.entry, phoff, shoff = struct.unpack_from("<QQQ", head, 24)
        phentsize, phnum, shentsize, shnum, shstrndx = struct.unpack_from("<HHHHH", head, 54)
        if phentsize != _SEGMENT.itemsize or not phnum:
            raise FormatError("ELF file has no program headers")
        self._segments = self._table(_SEGMENT, phoff, phnum)
        self.segments = [
            Segment(int(s["offset"]), int(s["vaddr"]), int(s["filesz"]), bool(s["flags"] & 1))
            for s in self._segments
            if s["type"] == _PT_LOAD
            and int(s["vaddr"]) + max(int(s["memsz"]), int(s["filesz"])) < _ADDRESSES
        ]
        self.sections: dict[str, Section] = {}
        self._by_index: list[Section | None] = []
        if shoff and shentsize == _SECTION.itemsize:
            self._read_sections(shoff, shnum, shstrndx)

    def _table(self, dtype: np.dtype[np.void], offset: int, count: int) -> npt.NDArray[np.void]:
        if offset + count * dtype.itemsize > len(self.data):
            raise FormatError("ELF header table runs past the end of the file")
        return np.frombuffer(self.data, dtype, count, offset)

    def _read_sections(self, offset: int, count: int, names_at: int) -> None:
        # A stripped or cut file may name headers it does not have; segments suffice then.
        count = min(count, max(0, len(self.data) - offset) // _SECTION.itemsize)
        if names_at >= count:
            return
        headers = np.frombuffer(self.data, _SECTION, count, offset)
        names = self._bytes(int(headers[names_at]["offset"]), int(headers[names_at]["size"]))
        for header in headers:
            start = int(header["name"])
            end = names.find(b"\0", start, start + 256)
            name = names[start:end].decode("latin-1") if end >= 0 else ""
            section = Section(
                name,
                int(header["addr"]),
                int(header["offset"]),
                int(header["size"]),
                int(header["flags"]),
                int(header["link"]),
                bool(header["flags"] & 4),
            )
            present = (
                header["type"] != _SHT_NOBITS
                and section.offset + section.size <= len(self.data)
                and section.addr + section.size < _ADDRESSES
            )
            self._by_index.append(section if present else None)
            if present and name and name not in self.sections:
                self.sections[name] = section

    def _bytes(self, offset: int, size: int) -> bytes:
        if offset + size > len(self.data):
            return b""
        return bytes(self.data[offset : offset + size])

    def contents(self, section: Section) -> bytes:
        """A section's bytes, decompressed; empty when it cannot be (or is too large)."""
        data = self._bytes(section.offset, section.size)
        if not section.flags & _SHF_COMPRESSED:
            return data
        if len(data) < 24:
            return b""
        kind, _, size, _ = struct.unpack_from("<IIQQ", data)
        # A limit of 0 would mean none to zlib.
        if kind != 1 or not 0 < size <= _MAX_SECTION:
            return b""
        try:
            return zlib.decompressobj().decompress(data[24:], size)
        except zlib.error:
            return b""

    def text(self, section: Section) -> memoryview:
        """The machine code of a section, not copied."""
        return self.data[section.offset : section.offset + section.size]

    @property
    def base(self) -> int:
        """The page the lowest executable segment begins on; rows count from here."""
        starts = [s.vaddr for s in self.segments if s.executable]
        if not starts:
            raise FormatError("ELF file has no executable segment")
        return min(starts) & ~4095

    @property
    def end(self) -> int:
        """Where the highest executable segment ends."""
        return max(s.vaddr + s.filesz for s in self.segments if s.executable)

    def build_id(self) -> str:
        """The GNU build-id, or a hash of the file that serves as one (prefixed ``hash-``)."""
        for segment in self._segments:
            if segment["type"] == _PT_NOTE:
                notes = self._bytes(int(segment["offset"]), min(int(segment["filesz"]), 1 << 16))
                found = _gnu_build_id(notes)
                if found:
                    return found
        import hashlib  # brings OpenSSL, 4 MB that the recorder, which imports this, never needs

        digest = hashlib.blake2b(len(self.data).to_bytes(8, "little"), digest_size=20)
        digest.update(self.data)
        return f"hash-{digest.hexdigest()}"

    def eh_frame(self) -> tuple[int, bytes]:
        """(address, bytes) of .eh_frame, empty when there is none."""
        section = self.sections.get(".eh_frame")
        if section:
            return section.addr, self.contents(section)
        for header in self._segments:
            if header["type"] == _PT_GNU_EH_FRAME:
                return self._eh_frame_by_header(int(header["vaddr"]))
        return 0, b""

    def _eh_frame_by_header(self, vaddr: int) -> tuple[int, bytes]:
        """Through .eh_frame_hdr, for files without section headers (LSB 5.0, 10.6.2)."""
        offset = self.file_offset(vaddr)
        head = self._bytes(offset, 8) if offset is not None else b""
        if len(head) < 8 or head[0] != 1 or head[1] != 0x1B:  # pc-relative, signed 4 bytes
            return 0, b""
        address = vaddr + 4 + struct.unpack_from("<i", head, 4)[0]
        for segment in self.segments:
            if segment.vaddr <= address < segment.vaddr + segment.filesz:
                start = segment.offset + address - segment.vaddr
                return address, self._bytes(start, segment.offset + segment.filesz - start)
        return 0, b""

    def file_offset(self, vaddr: int) -> int | None:
        """Where in the file the byte at ``vaddr`` is."""
        for segment in self.segments:
            if segment.vaddr <= vaddr < segment.vaddr + segment.filesz:
                return segment.offset + vaddr - segment.vaddr
        return None

    def functions(self) -> npt.NDArray[np.uint64]:
        """``uint64[n, 2]``: (address, size) of all function symbols, sorted, without repeats."""
        found = []
        for name in (".symtab", ".dynsym"):
            section = self.sections.get(name)
            if section is None:
                continue
            count = section.size // _SYMBOL.itemsize
            table = np.frombuffer(self.data, _SYMBOL, count, section.offset)
            kind = table["info"] & 15
            keep = ((kind == _STT_FUNC) | (kind == _STT_IFUNC)) & (table["shndx"] != 0)
            found.append(np.stack([table["value"][keep], table["size"][keep]], axis=1))
        if not found:
            return np.zeros((0, 2), np.uint64)
        pairs = np.concatenate(found)
        pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
        fresh = np.ones(len(pairs), bool)
        fresh[1:] = (pairs[1:] != pairs[:-1]).any(axis=1)
        return pairs[fresh]

    def code_sections(self) -> list[Section]:
        """Sections with machine code, in address order."""
        sections = [s for s in self.sections.values() if s.executable and s.size]
        return sorted(sections, key=lambda section: section.addr)


def _gnu_build_id(notes: bytes) -> str:
    at = 0
    while at + 12 <= len(notes):
        name_size, size, kind = struct.unpack_from("<III", notes, at)
        body = at + 12 + (name_size + 3 & ~3)
        end = body + size
        if end > len(notes):
            return ""
        if kind == 3 and notes[at + 12 : at + 16] == b"GNU\0" and 0 < size <= 64:
            return notes[body:end].hex()
        at = body + (size + 3 & ~3)
    return ""
