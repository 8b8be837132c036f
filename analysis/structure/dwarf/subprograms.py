"""Removal of unwanted procedures from a compile unit before it is decoded.

A unit of C++ templates can have thousands of procedures, each with all calls inlined in it. The
children of the unit's root are consecutive (DWARF 5, section 2.3), and an entry with children says
where the next begins (DW_AT_sibling; GCC writes it). Each unwanted procedure entry is overwritten
in place by a childless entry whose block attribute spans it, in an abbreviation that the unit
already has. Entries inside it that others refer to are still there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile

import numpy as np

from hpcd.analysis.structure.dwarf.address_ranges import AddressRanges
from hpcd.array_types import I64, U64
from hpcd.elf.leb128 import uleb128
from hpcd.errors import FormatError

Buffer = bytes | memoryview

_SUBPROGRAM, _DW_UT_COMPILE = 0x2E, 1
_SIBLING, _LOW_PC, _HIGH_PC = 0x01, 0x11, 0x12
_ADDRESS, _TEXT, _REFERENCE, _IMPLICIT = 0x01, 0x08, 0x13, 0x21
# Size in bytes of forms of fixed size, in 32-bit DWARF 3 and later.
_FIXED = {
    0x01: 8, 0x05: 2, 0x06: 4, 0x07: 8, 0x0B: 1, 0x0C: 1, 0x0E: 4, 0x10: 4, 0x11: 1, 0x12: 2,
    0x13: 4, 0x14: 8, 0x17: 4, 0x19: 0, 0x1C: 4, 0x1D: 4, 0x1E: 16, 0x1F: 4, 0x20: 8, 0x21: 0,
    0x24: 8, 0x25: 1, 0x26: 2, 0x27: 3, 0x28: 4, 0x29: 1, 0x2A: 2, 0x2B: 3, 0x2C: 4,
    0x1F20: 4, 0x1F21: 4,
}  # fmt: skip
_LEB = frozenset((0x0D, 0x0F, 0x15, 0x1A, 0x1B, 0x22, 0x23))
# Bytes of the length before a block; 0: LEB128.
_BLOCKS = {0x03: 2, 0x04: 4, 0x09: 0, 0x0A: 1, 0x18: 0}
# A zero or empty value of each form.
_EMPTY = {form: bytes(size) for form, size in _FIXED.items()} | dict.fromkeys(
    [*_LEB, _TEXT, 0x09, 0x18, 0x0A], b"\0"
)
# Forms that can hold a procedure's length.
_LENGTHS = frozenset((0x05, 0x06, 0x07, 0x0B))
# LEB128 of five bytes, for any number.
_WIDE_LEB = 5


@dataclass(frozen=True)
class Procedures:
    """Outermost procedures of a unit that have their code in one piece.

    ``begin`` and ``end`` ``int64[p]``: their bounds in the section; ``low`` and ``high``
    ``uint64[p]``: their code. ``instead``: the replacing entry, up to the length of its block.
    """

    begin: I64
    end: I64
    low: U64
    high: U64
    instead: bytes

    @cached_property
    def _groups(self) -> tuple[U64, U64, I64]:
        """Merged stretches of overlapping code, and each procedure's stretch, -1 for none."""
        # Linkers keep one of several equal procedures: the others begin at 0.
        order = np.flatnonzero((self.low > 0) & (self.high > self.low))
        order = order[np.argsort(self.low[order], kind="stable")]
        low, high = self.low[order], self.high[order]
        first = np.append(True, low[1:] >= np.maximum.accumulate(high)[:-1])[: len(low)]
        group = np.full(len(self.low), -1, np.int64)
        group[order] = np.cumsum(first) - 1
        if not len(low):
            return low, high, group
        return low[first], np.maximum.reduceat(high, np.flatnonzero(first)), group

    def unwanted(self, wanted: U64) -> AddressRanges:
        """Return stretches that contain no address of ``wanted``, which is ascending."""
        low, high, _ = self._groups
        return AddressRanges.of(
            low, high, np.searchsorted(wanted, high) == np.searchsorted(wanted, low)
        )

    def blank(self, wanted: U64) -> Iterator[tuple[int, bytes]]:
        """Yield places in the section, and bytes to write there to leave out unwanted ones."""
        low, high, group = self._groups
        here = np.searchsorted(wanted, high) > np.searchsorted(wanted, low)
        away = np.append(~here, True)[group]
        for begin, end in zip(self.begin[away].tolist(), self.end[away].tolist(), strict=True):
            size = end - begin - len(self.instead) - _WIDE_LEB
            wide = bytes(size >> 7 * index & 0x7F | 0x80 for index in range(_WIDE_LEB - 1))
            yield begin, self.instead + wide + bytes([size >> 7 * (_WIDE_LEB - 1)])


_NONE = Procedures(*(np.zeros(0, np.int64),) * 2, *(np.zeros(0, np.uint64),) * 2, b"")


class _Abbreviation:
    """The layout of the entries of one abbreviation.

    ``is_procedure``: a procedure with code in one piece, which says where it ends.
    ``is_plain_leaf``: it has no children and ``size`` bytes after a code of one byte.
    ``before_block``: an entry of it up to the length of its final block; empty if it has
    no final block, or cannot replace a procedure.
    """

    def __init__(self, code: int, tag: int, children: bool, forms: list[tuple[int, int]]) -> None:
        self.code, self.children, self.forms = code, children, forms
        of = dict(forms)
        self.is_procedure = (
            tag == _SUBPROGRAM and of.get(_LOW_PC) == _ADDRESS and of.get(_HIGH_PC) in _LENGTHS
        )
        sizes = [_FIXED.get(form, -1) for _, form in forms]
        self.size = sum(sizes)
        # Where after its code an entry says where the next one begins, -1 where that differs.
        self.sibling = -1
        before = [
            _FIXED.get(form, -1) for _, form in takewhile(lambda form: form[0] != _SIBLING, forms)
        ]
        if of.get(_SIBLING) == _REFERENCE and -1 not in before:
            self.sibling = sum(before)
        self.is_plain_leaf = not (children or self.is_procedure or -1 in sizes) and code < 0x80
        self.before_block = b""
        if forms and not children and tag != _SUBPROGRAM and _BLOCKS.get(forms[-1][1]) == 0:
            empty = [_EMPTY[form] for _, form in forms[:-1] if form in _EMPTY]
            if len(empty) == len(forms) - 1:
                self.before_block = _leb128(code) + b"".join(empty)


def procedures_of(unit: bytes, begin: int, abbreviations: Buffer) -> Procedures:
    """The procedures of a unit at ``begin`` in .debug_info that can be left out.

    ``abbreviations`` begins with the unit's own. Damaged units and units of unknown kinds have
    none.
    """
    try:
        return _procedures_of(unit, begin, abbreviations)
    except (FormatError, LookupError, ValueError):
        return _NONE


def _procedures_of(unit: bytes, begin: int, abbreviations: Buffer) -> Procedures:
    version = int.from_bytes(unit[4:6], "little")
    if version not in (3, 4, 5) or (version == 5 and unit[6] != _DW_UT_COMPILE):
        raise FormatError("unsupported DWARF unit")
    table = _abbreviations(abbreviations)
    instead = min((row.before_block for row in table.values() if row.before_block), key=len)
    code, at = uleb128(unit, 12 if version == 5 else 11)
    at, _ = _skip(unit, at, table[code])
    rows = [
        row
        for row in _children_of_root(unit, at, table)
        if row[1] - row[0] >= len(instead) + _WIDE_LEB
    ]
    begins, ends, low, size_of = (np.array(column, np.uint64) for column in zip(*rows, strict=True))
    return Procedures(
        begins.astype(np.int64) + begin, ends.astype(np.int64) + begin, low, low + size_of, instead
    )


def _children_of_root(
    unit: bytes, at: int, table: dict[int, _Abbreviation]
) -> Iterator[tuple[int, int, int, int]]:
    """Begin, end, lowest address and size of the code of each procedure among the entries from
    ``at`` on, whose children are passed over. Raises :class:`FormatError`."""
    leaves = {row.code: 1 + row.size for row in table.values() if row.is_plain_leaf}
    size = len(unit)
    # The root's children end with the unit.
    while at < size:
        leaf = leaves.get(unit[at])
        if leaf is not None:
            at += leaf
            continue
        start = at
        code, at = uleb128(unit, at)
        if not code:
            break
        entry = table[code]
        if entry.sibling >= 0 and not entry.is_procedure:
            reference = at + entry.sibling
            at = int.from_bytes(unit[reference : reference + 4], "little")
            if not reference < at <= size:
                raise FormatError("DWARF sibling offset outside its unit")
            continue
        inside, values = _skip(unit, at, entry)
        at = values[_SIBLING] if entry.children else inside
        if not inside <= at <= size:
            raise FormatError("DWARF sibling offset outside its unit")
        if entry.is_procedure:
            yield start, at, values[_LOW_PC], values[_HIGH_PC]


def _abbreviations(data: Buffer) -> dict[int, _Abbreviation]:
    """Return the table at the start of ``data``. Raises :class:`FormatError` for unknown forms."""
    table: dict[int, _Abbreviation] = {}
    at = 0
    while True:
        code, at = uleb128(data, at)
        if not code:
            return table
        tag, at = uleb128(data, at)
        children = data[at] != 0
        at += 1
        forms = []
        while True:
            attribute, at = uleb128(data, at)
            form, at = uleb128(data, at)
            if form == _IMPLICIT:
                _, at = uleb128(data, at)
            if not attribute and not form:
                break
            if form not in _FIXED and form not in _LEB and form not in _BLOCKS and form != _TEXT:
                raise FormatError(f"unsupported DWARF form {form:#x}")
            forms.append((attribute, form))
        table[code] = _Abbreviation(code, tag, children, forms)


def _skip(unit: bytes, at: int, entry: _Abbreviation) -> tuple[int, dict[int, int]]:
    """Return the offset behind an entry's attributes, and its sibling, low and high addresses."""
    values = {}
    for attribute, form in entry.forms:
        size = _FIXED.get(form)
        if size is not None:
            if attribute in (_SIBLING, _LOW_PC, _HIGH_PC):
                values[attribute] = int.from_bytes(unit[at : at + size], "little")
            at += size
        elif form in _LEB:
            _, at = uleb128(unit, at)
        elif form == _TEXT:
            at = unit.index(b"\0", at) + 1
        elif width := _BLOCKS[form]:
            at += width + int.from_bytes(unit[at : at + width], "little")
        else:
            size, at = uleb128(unit, at)
            at += size
    return at, values


def _leb128(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])
