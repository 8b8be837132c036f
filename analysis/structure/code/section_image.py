"""A module's sections laid out as in memory, to read the data that its code refers to."""

from __future__ import annotations

import mmap
from bisect import bisect_right

import numpy as np

from hpcd.elf.elf_file import ElfFile
from hpcd.elf.elf_reader import AARCH64, RELOCATION, X86_64
from hpcd.errors import FormatError

_RELATIVE = {X86_64: 8, AARCH64: 1027}


class Image:
    """The sections of a file by address; only sections that are used are read."""

    def __init__(self, elf: ElfFile, memory: mmap.mmap) -> None:
        """``memory`` is the file itself."""
        self._elf = elf
        self._memory = memory
        self.machine = elf.machine
        self._sections = sorted(
            (
                section
                for section in elf.sections
                if section.address and section.has_data and section.size
            ),
            key=lambda section: section.address,
        )
        self._starts = [section.address for section in self._sections]
        self._slots = np.zeros(0, np.uint64)
        self._addends = np.zeros(0, np.int64)
        self._read_relocations()

    def data(self, address: int, size: int) -> bytes:
        """Up to ``size`` bytes at ``address``; fewer at a section's end, none outside."""
        at = bisect_right(self._starts, address) - 1
        if at < 0:
            return b""
        section = self._sections[at]
        begin = address - section.address
        size = min(size, section.size - begin)
        return self._memory[section.offset + begin : section.offset + begin + max(size, 0)]

    def is_code(self, address: int) -> bool:
        """Return whether ``address`` is in an executable section."""
        at = bisect_right(self._starts, address) - 1
        if at < 0:
            return False
        section = self._sections[at]
        return section.executable and address < section.address + section.size

    def pointer(self, address: int) -> int:
        """The pointer stored at ``address``, relocated as in a module loaded at 0; 0 for none."""
        stored = int.from_bytes(self.data(address, 8), "little")
        if stored:
            return stored
        at = int(np.searchsorted(self._slots, np.uint64(address)))
        if at < len(self._slots) and int(self._slots[at]) == address:
            return int(self._addends[at])
        return 0

    def _read_relocations(self) -> None:
        """Read relative relocations: pointers into the module, such as tables of labels."""
        section = self._elf.section(".rela.dyn")
        if section is None:
            return
        try:
            table = self._elf.table(section, RELOCATION)
        except FormatError:
            return
        kind = table["info"] & np.uint64(0xFFFFFFFF)
        relative = table[kind == _RELATIVE.get(self.machine, 0)]
        order = np.argsort(relative["offset"], kind="stable")
        self._slots = relative["offset"][order]
        self._addends = relative["addend"][order]
