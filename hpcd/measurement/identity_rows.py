"""Rows of :mod:`hpcd.model.identity` as measurements and parts have them: JSON objects, trusted in
nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from operator import itemgetter
from typing import Any, TypeVar

from hpcd.measurement.identity_columns import IdentityColumns
from hpcd.measurement.identity_text import columns_of
from hpcd.model.identity import Event, Host, Module, ModuleKind, Process, Thread

_Row = TypeVar("_Row", Event, Process, Thread, Module, Host)

# The fields of each kind of row with their types: looking them up takes as long as reading a row.
# And what JSON mostly has there, which needs no further look.
_USUAL: dict[str, type] = {"int": int, "int | None": int, "str": str, "bool": bool, "float": float}
_TYPES: dict[str, list[tuple[str, str, type]]] = {
    kind.__name__: [
        (field.name, str(field.type), _USUAL.get(str(field.type), object)) for field in fields(kind)
    ]
    for kind in (Event, Process, Thread, Module, Host)
}
# Of each kind of row its fields, what gets all their values, and which of them JSON has otherwise.
_VALUES = {
    kind.__name__: (frozenset(kind.__slots__), itemgetter(*kind.__slots__))
    for kind in (Event, Process, Thread, Module, Host)
}
_CONVERTED: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "Process": (Process.__slots__.index("command"), lambda words: tuple(map(str, words))),
    "Module": (Module.__slots__.index("kind"), ModuleKind),
}
# Texts and commands of rows, unless they are long.
_SHARED: dict[Any, Any] = {}
_MOST_SHARED = 4096
# With fewer rows nothing is gained by columns.
_BY_COLUMN = 4
_LONG = 1024
# Types of values of which a row was made before: the next one needs no look at each field.
_MADE: dict[str, set[tuple[type, ...]]] = {name: set() for name in _TYPES}
# By field, the types of JSON's values that a column of rows may have.
_NONE = type(None)
_ALLOWED: dict[str, set[type]] = {
    "int": {int}, "int | None": {int, _NONE}, "str": {str}, "bool": {bool}, "float": {float},
    "tuple[str, ...]": {list}, "ModuleKind": {str},
}  # fmt: skip
_PLAIN = {
    name: [_ALLOWED.get(expected, set()) for _, expected, _ in columns]
    for name, columns in _TYPES.items()
}


def read_row(kind: type[_Row], values: dict[str, Any]) -> _Row:
    """A row from JSON: unknown keys are a later version's, wrong types are damage.

    Raises :class:`TypeError`, :class:`ValueError` or :class:`KeyError`.
    """
    if type(values) is not dict:
        raise TypeError("a row is no object")
    names, get = _VALUES[kind.__name__]
    if values.keys() != names:
        return _read_fields(kind, values)
    row: tuple[Any, ...] = get(values)
    types = tuple(map(type, row))
    if types not in _MADE[kind.__name__]:
        result = _read_fields(kind, values)
        made = tuple(getattr(result, name) for name in kind.__slots__)
        place = _CONVERTED[kind.__name__][0] if kind.__name__ in _CONVERTED else -1
        # Another number of the same types is read alike: nothing else was converted.
        if all(a is b for at, (a, b) in enumerate(zip(row, made, strict=True)) if at != place):
            _MADE[kind.__name__].add(types)
        return result
    make: Callable[..., _Row] = kind
    fields_of = list(row)
    converted = _CONVERTED.get(kind.__name__)
    if converted is not None:
        fields_of[converted[0]] = converted[1](row[converted[0]])
    if len(_SHARED) > _MOST_SHARED:
        _SHARED.clear()
    # Ranks of a job have their names and commands in common: one text each takes half the memory,
    # and travels once from a worker to the merge.
    shared = _SHARED.setdefault
    return make(*[
        shared(value, value)
        if type(value) in (str, tuple) and len(value) < _LONG and sum(map(len, value)) < _LONG
        else value
        for value in fields_of
    ])  # fmt: skip


def read_rows(kind: type[_Row], rows: Sequence[dict[str, Any]]) -> list[_Row]:
    """The same of many, by column where all are what a writer of this version makes."""
    names, get = _VALUES[kind.__name__]
    if len(rows) < _BY_COLUMN or not all(type(row) is dict and row.keys() == names for row in rows):
        return [read_row(kind, row) for row in rows]
    columns: list[Sequence[Any]] = list(zip(*map(get, rows), strict=True))
    for at, (column, allowed) in enumerate(zip(columns, _PLAIN[kind.__name__], strict=True)):
        types = set(map(type, column))
        if not types <= allowed:
            return [read_row(kind, row) for row in rows]
        if types <= {int, type(None), bool, float}:
            continue
        if list in types:
            column = [tuple(map(str, words)) for words in column]
        columns[at] = _shared(column)
    if kind is Module:
        place = Module.__slots__.index("kind")
        columns[place] = list(map(ModuleKind, columns[place]))
    return list(map(kind, *columns))


def read_columns(kind: type[Any], text: bytes) -> IdentityColumns[Any] | None:
    """Rows of ``kind``, Process or Thread, of a JSON list by column, each value that is no number
    one object for all; None where they are not written as writers of this version do."""
    if len(_SHARED) > _MOST_SHARED:
        _SHARED.clear()
    return columns_of(kind, text, _share)


def _share(value: Any) -> Any:
    if len(value) < _LONG and sum(map(len, value)) < _LONG:
        return _SHARED.setdefault(value, value)
    return value


def _shared(values: Sequence[Any]) -> list[Any]:
    """``values``, equal ones one object each, unless they are long."""
    if len(_SHARED) > _MOST_SHARED:
        _SHARED.clear()
    distinct = {value: _share(value) for value in set(values)}
    return [distinct[value] for value in values]


def _read_fields(kind: type[_Row], values: dict[str, Any]) -> _Row:
    """The same field by field."""
    arguments: dict[str, Any] = {}
    for name, expected, usual in _TYPES[kind.__name__]:
        if name not in values:
            continue
        value = values[name]
        if type(value) is usual:
            arguments[name] = value
            continue
        if expected == "int" and type(value) is not int:
            raise TypeError(f"{name} is not a number")
        if expected == "bool" and not isinstance(value, bool):
            raise TypeError(f"{name} is neither true nor false")
        if expected == "str" and not isinstance(value, str):
            raise TypeError(f"{name} is not text")
        if expected.startswith("int |") and value is not None and type(value) is not int:
            raise TypeError(f"{name} is not a number")
        if expected.startswith("tuple"):
            value = tuple(str(part) for part in value)
        if expected == "ModuleKind":
            value = ModuleKind(value)
        if expected == "float":
            value = float(value)
        arguments[name] = value
    return kind(**arguments)
