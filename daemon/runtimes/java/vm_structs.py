"""Reads offsets of fields, sizes of types and addresses of statics as HotSpot gives them.

libjvm exports tables for debuggers (``src/hotspot/share/runtime/vmStructs.hpp``). They are memory
of the target, which may hold anything: sizes are bounded, and a name that is not there is an error.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from hpcd.daemon.runtimes.process_memory import ReadMemory, is_address
from hpcd.errors import HpcdError

# type name, field name, type string, is static, offset, address
_FIELD = struct.Struct("<QQQiiQQ")
# type name, superclass name, is oop, is integer, is unsigned, padding, size
_TYPE = struct.Struct("<QQiiiiQ")
# 21 has 1,900 fields and 900 types.
_MOST_BYTES = 512 << 10
_NAME_BYTES = 96
# Requests for names are of as many at a time.
_AT_ONCE = 4096


class UnknownStructuresError(HpcdError):
    """The tables cannot be read, or have no entry that is needed."""


class VmStructs:
    """The tables of one libjvm: offsets of fields and addresses of statics by (type, field), sizes
    of types by name."""

    def __init__(self, fields: dict[tuple[str, str], int], sizes: dict[str, int]) -> None:
        self._fields = fields
        self._sizes = sizes

    @classmethod
    def read(cls, read: ReadMemory, structs: int, types: int) -> VmStructs:
        """Read the tables that the pointers at ``structs`` and ``types`` lead to. Raises
        :class:`UnknownStructuresError`, and what ``read`` does."""
        fields = _table(read, structs, _FIELD)
        rows = _table(read, types, _TYPE)
        pointers = {at for row in fields for at in row[:2]} | {row[0] for row in rows}
        names = _names(read, sorted(pointers))
        of_field = {
            (names.get(owner, ""), names.get(field, "")): address if static else offset
            for owner, field, _, static, _, offset, address in fields
        }
        return cls(of_field, {names.get(row[0], ""): row[-1] for row in rows})

    def at(self, owner: str, *names: str) -> int:
        """Return the offset of a field of ``owner``, or the address of a static one, by the first
        of ``names`` that there is. Raises :class:`UnknownStructuresError`."""
        for name in names:
            if (owner, name) in self._fields:
                return self._fields[owner, name]
        raise UnknownStructuresError(f"no {owner}::{names[0]} in libjvm")

    def has(self, owner: str, name: str) -> bool:
        """Return whether there is such a field."""
        return (owner, name) in self._fields

    def first(self, *places: tuple[str, str]) -> int:
        """Return what :meth:`at` does, of the first of ``places`` (type, field) that there is."""
        for place in places:
            if place in self._fields:
                return self._fields[place]
        raise UnknownStructuresError(f"no {'::'.join(places[0])} in libjvm")

    def size(self, name: str) -> int:
        """Return the size of a type in bytes. Raises :class:`UnknownStructuresError`."""
        if name not in self._sizes:
            raise UnknownStructuresError(f"no size of {name} in libjvm")
        return self._sizes[name]


def _table(read: ReadMemory, pointer: int, row: struct.Struct) -> list[tuple[int, ...]]:
    """The rows of the table that ``pointer`` leads to, up to the one without a name."""
    (word,) = read([(pointer, 8)])
    if word is None or len(word) < 8:
        raise UnknownStructuresError("the tables of libjvm cannot be read")
    (table,) = struct.unpack("<Q", word)
    (data,) = read([(table, _MOST_BYTES)]) if is_address(table) else (b"",)
    data = data or b""
    rows: list[tuple[int, ...]] = []
    for values in row.iter_unpack(data[: len(data) // row.size * row.size]):
        if not values[0]:
            return rows
        rows.append(values)
    raise UnknownStructuresError("the tables of libjvm have no end")


def _names(read: ReadMemory, pointers: Iterable[int]) -> dict[int, str]:
    """The strings at ``pointers``."""
    pointers = list(filter(is_address, pointers))
    names = {}
    for first in range(0, len(pointers), _AT_ONCE):
        some = pointers[first : first + _AT_ONCE]
        texts = read([(at, _NAME_BYTES) for at in some])
        for at, text in zip(some, texts, strict=True):
            if text:
                names[at] = text.partition(b"\0")[0].decode("ascii", "replace")
    return names
