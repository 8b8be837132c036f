"""Bounds of a module's functions: their first addresses and their ends."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hpcd.analysis.symbols import symbol_tables
from hpcd.array_types import U64
from hpcd.elf.elf_file import ElfFile
from hpcd.errors import FormatError


class FunctionBounds(NamedTuple):
    """Stretches of code: ``start``, ``end`` ``uint64[n]``, ascending, not overlapping."""

    start: U64
    end: U64


def functions_of(elf: ElfFile, debug: Path | None = None) -> FunctionBounds:
    """The functions of a module, by its call frame information, symbols and code.

    ``debug`` is its separate debug file, whose symbols count too. A function ends where the next
    one begins, at the latest with its section; padding is part of it.
    """
    # Imported here: readers of databases need no disassembler.
    from hpcd.analysis.symbols.function_ranges import function_ranges

    ranges = function_ranges(elf)
    starts = [ranges.start]
    tables = [(elf, ".symtab"), (elf, ".dynsym")]
    with contextlib.ExitStack() as stack:
        # One damaged table must not cost the others.
        with contextlib.suppress(FormatError, OSError):
            if debug is not None:
                tables.append((stack.enter_context(ElfFile.open(debug)), ".symtab"))
        with contextlib.suppress(FormatError, OSError):
            inner = elf.debug_data()
            if inner is not None:
                tables.append((inner, ".symtab"))
        for file, name in tables:
            with contextlib.suppress(FormatError, OSError):
                table = symbol_tables.from_section(file, name, ranges.edges)
                if table is not None:
                    starts.append(table.start)
    begin = np.unique(np.concatenate(starts))
    begins: list[U64] = []
    ends: list[U64] = []
    for section in elf.sections:
        if not (section.executable and section.has_data and section.size):
            continue
        low, high = section.address, section.address + section.size
        if high >= 1 << 63:
            continue
        inside = begin[
            np.searchsorted(begin, np.uint64(low)) : np.searchsorted(begin, np.uint64(high))
        ]
        # PLT stubs and other code without symbols are one stretch.
        if not len(inside) or inside[0] != low:
            inside = np.concatenate([np.array([low], np.uint64), inside])
        begins.append(inside)
        ends.append(np.append(inside[1:], np.uint64(high)))
    if not begins:
        return FunctionBounds(np.zeros(0, np.uint64), np.zeros(0, np.uint64))
    start, end = np.concatenate(begins), np.concatenate(ends)
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    # Overlapping sections are an attack; overlapping functions are left out.
    apart = np.concatenate(([True], start[1:] >= np.maximum.accumulate(end)[:-1]))
    return FunctionBounds(start[apart], end[apart])
