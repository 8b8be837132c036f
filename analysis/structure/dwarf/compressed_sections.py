"""Compressed sections: reading in pieces, and a copy of a file with some of them decompressed.

(System V ABI, section compression; only zlib, which distributions use.)
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from hpcd.elf.elf_file import ElfFile
from hpcd.elf.elf_reader import Section
from hpcd.errors import FormatError

_HEADER = struct.Struct("<IIQQ")
_ZLIB = 1
_PIECE = 1 << 20
# Flags, address, place and size in a section header.
_PLACE = struct.Struct("<QQQQ")
_COMPRESSED = 0x800


@dataclass(frozen=True)
class Packed:
    """A compressed section of ``elf``; ``size`` is its decompressed size from its header."""

    elf: ElfFile
    section: Section
    size: int

    @staticmethod
    def of(elf: ElfFile, name: str) -> Packed | None:
        """Return the compressed section ``name``, if any. Raises :class:`FormatError`."""
        for section in elf.sections:
            if section.name == name and section.packed and section.size > _HEADER.size:
                kind, _, size, _ = _HEADER.unpack(elf.read(section.offset, _HEADER.size))
                return Packed(elf, section, size) if kind == _ZLIB else None
        return None

    def chunks(self) -> Iterator[bytes]:
        """Its contents, about a megabyte at a time. Raises :class:`FormatError`."""
        decoder = zlib.decompressobj()
        at, end = self.section.offset + _HEADER.size, self.section.offset + self.section.size
        inflated = 0
        data = b""
        while (data or at < end) and not decoder.eof:
            if not data:
                data = self.elf.read(at, min(_PIECE, end - at))
                at += len(data)
            try:
                chunk = decoder.decompress(data, _PIECE)
            except zlib.error:
                raise FormatError(f"{self.section.name} does not decompress") from None
            data = decoder.unconsumed_tail
            inflated += len(chunk)
            if inflated > self.size:
                break
            yield chunk
        if inflated != self.size:
            raise FormatError(f"{self.section.name} decompresses to another length")


def with_room(
    elf: ElfFile, names: Collection[str], packed: Sequence[Packed]
) -> tuple[mmap.mmap, list[int]]:
    """A file with the sections ``names`` of ``elf``, and zeros where ``packed`` ones will be.

    In memory, where zeros take none. Second: where their contents are to be written. Raises
    :class:`FormatError`, :class:`OSError`.
    """
    head = elf.read(0, 64)
    segments, sections = struct.unpack_from("<QQ", head, 32)
    width, count = struct.unpack_from("<HH", head, 54)
    end = sections + 64 * len(elf.sections)
    parts = [(0, 64), (segments, width * count), (sections, end - sections)]
    parts += [(section.offset, section.size) for section in elf.sections
              if section.name in names and (section.has_data or section.packed)]  # fmt: skip
    end = max(low + size for low, size in parts)
    places = []
    for packed_section in packed:
        places.append(end)
        end += packed_section.size
    image = mmap.mmap(-1, end)
    for low, size in parts:
        for at in range(low, low + size, _PIECE):
            data = elf.read(at, min(_PIECE, low + size - at))
            image[at : at + len(data)] = data
    for packed_section, place in zip(packed, places, strict=True):
        at = sections + 64 * packed_section.section.number + 8
        flags, address, _, _ = _PLACE.unpack_from(image, at)
        _PLACE.pack_into(image, at, flags & ~_COMPRESSED, address, place, packed_section.size)
    return image, places
