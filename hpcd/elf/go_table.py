"""Go's own table of a program's functions, which ``strip`` and ``-ldflags '-s -w'`` leave.

The run-time system needs it to walk stacks: names, frame sizes, files, lines and inlined calls of
all of Go's code. Its form has changed three times since Go 1.2; a magic number says which it is.
(src/debug/gosym/pclntab.go, src/runtime/symtab.go, src/runtime/runtime2.go: _func.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from hpcd.array_types import I64, U8
from hpcd.elf.elf_reader import (
    AARCH64,
    MAX_SECTION,
    PT_LOAD,
    RELOCATION,
    X86_64,
    ElfReader,
    string_at,
)
from hpcd.elf.go_values import GoValues, ragged, read_values
from hpcd.errors import FormatError

_SECTION = ".gopclntab"
_HEAD = re.compile(rb"[\xf0\xf1\xfa\xfb]\xff\xff\xff\0\0[\1\2\4]\x08")
_ADDRESSES = 1 << 47
# Heads that are tried where a program has no section headers; a library of Go's tools has several.
_MAX_HEADS = 16
_EXECUTABLE, _WRITABLE = 1, 2
_SHT_RELA = 4
_RELATIVE = {X86_64: 8, AARCH64: 1027}
# The run-time system's moduledata begins with a pointer to the table. Of its words: where Go's code
# begins, and which may be where tables of inlined calls are, by version (src/runtime/symtab.go).
_CODE_WORD, _FUNCDATA_WORDS, _MODULE_WORDS = 22, (38, 40, 43), 44
_MAX_MODULES = 16
_INLINED = 2, 3
"""Which of a function's pcdata and of its funcdata are about inlined calls."""
_NOTHING = 0xFFFFFFFF


class _Layout(NamedTuple):
    """A version of the table. Words of its head that say where names, units, files, values and
    functions are, -1 for those of the first version, which has other ways; whether addresses are
    ``wide`` and whole; and offsets in a function's record, -1 where it has no such field."""

    names: int
    units: int
    files: int
    values: int
    functions: int
    wide: bool
    name: int
    unit: int
    pcdata: int
    """Where a record's list of values begins, if inlined calls can be read."""
    call: tuple[int, int, int]
    """Size of an inlined call, and where its name and its place are in it."""


_LAYOUTS = {
    0xFB: _Layout(-1, -1, -1, -1, -1, True, 8, -1, -1, (0, 0, 0)),
    0xFA: _Layout(2, 3, 4, 5, 6, True, 8, 36, -1, (0, 0, 0)),
    0xF0: _Layout(3, 4, 5, 6, 7, False, 4, 32, 40, (20, 12, 16)),
    0xF1: _Layout(3, 4, 5, 6, 7, False, 4, 32, 44, (16, 4, 8)),
}
# Behind its name, a record has these at the same distances in all versions.
_FRAME, _FILE, _LINE, _PCDATA_COUNT = 12, 16, 20, 24
_RECORD = 28


class InlinedCalls(NamedTuple):
    """Calls that were inlined into functions.

    ``number`` says by address which call it is, in the order of ``name``, where its procedure's
    name is, and ``place``, the address of an instruction on the calling line: ``int64[c]``.
    """

    number: GoValues
    name: I64
    place: I64


class GoTable:
    """The functions of a Go program: ``start``, ``end``, ``int64[n]`` ascending, not overlapping.

    ``names``, ``int64[n]``, is where their names are. Raises :class:`FormatError`, as do its
    methods, where the table is damaged.
    """

    def __init__(self, image: _Image, address: int, data: bytes) -> None:
        """``data`` is the table, which is at ``address``."""
        self._image, self._data = image, data
        self._octets = np.frombuffer(data, np.uint8)
        layout = _LAYOUTS.get(data[0]) if _HEAD.match(data) else None
        if layout is None or len(data) < 80:
            raise self._error("is of an unknown version")
        self._layout, self._unit = layout, data[6]
        self._module = None if layout.wide else image.module(address)
        count, width = self._word(0), 8 if layout.wide else 4
        functions = 16 if layout.functions < 0 else self._word(layout.functions)
        size = (2 * count + 1) * width
        if not count or functions + size + 4 > len(data):
            raise self._error("has its functions outside")
        table = np.frombuffer(data, f"<u{width}", 2 * count + 1, functions).astype(np.uint64)
        address_of = table[0::2] + np.uint64(0 if layout.wide else self._code())
        if not bool((address_of < _ADDRESSES).all()) or bool(
            (address_of[1:] < address_of[:-1]).any()
        ):
            raise self._error("has functions in no order")
        bounds = address_of.astype(np.int64)
        some = np.flatnonzero(bounds[1:] > bounds[:-1])
        self.start, self.end = bounds[:-1][some], bounds[1:][some]
        if not len(some) or not image.is_code(int(self.start[0]), int(self.end[-1])):
            raise self._error("has functions outside of the code")
        record = table[1::2][some]
        if not bool((record < len(data)).all()):
            raise self._error("has records outside")
        self._record = record.astype(np.int64) + (0 if layout.functions < 0 else functions)
        length = max(layout.name + _RECORD, layout.unit + 4, layout.pcdata)
        if not bool((self._record + length <= len(data)).all()):
            raise self._error("has records outside")
        self._parts = [0, 0, functions + size, 0]
        if layout.names >= 0:
            words = layout.names, layout.units, layout.files, layout.values
            self._parts = [self._word(word) for word in words]
        else:
            self._parts[2] = int(self._u32(np.array([functions + size]))[0])
        if max(self._parts) >= len(data):
            raise self._error("has parts outside")
        self.names = self._field(layout.name)

    def name(self, at: int) -> str:
        """The name at ``at``, as in :attr:`names`, as the linker writes it in symbols."""
        return string_at(self._data, self._parts[0] + at).replace("·", ".")

    def file(self, at: int) -> str:
        """The name of the file ``at``, as in :meth:`files`."""
        return string_at(self._data, at)

    def called(self, names: Sequence[str]) -> list[tuple[str, int, int]]:
        """(name, address, size) of the functions with a name in ``names``."""
        functions = []
        for name in names:
            # In the first version all of the table may be names.
            pattern = b"\0" + re.escape(name.encode()) + b"\0"
            base = self._parts[0] - 1
            places = [match.start() - base for match in re.finditer(pattern, self._data)]
            for row in np.flatnonzero(np.isin(self.names, places)).tolist():
                start = int(self.start[row])
                functions.append((name, start, int(self.end[row]) - start))
        return functions

    def holding(self, addresses: I64) -> I64:
        """The functions, ascending, that contain any of ``addresses``."""
        row = np.searchsorted(self.start, addresses, side="right") - 1
        holders: I64 = np.unique(row[(row >= 0) & (addresses < self.end[row])])
        return holders

    def frame_sizes(self) -> GoValues:
        """By how many bytes the stack pointer is below the return address."""
        rows = np.arange(len(self.start))
        return self._steps(self._field(self._layout.name + _FRAME), rows)

    def lines(self, functions: I64) -> GoValues:
        """Lines of ``functions``, ascending; where code was inlined, of its own source."""
        return self._steps(self._field(self._layout.name + _LINE)[functions], functions)

    def files(self, functions: I64) -> GoValues:
        """Return where the names of the source files of ``functions``, ascending, are."""
        steps = self._steps(self._field(self._layout.name + _FILE)[functions], functions)
        number, base = steps.value, self._parts[2]
        if self._layout.unit >= 0:
            row = np.searchsorted(self.start, steps.start, side="right") - 1
            number = number + self._field(self._layout.unit)[row]
        units = base if self._layout.unit < 0 else self._parts[1]
        at = units + 4 * number
        known = (steps.value >= 0) & (at >= 0) & (at + 4 <= len(self._data))
        offset = self._u32(np.where(known, at, 0))
        known &= offset != _NOTHING
        file = offset + (0 if self._layout.unit < 0 else base)
        known &= file < len(self._data)
        return steps._replace(value=np.where(known, file, -1))

    def inlined(self, functions: I64) -> InlinedCalls:
        """The inlined calls of ``functions``, ascending; none where the table or the program does
        not say them."""
        nothing = np.zeros(0, np.int64)
        none = InlinedCalls(GoValues(nothing, nothing, nothing), nothing, nothing)
        if self._layout.pcdata < 0 or self._module is None:
            return none
        which, offset, number = self._inlined_places(functions)
        number = number._replace(value=np.maximum(number.value, -1))
        owner = np.searchsorted(self.start[which], number.start, side="right") - 1
        count = np.zeros(len(which), np.int64)
        np.maximum.at(count, owner, number.value + 1)
        which, offset, count = which[count > 0], offset[count > 0], count[count > 0]
        if not len(which):
            return none
        size, name_at, place_at = self._layout.call
        first = np.cumsum(count) - count
        for word in _FUNCDATA_WORDS:
            data = self._image.read(int(self._module[word]), int((offset + count * size).max()))
            if not data:
                continue
            octets = np.frombuffer(data, np.uint8)
            call, inside = ragged(np.zeros(len(count), np.int64), count)
            at = offset[call] + inside * size
            name, place = (_u32(octets, at + part) for part in (name_at, place_at))
            if self._are_names(name) and bool((place < (self.end - self.start)[which][call]).all()):
                owner = np.searchsorted(self.start[which], number.start, side="right") - 1
                value = np.where(number.value >= 0, number.value + first[owner], -1)
                return InlinedCalls(
                    number._replace(value=value), name, place + self.start[which][call]
                )
        return none

    def _inlined_places(self, functions: I64) -> tuple[I64, I64, GoValues]:
        """Return which of ``functions`` have inlined calls, where in the program's funcdata these
        are, and by address which call it is."""
        pcdata, funcdata = _INLINED
        record, list_at = self._record[functions], self._layout.pcdata
        lists = self._field(self._layout.name + _PCDATA_COUNT)[functions]
        has = (lists > pcdata) & (self._octets[record + list_at - 1] > funcdata)
        at = record + list_at + 4 * (lists + funcdata)
        has &= at + 4 <= len(self._data)
        functions, record, at = functions[has], record[has], at[has]
        offset = self._u32(at)
        has = offset != _NOTHING
        functions, record, offset = functions[has], record[has], offset[has]
        values = self._u32(record + list_at + 4 * pcdata)
        return functions, offset, self._steps(values, functions)

    def _are_names(self, names: I64) -> bool:
        """Whether names begin at each of ``names``."""
        at = self._parts[0] + names
        if not bool((at < self._parts[1]).all()):
            return False
        return bool((self._octets[at - 1] == 0).all() and (self._octets[at] != 0).all())

    def _code(self) -> int:
        """Return where Go's code begins, from which addresses are counted."""
        code = int(self._module[_CODE_WORD]) if self._module is not None else self._word(2)
        if not 0 < code < _ADDRESSES:
            raise self._error("does not say where code begins")
        return code

    def _steps(self, offset: I64, functions: I64) -> GoValues:
        values = self._octets[self._parts[3] :]
        try:
            return read_values(
                values, offset, self.start[functions], self.end[functions], self._unit
            )
        except FormatError as error:
            raise self._error(str(error)) from None

    def _word(self, number: int) -> int:
        return int.from_bytes(self._data[8 + 8 * number : 16 + 8 * number], "little")

    def _field(self, offset: int) -> I64:
        return self._u32(self._record + offset)

    def _u32(self, at: I64) -> I64:
        return _u32(self._octets, at)

    def _error(self, what: str) -> FormatError:
        return FormatError(f"{self._image.elf.name}: Go's table of functions {what}".lstrip(": "))


def go_table(elf: ElfReader) -> GoTable | None:
    """The table of a Go program, None for any other. Raises :class:`FormatError`."""
    image = _Image(elf)
    for section in elf.all_sections:
        if section.name.endswith(_SECTION) and section.has_data and section.size:
            if section.size > MAX_SECTION:
                raise FormatError("Go's table of functions is too big")
            data = elf.read(section.offset, section.size)
            return GoTable(image, section.address, image.relocated(section.address, data))
    error = None
    for address, data in image.heads() if not elf.all_sections else ():
        try:
            return GoTable(image, address, data)
        except FormatError as damage:
            error = error or damage
    if error:
        raise error
    return None


class _Image:
    """A program's memory as its file has it, after relocation."""

    def __init__(self, elf: ElfReader) -> None:
        self.elf = elf
        self._segments = [
            (int(row["address"]), int(row["offset"]), int(row["size"]), int(row["flags"]))
            for row in elf.segment_table
            if row["type"] == PT_LOAD and row["size"] <= MAX_SECTION and row["address"] < _ADDRESSES
        ]
        self._relocations: tuple[I64, I64] | None = None

    def is_code(self, low: int, high: int) -> bool:
        """Whether ``low`` up to ``high`` is machine code."""
        return any(
            flags & _EXECUTABLE and start <= low < high <= start + size
            for start, _, size, flags in self._segments
        )

    def read(self, address: int, size: int) -> bytes:
        """Bytes at an address, empty where the file has not as many."""
        for start, offset, length, _ in self._segments:
            if start <= address and address + size <= start + length:
                return self.elf.read(offset + address - start, size)
        return b""

    def heads(self) -> Iterator[tuple[int, bytes]]:
        """Addresses and bytes up to their segment's end at which a table may begin."""
        left = _MAX_HEADS
        for start, offset, size, flags in self._segments:
            if flags & _EXECUTABLE:
                continue
            data = self.elf.read(offset, size)
            for match in _HEAD.finditer(data):
                if left and (start + match.start()) % 8 == 0:
                    left -= 1
                    yield start + match.start(), data[match.start() :]

    def relocated(self, address: int, data: bytes) -> bytes:
        """``data``, which is at ``address``, as the dynamic loader leaves it at base 0."""
        place, value = self._pointers()
        inside = (place >= address) & (place + 8 <= address + len(data))
        if not bool(inside.any()):
            return data
        octets = np.frombuffer(data, np.uint8).copy()
        at = place[inside] - address
        octets[at[:, None] + np.arange(8)] = (
            np.ascontiguousarray(value[inside]).view(np.uint8).reshape(-1, 8)
        )
        return octets.tobytes()

    def module(self, table: int) -> I64 | None:
        """The words of the run-time system's moduledata, which refers to the ``table``."""
        place, value = self._pointers()
        places = place[value == table][:_MAX_MODULES].tolist()
        for start, offset, size, flags in self._segments:
            if flags & _WRITABLE:
                words = np.frombuffer(self.elf.read(offset, size & ~7), "<i8")
                places += (start + 8 * np.flatnonzero(words == table)[:_MAX_MODULES]).tolist()
        for at in places:
            data = self.relocated(at, self.read(at, 8 * _MODULE_WORDS))
            words = np.frombuffer(data, "<i8")
            if len(words) and self.is_code(int(words[_CODE_WORD]), int(words[_CODE_WORD + 1])):
                return words.astype(np.int64)
        return None

    def _pointers(self) -> tuple[I64, I64]:
        """Places that the dynamic loader fills with addresses of the program, and those."""
        if self._relocations is None:
            kind, rows = _RELATIVE.get(self.elf.header.machine), [np.zeros(0, RELOCATION)]
            for section in self.elf.all_sections if kind else ():
                if section.type == _SHT_RELA and section.address and section.size <= MAX_SECTION:
                    count = section.size // RELOCATION.itemsize
                    data = self.elf.read(section.offset, count * RELOCATION.itemsize)
                    table = np.frombuffer(data, RELOCATION)
                    rows.append(table[(table["info"] == kind) & (table["offset"] < _ADDRESSES)])
            table = np.concatenate(rows)
            self._relocations = table["offset"].astype(np.int64), table["addend"].astype(np.int64)
        return self._relocations


def _u32(octets: U8, at: I64) -> I64:
    """The numbers of four bytes at the offsets ``at``."""
    raw = np.ascontiguousarray(octets[at[:, None] + np.arange(4)])
    return raw.view("<u4").ravel().astype(np.int64)
