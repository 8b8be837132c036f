"""Reading of ELF-64 files for naming addresses: sections, symbols, function spans.

Reading is by ``read``, not by mapping: a file cut short under a mapping would kill the process.
Invalid contents raise :class:`FormatError`.
"""

from __future__ import annotations

import io
import lzma
import os
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from hpcd.array_types import U64
from hpcd.elf.elf_reader import MAX_SECTION, PT_LOAD, ElfReader, Section, Table
from hpcd.elf.frame_records import function_spans
from hpcd.errors import FormatError
from hpcd.regular_file import open_linked

# Mini debug information of a whole distribution's biggest binaries stays below a tenth of this.
_MAX_DEBUGDATA = 128 << 20
# Some seconds. A sparse file takes no room on a disk, and would be read for ever.
_MAX_CRC, _CRC_PART = 4 << 30, 1 << 20


class ElfFile(ElfReader):
    """An open ELF-64 little-endian file. ``name`` is used in errors only."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        super().__init__(file.seek(0, os.SEEK_END), name, partial=False)
        self.machine = self.header.machine
        self.sections = self._sections
        self._by_name = {section.name: section for section in reversed(self.sections)}

    @staticmethod
    def open(path: Path | str) -> ElfFile:
        """Open the regular file ``path``. Raises :class:`FormatError`, :class:`OSError`."""
        if "\0" in str(path):
            raise FormatError("no file has a name with a zero byte")
        fd = open_linked(path)
        try:
            elf = ElfFile(os.fdopen(fd, "rb", closefd=False), str(path))
            elf._file = os.fdopen(fd, "rb")
            return elf
        except BaseException:
            os.close(fd)
            raise

    def __enter__(self) -> ElfFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def base(self) -> int:
        """The address of the first loaded segment: 0 except for programs at fixed addresses."""
        loaded = self.segment_table["address"][self.segment_table["type"] == PT_LOAD]
        return int(loaded[0]) if len(loaded) else 0

    def section(self, name: str) -> Section | None:
        """The first section of this name, if it has contents in the file."""
        section = self._by_name.get(name)
        return section if section and section.has_data else None

    def contents(self, section: Section) -> bytes:
        """Return a section's contents, at most 512 MiB. Raises :class:`FormatError`."""
        if section.size > MAX_SECTION:
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

    def function_spans(self) -> tuple[U64, U64]:
        """Return the starts and ends ``uint64[n]``, ascending, of functions in .eh_frame.

        Raises :class:`FormatError`.
        """
        section = self.section(".eh_frame")
        if section is None:
            return np.zeros(0, np.uint64), np.zeros(0, np.uint64)
        start, end = function_spans(self.contents(section), section.address & ((1 << 62) - 1))
        return start.astype(np.uint64), end.astype(np.uint64)

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

    def crc32(self) -> int:
        """Return the CRC-32 of the whole file, which ``.gnu_debuglink`` of another has.

        Raises :class:`FormatError` for a file of more than 4 GiB.
        """
        if self._size > _MAX_CRC:
            raise FormatError(f"{self.name}: too big for a checksum")
        crc = 0
        for at in range(0, self._size, _CRC_PART):
            crc = zlib.crc32(self.read(at, min(_CRC_PART, self._size - at)), crc)
        return crc

    def _read(self, offset: int, size: int) -> bytes:
        self._file.seek(offset)
        return self._file.read(size)
