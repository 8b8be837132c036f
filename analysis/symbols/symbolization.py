"""Procedure names for addresses of load modules.

One task per module, run in a worker: all its addresses at once in, procedures out. The sources, in
the order of search: ``.symtab`` of the file, of its separate debug file
(:mod:`~hpcd.analysis.symbols.debug_files`) and of
``.gnu_debugdata``, ``.dynsym``, the table of a Go program's run-time system, PLT stubs, and for
remaining addresses the bounds of functions
(:mod:`~hpcd.analysis.symbols.function_ranges`), so that even a stripped function is one procedure:
``[libfoo.so+0x1234]``, the program's entry point and ``main`` by their names.

A file whose build id is not the recorded one is not the file that ran: its names would be wrong, so
none are given. Nothing here raises for a bad file: it costs that module its names, and the note
says why.
"""

from __future__ import annotations

import ctypes
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hpcd.analysis.symbols import symbol_tables
from hpcd.analysis.symbols.changed_file import FileChangedError, check_build_id
from hpcd.analysis.symbols.confined_demangling import demangle_all
from hpcd.analysis.symbols.debug_files import separate_files
from hpcd.analysis.symbols.demangle import demangle
from hpcd.analysis.symbols.symbol_rows import load_symbols
from hpcd.analysis.symbols.symbol_tables import Symbol, SymbolTable
from hpcd.array_types import I64, U64
from hpcd.distinct import begins_run
from hpcd.elf.elf_file import ElfFile
from hpcd.errors import FormatError
from hpcd.model.frame import OFFSET_MASK
from hpcd.model.identity import ModuleKind

# Bytes of code without names that share a name.
_REGION = np.uint64(1 << 16)


@dataclass(frozen=True, slots=True)
class Procedure:
    """A procedure of a load module.

    ``name`` is demangled, ``linkage_name`` the linker's where it differs. ``address`` and
    ``size`` are ELF virtual addresses; ``module`` is 0 for names outside any.
    """

    name: str
    module: int = 0
    address: int = 0
    size: int = 0
    linkage_name: str = ""
    file: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class SymbolTask:
    """Addresses of one module to be named: ``offsets`` ``uint64[n]``, distinct, ascending.

    ``table`` is the file of the symbols that measurements contain, and the module's number in it
    (:func:`~hpcd.analysis.symbols.symbol_rows.load_symbols`). For an ELF file these are the sampled
    functions, used if the file at its path has another build id or cannot be read.
    """

    kind: ModuleKind
    path: str
    build_id: str
    table: tuple[Path, int] | None
    offsets: U64


@dataclass(frozen=True, slots=True)
class SymbolAnswer:
    """``index`` ``int64[n]``: the procedure of each offset.

    ``note`` names the source of the names, or the reason why there are none (``warning``).
    """

    procedures: list[Procedure]
    index: I64
    note: str
    warning: bool = False
    recorded: bool = False
    """The names are the measurement's: the file that ran cannot be read."""


def symbolize(task: SymbolTask) -> SymbolAnswer:
    """Name the addresses of ``task``. O(symbols · log symbols + addresses · log symbols)."""
    try:
        tables, note = _tables(task)
    except (FormatError, FileChangedError, OSError) as error:
        if task.table is None or task.kind is not ModuleKind.ELF:
            return _nameless(task, error)
        try:
            rows = load_symbols(*task.table)
        except FormatError as damage:
            return _nameless(task, damage)
        tables = [symbol_tables.from_rows(rows)]
        note = f"{len(rows)} symbols from the measurement, as its file is another or gone"
        return replace(_answer(task, tables, note), recorded=True)
    return _answer(task, tables, note, by_region=True)


def _nameless(task: SymbolTask, error: Exception) -> SymbolAnswer:
    """Addresses in the place of names, and why."""
    if isinstance(error, FileChangedError):
        note = f"{error.reason}; its functions are shown by address"
        return _answer(task, [], note, warning=_expected(task))
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return _answer(task, [], f"no names: {reason or error}", warning=_expected(task))


class Namer:
    """Names addresses of one module again and again, reading its symbols once."""

    def __init__(
        self, kind: ModuleKind, path: str, build_id: str, rows: list[tuple[int, int, str]]
    ) -> None:
        """``rows`` (start, size, name) are the symbols the measurement brought along, if any."""
        self._task = SymbolTask(kind, path, build_id, None, np.zeros(1, np.uint64))
        recorded = [symbol_tables.from_rows(rows)] if rows else []
        if rows and kind is not ModuleKind.ELF:
            self._tables = recorded
            return
        try:
            self._tables = _tables(self._task)[0]
        except (FormatError, FileChangedError, OSError):
            self._tables = recorded

    def names(self, offsets: U64) -> list[str]:
        """The procedure of each of ``offsets`` (``uint64[n]``), demangled."""
        task = replace(self._task, offsets=offsets)
        answer = _answer(task, self._tables, "", by_region=bool(self._tables))
        return [answer.procedures[number].name for number in answer.index.tolist()]


def names_in_file(elf: ElfFile, path: str, build_id: str, offsets: U64) -> list[str]:
    """The procedures at ``offsets`` ``uint64[n]`` by the symbols of ``elf`` only. Opens no
    other file and demangles in this process, which must be confined. Raises
    :class:`FileChangedError`, :class:`FormatError`, :class:`MemoryError`."""
    check_build_id(elf, path, build_id)
    tables, _ = _file_tables(elf, Path(path))
    return _names(path, tables, offsets, lambda names: list(map(demangle, names)))


def names_by_region(path: str, offsets: U64) -> list[str]:
    """Name code at ``offsets`` ``uint64[n]`` of a file whose symbols are not known."""
    return _names(path, [], offsets)


def _names(
    path: str,
    tables: list[SymbolTable],
    offsets: U64,
    plain_names: Callable[[Sequence[str]], list[str]] = demangle_all,
) -> list[str]:
    task = SymbolTask(ModuleKind.ELF, path, "", None, offsets)
    answer = _answer(task, tables, "", by_region=True, plain_names=plain_names)
    return [answer.procedures[number].name for number in answer.index.tolist()]


def _expected(task: SymbolTask) -> bool:
    """Return whether a module without names is worth a line to the user."""
    return task.kind is ModuleKind.ELF and len(task.offsets) > 0


def _tables(task: SymbolTask) -> tuple[list[SymbolTable], str]:
    if task.table is not None and task.kind is not ModuleKind.ELF:
        rows = load_symbols(*task.table)
        return [symbol_tables.from_rows(rows)], f"{len(rows)} symbols from the measurement"
    if not len(task.offsets):
        return [], "no addresses"
    if task.kind is ModuleKind.VDSO:
        elf = _own_vdso()
    elif task.kind is ModuleKind.ELF:
        elf = ElfFile.open(task.path)
    else:
        raise FormatError("the measurement has no symbols of it")
    with elf:
        check_build_id(elf, task.path, task.build_id)
        return _file_tables(elf, Path(task.path), separate=True)


def _file_tables(
    elf: ElfFile, path: Path, *, separate: bool = False
) -> tuple[list[SymbolTable], str]:
    """Return all tables of a file, in the order of search, with their names.

    With ``separate`` also the table of its debug file, which is opened here.
    """
    sources: list[str] = []
    tables: list[SymbolTable] = []
    # Imported here: readers of databases need no disassembler, and should not wait for its import.
    from hpcd.analysis.symbols.function_ranges import entry_functions, function_ranges

    start, end, edges = function_ranges(elf)
    entry_names = entry_functions(elf)

    def take(label: str, read: Callable[[], SymbolTable | None]) -> None:
        # One damaged table must not cost the module the others.
        try:
            table = read()
        except (FormatError, OSError) as error:
            sources.append(f"({label}: {error})")
            return
        if table is not None and len(table):
            tables.append(table)
            sources.append(label)

    take(".symtab", lambda: symbol_tables.from_section(elf, ".symtab", edges))
    if separate:
        take("debug file", lambda: _debug_file(path, elf, edges))
    take(".gnu_debugdata", lambda: _debug_data(elf, edges))
    take(".dynsym", lambda: symbol_tables.from_section(elf, ".dynsym", edges))
    take("Go's table", lambda: symbol_tables.from_go(elf))
    take("plt", lambda: symbol_tables.from_plt(elf))
    take(
        "function ranges",
        lambda: symbol_tables.from_ranges(
            start, end, lambda at: entry_names.get(at) or f"[{path.name}+0x{at:x}]"
        ),
    )
    return tables, ", ".join(sources) or "no symbols"


def _debug_file(path: Path, elf: ElfFile, edges: U64) -> SymbolTable | None:
    """Symbols of a separate debug file. Raises :class:`FormatError`."""
    for debug in separate_files(path, elf):
        table = symbol_tables.from_section(debug, ".symtab", edges)
        if table is not None:
            return table
    return None


def _debug_data(elf: ElfFile, edges: U64) -> SymbolTable | None:
    inner = elf.debug_data()
    return None if inner is None else symbol_tables.from_section(inner, ".symtab", edges)


def _own_vdso() -> ElfFile:
    """The kernel's shared object as mapped into this very process."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith("[vdso]"):
            low, high = (int(part, 16) for part in line.split(maxsplit=1)[0].split("-"))
            return ElfFile(io.BytesIO(ctypes.string_at(low, high - low)), "[vdso]")
    raise FormatError("this process has no vdso to look into")


def _answer(
    task: SymbolTask,
    tables: list[SymbolTable],
    note: str,
    *,
    warning: bool = False,
    by_region: bool = False,
    plain_names: Callable[[Sequence[str]], list[str]] = demangle_all,
) -> SymbolAnswer:
    """Look addresses up in the tables in order; return procedures by address, then name.

    Addresses without a symbol are named by their module, with ``by_region`` by a part of it;
    ``plain_names`` demangles.
    """
    count = len(task.offsets)
    symbols: dict[Symbol, int] = {}
    of_offset = np.full(count, -1, np.int64)
    open_ = np.arange(count)
    for table in tables:
        if not len(open_):
            break
        entries = table.find(task.offsets[open_])
        for entry, members in _groups(entries):
            symbol = table.symbol(entry)
            if symbol.name:
                of_offset[open_[members]] = symbols.setdefault(symbol, len(symbols))
        open_ = np.flatnonzero(of_offset < 0)
    if len(open_) and by_region and task.kind is ModuleKind.ELF:
        # Not all of a module under one name: parts of it tell more, and costs differ between them.
        regions, member = np.unique(task.offsets[open_] // _REGION, return_inverse=True)
        name = _module_name(task)[1:-1]
        numbers = [
            symbols.setdefault(_region(name, region), len(symbols)) for region in regions.tolist()
        ]
        of_offset[open_] = np.array(numbers, np.int64)[member]
    elif len(open_):
        unnamed = Symbol(0, 0, _module_name(task))
        of_offset[open_] = symbols.setdefault(unnamed, len(symbols))
    order = sorted(symbols)
    new = np.zeros(max(len(order), 1), np.int64)
    for number, symbol in enumerate(order):
        new[symbols[symbol]] = number
    names = plain_names([symbol.name for symbol in order])
    procedures = list(map(_procedure, order, names))
    return SymbolAnswer(procedures, new[of_offset], note, warning)


def _region(name: str, number: int) -> Symbol:
    """Return the symbol of code without any: the part of its module."""
    size = int(_REGION)
    start = number * size
    return Symbol(start, size, f"[{name}+0x{start:x}-0x{start + size - 1:x}]")


def _groups(entries: I64) -> Iterator[tuple[int, I64]]:
    """(entry, positions) of each distinct entry that is not -1."""
    order = np.argsort(entries, kind="stable")
    ranked = entries[order]
    starts = np.flatnonzero(begins_run(ranked))
    for begin, members in zip(starts.tolist(), np.split(order, starts[1:]), strict=True):
        if ranked[begin] >= 0:
            yield int(ranked[begin]), members


def _procedure(symbol: Symbol, name: str) -> Procedure:
    return Procedure(
        name=name,
        address=symbol.start & OFFSET_MASK,
        size=symbol.size & OFFSET_MASK,
        linkage_name="" if name == symbol.name else symbol.name,
    )


def _module_name(task: SymbolTask) -> str:
    """Return the name of addresses without a symbol: the module, in brackets."""
    return f"[{task.path.strip('[]').rpartition('/')[2] or task.kind}]"
