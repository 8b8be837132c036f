"""Selection of the compile units of a module's debug information that contain given addresses.

A big program has thousands of units, and samples in a few. ``.debug_aranges`` gives the unit of an
address (DWARF 5, section 6.1.2; GCC writes it, other compilers with an option). The decoder reads
all units of a file; so unneeded units are blanked in a private mapping of the file: a run of them
becomes a single unit with only a header and an entry without code. Units that ``.debug_aranges``
does not name are kept: others may refer to them, as to dwz's shared units. Unneeded procedures of
big units are left out, too (:mod:`hpcd.analysis.structure.dwarf.subprograms`).
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

import numpy as np

from hpcd.analysis.structure.dwarf.address_ranges import AddressRanges
from hpcd.analysis.structure.dwarf.compressed_sections import Packed, with_room
from hpcd.analysis.structure.dwarf.subprograms import procedures_of
from hpcd.array_types import I64, U64, Mask
from hpcd.elf.elf_file import ElfFile
from hpcd.errors import FormatError
from hpcd.masks import marked

# Below this all of it takes less time than to choose.
_WORTH = 1 << 20
# Bound on unit bytes decoded at once; if less than half of that can be left out, all are decoded.
_MOST = 32 << 20
# Units of at least _LARGE bytes have enough procedures to leave some out, unless at least _MANY
# addresses are wanted: then few procedures contain none.
_LARGE = 1 << 18
_MANY = 10_000
# The biggest known sections have some gigabytes; blanked parts take no memory.
_LARGEST = 4 << 30
# Other sections that the decoder needs.
_SECTIONS = (
    ".symtab", ".strtab", ".shstrtab", ".note.gnu.build-id", ".debug_line", ".debug_line_str",
    ".debug_str", ".debug_str_offsets", ".debug_addr", ".debug_rnglists", ".debug_ranges",
)  # fmt: skip
_SET = struct.Struct("<IHIBB")
_PAIR = np.dtype([("start", "<u8"), ("size", "<u8")])
# A unit of DWARF 4: its length (without itself), version, abbreviations, size of addresses; then
# its only entry, of abbreviation 1: DW_TAG_compile_unit without children, DW_AT_low_pc 0.
_BLANK = struct.Struct("<IHIBBQ")
_ABBREVIATION = bytes([1, 0x11, 0, 0x11, 0x01, 0, 0, 0])
_LONGEST = 0xFFFFFFEF


class _Units(NamedTuple):
    """``begin`` and ``end`` in .debug_info, where their abbreviations are: ``int64[u]``."""

    begin: I64
    end: I64
    abbreviations: I64


def some_units(fd: int, elf: ElfFile, addresses: U64) -> tuple[mmap.mmap, AddressRanges]:
    """Return ``elf``'s file, open at ``fd``, with the units of ``addresses``; complete ranges.

    Raises :class:`FormatError`.
    """
    packed = plain_units(elf, addresses)
    if packed is not None:
        return packed
    image = mmap.mmap(fd, 0, access=mmap.ACCESS_COPY)
    return image, keep_units(image, elf, addresses)


def keep_units(image: mmap.mmap, elf: ElfFile, addresses: U64) -> AddressRanges:
    """Blank units without any of ``addresses``, or beyond the bound; return the complete ranges.

    ``image`` is a private, writable mapping of ``elf``'s file. Nothing is blanked if it would save
    little, or if sections are compressed or damaged.
    """
    info, abbreviations = elf.section(".debug_info"), elf.section(".debug_abbrev")
    ranges = elf.section(".debug_aranges")
    if info is None or abbreviations is None or info.size < _WORTH:
        return AddressRanges.everything()
    text = memoryview(image)[info.offset : info.offset + info.size]
    stretches = elf.contents(ranges) if ranges else b""
    try:
        choice = _choose([text], info.size, abbreviations.size, stretches, addresses)
    except (FormatError, struct.error):
        return AddressRanges.everything()
    place = _Place(info.offset, abbreviations.offset, abbreviations.size)
    return _blanked(image, choice, place, addresses)


def plain_units(elf: ElfFile, addresses: U64) -> tuple[mmap.mmap, AddressRanges] | None:
    """Do as :func:`keep_units` does for a file with compressed sections; return the image too.

    Only units that are kept are ever in memory, of all .debug_info. Returns None where blanking is
    not worth its cost. Raises :class:`FormatError`.
    """
    info, abbreviations = Packed.of(elf, ".debug_info"), Packed.of(elf, ".debug_abbrev")
    ranges = Packed.of(elf, ".debug_aranges")
    if info is None or abbreviations is None or info.size < _WORTH:
        return None
    if max(section.size for section in (info, abbreviations, ranges) if section) > _LARGEST:
        return None
    try:
        stretches = b"".join(ranges.chunks()) if ranges else b""
        choice = _choose(info.chunks(), info.size, abbreviations.size, stretches, addresses)
    except (FormatError, struct.error):
        return None
    image, places = with_room(elf, _SECTIONS, [abbreviations, info])
    _write(image, places[0], abbreviations, [])
    _write(image, places[1], info, choice.runs)
    place = _Place(places[1], places[0], abbreviations.size)
    return image, _blanked(image, choice, place, addresses)


def _write(image: mmap.mmap, place: int, packed: Packed, without: list[tuple[int, int]]) -> None:
    """Unpack a section, except some stretches of it."""
    edges = [0, *(edge for run in without for edge in run), packed.size]
    kept = list(zip(edges[0::2], edges[1::2], strict=True))
    at = number = 0
    for chunk in packed.chunks():
        end = at + len(chunk)
        while number < len(kept) and kept[number][0] < end:
            low, high = max(kept[number][0], at), min(kept[number][1], end)
            if low < high:
                image[place + low : place + high] = chunk[low - at : high - at]
            if kept[number][1] > end:
                break
            number += 1
        at = end


class _Choice(NamedTuple):
    """``runs`` of units to leave out, room for an abbreviation at ``spot``, the complete ranges.

    ``large``: (begin, end, abbreviations) of kept units from which procedures may be left out.
    """

    runs: list[tuple[int, int]]
    spot: int
    known: AddressRanges
    large: list[tuple[int, int, int]]


class _Place(NamedTuple):
    """Offsets of .debug_info and .debug_abbrev in an image; bytes of the second."""

    info: int
    abbreviations: int
    room: int


def _choose(
    chunks: Iterable[bytes | memoryview], size: int, room: int, ranges: bytes, addresses: U64
) -> _Choice:
    """Which units to leave out; of sections of ``size`` and ``room`` bytes."""
    units = _units(chunks, size)
    every = _Choice(
        [], 0, AddressRanges.everything(), _large(units, np.zeros(len(units.begin), bool))
    )
    start, end, unit = _ranges(ranges, units)
    if not len(start):
        return every
    wanted = np.sort(addresses)
    # Stretches that overlap are one, of several units: functions folded into one another.
    first = np.append(True, start[1:] >= np.maximum.accumulate(end)[:-1])
    which = np.cumsum(first) - 1
    start, end = start[first], np.maximum.reduceat(end, np.flatnonzero(first))
    inside = np.searchsorted(wanted, end) > np.searchsorted(wanted, start)
    blank = marked(len(units.begin), unit)
    blank[unit[inside[which]]] = False
    length = units.end - units.begin
    # Units beyond the bound are left for a later call: decoding takes three times the memory.
    many = np.setdiff1d(unit, np.flatnonzero(blank))
    blank[many[1:][np.cumsum(length[many])[1:] > _MOST]] = True
    kept = np.logical_and.reduceat(~blank[unit], np.flatnonzero(first))
    # A unit too short for a header stays, but does not count as known: a later call reads it.
    blank &= length >= _BLANK.size
    free = np.setdiff1d(units.abbreviations[blank], units.abbreviations[~blank])
    if 2 * int(length[blank].sum()) < min(size, _MOST) or not len(free):
        return every
    tables = np.append(np.unique(units.abbreviations), room)
    spot = int(free[0])
    if int(tables[np.searchsorted(tables, spot) + 1]) - spot < len(_ABBREVIATION):
        return every
    covered = _known(start, end, kept, wanted)
    return _Choice(_runs(units, blank), spot, covered, _large(units, blank))


def _large(units: _Units, blank: Mask) -> list[tuple[int, int, int]]:
    large = np.flatnonzero(~blank & (units.end - units.begin >= _LARGE))
    return [tuple(column[unit] for column in units) for unit in large]


def _blanked(image: mmap.mmap, choice: _Choice, place: _Place, addresses: U64) -> AddressRanges:
    """Replace the units left out by empty ones, and leave out procedures of large kept units."""
    if choice.runs:
        at = place.abbreviations + choice.spot
        image[at : at + len(_ABBREVIATION)] = _ABBREVIATION
    for low, high in choice.runs:
        header = _BLANK.pack(high - low - 4, 4, choice.spot, 8, 1, 0)
        image[place.info + low : place.info + low + len(header)] = header
    if len(addresses) > _MANY:
        return choice.known
    wanted = np.sort(addresses)
    tables = memoryview(image)[place.abbreviations : place.abbreviations + place.room]
    left_out = AddressRanges.nothing()
    for begin, end, table in choice.large:
        procedures = procedures_of(
            image[place.info + begin : place.info + end], begin, tables[table:]
        )
        for at, instead in procedures.blank(wanted):
            image[place.info + at : place.info + at + len(instead)] = instead
        left_out = left_out.with_others(procedures.unwanted(wanted).without(left_out))
    return choice.known.without(left_out)


def _units(chunks: Iterable[bytes | memoryview], size: int) -> _Units:
    """The units of a section that comes in pieces."""
    rows = []
    at = begin = 0
    data: bytes | memoryview = b""
    for chunk in chunks:
        # The remainder of the previous chunk is shorter than a header.
        left = bytes(data[max(at - begin, 0) :])
        begin += len(data) - len(left)
        data = left + bytes(chunk) if left else chunk
        while at + 12 <= begin + len(data):
            length, version = struct.unpack_from("<IH", data, at - begin)
            if not 7 <= length <= min(_LONGEST, size - at - 4) or not 2 <= version <= 5:
                raise FormatError("unsupported DWARF unit")
            place = at - begin + (8 if version == 5 else 6)
            (abbreviations,) = struct.unpack_from("<I", data, place)
            rows.append((at, at + 4 + length, abbreviations))
            at += 4 + length
    return _Units(*np.array(rows, np.int64).reshape(-1, 3).T)


def _ranges(data: bytes, units: _Units) -> tuple[U64, U64, I64]:
    """Start, end and unit of each stretch of code, ascending.

    Raises :class:`FormatError` where they are of no unit.
    """
    tables = []
    offsets = []
    at = 0
    while at + _SET.size <= len(data):
        length, version, offset, width, segments = _SET.unpack_from(data, at)
        end = at + 4 + length
        if length > len(data) - at - 4 or version != 2 or width != 8 or segments:
            raise FormatError("unsupported DWARF address ranges")
        pairs = np.frombuffer(data, _PAIR, max(end - at - 16, 0) // _PAIR.itemsize, at + 16)
        tables.append(pairs)
        offsets.append(np.full(len(pairs), offset, np.int64))
        at = end
    pair = np.concatenate([np.zeros(0, _PAIR), *tables])
    offset = np.concatenate([np.zeros(0, np.int64), *offsets])
    # Ranges that begin at 0 were left out by the linker.
    real = (pair["start"] > 0) & (pair["size"] > 0)
    order = np.flatnonzero(real)[np.argsort(pair["start"][real], kind="stable")]
    start, offset = pair["start"][order], offset[order]
    end = start + pair["size"][order]
    unit = np.searchsorted(units.begin, offset)
    if (
        bool((end < start).any())
        or bool((unit >= len(units.begin)).any())
        or bool((units.begin[unit] != offset).any())
    ):
        raise FormatError("DWARF address ranges name a unit that does not exist")
    return start, end, unit


def _runs(units: _Units, blank: Mask) -> list[tuple[int, int]]:
    """Return the byte ranges of consecutive blanked units."""
    rows = zip(units.begin.tolist(), units.end.tolist(), blank.tolist(), strict=True)
    runs = []
    for away, members in groupby(rows, lambda row: row[2]):
        if not away:
            continue
        low = high = -1
        for begin, end, _ in members:
            if low >= 0 and end - low > _LONGEST:
                runs.append((low, high))
                low = -1
            low, high = begin if low < 0 else low, end
        runs.append((low, high))
    return runs


def _known(start: U64, end: U64, kept: Mask, wanted: U64) -> AddressRanges:
    """Return ``kept`` stretches, and gaps between stretches that contain a ``wanted`` address."""
    # Gaps and stretches alternate; the gap between adjacent stretches is empty.
    edges = np.concatenate([[np.uint64(0)], np.stack([start, end], axis=1).ravel()])
    stops = np.append(edges[1:], np.uint64((1 << 64) - 1))
    whole = np.zeros(len(edges), bool)
    whole[1::2] = kept
    whole[0::2] = np.searchsorted(wanted, stops[0::2]) > np.searchsorted(wanted, edges[0::2])
    return AddressRanges.of(edges, stops, whole & (edges < stops))
