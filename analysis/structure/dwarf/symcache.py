"""Line tables by way of Sentry's ``symbolic``, a DWARF reader in Rust.

``symbolic`` flattens DWARF into a *symcache*: sorted address ranges, and source locations that know
where they were inlined. Querying it address by address costs 20 µs each; its buffer is
read here directly, as arrays of 32-bit numbers. (symbolic-symcache, format versions 8 and 9;
another version is refused.)
"""

from __future__ import annotations

import mmap
import posixpath
import struct

import numpy as np
from symbolic._lowlevel import ffi
from symbolic.debuginfo import Archive
from symbolic.exceptions import SymbolicError

from hpcd.analysis.structure.array_records import Strings
from hpcd.analysis.structure.dwarf.address_ranges import AddressRanges
from hpcd.analysis.structure.dwarf.line_table import MAX_DEPTH, NO_ENTRY, SourceLineTable, depths
from hpcd.analysis.symbols.demangle import demangle
from hpcd.array_types import I32, I64, U32, U64
from hpcd.elf.leb128 import uleb128
from hpcd.errors import FormatError

_HEAD = struct.Struct("<4sI32s6I16s")
_NONE = 0xFFFFFFFF
_END = np.uint64((1 << 64) - 1)
# Name of a procedure whose name is in a supplementary file, which is not read (dwz makes these).
UNNAMED = "[unnamed]"
# Numbers a file entry has, by format version: the versions that are read here. ``symbolic`` changes
# them with its own releases, which is why pyproject.toml bounds it.
FILE_NUMBERS = {8: 4, 9: 6}


def read_lines(image: mmap.mmap, name: str, covered: AddressRanges, base: int) -> SourceLineTable:
    """The line table of an ELF file with debug information, mapped at ``image``.

    ``base`` is the address of its first loaded segment. Of addresses that are not ``covered`` it
    need not say anything. Raises :class:`FormatError`.
    """
    return parse_symcache(make_symcache(image, name), covered, base)


def make_symcache(image: mmap.mmap | bytes, name: str) -> bytes:
    """The symcache ``symbolic`` makes of an ELF file. Raises :class:`FormatError`."""
    buffer = ffi.from_buffer("uint8_t[]", image)
    try:
        objects = list(Archive.from_bytes(buffer).iter_objects())
        if not objects:
            raise FormatError(f"{name}: no object in it")
        cache = objects[0].make_symcache()
        data: bytes = cache.open_stream().read()  # type: ignore[no-untyped-call]
    except SymbolicError as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise FormatError(f"{name}: {why}") from None
    return data


def parse_symcache(data: bytes, covered: AddressRanges, base: int = 0) -> SourceLineTable:
    """The arrays of a symcache, of addresses that are ``covered``; its own count from ``base``.

    Raises :class:`FormatError`.
    """
    file, function, location, start, texts = _tables(data)
    start = start + np.uint64(base)
    location, start = _only(location, start, covered)
    locations, ranges = len(location), len(start)
    used = [np.unique(location[:, column]) for column in (0, 2)]
    file, function = (
        rows[indices[indices < len(rows)]]
        for rows, indices in zip((file, function), used, strict=True)
    )
    files, functions = len(file), len(function)
    if not functions:
        return SourceLineTable.empty()
    location[:, 0] = np.searchsorted(used[0], location[:, 0])
    location[:, 2] = np.searchsorted(used[1], location[:, 2])
    linkage = [texts.at(offset) or UNNAMED for offset in function[:, 0].tolist()]
    of_range = location[locations - ranges :, 2]
    sizes = np.bincount(
        np.minimum(of_range[:-1], functions), np.diff(start), minlength=functions + 1
    )
    whole, linkage = _whole(linkage, function[:, 2].tolist(), sizes.tolist())
    names = dict(zip(linkage, map(demangle, linkage), strict=True))
    places = np.arange(locations)
    named = (location[:, 2] < functions)[locations - ranges :]
    caller = location[:, 3].astype(np.int64)
    caller[caller >= places] = -1
    deep = depths(caller.astype(np.int32))
    caller[(deep > 0) & (deep % MAX_DEPTH == 0)] = -1
    file_of = location[:, 0].astype(np.int64)
    entry = function[:, 2].astype(np.uint64) + np.uint64(base)
    entry[function[:, 2] == _NONE] = NO_ENTRY
    return SourceLineTable(
        start=start,
        at=np.where(named, places[locations - ranges :], -1).astype(np.int32),
        caller=caller.astype(np.int32),
        function=_function(location[:, 2], whole),
        file=np.where(file_of < files, file_of, -1).astype(np.int32),
        line=np.where(location[:, 1] == _NONE, 0, location[:, 1]).astype(np.uint32),
        entry=entry,
        names=Strings.of([names[index] for index in linkage]),
        linkage=Strings.of(linkage),
        files=Strings.of([_path(texts, *row) for row in file[:, :3].tolist()]),
    )


def _tables(data: bytes) -> tuple[U32, U32, U32, U64, _Texts]:
    """The rows of a symcache's files, functions, locations, the starts of its ranges, its texts.

    Raises :class:`FormatError`.
    """
    if len(data) < _HEAD.size:
        raise FormatError("symcache is truncated")
    magic, version, _, _, files, functions, locations, ranges, size, _ = _HEAD.unpack_from(data)
    if magic != b"SYMC" or ranges > locations:
        raise FormatError("not a symcache")
    if version not in FILE_NUMBERS:
        raise FormatError(
            f"symcache format {version} is not supported, only"
            f" {' and '.join(map(str, FILE_NUMBERS))}: install an older symbolic"
        )
    at = _HEAD.size

    def numbers(rows: int, width: int) -> U32:
        nonlocal at
        table = np.frombuffer(data, "<u4", rows * width, at).reshape(rows, width)
        at += table.nbytes
        at += -at % 8
        return table

    try:
        file = numbers(files, FILE_NUMBERS[version])
        function = numbers(functions, 4)
        location = numbers(locations, 4)
        start = numbers(ranges, 1)[:, 0].astype(np.uint64)
    except ValueError:
        raise FormatError("symcache is truncated") from None
    return file, function, location, start, _Texts(data[at : at + size])


def _only(location: U32, start: U64, covered: AddressRanges) -> tuple[U32, U64]:
    """The locations of known addresses and of the calls they were inlined at.

    The last locations belong to the ranges, ``start``; the calls they were inlined at come
    before them. Callers are renumbered, and all ones if absent.
    """
    ranges = np.flatnonzero(covered.touches(start, np.append(start[1:], _END)[: len(start)]))
    first = len(location) - len(start)
    caller = location[:, 3].astype(np.int64)
    caller[caller >= np.arange(len(caller))] = -1
    keep = np.zeros(len(location), bool)
    fresh = first + ranges
    while len(fresh):
        keep[fresh] = True
        above = caller[fresh]
        above = above[above >= 0]
        fresh = np.unique(above[~keep[above]])
    # A range that is also a caller keeps its place only if it is among ``ranges``.
    keep[first:] = False
    keep[first + ranges] = True
    number = np.cumsum(keep) - 1
    kept = location[keep]
    around = caller[keep]
    hit = (around >= 0) & keep[around]
    kept[:, 3] = np.where(hit, number[around], _NONE)
    return kept, start[ranges]


def _function(numbers: U32, whole: I64) -> I32:
    if not len(whole):
        return np.zeros(len(numbers), np.int32)
    return whole[np.where(numbers < len(whole), numbers, 0)].astype(np.int32)


def _whole(names: list[str], entries: list[int], sizes: list[int]) -> tuple[I64, list[str]]:
    """Merge the hot and cold parts into which compilers split functions.

    First, ``int64[f]``: the function each one is part of; second, names without ".cold". If
    several functions of a name were split, the parts cannot be matched: they stay as they are.
    """
    plain = [name.removesuffix(".cold") for name in names]
    split = {name for name, raw in zip(plain, names, strict=True) if name != raw}
    parts: dict[str, list[int]] = {}
    for number, (name, entry) in enumerate(zip(plain, entries, strict=True)):
        if name in split and entry != _NONE:
            parts.setdefault(name, []).append(number)
    whole = np.arange(len(names))
    for members in parts.values():
        if len(members) == 2:
            # Both may carry the cold part's name; the hot one is the bigger.
            whole[members] = max(
                members, key=lambda member: (names[member] == plain[member], sizes[member])
            )
    return whole, plain


def _path(texts: _Texts, compilation: int, directory: int, name: int) -> str:
    """Join a file's path; an absolute part overrides the parts before it."""
    parts = [texts.at(offset) for offset in (compilation, directory, name)]
    return posixpath.normpath(posixpath.join(*parts)) if any(parts) else ""


class _Texts:
    """Texts by offset, each preceded by its length (LEB128)."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._known: dict[int, str] = {_NONE: ""}

    def at(self, offset: int) -> str:
        text = self._known.get(offset)
        if text is not None:
            return text
        try:
            size, at = uleb128(self._data, offset)
        except (IndexError, ValueError):
            size, at = 0, 0
        text = self._data[at : at + size].decode(errors="replace")
        self._known[offset] = text
        return text
