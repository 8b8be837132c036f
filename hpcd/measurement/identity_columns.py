"""Identities of many rows by column: as objects, those of a million trace lines are a gigabyte."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Generic, TypeVar

import numpy as np

from hpcd.array_types import I64
from hpcd.model.identity import Process, Thread

_Row = TypeVar("_Row", Process, Thread)
_GET = {kind: attrgetter(*kind.__slots__) for kind in (Process, Thread)}
_PLACE = {
    kind: {name: place for place, name in enumerate(kind.__slots__)} for kind in (Process, Thread)
}
_KEY = {Process: "id", Thread: "line"}
_NARROW = 1 << 31

Column = bytes | tuple[Any, ...]
"""The bytes of so many integers, of 4 or 8 bytes each, or a tuple: of one value that all rows have,
or of a value for each."""


@dataclass(frozen=True, slots=True, eq=False)
class IdentityColumns(Mapping[int, _Row], Generic[_Row]):
    """Rows of one kind by their number, as a mapping; rows are made when they are asked for."""

    kind: type[_Row]
    length: int
    columns: tuple[Column, ...]

    @staticmethod
    def of(kind: type[_Row], rows: Mapping[int, _Row]) -> IdentityColumns[_Row]:
        """The same ``rows``."""
        if isinstance(rows, IdentityColumns):
            return rows
        values = zip(*map(_GET[kind], rows.values()), strict=True)
        columns = tuple(map(_packed, values)) if rows else ((),) * len(kind.__slots__)
        return IdentityColumns(kind, len(rows), columns)

    def column(self, name: str) -> list[Any]:
        """The values of a field, row by row."""
        column = self.columns[self.kind.__slots__.index(name)]
        if isinstance(column, bytes):
            numbers: list[Any] = self._integers(column).tolist()
            return numbers
        return list(column) * (self.length if len(column) == 1 else 1)

    def constant(self, name: str) -> tuple[Any, ...]:
        """The value of a field that all rows have, alone; nothing where they differ."""
        column = self.columns[_PLACE[self.kind][name]]
        return column if isinstance(column, tuple) and len(column) == 1 else ()

    def are_within(self, names: Sequence[str], limits: Sequence[int]) -> bool:
        """Whether the numbers of fields are all between minus the limit of theirs and the limit."""
        places = _PLACE[self.kind]
        for name, limit in zip(names, limits, strict=True):
            column = self.columns[places[name]]
            if isinstance(column, bytes):
                if limit > _NARROW and len(column) == 4 * self.length:
                    continue
                values = self._integers(column)
                if not -limit < int(values.min()) <= int(values.max()) < limit:
                    return False
                continue
            for value in column:
                if value is not None and not -limit < value < limit:
                    return False
        return True

    def _integers(self, column: bytes) -> I64:
        width = len(column) // self.length
        return np.frombuffer(column, f"<i{width}").astype(np.int64)

    def __getitem__(self, number: int) -> _Row:
        rows: list[_Row] = self.values()
        for row, found in zip(rows, self, strict=True):
            if found == number:
                return row
        raise KeyError(number)

    def __contains__(self, number: object) -> bool:
        return number in self.column(_KEY[self.kind])

    def __iter__(self) -> Iterator[int]:
        return iter(self.column(_KEY[self.kind]))

    def __len__(self) -> int:
        return self.length

    def values(self) -> Any:
        """The rows, made anew."""
        return list(map(self.kind, *map(self.column, self.kind.__slots__)))

    def items(self) -> Any:
        """The rows with their numbers."""
        return list(zip(self, self.values(), strict=True))


def arrays_of(tables: Sequence[IdentityColumns[Any]], name: str, none: int = 0) -> I64:
    """``int64[n]``: a field of numbers of one of ``tables`` after the other, ``none`` for None."""
    place = _PLACE[tables[0].kind][name]
    columns = [table.columns[place] for table in tables]
    lengths = np.array([table.length for table in tables], np.int64)
    forms = np.array([_form(column, table) for column, table in zip(columns, tables, strict=True)])
    found = np.empty(int(lengths.sum()), np.int64)
    for form in np.unique(forms).tolist():
        chosen = forms == form
        some = [columns[at] for at in np.flatnonzero(chosen).tolist()]
        values: Any
        if form > 0:
            values = np.frombuffer(b"".join(map(bytes, some)), f"<i{form}")
        else:
            values = [none if value is None else value for column in some for value in column]
            values = np.array(values, np.int64)
            if form == _CONSTANT:
                values = np.repeat(values, lengths[chosen])
        found[np.repeat(chosen, lengths)] = values
    return found


# Columns of bytes are of the form that their width is.
_CONSTANT, _VALUES = -1, 0


def _form(column: Column, table: IdentityColumns[Any]) -> int:
    if isinstance(column, bytes):
        return len(column) // table.length
    return _CONSTANT if len(column) == 1 else _VALUES


def _packed(column: tuple[Any, ...]) -> Column:
    if column.count(column[0]) == len(column):
        return column[:1]
    if set(map(type, column)) != {int}:
        return column
    try:
        values = np.array(column, np.int64)
    except OverflowError:  # of a damaged part; written ones are within bounds
        return column
    return pack_numbers(values, int(values.min()), int(values.max()))


def pack_numbers(values: I64, least: int, most: int) -> Column:
    """Numbers from ``least`` to ``most`` as a column."""
    narrow = least >= -_NARROW and most < _NARROW
    return values.astype("<i4" if narrow else "<i8").tobytes()
