"""Reading of ELF-64 files what naming addresses needs: sections, symbols, PLT, function starts.

A file may say anything: it belonged to whoever was measured, and may have been replaced since.
Every offset and count is checked against the file's size before it is used, what is read is
bounded, and whatever does not fit raises :class:`FormatError`. Reading is by ``read``, not by
mapping: a file cut short under a mapping would kill the process. (System V ABI, ELF-64.)
"""

from __future__ import annotations

import hashlib
import io
import lzma
import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from hpcd.errors import FormatError

U64 = npt.NDArray[np.uint64]
Table = npt.NDArray[np.void]

X86_64, AARCH64 = 62, 183

# The biggest string tables in the wild (browsers, with C++ names) have about 250 MB.
_MAX_SECTION = 512 << 20
_MAX_SECTIONS = 1 << 16
# Mini debug information of a whole distribution's biggest binaries stays below a tenth of this.
_MAX_DEBUGDATA = 128 << 20
_MAX_NOTES = 64 << 10

_NOBITS, _COMPRESSED, _EXECUTABLE = 8, 0x800, 0x4

_SECTION = np.dtype(
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
_SEGMENT = np.dtype(
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

_PT_LOAD, _PT_NOTE = 1, 4
_NT_GNU_BUILD_ID = 3
_DATAREL_SDATA4 = 0x3B
_UDATA4, _SDATA4 = 0x03, 0x0B


@dataclass(frozen=True, slots=True)
class Section:
    """A section header; ``has_data`` is False where the file holds no plain contents.

    ``packed``: it holds compressed ones.
    """

    number: int
    name: str
    address: int
    offset: int
    size: int
    link: int
    entry: int
    executable: bool
    has_data: bool
    packed: bool = False


class ElfFile:
    """An open ELF-64 little-endian file. ``name`` is used in errors only."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self.name = name
        self._size = file.seek(0, os.SEEK_END)
        head = self.read(0, min(64, self._size))
        if len(head) < 64 or head[:4] != b"\x7fELF":
            raise FormatError(f"{name}: not an ELF file")
        if head[4:6] != b"\x02\x01":
            raise FormatError(f"{name}: not a 64-bit little-endian ELF file")
        self.machine: int = struct.unpack_from("<H", head, 18)[0]
        segments, sections = struct.unpack_from("<QQ", head, 32)
        segment_size, count, section_size, section_count, names = struct.unpack_from(
            "<5H", head, 54
        )
        self._segments = np.zeros(0, _SEGMENT)
        if count and segment_size == _SEGMENT.itemsize:
            self._segments = self._table(segments, count, _SEGMENT)
        self.sections: list[Section] = []
        if sections and section_size == _SECTION.itemsize:
            self._read_sections(sections, section_count, names)
        self._by_name = {section.name: section for section in reversed(self.sections)}

    @staticmethod
    def open(path: Path | str) -> ElfFile:
        """Open the regular file ``path``. Raises :class:`FormatError`, :class:`OSError`."""
        if "\0" in str(path):
            raise FormatError("no file has a name with a zero byte")
        # A fifo or device under a recorded path must not block or be touched.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise FormatError(f"{path}: not a regular file")
            return ElfFile(os.fdopen(fd, "rb", closefd=False), str(path))._owning(fd)
        except BaseException:
            os.close(fd)
            raise

    def _owning(self, fd: int) -> ElfFile:
        self._file = os.fdopen(fd, "rb")
        return self

    def __enter__(self) -> ElfFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def base(self) -> int:
        """The address of the first segment that is loaded: 0 but for programs at fixed places."""
        loaded = self._segments["address"][self._segments["type"] == _PT_LOAD]
        return int(loaded[0]) if len(loaded) else 0

    def section(self, name: str) -> Section | None:
        """The first section of this name, if it has contents in the file."""
        found = self._by_name.get(name)
        return found if found and found.has_data else None

    def contents(self, section: Section) -> bytes:
        """What a section holds, at most 512 MiB. Raises :class:`FormatError`."""
        if section.size > _MAX_SECTION:
            raise FormatError(f"{self.name}: section {section.name} is too big")
        return self.read(section.offset, section.size)

    def code(self, address: int, size: int) -> bytes:
        """Up to ``size`` bytes of code from the virtual ``address`` on, to its section's end.

        Raises :class:`FormatError` when there is none.
        """
        for section in self.sections:
            end = section.address + section.size
            if section.executable and section.has_data and section.address <= address < end:
                return self.read(
                    section.offset + address - section.address, min(size, end - address)
                )
        raise FormatError("no code there")

    def table(self, section: Section, kind: np.dtype[Any]) -> Table:
        """A section as an array of ``kind``; a part of an entry at its end is left out."""
        data = self.contents(section)
        return np.frombuffer(data, kind, len(data) // kind.itemsize)

    def build_id(self) -> str:
        """The GNU build id in hex; without one ``hash-`` and a hash of the contents."""
        for segment in self._segments:
            if segment["type"] == _PT_NOTE and segment["size"] <= _MAX_NOTES:
                found = _gnu_build_id(self.read(int(segment["offset"]), int(segment["size"])))
                if found:
                    return found
        for section in self.sections:
            if section.name == ".note.gnu.build-id" and section.has_data:
                found = _gnu_build_id(self.read(section.offset, min(section.size, _MAX_NOTES)))
                if found:
                    return found
        digest = hashlib.blake2b(self._size.to_bytes(8, "little"), digest_size=20)
        self._file.seek(0)
        while block := self._file.read(1 << 20):
            digest.update(block)
        return f"hash-{digest.hexdigest()}"

    def function_starts(self) -> U64:
        """``uint64[n]`` ascending: where functions begin, from the table of .eh_frame_hdr.

        Empty where there is none. (Linux Standard Base, section 10.6.2.)
        """
        section = self.section(".eh_frame_hdr")
        if section is None or section.size < 12:
            return np.zeros(0, np.uint64)
        data = self.contents(section)
        version, pointer, counting, table = data[:4]
        if version != 1 or table != _DATAREL_SDATA4 or counting != _UDATA4:
            return np.zeros(0, np.uint64)
        if pointer & 0x0F not in (_UDATA4, _SDATA4):
            return np.zeros(0, np.uint64)
        count = min(struct.unpack_from("<I", data, 8)[0], (len(data) - 12) // 8)
        rows = np.frombuffer(data, "<i4", 2 * count, 12)
        starts = rows[::2].astype(np.int64) + np.int64(section.address & ((1 << 62) - 1))
        return np.unique(starts[starts >= 0]).astype(np.uint64)

    def debug_data(self) -> ElfFile | None:
        """The file inside .gnu_debugdata (symbols of stripped binaries, compressed), if any."""
        section = self.section(".gnu_debugdata")
        if section is None:
            return None
        try:
            decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MAX_DEBUGDATA)
            data = decoder.decompress(self.contents(section), _MAX_DEBUGDATA)
        except lzma.LZMAError as error:
            raise FormatError(f"{self.name}: .gnu_debugdata is damaged: {error}") from None
        if not decoder.eof:
            raise FormatError(f"{self.name}: .gnu_debugdata is damaged or too big")
        return ElfFile(io.BytesIO(data), f"{self.name}(.gnu_debugdata)")

    # --- container ---

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the file. Raises :class:`FormatError` where it has not so many."""
        if offset < 0 or size < 0 or offset + size > self._size:
            raise FormatError(f"{self.name}: ELF file is truncated")
        self._file.seek(offset)
        data = self._file.read(size)
        if len(data) != size:
            raise FormatError(f"{self.name}: ELF file is truncated")
        return data

    def _table(self, offset: int, count: int, kind: np.dtype[Any]) -> Table:
        return np.frombuffer(self.read(offset, count * kind.itemsize), kind)

    def _read_sections(self, offset: int, count: int, names: int) -> None:
        first = self._table(offset, 1, _SECTION)[0]
        # More than 65,279 sections: the counts stand in the first header.
        count = count or int(first["size"])
        names = int(first["link"]) if names == 0xFFFF else names
        if count > _MAX_SECTIONS:
            raise FormatError(f"{self.name}: too many sections")
        table = self._table(offset, count, _SECTION)
        strings = b""
        if names < count and table[names]["type"] != _NOBITS:
            size = int(table[names]["size"])
            if size > _MAX_SECTION:
                raise FormatError(f"{self.name}: section names are too big")
            strings = self.read(int(table[names]["offset"]), size)
        for number, row in enumerate(table.tolist()):
            name, kind, flags, address, at, size, link, _, _, entry = row
            self.sections.append(
                Section(
                    number=number,
                    name=string_at(strings, name),
                    address=address,
                    offset=at,
                    size=size,
                    link=link,
                    entry=entry,
                    executable=bool(flags & _EXECUTABLE),
                    has_data=kind not in (0, _NOBITS) and not flags & _COMPRESSED,
                    packed=kind not in (0, _NOBITS) and bool(flags & _COMPRESSED),
                )
            )


# Longer names than any compiler makes of any template.
MAX_NAME = 64 << 10


def string_at(strings: bytes, at: int) -> str:
    """The zero-terminated text at ``at``, empty when that lies outside."""
    if not 0 <= at < len(strings):
        return ""
    end = strings.find(b"\0", at, at + MAX_NAME)
    return strings[at : end if end >= 0 else at + MAX_NAME].decode(errors="replace")


def _gnu_build_id(notes: bytes) -> str:
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
