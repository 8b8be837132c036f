"""The scratch file of a part: temporary data for uniting parts during a merge.

It is stored next to the part as named arrays. ``parent`` and ``frame`` are the union of the
measurements' trees, with load modules numbered in common; ``order`` has the tree's node of each of
the part's node numbers, which cover the tree; ``row``, ``node``, ``event``, ``records`` and
``value`` are sums, with rows, nodes and events in the part's numbers. ``payload`` has the distinct
payloads of SYMBOLS chunks, each from ``payload_start`` on. ``facts`` is JSON: ``tables``, the
distinct tables from a measurement's load modules to the modules of the tree's frames, and for each
measurement the number of its ``table``, the numbers of its payloads (``symbols``), and the modules
``named`` by them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from hpcd.analysis.arrays.bounds import bounds_of
from hpcd.analysis.arrays.named_arrays import json_bytes, load_arrays, save_arrays
from hpcd.analysis.arrays.small_numbers import narrow
from hpcd.analysis.arrays.sparse_sums import Cells
from hpcd.array_types import U32, Array
from hpcd.errors import FormatError
from hpcd.model.cct import CCT

_SUMS = {"row": np.uint32, "node": np.uint32, "event": np.uint16, "records": np.uint64,
         "value": np.uint64}  # fmt: skip


def scratch_path(part: Path) -> Path:
    """Return the path of the scratch file of ``part``."""
    return part.with_suffix(".scratch")


def save_scratch(
    part: Path, tree: CCT, order: U32, sums: Cells, modules: Sequence[U32],
    symbols: Sequence[Sequence[bytes]], named: Sequence[frozenset[int]],
) -> None:  # fmt: skip
    """Write the scratch file of ``part``.

    ``tree``, ``order`` and ``sums`` are described in the module's text; for each measurement
    ``modules`` maps its load modules to the tree's frames, ``symbols`` are its SYMBOLS payloads,
    and ``named`` the modules that have symbols. Raises :class:`StorageError`.
    """
    tables: dict[bytes, int] = {}
    payloads: dict[bytes, int] = {}
    facts = {
        "table": [tables.setdefault(table.tobytes(), len(tables)) for table in modules],
        "symbols": [[payloads.setdefault(text, len(payloads)) for text in some]
                    for some in symbols],
        "named": [sorted(some) for some in named],
        "tables": [np.frombuffer(table, np.uint32).tolist() for table in tables],
    }  # fmt: skip
    columns: dict[str, Any] = {
        "parent": tree.parent, "frame": tree.frame, "order": order,
        "payload": np.frombuffer(b"".join(payloads), np.uint8),
        "payload_start": bounds_of([len(payload) for payload in payloads]),
        "facts": json_bytes(facts),
    }  # fmt: skip
    sum_columns: tuple[Array, ...] = (sums.line, sums.node, sums.event, sums.records, sums.value)
    columns |= {name: narrow(column) for name, column in zip(_SUMS, sum_columns, strict=True)}
    save_arrays(scratch_path(part), columns)


class Scratch:
    """The scratch file of a part, read as it is needed. Methods raise :class:`FormatError`."""

    def __init__(self, part: Path) -> None:
        self._path = scratch_path(part)

    def tree(self) -> tuple[CCT, U32]:
        """The tree, and its node of each number of the part."""
        parent, frame, order = self._columns("parent", "frame", "order")
        if not len(parent) == len(frame) == len(order):
            raise self._damaged()
        tree = CCT(parent, frame)
        tree.validate(str(self._path))
        if int(order.max(initial=0)) >= len(parent):
            raise self._damaged()
        return tree, order

    def sums(self) -> Cells:
        """The sums, by row, node and event of the part."""
        columns = self._columns(*_SUMS)
        if len({len(column) for column in columns}) != 1:
            raise self._damaged()
        line, node, event, records, value = (
            column.astype(kind, copy=False)
            for column, kind in zip(columns, _SUMS.values(), strict=True)
        )
        return Cells(line, node, event, records, value)

    def modules(self) -> list[U32]:
        """``uint32[k]`` for each measurement: the tree's modules for its load modules."""
        facts = self._facts()
        tables = [np.array(table, np.uint32) for table in facts["tables"]]
        return [tables[number] for number in facts["table"]]

    def named(self) -> list[frozenset[int]]:
        """The load modules of each measurement that have symbols."""
        return [frozenset(map(int, some)) for some in self._facts()["named"]]

    def symbols(self) -> list[list[bytes]]:
        """The payloads of SYMBOLS chunks of each measurement."""
        start, payload = self._columns("payload_start", "payload")
        bounds, data = start.tolist(), payload.tobytes()
        texts = [data[a:b] for a, b in pairwise(bounds)]
        return [[texts[number] for number in some] for some in self._facts()["symbols"]]

    def _facts(self) -> dict[str, Any]:
        (text,) = self._columns("facts")
        facts: dict[str, Any] = json.loads(text.tobytes())
        return facts

    def _columns(self, *names: str) -> list[Array]:
        try:
            columns = load_arrays(self._path)
            return [columns[name] for name in names]
        except KeyError:
            raise self._damaged() from None

    def _damaged(self) -> FormatError:
        return FormatError(f"{self._path}: damaged")
