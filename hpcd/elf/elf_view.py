"""An ELF file as bytes, for unwinding only.

If a file lacks sections, segments suffice; invalid contents raise :class:`FormatError`.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpcd.array_types import U64
from hpcd.distinct import begins_run
from hpcd.elf.elf_reader import (
    AARCH64,
    MAX_SECTION,
    PT_GNU_EH_FRAME,
    PT_LOAD,
    SYMBOL,
    X86_64,
    ElfReader,
    Section,
)
from hpcd.errors import FormatError

_MACHINES = {X86_64: "x86_64", AARCH64: "aarch64"}
_STT_OBJECT, _STT_FUNC, _STT_IFUNC = 1, 2, 10
_NAMES_OF = {".symtab": ".strtab", ".dynsym": ".dynstr"}
# Bound of addresses of programs (x86-64 with four levels of page tables, aarch64 with 47 bits):
# higher ones are left out, and arithmetic on addresses stays within 64 bits.
_ADDRESSES = 1 << 47
# Bound on reported functions of one name; a static function may be in many files.
_MAX_NAMESAKES = 16


@dataclass(frozen=True, slots=True)
class Segment:
    """A PT_LOAD segment."""

    offset: int
    vaddr: int
    filesz: int
    executable: bool


class FileBytes:
    """The bytes of the file open at ``fd``, read on demand.

    It is not mapped: a file that is cut short under a mapping ends the process that reads it
    (SIGBUS), and its owner may do that at any time.
    """

    def __init__(self, fd: int) -> None:
        self._fd, self._size = fd, os.fstat(fd).st_size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        """Read the bytes of a slice without a step.

        Raises :class:`FormatError` if the file has become shorter.
        """
        start, stop, _ = part.indices(self._size)
        parts = []
        while start < stop and (data := os.pread(self._fd, stop - start, start)):
            parts.append(data)
            start += len(data)
        if start < stop:
            raise FormatError("the file was cut short while it was read")
        return parts[0] if len(parts) == 1 else b"".join(parts)


class ElfView(ElfReader):
    """An ELF-64 little-endian file, in memory or read as it is needed.

    ``sections`` are the sections with contents in the file, by name; ``segments`` the loaded ones.
    """

    def __init__(self, data: memoryview | FileBytes) -> None:
        self.data = data
        self._texts: dict[int, memoryview] = {}
        """Sections with machine code that were read, by their number."""
        super().__init__(len(data), partial=True)
        if self.header.machine not in _MACHINES:
            raise FormatError(f"ELF machine {self.header.machine} is not supported")
        self.machine = _MACHINES[self.header.machine]
        self.entry = self.header.entry
        if not len(self.segment_table):
            raise FormatError("ELF file has no program headers")
        self.segments = [
            Segment(int(s["offset"]), int(s["address"]), int(s["size"]), bool(s["flags"] & 1))
            for s in self.segment_table
            if s["type"] == PT_LOAD
            and int(s["address"]) + max(int(s["memory"]), int(s["size"])) < _ADDRESSES
        ]
        self.sections: dict[str, Section] = {}
        for section in self._sections:
            present = (
                section.in_file
                and section.offset + section.size <= len(data)
                and section.address + section.size < _ADDRESSES
            )
            if present and section.name:
                self.sections.setdefault(section.name, section)

    def _read(self, offset: int, size: int) -> bytes:
        return bytes(self.data[offset : offset + size])

    def _bytes(self, offset: int, size: int) -> bytes:
        if offset + size > len(self.data):
            return b""
        return bytes(self.data[offset : offset + size])

    def contents(self, section: Section) -> bytes:
        """A section's bytes, decompressed; empty when it cannot be (or is too large)."""
        data = self._bytes(section.offset, section.size)
        if not section.packed:
            return data
        if len(data) < 24:
            return b""
        kind, _, size, _ = struct.unpack_from("<IIQQ", data)
        # A limit of 0 would mean none to zlib.
        if kind != 1 or not 0 < size <= MAX_SECTION:
            return b""
        try:
            return zlib.decompressobj().decompress(data[24:], size)
        except zlib.error:
            return b""

    def text(self, section: Section) -> memoryview:
        """The machine code of a section, read once."""
        text = self._texts.get(section.number)
        if text is None:
            part = self.data[section.offset : section.offset + section.size]
            text = self._texts[section.number] = memoryview(part)
        return text

    def symbol_table(self, section: Section) -> npt.NDArray[np.void]:
        """The rows (:data:`~hpcd.elf.elf_reader.SYMBOL`) of a section that is a symbol table."""
        count = section.size // SYMBOL.itemsize
        stop = section.offset + count * SYMBOL.itemsize
        return np.frombuffer(self.data[section.offset : stop], SYMBOL, count)

    @property
    def base(self) -> int:
        """The page the lowest executable segment begins on; rows count from here."""
        starts = [s.vaddr for s in self.segments if s.executable]
        if not starts:
            raise FormatError("ELF file has no executable segment")
        return min(starts) & ~4095

    @property
    def end(self) -> int:
        """The address behind the highest executable segment."""
        return max(s.vaddr + s.filesz for s in self.segments if s.executable)

    def eh_frame(self) -> tuple[int, bytes]:
        """(address, bytes) of .eh_frame, empty when there is none."""
        section = self.sections.get(".eh_frame")
        if section:
            return section.address, self.contents(section)
        for header in self.segment_table:
            if header["type"] == PT_GNU_EH_FRAME:
                return self._eh_frame_by_header(int(header["address"]))
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
        """Return the file offset of the byte at ``vaddr``, None if it is not in the file."""
        for segment in self.segments:
            if segment.vaddr <= vaddr < segment.vaddr + segment.filesz:
                return segment.offset + vaddr - segment.vaddr
        return None

    def functions(self) -> U64:
        """``uint64[n, 2]``: (address, size) of all function symbols, sorted, without repeats."""
        tables = []
        for name in (".symtab", ".dynsym"):
            section = self.sections.get(name)
            if section is None:
                continue
            table = self.symbol_table(section)
            kind = table["info"] & 15
            keep = ((kind == _STT_FUNC) | (kind == _STT_IFUNC)) & (table["section"] != 0)
            tables.append(np.stack([table["value"][keep], table["size"][keep]], axis=1))
        if not tables:
            return np.zeros((0, 2), np.uint64)
        pairs = np.concatenate(tables)
        pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
        return pairs[begins_run(*pairs.T)]

    def named_symbols(self, tables: Sequence[str]) -> Iterator[tuple[bytes, npt.NDArray[np.void]]]:
        """Yield the names' text and the rows (:data:`~hpcd.elf.elf_reader.SYMBOL`) of each existing
        table of ``tables``, in their order."""
        for name in tables:
            section, names = self.sections.get(name), self.sections.get(_NAMES_OF[name])
            if section is None or names is None:
                continue
            yield self.contents(names), self.symbol_table(section)

    def symbols_called(
        self,
        names: Sequence[str],
        tables: Sequence[str] = (".symtab", ".dynsym"),
        *,
        objects: bool = False,
    ) -> list[tuple[str, int, int]]:
        """(name, address, size) of the function symbols of ``tables`` with a name in ``names``,
        each address once; with ``objects`` those of data too."""
        kinds = (_STT_FUNC, _STT_IFUNC, *((_STT_OBJECT,) if objects else ()))
        symbols: dict[tuple[str, int], int] = {}
        for text, table in self.named_symbols(tables):
            for name in names:
                # A name may be the end of a longer one.
                pattern = re.escape(name.encode()) + b"\0"
                places = [match.start() for match in re.finditer(pattern, text)]
                if not places:
                    continue
                called = np.isin(table["name"], np.array(places, np.uint64))
                called &= np.isin(table["info"] & 15, kinds) & (table["section"] != 0)
                for symbol in table[called][:_MAX_NAMESAKES]:
                    symbols.setdefault((name, int(symbol["value"])), int(symbol["size"]))
        return [(name, address, size) for (name, address), size in symbols.items()]

    def code_sections(self) -> list[Section]:
        """Sections with machine code, in address order."""
        sections = [s for s in self.sections.values() if s.executable and s.size]
        return sorted(sections, key=lambda section: section.address)
