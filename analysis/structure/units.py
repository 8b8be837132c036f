"""Some compile units of a module's debug information: only those that addresses are in.

A big program has thousands of units and samples in a few. Which unit an address is in, the module
says in ``.debug_aranges`` (DWARF 5, section 6.1.2; GCC writes it, others when told to). What reads
debug information reads all units there are; so the others are blanked, in a private mapping of the
file: a run of them becomes one unit that has nothing but a header and an entry without code. Units
that ``.debug_aranges`` does not name are kept: others may refer to them, as to dwz's shared ones.
"""

from __future__ import annotations

import mmap
import struct
from itertools import groupby
from typing import NamedTuple

import numpy as np

from hpcd.analysis.elf import ElfFile
from hpcd.analysis.structure.known import Known, Mask
from hpcd.analysis.structure.linetable import I64, U64
from hpcd.errors import FormatError

# Below this all of it takes less time than to choose.
_WORTH = 1 << 20
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


def keep_units(image: mmap.mmap, elf: ElfFile, addresses: U64) -> Known:
    """Blank the units none of ``addresses`` is in; what of ``image`` is whole then.

    ``image`` is a private, writable mapping of ``elf``'s file. Nothing is blanked where that is not
    worth it, where sections are compressed, and where they contradict each other.
    """
    info, abbreviations = elf.section(".debug_info"), elf.section(".debug_abbrev")
    ranges = elf.section(".debug_aranges")
    if info is None or abbreviations is None or ranges is None or info.size < _WORTH:
        return Known.everything()
    try:
        units = _units(image, info.offset, info.size)
        start, end, unit = _ranges(elf.contents(ranges), units)
    except (FormatError, struct.error):
        return Known.everything()
    wanted = np.sort(addresses)
    inside = np.searchsorted(wanted, end) > np.searchsorted(wanted, start)
    blank = np.zeros(len(units.begin), bool)
    blank[unit] = True
    blank[unit[inside]] = False
    size = units.end - units.begin
    blank &= size >= _BLANK.size
    free = np.setdiff1d(units.abbreviations[blank], units.abbreviations[~blank])
    if 2 * int(size[blank].sum()) < info.size or not len(free):
        return Known.everything()
    every = np.append(np.unique(units.abbreviations), abbreviations.size)
    spot = int(free[0])
    room = int(every[np.searchsorted(every, spot) + 1]) - spot
    if spot < 0 or room < len(_ABBREVIATION):
        return Known.everything()
    at = abbreviations.offset + spot
    image[at : at + len(_ABBREVIATION)] = _ABBREVIATION
    for low, high in _runs(units, blank):
        header = _BLANK.pack(high - low - 4, 4, spot, 8, 1, 0)
        at = info.offset + low
        image[at : at + len(header)] = header
    return _known(start, end, np.isin(unit, unit[inside]), wanted)


def _units(image: mmap.mmap, offset: int, size: int) -> _Units:
    rows = []
    at = 0
    while at + 12 <= size:
        length, version = struct.unpack_from("<IH", image, offset + at)
        if not 7 <= length <= min(_LONGEST, size - at - 4) or not 2 <= version <= 5:
            raise FormatError("units of another kind")
        (abbreviations,) = struct.unpack_from("<I", image, offset + at + (8 if version == 5 else 6))
        rows.append((at, at + 4 + length, abbreviations))
        at += 4 + length
    return _Units(*np.array(rows, np.int64).reshape(-1, 3).T)


def _ranges(data: bytes, units: _Units) -> tuple[U64, U64, I64]:
    """Start, end and unit of each stretch of code, ascending.

    Raises :class:`FormatError` where stretches overlap or are of no unit.
    """
    found = []
    offsets = []
    at = 0
    while at + _SET.size <= len(data):
        length, version, offset, width, segments = _SET.unpack_from(data, at)
        end = at + 4 + length
        if length > len(data) - at - 4 or version != 2 or width != 8 or segments:
            raise FormatError("ranges of another kind")
        pairs = np.frombuffer(data, _PAIR, max(end - at - 16, 0) // _PAIR.itemsize, at + 16)
        found.append(pairs)
        offsets.append(np.full(len(pairs), offset, np.int64))
        at = end
    pair = np.concatenate([np.zeros(0, _PAIR), *found])
    offset = np.concatenate([np.zeros(0, np.int64), *offsets])
    # What begins at 0 was left out by the linker.
    real = (pair["start"] > 0) & (pair["size"] > 0)
    order = np.flatnonzero(real)[np.argsort(pair["start"][real], kind="stable")]
    start, offset = pair["start"][order], offset[order]
    end = start + pair["size"][order]
    unit = np.searchsorted(units.begin, offset)
    if (
        bool((end < start).any())
        or bool((start[1:] < end[:-1]).any())
        or bool((unit >= len(units.begin)).any())
        or bool((units.begin[unit] != offset).any())
    ):
        raise FormatError("ranges overlap")
    return start, end, unit


def _runs(units: _Units, blank: Mask) -> list[tuple[int, int]]:
    """Where blanked units are that follow one another."""
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


def _known(start: U64, end: U64, kept: Mask, wanted: U64) -> Known:
    """The stretches that are ``kept``, and what is between stretches where it is ``wanted``."""
    # Stretches and what is between them, in turns; what is between neighbours is empty.
    edges = np.concatenate([[np.uint64(0)], np.stack([start, end], axis=1).ravel()])
    stops = np.append(edges[1:], np.uint64((1 << 64) - 1))
    whole = np.zeros(len(edges), bool)
    whole[1::2] = kept
    whole[0::2] = np.searchsorted(wanted, stops[0::2]) > np.searchsorted(wanted, edges[0::2])
    whole &= edges < stops
    low, high = edges[whole], stops[whole]
    # What touches is one.
    first = np.append(True, low[1:] != high[:-1])
    last = np.append(first[1:], True)
    return Known(low[first], high[last])
