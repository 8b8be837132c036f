"""Names of sampled functions, from a file's ``.symtab`` and ``.dynsym``; read by the decoder."""

from __future__ import annotations

import numpy as np

from hpcd.array_types import U64
from hpcd.elf.elf_view import ElfView

SymbolRow = tuple[int, int, str]
FoundSymbol = tuple[int, int, str, int]
"""A symbol row, and how many bytes from its start on are in no other function."""

_FUNCTIONS = (2, 10)  # STT_FUNC, STT_GNU_IFUNC
_MAX_NAME = 4096


def found_symbols(elf: ElfView, addresses: U64) -> list[FoundSymbol]:
    """Return the functions that contain ``addresses`` ``uint64[n]``, each once, by address."""
    rows: dict[int, FoundSymbol] = {}
    open_ = addresses
    first_table = True
    for table_name, text_name in ((".symtab", ".strtab"), (".dynsym", ".dynstr")):
        section, text_section = elf.sections.get(table_name), elf.sections.get(text_name)
        if section is None or text_section is None or not len(open_):
            continue
        text = elf.contents(text_section)
        table = elf.symbol_table(section)
        kept = np.isin(table["info"] & 15, _FUNCTIONS) & (table["section"] != 0)
        table = table[kept & (table["size"] > 0)]
        if not len(table):
            continue
        table = table[np.argsort(table["value"], kind="stable")]
        at = np.searchsorted(table["value"], open_, "right").astype(np.int64) - 1
        first = np.maximum(at, 0)
        inside = (at >= 0) & (open_ - table["value"][first] < table["size"][first])
        starts = np.append(table["value"], table["value"][-1:] + table["size"][-1:])
        for number in np.unique(at[inside]).tolist():
            symbol = table[number]
            start = int(symbol["name"])
            end = text.find(b"\0", start, start + _MAX_NAME)
            name = text[start:end].decode(errors="replace") if end > start else ""
            if name:
                start, size = int(symbol["value"]), int(symbol["size"])
                # This is the last symbol with this start, so the next one begins elsewhere.
                alone = min(size, int(starts[number + 1]) - start) if first_table else 0
                rows[start] = start, size, name, alone
        open_ = open_[~inside]
        first_table = False
    return [rows[address] for address in sorted(rows)]
