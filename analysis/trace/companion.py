"""The companion of a part: what uniting measurements needs of one besides, while a merge runs.

A file beside the part, an archive (:mod:`hpcd.analysis.arrays.archive`) of few entries: each costs
as much time as compressing a short measurement's. ``tree`` has the columns parent and frame,
``order`` the nodes that records number first, ``cells`` row, node, event, records and value of the
sums, ``symbols`` the payloads of SYMBOLS chunks with a zero byte between them, ``modules`` those
they are of; with an entry ``alone`` the part numbers no nodes but those of ``order``.

Arrays are columns of :mod:`hpcd.measurement.columns`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hpcd.analysis.arrays.archive import archive_index, pack_archive, unpack_bytes
from hpcd.array_types import U32, U64, Array
from hpcd.errors import FormatError
from hpcd.measurement.columns import pack_columns, unpack_columns
from hpcd.measurement.reader import read_symbols
from hpcd.regular_file import read_regular

SymbolRow = tuple[int, int, str]
_ADDRESSES = 1 << 63
# zstd's level for what is read once, soon, and removed.
_PASSING = 1
_CELLS = (np.uint32, np.uint32, np.uint16, np.uint64, np.uint64)


def companion(part: Path) -> Path:
    """Return the path of the companion of ``part``, which is there while the database is made."""
    return part.with_suffix(".companion")


def save_companion(
    part: Path, tree: tuple[U32, U64], order: U32, cells: Sequence[Array],
    modules: Sequence[int], symbols: Sequence[bytes], *, alone: bool,
) -> None:  # fmt: skip
    """Write the companion of ``part``. Raises :class:`OSError`."""
    entries: dict[str, bytes] = {
        "tree": pack_columns(*tree),
        "order": pack_columns(order),
        "cells": pack_columns(*cells),
    }
    if alone:
        entries["alone"] = b""
    if modules:
        entries["symbols"] = b"\0".join(symbols)
        entries["modules"] = json.dumps(modules).encode()
    companion(part).write_bytes(pack_archive(entries, level=_PASSING))


class Companion:
    """The contents of a companion. Methods raise :class:`FormatError`, and :class:`KeyError` for
    what is not there."""

    def __init__(self, entries: Mapping[str, memoryview]) -> None:
        self._entries = entries

    @staticmethod
    def of(part: Path) -> Companion | None:
        """The companion of ``part``, if there is one. Raises :class:`FormatError`."""
        try:
            return Companion(archive_index(read_regular(companion(part))))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise FormatError(f"{companion(part)}: {error.strerror or error}") from None

    @property
    def alone(self) -> bool:
        """Whether the part numbers no nodes but those of :meth:`order`."""
        return "alone" in self._entries

    def tree(self) -> tuple[U32, U64]:
        """Parents and frames of the nodes."""
        parent, frame = self._columns("tree", np.uint32, np.uint64)
        return parent, frame

    def order(self) -> U32:
        """The nodes that records number first."""
        return self._columns("order", np.uint32)[0]

    def cells(self) -> list[Array]:
        """Row, node, event, records and value of the sums, of one length."""
        return self._columns("cells", *_CELLS)

    def symbols(self) -> dict[int, list[SymbolRow]]:
        """The symbols of load modules."""
        if "symbols" not in self._entries:
            return {}
        return read_payloads(unpack_bytes(self._entries["symbols"]).split(b"\0"))

    def modules(self) -> frozenset[int]:
        """The load modules that there are symbols of."""
        if "modules" not in self._entries:
            return frozenset()
        try:
            return frozenset(map(int, json.loads(unpack_bytes(self._entries["modules"]))))
        except (ValueError, TypeError, RecursionError):
            raise FormatError("the load modules of a companion are damaged") from None

    def _columns(self, name: str, *kinds: Any) -> list[Array]:
        return unpack_columns(unpack_bytes(self._entries[name]), *kinds)


def read_payloads(payloads: Sequence[bytes]) -> dict[int, list[SymbolRow]]:
    """The symbols of modules that the payloads of SYMBOLS chunks have, within bounds. Raises
    :class:`FormatError`."""
    symbols: dict[int, list[SymbolRow]] = {}
    try:
        for payload in payloads:
            for module, columns in read_symbols(payload).items():
                symbols.setdefault(module, []).extend(_bounded(*columns))
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise FormatError("the symbols of a companion are damaged") from None
    return symbols


def _bounded(
    starts: Sequence[int], sizes: Sequence[int], names: Sequence[str]
) -> Iterable[SymbolRow]:
    # Hostile ones are cut to what an address and a name can be.
    if starts and (min(*starts, *sizes, 0) < 0 or max(*starts, *sizes) >= _ADDRESSES):
        starts, sizes = (
            [min(max(number, 0), _ADDRESSES - 1) for number in column] for column in (starts, sizes)
        )
    if any("\0" in name for name in names):
        names = [name.replace("\0", "") for name in names]
    return zip(starts, sizes, names, strict=True)


def symbol_text(rows: Sequence[SymbolRow]) -> bytes:
    """JSON of symbols (start, size, name) by column; there is one at least."""
    return json.dumps(list(zip(*rows, strict=True))).encode()


def read_symbol_text(text: bytes) -> list[SymbolRow]:
    """The symbols that :func:`symbol_text` wrote. Raises :class:`FormatError`."""
    try:
        columns = json.loads(text)
        return [(int(a), int(b), str(name)) for a, b, name in zip(*columns, strict=True)]
    except (ValueError, TypeError, RecursionError):
        raise FormatError("symbols are damaged") from None
