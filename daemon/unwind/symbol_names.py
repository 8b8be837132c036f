"""Names of sampled functions: ``.symtab``, ``.dynsym`` and Go's own table; read by the decoder."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from hpcd.array_types import U32, U64
from hpcd.elf.elf_view import ElfView
from hpcd.elf.go_table import GoTable, go_table
from hpcd.errors import FormatError

SymbolRow = tuple[int, int, str]
FoundSymbol = tuple[int, int, str, int]
"""A symbol row, and how many bytes from its start on are in no other function."""

_FUNCTIONS = (2, 10)  # STT_FUNC, STT_GNU_IFUNC
_MAX_NAME = 4096


def found_symbols(elf: ElfView, addresses: U64) -> list[FoundSymbol]:
    """Return the functions that contain ``addresses`` ``uint64[n]``, each once, by address."""
    rows: dict[int, FoundSymbol] = {}
    open_ = addresses
    for number_of_table, (starts, sizes, name_of) in enumerate(_tables(elf)):
        if not len(open_) or not len(starts):
            continue
        at = np.searchsorted(starts, open_, "right").astype(np.int64) - 1
        first = np.maximum(at, 0)
        inside = (at >= 0) & (open_ - starts[first] < sizes[first])
        following = np.append(starts, starts[-1:] + sizes[-1:])
        for number in np.unique(at[inside]).tolist():
            name = name_of(number)
            if name:
                start, size = int(starts[number]), int(sizes[number])
                # This is the last symbol with this start, so the next one begins elsewhere.
                alone = min(size, int(following[number + 1]) - start) if not number_of_table else 0
                rows[start] = start, size, name, alone
        open_ = open_[~inside]
    return [rows[address] for address in sorted(rows)]


def _tables(elf: ElfView) -> Iterator[tuple[U64, U64, Callable[[int], str]]]:
    """Starts, ascending, and sizes of functions by table, and what gives their names."""
    for text, table in elf.named_symbols((".symtab", ".dynsym")):
        kept = np.isin(table["info"] & 15, _FUNCTIONS) & (table["section"] != 0)
        table = table[kept & (table["size"] > 0)]
        table = table[np.argsort(table["value"], kind="stable")]
        name = partial(_symbol_name, text, table["name"])
        yield table["value"], table["size"], name
    # A damaged table costs only its own names.
    with contextlib.suppress(FormatError):
        go = go_table(elf)
        if go:
            start, size = go.start.astype(np.uint64), (go.end - go.start).astype(np.uint64)
            yield start, size, partial(_go_name, go)


def _symbol_name(text: bytes, names: U32, number: int) -> str:
    start = int(names[number])
    end = text.find(b"\0", start, start + _MAX_NAME)
    return text[start:end].decode(errors="replace") if end > start else ""


def _go_name(table: GoTable, number: int) -> str:
    return table.name(int(table.names[number]))
