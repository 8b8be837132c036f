"""Symbols that a recorder read and stored, by load module."""

from __future__ import annotations

import json

from hpcd.errors import FormatError

SymbolColumns = tuple[list[int], list[int], list[str]]
"""Starts (offsets in the module), sizes in bytes and names of symbols, of one length."""


def read_symbols(payload: bytes) -> dict[int, SymbolColumns]:
    """The symbols of modules that the payload of a SYMBOLS chunk has, which may be anything.
    Raises :class:`FormatError`, :class:`TypeError` or :class:`ValueError`."""
    tables = {}
    for module, (starts, sizes, names) in json.loads(payload).items():
        columns = (starts, sizes, names)
        types = [set(map(type, column)) for column in columns if type(column) is list]
        if starts and types != [{int}, {int}, {str}]:
            raise TypeError("symbols are of other types")
        # Addresses have 64 bits; sizes are signed numbers in the tables of databases.
        if starts and (min(min(starts), min(sizes)) < 0 or max(starts) >> 64 or max(sizes) >> 63):
            raise FormatError("symbols are out of range")
        if not len(starts) == len(sizes) == len(names):
            raise FormatError("columns of symbols differ in length")
        tables[int(module)] = columns
    return tables


class RecordedSymbols:
    """The symbols of a measurement's SYMBOLS chunks."""

    def __init__(self) -> None:
        self._rows: dict[int, list[tuple[int, int, str]]] = {}
        # Payloads that are known to be sound, and the modules they have symbols of.
        self._payloads: list[bytes] = []
        self._named: set[int] = set()

    def take(self, payload: bytes, *, as_text: bool) -> None:
        """Add those of a payload; ``as_text`` they are made rows when they are requested. Raises as
        :func:`read_symbols` does."""
        tables = read_symbols(payload)
        if as_text:
            self._payloads.append(payload)
            self._named.update(module for module, (starts, _, _) in tables.items() if starts)
        else:
            self._add(tables)

    def rows(self) -> dict[int, list[tuple[int, int, str]]]:
        """(start, size, name) rows by module."""
        for payload in self._payloads:
            self._add(read_symbols(payload))
        self._payloads.clear()
        return self._rows

    def modules(self) -> set[int]:
        """The modules that there are symbols of."""
        return self._named | {module for module, rows in self._rows.items() if rows}

    def _add(self, tables: dict[int, SymbolColumns]) -> None:
        for module, columns in tables.items():
            self._rows.setdefault(module, []).extend(zip(*columns, strict=True))
