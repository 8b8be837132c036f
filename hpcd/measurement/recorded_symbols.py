"""Symbols that a recorder read and stored, by load module."""

from __future__ import annotations

import json
from operator import itemgetter

from hpcd.errors import FormatError

SymbolColumns = tuple[list[int], list[int], list[str]]
"""Starts (offsets in the module), sizes in bytes and names of symbols, of one length."""
SymbolRow = tuple[int, int, str]
"""Start, size and name of a symbol."""


def read_symbols(payload: bytes) -> dict[int, tuple[SymbolColumns, list[int]]]:
    """The symbols of modules that the payload of a SYMBOLS chunk has, which may be anything, and
    the monotonic ns since when each holds; no times where they always do. Raises
    :class:`FormatError`, :class:`TypeError` or :class:`ValueError`."""
    tables = {}
    for module, (starts, sizes, names, *times) in json.loads(payload).items():
        since: list[int] = times[0] if times else []
        columns = (starts, sizes, names, since)
        types = [set(map(type, column)) for column in columns if type(column) is list]
        if starts and types != [{int}, {int}, {str}, {int} if since else set()]:
            raise TypeError("symbols are of other types")
        # Addresses have 64 bits; sizes and times are signed numbers in the tables of databases.
        if starts and (
            min(map(min, (starts, sizes, since or [0]))) < 0
            or max(starts) >> 64
            or max(map(max, (sizes, since or [0]))) >> 63
        ):
            raise FormatError("symbols are out of range")
        if not len(starts) == len(sizes) == len(names) or len(since) not in (0, len(starts)):
            raise FormatError("columns of symbols differ in length")
        tables[int(module)] = (starts, sizes, names), since
    return tables


class RecordedSymbols:
    """The symbols of a measurement's SYMBOLS chunks.

    ``timed`` has the symbols of replaceable code by module, each with the time from which it
    holds.
    """

    def __init__(self) -> None:
        self._rows: dict[int, list[SymbolRow]] = {}
        self.timed: dict[int, list[tuple[int, SymbolRow]]] = {}
        # Payloads that are known to be sound, and the modules they have symbols of.
        self._payloads: list[bytes] = []
        self._named: set[int] = set()

    def take(self, payload: bytes, *, as_text: bool) -> None:
        """Add the symbols of a payload; with ``as_text`` it is parsed only on request, unless its
        symbols have times. Raises as :func:`read_symbols` does."""
        tables = read_symbols(payload)
        if as_text and not any(since for _, since in tables.values()):
            self._payloads.append(payload)
            self._named.update(module for module, ((starts, _, _), _) in tables.items() if starts)
        else:
            self._add(tables)

    def rows(self) -> dict[int, list[SymbolRow]]:
        """(start, size, name) rows by module; of code that was replaced the latest ones."""
        for payload in self._payloads:
            self._add(read_symbols(payload))
        self._payloads.clear()
        latest = {}
        for module, timed in self.timed.items():
            by_start = {row[0]: row for _, row in sorted(timed, key=itemgetter(0))}
            latest[module] = self._rows.get(module, []) + list(by_start.values())
        return self._rows | latest

    def modules(self) -> set[int]:
        """The modules that there are symbols of."""
        named = {module for module, rows in self._rows.items() if rows}
        return self._named | named | self.timed.keys()

    def _add(self, tables: dict[int, tuple[SymbolColumns, list[int]]]) -> None:
        for module, (columns, since) in tables.items():
            rows = zip(*columns, strict=True)
            if since:
                self.timed.setdefault(module, []).extend(zip(since, rows, strict=True))
            else:
                self._rows.setdefault(module, []).extend(rows)

    def replace_timed(self, rows: dict[int, list[SymbolRow]]) -> None:
        """Replace all symbols with times by ``rows``, by module."""
        self.timed.clear()
        for module, own in rows.items():
            self._rows.setdefault(module, []).extend(own)
