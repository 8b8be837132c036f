"""The bounded reader of ELF-64 files that recorder and analysis share.

A file may contain anything: it belongs to the measured user, and may have been replaced since.
Every offset and count is checked against the file's size before use, and reading is bounded.
(System V ABI, ELF-64.)
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hpcd.elf.word_size import IS_32_BIT, is_32_bit
from hpcd.errors import FormatError

Table = npt.NDArray[np.void]

X86_64, AARCH64 = 62, 183
PT_LOAD, PT_NOTE, PT_GNU_EH_FRAME = 1, 4, 0x6474E550

# The biggest string tables in the wild (browsers, with C++ names) have about 250 MB.
MAX_SECTION = 512 << 20
# Longer names than any compiler makes of any template.
MAX_NAME = 64 << 10
_MAX_SECTIONS = 1 << 16
# Names of sections are short. Headers may all refer to the same text: 65,536 of MAX_NAME were 4 GB.
_MAX_SECTION_NAME = 256
# A file without a build id is identified by a hash of its contents, which takes a second for this
# size. A bigger one (a sparse file takes no room on a disk) would keep others waiting.
MAX_HASHED = 1 << 30
_MAX_NOTES = 64 << 10
_HASH_BLOCK = 1 << 20

_SHT_NULL, _SHT_NOBITS = 0, 8
_SHF_EXECINSTR, _SHF_COMPRESSED = 0x4, 0x800
_NT_GNU_BUILD_ID = 3

SECTION = np.dtype(
    [
        ("name", "<u4"),
        ("type", "<u4"),
        ("flags", "<u8"),
        ("address", "<u8"),
        ("offset", "<u8"),
        ("size", "<u8"),
        ("link", "<u4"),
        ("info", "<u4"),
        ("align", "<u8"),
        ("entry", "<u8"),
    ]
)
SEGMENT = np.dtype(
    [
        ("type", "<u4"),
        ("flags", "<u4"),
        ("offset", "<u8"),
        ("address", "<u8"),
        ("physical", "<u8"),
        ("size", "<u8"),
        ("memory", "<u8"),
        ("align", "<u8"),
    ]
)
SYMBOL = np.dtype(
    [
        ("name", "<u4"),
        ("info", "u1"),
        ("other", "u1"),
        ("section", "<u2"),
        ("value", "<u8"),
        ("size", "<u8"),
    ]
)
RELOCATION = np.dtype([("offset", "<u8"), ("info", "<u8"), ("addend", "<i8")])


class ElfHeader(NamedTuple):
    """The fields of the ELF header from ``e_machine`` on, without version, flags and its size."""

    machine: int
    entry: int
    segments: int
    sections: int
    segment_size: int
    segment_count: int
    section_size: int
    section_count: int
    section_names: int


@dataclass(frozen=True, slots=True)
class Section:
    """A section header."""

    number: int
    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    entry: int

    @property
    def executable(self) -> bool:
        """Whether it holds machine code."""
        return bool(self.flags & _SHF_EXECINSTR)

    @property
    def in_file(self) -> bool:
        """Whether the file holds its contents, plain or compressed."""
        return self.type not in (_SHT_NULL, _SHT_NOBITS)

    @property
    def has_data(self) -> bool:
        """Whether the file holds its contents as they are."""
        return self.in_file and not self.flags & _SHF_COMPRESSED

    @property
    def packed(self) -> bool:
        """Whether the file holds its contents compressed."""
        return self.in_file and bool(self.flags & _SHF_COMPRESSED)


class ElfReader(ABC):
    """Headers, segments, sections and build id of an ELF-64 little-endian file.

    ``size`` is the file's, ``name`` is used in errors only. With ``partial`` unreadable section
    headers are left out, for users who can do without; otherwise they are an error. Raises
    :class:`FormatError`.
    """

    def __init__(self, size: int, name: str = "", *, partial: bool) -> None:
        self.name = name
        self._size = size
        self._partial = partial
        head = self.read(0, min(64, size))
        if len(head) < 64 or head[:4] != b"\x7fELF":
            raise self._error(NOT_ELF)
        if is_32_bit(head):
            raise self._error(IS_32_BIT)
        if head[4:6] != b"\x02\x01":
            raise self._error("not a 64-bit little-endian ELF file")
        self.header = ElfHeader(
            *struct.unpack_from("<H", head, 18),
            *struct.unpack_from("<3Q", head, 24),
            *struct.unpack_from("<5H", head, 54),
        )
        self.segment_table = np.zeros(0, SEGMENT)
        if self.header.segment_count and self.header.segment_size == SEGMENT.itemsize:
            self.segment_table = self._table(
                self.header.segments, self.header.segment_count, SEGMENT
            )
        self._sections: list[Section] = []
        if self.header.sections and self.header.section_size == SECTION.itemsize:
            self._read_sections()

    @abstractmethod
    def _read(self, offset: int, size: int) -> bytes:
        """Return bytes of the file, which has at least ``offset + size``."""

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of the file. Raises :class:`FormatError` if it has fewer."""
        if offset < 0 or size < 0 or offset + size > self._size:
            raise self._error("ELF file is truncated")
        data = self._read(offset, size)
        if len(data) != size:
            raise self._error("ELF file is truncated")
        return data

    @property
    def all_sections(self) -> list[Section]:
        """All section headers that were read, in their order."""
        return self._sections

    def build_id(self) -> str:
        """The GNU build id in hex; without one ``hash-`` and a hash of the contents.

        Raises :class:`FormatError` for a file of more than 1 GiB without a build id.
        """
        notes = [
            (int(segment["offset"]), int(segment["size"]))
            for segment in self.segment_table
            if segment["type"] == PT_NOTE
        ]
        notes += [
            (section.offset, section.size)
            for section in self._sections
            if section.name == ".note.gnu.build-id" and section.has_data
        ]
        for offset, size in notes:
            size = min(size, _MAX_NOTES)
            if offset + size <= self._size:
                build_id = gnu_build_id(self.read(offset, size))
                if build_id:
                    return build_id
        if self._size > MAX_HASHED:
            raise self._error("too big without a build id")
        import hashlib  # brings OpenSSL, 4 MB that the recorder, which imports this, never needs

        digest = hashlib.blake2b(self._size.to_bytes(8, "little"), digest_size=20)
        for at in range(0, self._size, _HASH_BLOCK):
            digest.update(self.read(at, min(_HASH_BLOCK, self._size - at)))
        return f"hash-{digest.hexdigest()}"

    def _error(self, what: str) -> FormatError:
        return FormatError(f"{self.name}: {what}" if self.name else what)

    def _table(self, offset: int, count: int, kind: np.dtype[Any]) -> Table:
        return np.frombuffer(self.read(offset, count * kind.itemsize), kind)

    def _read_sections(self) -> None:
        offset, count, names = self.header.sections, *self.header[-2:]
        if self._partial and offset + SECTION.itemsize > self._size:
            return
        first = self._table(offset, 1, SECTION)[0]
        # More than 65,279 sections: the counts are in the first header.
        count = count or int(first["size"])
        names = int(first["link"]) if names == 0xFFFF else names
        if self._partial:
            count = min(count, (self._size - offset) // SECTION.itemsize, _MAX_SECTIONS)
        if count > _MAX_SECTIONS:
            raise self._error("too many sections")
        table = self._table(offset, count, SECTION)
        strings = self._section_names(table[names]) if names < count else b""
        for number, row in enumerate(table.tolist()):
            name, kind, flags, address, at, size, link, _, _, entry = row
            text = string_at(strings, name, _MAX_SECTION_NAME)
            self._sections.append(
                Section(number, text, kind, flags, address, at, size, link, entry)
            )

    def _section_names(self, row: np.void) -> bytes:
        offset, size = int(row["offset"]), int(row["size"])
        if row["type"] == _SHT_NOBITS or (self._partial and offset + size > self._size):
            return b""
        if size > MAX_SECTION:
            raise self._error("section names are too big")
        return self.read(offset, size)


def string_at(strings: bytes, at: int, limit: int = MAX_NAME) -> str:
    """The zero-terminated text at ``at``, at most ``limit`` bytes; empty if that is outside."""
    if not 0 <= at < len(strings):
        return ""
    end = strings.find(b"\0", at, at + limit)
    return strings[at : end if end >= 0 else at + limit].decode(errors="replace")


def gnu_build_id(notes: bytes) -> str:
    """The build id among ``notes`` in hex, empty when there is none."""
    at = 0
    while at + 12 <= len(notes):
        name_size, size, kind = struct.unpack_from("<III", notes, at)
        body = at + 12 + (name_size + 3 & ~3)
        if body + size > len(notes):
            return ""
        if kind == _NT_GNU_BUILD_ID and notes[at + 12 : at + 16] == b"GNU\0" and 0 < size <= 64:
            return notes[body : body + size].hex()
        at = body + (size + 3 & ~3)
    return ""


NOT_ELF = "not an ELF file"
"""The end of error messages about files of another format."""
