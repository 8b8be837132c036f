"""Line number programs, for code that has lines but no procedures in its debug information.

Hand-written assembly has no procedures, nor have programs with debug information in ``.dwo`` files.
A program is a byte code for a machine with an address and a line (DWARF 5, section 6.2). Every byte
is decoded at once as if an operation began there; then only the chain of operations is
followed step by step, and their effects are summed up in arrays again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hpcd.analysis.structure.array_records import Strings
from hpcd.analysis.structure.dwarf.address_ranges import AddressRanges
from hpcd.analysis.structure.dwarf.line_program_header import LineProgramHeader, SectionTexts
from hpcd.analysis.structure.dwarf.line_table import SourceLineTable
from hpcd.array_types import I64, U64, Mask
from hpcd.elf.elf_file import ElfFile

_COPY, _ADVANCE_PC, _ADVANCE_LINE, _SET_FILE = 1, 2, 3, 4
_CONST_ADD_PC, _FIXED_ADVANCE_PC = 8, 9
_END_SEQUENCE, _SET_ADDRESS = 1, 2


class LineRows(NamedTuple):
    """Lines by address: from ``start`` ``uint64[n]`` up to ``end`` it is ``line`` of ``file``.

    ``file`` ``int64`` counts in ``files``.
    """

    start: U64
    end: U64
    file: I64
    line: I64
    files: list[str]


def with_lines(table: SourceLineTable, elf: ElfFile, covered: AddressRanges) -> SourceLineTable:
    """``table`` with lines for procedures among ``covered`` addresses that it knows by name only.

    Raises :class:`FormatError`.
    """
    end = covered.up_to(table.start, np.append(table.start[1:], table.start[-1:]))
    named = (table.at >= 0) & covered.holds(table.start)
    bare = named & (table.file[table.at] < 0) & (table.caller[table.at] < 0) & (end > table.start)
    rows = line_rows(elf, table.start[bare], end[bare])
    if not len(rows.start):
        return table
    # Of several rows at an address the last one counts.
    last = np.append(rows.start[1:] != rows.start[:-1], True)
    start, stop, file, line = (row[last] for row in rows[:4])
    owner = table.at[np.searchsorted(table.start, start, side="right") - 1]
    first = len(table.caller)
    # After a row without a successor the earlier line applies again.
    resumed = np.setdiff1d(stop, np.concatenate([start, table.start]))
    starts = np.concatenate([resumed, table.start, start])
    at = np.concatenate(
        [table.place_of(resumed), table.at, np.arange(first, first + len(start), dtype=np.int32)]
    )
    order = np.argsort(starts, kind="stable")
    order = order[np.append(starts[order][1:] != starts[order][:-1], True)]
    return SourceLineTable(
        start=starts[order],
        at=at[order],
        caller=np.concatenate([table.caller, np.full(len(start), -1, np.int32)]),
        function=np.concatenate([table.function, table.function[owner]]),
        file=np.concatenate([table.file, (file + len(table.files)).astype(np.int32)]),
        line=np.concatenate([table.line, line.astype(np.uint32)]),
        entry=table.entry,
        names=table.names,
        linkage=table.linkage,
        files=Strings.joined([table.files, Strings.of(rows.files)]),
    )


def line_rows(elf: ElfFile, low: U64, high: U64) -> LineRows:
    """Return rows of code in the ranges from ``low`` up to ``high``, ``uint64[k]``, both ascending.

    Compressed sections give no rows. Raises :class:`FormatError`.
    """
    section = elf.section(".debug_line")
    nothing = np.zeros(0, np.int64)
    if section is None or not len(low):
        return LineRows(low[:0], low[:0], nothing, nothing, [])
    data = elf.contents(section)
    texts = {name: SectionTexts(elf, name) for name in (".debug_line_str", ".debug_str")}
    wanted = _sequences_in(data, low, high)
    parts: list[tuple[U64, U64, I64, I64]] = []
    files: list[str] = []
    for begin, end in _units(data):
        if not bool(((wanted >= begin) & (wanted < end)).any()):
            continue
        header = LineProgramHeader(data[begin:end], texts)
        start, stop, file, line = program_rows(header)
        parts.append((start, stop, file + len(files), line))
        files += header.files
    if not parts:
        return LineRows(low[:0], low[:0], nothing, nothing, [])
    start, stop, file, line = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    at = np.searchsorted(low, start, side="right") - 1
    inside = (at >= 0) & (start < high[at]) & (file < len(files))
    order = np.flatnonzero(inside)[np.argsort(start[inside], kind="stable")]
    return LineRows(start[order], stop[order], file[order], line[order], files)


def _sequences_in(data: bytes, low: U64, high: U64) -> I64:
    """Return the offsets in the section at which an address in the ranges may be set."""
    places = []
    at = data.find(b"\0\x09\x02")
    while at >= 0:
        places.append(at)
        at = data.find(b"\0\x09\x02", at + 1)
    candidates = np.array([at for at in places if at + 11 <= len(data)], np.int64)
    raw = np.frombuffer(data, np.uint8)[candidates[:, None] + np.arange(3, 11)]
    address = np.ascontiguousarray(raw).view("<u8").ravel()
    row = np.searchsorted(low, address, side="right") - 1
    return candidates[(row >= 0) & (address < high[row])]


def _units(data: bytes) -> Iterator[tuple[int, int]]:
    at = 0
    while at + 4 <= len(data):
        size = struct.unpack_from("<I", data, at)[0]
        head = 4
        if size == 0xFFFFFFFF:
            if at + 12 > len(data):
                return
            size, head = struct.unpack_from("<Q", data, at + 4)[0], 12
        if not size or at + head + size > len(data):
            return
        yield at, at + head + size
        at += head + size


class _Operations(NamedTuple):
    """The operations of a program, in order, by columns ``int64[n]``."""

    standard: I64
    """Numbers of standard operations; 0 for others."""
    moved: I64
    """Bytes by which the address advances."""
    turned: I64
    """Lines by which the line advances."""
    special: Mask
    setting: Mask
    """Whether it sets an address."""
    ending: Mask
    """Whether it ends a sequence."""


def program_rows(header: LineProgramHeader) -> tuple[U64, U64, I64, I64]:
    """Start, end, file (from 0) and line of each row."""
    code = np.frombuffer(header.program, np.uint8).astype(np.int64)
    at = _operation_offsets(header, code)
    # Padding: operations cut off at the end read zeros.
    code = np.concatenate([code, np.zeros(16, np.int64)])
    does = _decode(header, code, at)
    setting, ending = does.setting, does.ending

    number = np.arange(len(at))
    # Each sequence begins anew, at address 0, line 1, file 1.
    opening = np.concatenate(([True], ending[:-1])) if len(at) else ending
    place = np.cumsum(does.moved)
    base = np.zeros(len(at), np.int64)
    base[opening] = -(place[opening] - does.moved[opening])
    base[setting] = _words(code, _after_leb(code, at[setting] + 1) + 1) - place[setting]
    address = place + base[_latest(opening | setting, number)]
    line = np.cumsum(does.turned)
    lines_before = 1 - (line - does.turned)
    line = line + lines_before[_latest(opening, number)]
    choosing = does.standard == _SET_FILE
    file_number = np.ones(len(at), np.int64)
    file_number[choosing] = _leb_at(code, at[choosing] + 1)[0]
    file = file_number[_latest(opening | choosing, number)] - header.first_file

    emitted = np.flatnonzero(does.special | (does.standard == _COPY) | ending)
    start = address[emitted]
    stop = np.append(start[1:], 0)
    good = (
        ~ending[emitted]
        & (stop > start)
        & (start > 0)
        & (line[emitted] >= 0)
        & (line[emitted] < 1 << 32)
        & (file[emitted] >= 0)
        & (file[emitted] < len(header.files))
    )
    keep = emitted[good]
    return start[good].astype(np.uint64), stop[good].astype(np.uint64), file[keep], line[keep]


def _decode(header: LineProgramHeader, code: I64, at: I64) -> _Operations:
    """The operations at the offsets ``at`` of ``code``, which is padded."""
    op = code[at]
    special = op >= header.opcode_base
    extended = op == 0
    kind = np.where(extended, code[_after_leb(code, at + 1)], 0)
    standard = np.where(special | extended, 0, op)

    moved = np.zeros(len(at), np.int64)
    adjusted = op - header.opcode_base
    moved[special] = adjusted[special] // header.line_range * header.step
    moved[standard == _CONST_ADD_PC] = (255 - header.opcode_base) // header.line_range * header.step
    by_number = standard == _ADVANCE_PC
    moved[by_number] = _leb_at(code, at[by_number] + 1)[0] * header.step
    fixed = at[standard == _FIXED_ADVANCE_PC]
    moved[standard == _FIXED_ADVANCE_PC] = code[fixed + 1] | code[fixed + 2] << 8

    turned = np.zeros(len(at), np.int64)
    turned[special] = header.line_base + adjusted[special] % header.line_range
    by_line = standard == _ADVANCE_LINE
    turned[by_line] = _leb_at(code, at[by_line] + 1)[1]
    return _Operations(
        standard, moved, turned, special,
        setting=extended & (kind == _SET_ADDRESS), ending=extended & (kind == _END_SEQUENCE),
    )  # fmt: skip


def _operation_offsets(header: LineProgramHeader, code: I64) -> I64:
    """Return the offsets at which operations begin."""
    count = len(code)
    if not count:
        return code
    padded = np.concatenate([code, np.zeros(16, np.int64)])
    everywhere = np.arange(count)
    following = everywhere + 1
    for op in range(1, header.opcode_base):
        at = np.flatnonzero(code == op)
        if op == _FIXED_ADVANCE_PC:
            following[at] = at + 3
            continue
        after = at + 1
        for _ in range(header.arguments[op] if op < len(header.arguments) else 0):
            after = np.minimum(_after_leb(padded, after), count)
        following[at] = after
    at = np.flatnonzero(code == 0)
    length = _leb_at(padded, at + 1)[0]
    following[at] = np.minimum(_after_leb(padded, at + 1) + np.minimum(length, count), count)
    chain = following.tolist()
    names = []
    place = 0
    while place < count:
        names.append(place)
        place = chain[place]
    return np.array(names, np.int64)


def _after_leb(code: I64, at: I64) -> I64:
    """Return the offsets behind the LEB128 numbers at ``at``, which have at most ten bytes."""
    after = at.copy()
    last = len(code) - 1
    open_ = np.ones(len(at), bool)
    for _ in range(10):
        byte = code[np.minimum(after, last)]
        after += open_
        open_ &= byte >= 0x80
    return np.minimum(after, last)


def _leb_at(code: I64, at: I64) -> tuple[I64, I64]:
    """The numbers at ``at``, read as unsigned and as signed ones, of at most 62 bits."""
    value = np.zeros(len(at), np.int64)
    width = np.zeros(len(at), np.int64)
    last = len(code) - 1
    open_ = np.ones(len(at), bool)
    sign = np.zeros(len(at), bool)
    for number in range(8):
        byte = code[np.minimum(at + number, last)]
        value += np.where(open_, (byte & 0x7F) << (7 * number), 0)
        width += np.where(open_, 7, 0)
        sign = np.where(open_, byte & 0x40 != 0, sign)
        open_ = open_ & (byte >= 0x80)
    return value, np.where(sign, value - (np.int64(1) << width), value)


def _words(code: I64, at: I64) -> I64:
    """The 64-bit numbers at ``at``."""
    last = len(code) - 1
    value = np.zeros(len(at), np.int64)
    for number in range(8):
        value |= code[np.minimum(at + number, last)] << (8 * number)
    return value


def _latest(mark: Mask, number: I64) -> I64:
    """The last marked one up to each."""
    latest: I64 = np.maximum.accumulate(np.where(mark, number, 0))
    return latest
