"""Symbol tables: from many addresses to the symbols that contain them, in bulk.

Several tables of a file are searched one after another: an address gets its symbol from the first
table that covers it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hpcd.array_types import I64, U8, U64, Mask
from hpcd.elf.elf_file import ElfFile
from hpcd.elf.elf_reader import AARCH64, RELOCATION, SYMBOL, X86_64, Section, string_at
from hpcd.elf.go_table import go_table
from hpcd.errors import FormatError

_NOTYPE, _FUNC, _IFUNC = 0, 2, 10
_LOCAL = 0
_END = np.uint64((1 << 64) - 1)
# Symbols may nest (labels inside a function). Deeper nesting than this goes unnamed.
_MAX_NESTING = 8


class Symbol(NamedTuple):
    """A named range of addresses; ``name`` as the linker knows it."""

    start: int
    size: int
    name: str


class SymbolTable:
    """Ranges of addresses, whose names are read on demand.

    ``start``, ``end`` ``uint64[n]``; ``name`` gives the name of entry ``i``; ``local``
    ``bool[n]`` marks names that only their file knows, which come second among aliases. An
    ``end`` not above its start means "up to the next symbol".
    """

    def __init__(
        self,
        start: U64,
        end: U64,
        name: Callable[[int], str],
        local: Mask | None = None,
        limits: U64 | None = None,
    ) -> None:
        order = np.argsort(start, kind="stable")
        self._entry = order
        self.start = start[order]
        self.end = end[order]
        self._name = name
        self._local = np.zeros(len(start), bool) if local is None else local[order]
        open_ended = np.flatnonzero(self.end <= self.start)
        if len(open_ended):
            begin = self.start[open_ended]
            stop = _next_above(begin, self.start)
            if limits is not None:
                stop = np.minimum(stop, _next_above(begin, limits))
            self.end[open_ended] = stop

    def __len__(self) -> int:
        return len(self.start)

    def find(self, addresses: U64) -> I64:
        """``int64[n]``: an entry (position in start order) that contains each address, or -1.

        The innermost one, where symbols nest. O(n · log m).
        """
        if not len(self):
            return np.full(len(addresses), -1, np.int64)
        at = np.searchsorted(self.start, addresses, side="right").astype(np.int64) - 1
        for _ in range(_MAX_NESTING):
            outside = np.flatnonzero((at >= 0) & (self.end[at] <= addresses))
            if not len(outside):
                break
            # An earlier symbol may reach further. Aliases of one start are tried one by one.
            at[outside] -= 1
        at[(at >= 0) & (self.end[at] <= addresses)] = -1
        return at

    def symbol(self, entry: int) -> Symbol:
        """The best name among the symbols with the start of ``entry``.

        Aliases: the vDSO's own (the C library's function that calls it has the plain one), known
        outside their file before local, fewer leading underscores, then shorter (MPI_Send, not
        PMPI_Send), then by alphabet.
        """
        start = self.start[entry]
        low, high = np.searchsorted(self.start, [start, start + np.uint64(1)]).tolist()
        best: tuple[object, ...] | None = None
        best_entry = entry, ""
        # Aliases by the thousand are an attack, not a program.
        for at in range(low, max(min(high, low + 64), entry + 1)):
            if at != entry and self.end[at] != self.end[entry]:
                continue
            name = self._name(int(self._entry[at]))
            if not name:
                continue
            underscores = len(name) - len(name.lstrip("_"))
            foreign = not name.startswith("__vdso_")
            rank = (foreign, bool(self._local[at]), underscores, len(name), name)
            if best is None or rank < best:
                best, best_entry = rank, (at, name)
        at, name = best_entry
        return Symbol(int(start), int(self.end[at] - start), name)


def _next_above(values: U64, among: U64) -> U64:
    """For each of ``values`` the smallest of the sorted ``among`` that is greater."""
    at = np.searchsorted(among, values, side="right")
    return np.append(among, _END)[at]


def without_version(name: str) -> str:
    """``memcpy@@GLIBC_2.14`` is ``memcpy``; a name may begin with ``@``."""
    return name[:1] + name[1:].partition("@")[0]


# --- where tables come from ---


def from_rows(rows: Sequence[tuple[int, int, str]]) -> SymbolTable:
    """The table of (start, size, name) rows, such as kernel symbols."""
    start = np.array([row[0] for row in rows], np.uint64)
    size = np.array([row[1] for row in rows], np.uint64)
    return SymbolTable(start, start + size, lambda entry: rows[entry][2])


def from_section(elf: ElfFile, name: str, limits: U64) -> SymbolTable | None:
    """The functions of ``.symtab`` or ``.dynsym``; None if the file lacks the section.

    Symbols without a size end at the next one, or at the next of ``limits``. Raises
    :class:`FormatError`.
    """
    section = elf.section(name)
    if section is None:
        return None
    symbols, strings = _symbols(elf, section)
    kind = symbols["info"] & 0xF
    executable = np.zeros(1 << 16, bool)
    for entry in elf.sections:
        if entry.number < 0xFF00:
            executable[entry.number] = entry.executable
    in_code = executable[symbols["section"]]
    function = (kind == _FUNC) | (kind == _IFUNC)
    # Hand-written assembly often forgets to say that its labels are functions.
    label = (kind == _NOTYPE) & (symbols["name"] != 0)
    rows = np.flatnonzero(in_code & (function | label))
    starts = symbols["value"][rows]
    ends = starts + symbols["size"][rows]
    is_label = ~function[rows]
    if bool(is_label.any()):
        inside = _covered(starts, ends, is_label)
        keep = ~(is_label & inside)
        rows, starts, ends = rows[keep], starts[keep], ends[keep]
    offsets = symbols["name"][rows]
    bindings = symbols["info"][rows] >> 4
    return SymbolTable(
        starts,
        ends,
        lambda entry: without_version(string_at(strings, int(offsets[entry]))),
        bindings == _LOCAL,
        limits,
    )


def from_go(elf: ElfFile) -> SymbolTable | None:
    """The functions of a Go program by its own table, which stripping leaves; None of any other.

    Raises :class:`FormatError`.
    """
    table = go_table(elf)
    if table is None:
        return None
    start, end = table.start.astype(np.uint64), table.end.astype(np.uint64)
    return SymbolTable(start, end, lambda entry: table.name(int(table.names[entry])))


def from_ranges(start: U64, end: U64, name: Callable[[int], str]) -> SymbolTable:
    """Functions known by where they begin and end; ``name`` makes a name from the address."""
    return SymbolTable(start, end, lambda entry: name(int(start[entry])))


def _covered(starts: U64, ends: U64, label: Mask) -> Mask:
    """``bool[n]``: whether a symbol begins inside or at the start of a sized non-label symbol."""
    real = np.flatnonzero(~label & (ends > starts))
    if not len(real):
        return np.zeros(len(starts), bool)
    order = real[np.argsort(starts[real], kind="stable")]
    reach = np.maximum.accumulate(ends[order])
    at = np.searchsorted(starts[order], starts, side="right") - 1
    return (at >= 0) & (reach[at] > starts)


def _symbols(elf: ElfFile, section: Section) -> tuple[npt.NDArray[np.void], bytes]:
    if section.link >= len(elf.sections) or not elf.sections[section.link].has_data:
        raise FormatError(f"{elf.name}: {section.name} has no strings")
    return elf.table(section, SYMBOL), elf.contents(elf.sections[section.link])


# --- PLT stubs ---


def from_plt(elf: ElfFile) -> SymbolTable | None:
    """``name@plt`` for the stubs through which other modules are called; None without any.

    x86-64: whatever its layout (lazy, .plt.sec, .plt.got, with or without IBT), a stub jumps
    through a slot of the global offset table, and a relocation says whose slot it is; lazy stubs
    behind .plt.sec push their relocation's number. aarch64: stubs follow .rela.plt in order.
    Raises :class:`FormatError`.
    """
    dynamic = elf.section(".dynsym")
    if dynamic is None or elf.machine not in (X86_64, AARCH64):
        return None
    symbols, strings = _symbols(elf, dynamic)
    lazy = _relocations(elf, ".rela.plt")
    stubs: list[tuple[int, int, int]] = []
    if elf.machine == X86_64:
        relocations = np.concatenate([lazy, _relocations(elf, ".rela.dyn")])
        for name in (".plt", ".plt.sec", ".plt.got"):
            section = elf.section(name)
            # Nothing is mapped there; sums with it would not fit.
            if section and section.address < 1 << 62:
                stubs += _x86_stubs(elf, section, relocations, len(lazy))
    else:
        relocations = lazy
        section = elf.section(".plt")
        if section:
            stubs += [(section.address + 32 + 16 * n, 16, n) for n in range(len(lazy))]
    named = []
    owners = (relocations["info"] >> np.uint64(32)).astype(np.int64)
    for start, size, relocation in stubs:
        number = int(owners[relocation])
        name = ""
        if 0 < number < len(symbols):
            name = string_at(strings, int(symbols["name"][number]))
        elif number == 0:
            # An indirect function of this module: the addend is its resolver.
            resolver = np.uint64(int(relocations["addend"][relocation]) & int(_END))
            same = np.flatnonzero((symbols["value"] == resolver) & (symbols["section"] != 0))
            if len(same):
                name = string_at(strings, int(symbols["name"][same[0]]))
        if name:
            named.append((start, size, f"{without_version(name)}@plt"))
    return from_rows(named) if named else None


def _relocations(elf: ElfFile, name: str) -> npt.NDArray[np.void]:
    section = elf.section(name)
    return np.zeros(0, RELOCATION) if section is None else elf.table(section, RELOCATION)


def _x86_stubs(
    elf: ElfFile, section: Section, relocations: npt.NDArray[np.void], lazy: int
) -> Iterable[tuple[int, int, int]]:
    """(address, size, relocation) of the stubs in a PLT section."""
    code = np.frombuffer(elf.contents(section), np.uint8)
    size = section.entry if section.entry in (8, 16, 32) else 16
    stubs = []
    # jmp *slot(%rip): ff 25 and the distance to the slot.
    at = np.flatnonzero((code[:-5] == 0xFF) & (code[1:-4] == 0x25))
    distance = _int32_at(code, at + 2)
    slots = (section.address + at + 6 + distance).astype(np.uint64)
    order = np.argsort(relocations["offset"], kind="stable")
    sorted_slots = relocations["offset"][order]
    place = np.searchsorted(sorted_slots, slots)
    for begin, rank, slot in zip(at.tolist(), place.tolist(), slots.tolist(), strict=True):
        if rank < len(order) and int(sorted_slots[rank]) == slot:
            stubs.append((section.address + begin // size * size, size, int(order[rank])))
    if section.name == ".plt":
        # push $number, after an optional endbr64: the target of .plt.sec at the first call.
        heads = np.arange(size, len(code) - 9, size)
        heads = heads + 4 * (code[heads] == 0xF3)
        heads = heads[code[heads] == 0x68]
        numbers = _int32_at(code, heads + 1)
        begins = {start for start, _, _ in stubs}
        for begin, number in zip(heads.tolist(), numbers.tolist(), strict=True):
            start = section.address + begin // size * size
            if 0 <= number < lazy and start not in begins:
                stubs.append((start, size, number))
    return stubs


def _int32_at(code: U8, at: I64) -> I64:
    """Little-endian signed 32-bit numbers at the offsets ``at``."""
    if not len(at):
        return np.zeros(0, np.int64)
    raw = code[at[:, None] + np.arange(4)]
    return np.ascontiguousarray(raw).view("<i4").ravel().astype(np.int64)
