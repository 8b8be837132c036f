"""Tables of identities (:mod:`hpcd.model.identity`) by column: as objects, the identities of a
million trace lines take a gigabyte.

A measurement and a part store a table as a JSON object: for each field of a row the list of its
values, or a list with the single value of all rows. The list of row numbers is always complete. A
field missing from a table has its default; unknown fields belong to a later version.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from operator import attrgetter, lt
from typing import Any, Generic, TypeVar

import numpy as np

from hpcd.array_types import I64
from hpcd.errors import FormatError
from hpcd.model.identity import Event, Host, Module, ModuleKind, Process, Thread

_Row = TypeVar("_Row", Event, Process, Thread, Module)
_KINDS: tuple[type[Any], ...] = (Event, Process, Thread, Module)
_GET = {kind: attrgetter(*kind.__slots__) for kind in _KINDS}
_PLACE = {kind: {name: at for at, name in enumerate(kind.__slots__)} for kind in _KINDS}
_KEY = {Event: "id", Process: "id", Thread: "line", Module: "id"}
_MOST_NUMBER = 1 << 32
_NARROW = 1 << 31
_MOST_INTEGER = 1 << 63
# The types of JSON's values that a field may have, by the type of the field.
_NONE = type(None)
_ALLOWED: dict[str, set[type]] = {
    "int": {int}, "int | None": {int, _NONE}, "str": {str}, "bool": {bool}, "float": {float, int},
    "tuple[str, ...]": {list}, "ModuleKind": {str},
}  # fmt: skip
_FIELDS = {
    kind: [(field.name, str(field.type), field.default) for field in fields(kind)]
    for kind in _KINDS
}
# Texts and commands of rows, unless they are long: one object each for all rows and measurements
# takes half the memory, and travels once from a worker to the merge.
_SHARED: dict[Any, Any] = {}
_MOST_SHARED = 4096
_LONG = 1024

Column = bytes | tuple[Any, ...]
"""The bytes of integers, of 4 or 8 bytes each, or a tuple: with the single value of all rows, or
with a value for each."""


@dataclass(frozen=True, slots=True, eq=False)
class IdentityColumns(Mapping[int, _Row], Generic[_Row]):
    """Rows of one kind by their number, as a mapping; rows are made at each access."""

    kind: type[_Row]
    length: int
    columns: tuple[Column, ...]

    @staticmethod
    def of(kind: type[_Row], rows: Mapping[int, _Row]) -> IdentityColumns[_Row]:
        """``rows`` by column."""
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
        """The single value of a field in all rows, as a tuple; empty if rows differ."""
        column = self.columns[_PLACE[self.kind][name]]
        return column if isinstance(column, tuple) and len(column) == 1 else ()

    def are_within(self, names: Sequence[str], limits: Sequence[int]) -> bool:
        """Whether the numbers of all fields are between minus their limit and their limit."""
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

    def ascends(self) -> bool:
        """Whether the rows' numbers ascend: each is there once."""
        numbers = self.column(_KEY[self.kind])
        return all(map(lt, numbers, numbers[1:]))

    def _integers(self, column: bytes) -> I64:
        width = len(column) // self.length
        return np.frombuffer(column, f"<i{width}").astype(np.int64)

    def __getitem__(self, number: int) -> _Row:
        rows: list[_Row] = self.values()
        for row, row_number in zip(rows, self, strict=True):
            if row_number == number:
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


def table_of(kind: type[_Row], rows: Iterable[_Row]) -> dict[str, list[Any]]:
    """``rows`` as a table to be written as JSON."""
    values = list(map(list, zip(*map(_GET[kind], rows), strict=True)))
    table = dict(zip(kind.__slots__, values or [[] for _ in kind.__slots__], strict=True))
    for name, column in table.items():
        if name != _KEY[kind] and len(column) > 1 and column.count(column[0]) == len(column):
            del column[1:]
    return table


def read_table(kind: type[_Row], table: Any) -> IdentityColumns[_Row]:
    """The rows of a table that was JSON. Raises :class:`FormatError` or :class:`TypeError` for
    anything else."""
    if type(table) is not dict:
        raise TypeError("a table is no object")
    key = table.get(_KEY[kind])
    if type(key) is not list:
        raise FormatError(f"a table without {_KEY[kind]}")
    if len(_SHARED) > _MOST_SHARED:
        _SHARED.clear()
    columns = tuple(
        _read_column(table.get(name), name, type_name, default, len(key))
        for name, type_name, default in _FIELDS[kind]
    )
    if key and not 0 <= min(key) <= max(key) < _MOST_NUMBER:
        number = next(number for number in key if not 0 <= number < _MOST_NUMBER)
        raise FormatError(f"{_KEY[kind]} {number} is out of range")
    return IdentityColumns(kind, len(key), columns)


def _read_column(values: Any, name: str, type_name: str, default: Any, rows: int) -> Column:
    if values is None and default is not MISSING:
        return (default,) if rows else ()
    if type(values) is not list or len(values) not in (rows, min(rows, 1)):
        raise FormatError(f"{name} is no column of {rows} rows")
    if not set(map(type, values)) <= _ALLOWED[type_name]:
        raise TypeError(f"{name} is of another type than {type_name}")
    if not values:
        return ()
    if type_name == "float":
        values = list(map(float, values))
    elif type_name == "ModuleKind":
        values = list(map(ModuleKind, values))
    elif type_name == "tuple[str, ...]":
        values = [tuple(map(str, words)) for words in values]
    if type_name in ("str", "tuple[str, ...]"):
        shared = {value: _share(value) for value in set(values)}
        values = [shared[value] for value in values]
    column = _packed(tuple(values))
    # Values packed into bytes are always in range.
    numbers = column if type_name.startswith("int") and isinstance(column, tuple) else ()
    if not all(n is None or -_MOST_INTEGER <= n < _MOST_INTEGER for n in numbers):
        raise FormatError(f"{name} is out of range")
    return column


def _share(value: Any) -> Any:
    if len(value) < _LONG and sum(map(len, value)) < _LONG:
        return _SHARED.setdefault(value, value)
    return value


def read_host(value: Any) -> Host:
    """The host of a JSON object. Raises :class:`TypeError`, :class:`ValueError` or
    :class:`KeyError`."""
    host = {field.name: value[field.name] for field in fields(Host)}
    for field in fields(Host):
        if type(host[field.name]) not in _ALLOWED[str(field.type)]:
            raise TypeError(f"{field.name} is of another type than {field.type}")
    return Host(**host)


def arrays_of(tables: Sequence[IdentityColumns[Any]], name: str, none: int = 0) -> I64:
    """``int64[n]``: a numeric field of all ``tables``, concatenated; ``none`` replaces None."""
    place = _PLACE[tables[0].kind][name]
    columns = [table.columns[place] for table in tables]
    lengths = np.array([table.length for table in tables], np.int64)
    forms = np.array([_form(column, table) for column, table in zip(columns, tables, strict=True)])
    numbers = np.empty(int(lengths.sum()), np.int64)
    for form in np.unique(forms).tolist():
        selected = forms == form
        some = [columns[at] for at in np.flatnonzero(selected).tolist()]
        values: Any
        if form > 0:
            values = np.frombuffer(b"".join(map(bytes, some)), f"<i{form}")
        else:
            values = [none if value is None else value for column in some for value in column]
            values = np.array(values, np.int64)
            if form == _CONSTANT:
                values = np.repeat(values, lengths[selected])
        numbers[np.repeat(selected, lengths)] = values
    return numbers


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
    except OverflowError:  # a damaged table, which is refused by its reader
        return column
    return pack_numbers(values, int(values.min()), int(values.max()))


def pack_numbers(values: I64, least: int, most: int) -> Column:
    """Numbers from ``least`` to ``most`` as a column."""
    narrow = least >= -_NARROW and most < _NARROW
    return values.astype("<i4" if narrow else "<i8").tobytes()
