"""Headers of line number programs: their parameters and the files they name (DWARF 5, 6.2.4)."""

from __future__ import annotations

import posixpath
import struct

from hpcd.elf.elf_file import ElfFile
from hpcd.elf.elf_reader import MAX_NAME, string_at
from hpcd.elf.leb128 import uleb128
from hpcd.errors import FormatError

_PATH, _DIRECTORY = 1, 2
# Bound on a program's paths.
_MAX_FILES = 1 << 18


class SectionTexts:
    """Texts of a section by offset; only texts named in headers are read, of up to 100 MB."""

    def __init__(self, elf: ElfFile, name: str) -> None:
        self._elf = elf
        self._section = elf.section(name)

    def at(self, offset: int) -> str:
        """The zero-terminated text at ``offset``, empty if that is outside."""
        section = self._section
        if section is None or offset >= section.size:
            return ""
        size = min(section.size - offset, MAX_NAME)
        return string_at(self._elf.read(section.offset + offset, size), 0)


class LineProgramHeader:
    """The header of the line program of the unit ``data``; ``program`` is its byte code.

    ``files`` are its paths, the first numbered ``first_file``; an operation below
    ``opcode_base`` takes ``arguments[operation]`` LEB128 numbers. Raises :class:`FormatError`.
    """

    def __init__(self, data: bytes, texts: dict[str, SectionTexts]) -> None:
        self._data = data
        self._texts = texts
        self._wide = data[:4] == b"\xff\xff\xff\xff"
        self._at = 12 if self._wide else 4
        try:
            self._read_header()
        except (IndexError, ValueError, struct.error):
            raise FormatError("line program is cut off or malformed") from None

    def _read_header(self) -> None:
        version = self._number(2)
        if not 2 <= version <= 5:
            raise FormatError(f"line program of version {version}")
        if version >= 5:
            self._at += 2
        length = self._number(8 if self._wide else 4)
        begin = self._at + length
        self.step = self._number(1)
        if version >= 4:
            self._at += 1
        self._at += 1
        self.line_base = struct.unpack_from("<b", self._data, self._at)[0]
        self._at += 1
        self.line_range = self._number(1) or 1
        self.opcode_base = max(self._number(1), 1)
        lengths = self._data[self._at : self._at + self.opcode_base - 1]
        self._at += self.opcode_base - 1
        self.arguments = [0, *lengths]
        if version >= 5:
            folders = [path for path, _ in self._entries()]
            names = self._entries()
            self.first_file = 0
        else:
            folders = [""]
            while text := self._text():
                folders.append(text)
            names = []
            while text := self._text():
                names.append((text, self._leb()))
                self._leb()
                self._leb()
            self.first_file = 1
        self.files = [self._path(folders, name, folder) for name, folder in names]
        self.program = self._data[begin:]

    def _path(self, folders: list[str], name: str, folder: int) -> str:
        parts = [folders[0] if folders else ""]
        if 0 < folder < len(folders):
            parts.append(folders[folder])
        return posixpath.normpath(posixpath.join(*parts, name))

    def _entries(self) -> list[tuple[str, int]]:
        """Path and directory of each entry of a table."""
        count = self._number(1)
        formats = [(self._leb(), self._leb()) for _ in range(count)]
        rows = []
        total = self._leb()
        if total > min(_MAX_FILES, len(self._data)):
            raise FormatError("line program has too many files")
        for _ in range(total):
            path, folder = "", 0
            for content, form in formats:
                value = self._form(form)
                if content == _PATH and isinstance(value, str):
                    path = value
                elif content == _DIRECTORY and isinstance(value, int):
                    folder = value
            rows.append((path, folder))
        return rows

    def _form(self, form: int) -> str | int:
        sizes = {0x0B: 1, 0x05: 2, 0x06: 4, 0x07: 8}
        if form in sizes:
            return self._number(sizes[form])
        if form == 0x08:
            return self._text()
        if form in (0x1F, 0x0E):
            texts = self._texts[".debug_line_str" if form == 0x1F else ".debug_str"]
            return texts.at(self._number(8 if self._wide else 4))
        if form == 0x0F:
            return self._leb()
        if form == 0x1E:
            self._at += 16
            return 0
        if form == 0x09:
            self._at += self._leb()
            return 0
        raise FormatError(f"line program has form {form:#x}")

    def _number(self, size: int) -> int:
        data = self._data[self._at : self._at + size]
        if len(data) != size:
            raise IndexError
        self._at += size
        return int.from_bytes(data, "little")

    def _leb(self) -> int:
        value, self._at = uleb128(self._data, self._at)
        return value

    def _text(self) -> str:
        end = self._data.index(b"\0", self._at)
        text = self._data[self._at : end].decode(errors="replace")
        self._at = end + 1
        return text
