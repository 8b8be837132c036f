"""A companion that many parts share: what uniting short measurements needs of them besides.

Where a measurement has a tree as large as its records are many, a file for each, and some frames of
zstd in it, take longer than what is done with them. The trees of those that one task read are
united here already; sums name this tree's nodes.

u64 length, JSON: ``parts``, each the name of its file, which measurement it is of and how many
bytes that had; the ``columns`` (type, offset behind the JSON, entries); ``modules``, the distinct
tables of what a measurement's modules are in the tree's frames, and which of these is that ``of``
each part; and of each part the ``symbols``, which of the payloads of SYMBOLS chunks are its, and
the modules ``named`` by these. Then the columns: ``parent``, ``frame`` of the tree; ``node``, the
tree's node of each number that a part gives one, part by part, each from ``node_start`` on;
``row``, ``cell_node``, ``event``, ``records``, ``value`` of sums, each part's from ``cell_start``
on; ``payload``, each from ``payload_start`` on.
"""

from __future__ import annotations

import json
import os
import struct
import weakref
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from hpcd.analysis.arrays.sparse_sums import Cells
from hpcd.array_types import U32, Array
from hpcd.errors import FormatError
from hpcd.model.cct import CCT
from hpcd.regular_file import open_descriptor

SUFFIX = ".companions"
"""What files of shared companions end with."""

_LENGTH = struct.Struct("<Q")
_ALIGNED = 8
# The column of JSON that all that is no array is in.
_FACTS = "facts"
_MALFORMED = (KeyError, ValueError, TypeError, AttributeError, OverflowError, struct.error)
# Companions that a worker keeps open: those of one group of parts may be as many.
_MOST_OPEN = 128


Measured = tuple[int, int]
"""Which measurement, and how many bytes it had."""


@dataclass(frozen=True, slots=True)
class Member:
    """Part ``number`` of those of the shared companion ``path``."""

    path: Path
    number: int

    def __str__(self) -> str:
        return f"{self.path}, part {self.number}"


@dataclass(frozen=True, slots=True)
class _Facts:
    """The contents of a companion besides columns: ``modules`` are the distinct tables of modules,
    ``of`` the index in these of each part's table, ``symbols`` the payloads of each part, ``named``
    the modules these are of."""

    parts: list[tuple[str, Measured]]
    modules: list[U32]
    of: list[int]
    symbols: list[list[int]]
    named: list[frozenset[int]]


def save_shared(place: Path, columns: Mapping[str, Array], facts: Mapping[str, Any]) -> None:
    """Write a shared companion: its columns, and the rest. Raises :class:`OSError`."""
    index, at = {}, 0
    data: list[bytes] = []
    # Adding up reads a few parts of each of hundreds of companions, and none of the facts.
    text = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    for name, column in {_FACTS: text, **columns}.items():
        index[name] = (column.dtype.str, at, len(column))
        padding = bytes(-column.nbytes % _ALIGNED)
        data += [column.tobytes(), padding]
        at += column.nbytes + len(padding)
    head = json.dumps(index).encode()
    head += b" " * (-len(head) % _ALIGNED)
    with place.open("xb") as file:
        file.write(b"".join([_LENGTH.pack(len(head)), head, *data]))


class SharedCompanion:
    """A shared companion, read where it is asked. What is asked for raises :class:`FormatError`
    where it is not there."""

    def __init__(self, path: Path) -> None:
        """Raises :class:`FormatError`."""
        self._path = path
        try:
            # Read rather than mapped: pages of mappings count as this process's memory.
            self._file = open_descriptor(path)
            weakref.finalize(self, os.close, self._file)
            (length,) = _LENGTH.unpack(os.pread(self._file, _LENGTH.size, 0))
            self._body = _LENGTH.size + length
            self._columns = {
                str(name): (np.dtype(kind), int(at), int(count))
                for name, (kind, at, count) in json.loads(
                    os.pread(self._file, length, _LENGTH.size)
                ).items()
            }
            self._node_start = self._column("node_start")
            self._cell_start = self._column("cell_start")
            self.nodes = self._columns["parent"][2]
            """How many nodes the tree has."""
        except OSError as error:
            raise FormatError(f"{path}: {error.strerror or error}") from None
        except _MALFORMED:
            raise self._damaged() from None

    @cached_property
    def _facts(self) -> _Facts:
        try:
            facts = json.loads(self._column(_FACTS).tobytes())
            return _Facts(
                [(str(name), (int(measurement), int(size)))
                 for name, measurement, size in facts["parts"]],
                [np.array(table, np.uint32) for table in facts["modules"]],
                [int(table) for table in facts["of"]],
                [[int(payload) for payload in some] for some in facts["symbols"]],
                [frozenset(map(int, some)) for some in facts["named"]],
            )  # fmt: skip
        except _MALFORMED:
            raise self._damaged() from None

    @property
    def parts(self) -> list[tuple[str, Measured]]:
        """The parts' files by name, and what they are of."""
        return self._facts.parts

    def modules(self, member: int) -> U32:
        """``uint32[k]``: what the modules of a part's measurement are in the tree's frames."""
        try:
            return self._facts.modules[self._facts.of[member]]
        except IndexError:
            raise self._damaged() from None

    def tree(self, members: Collection[int]) -> tuple[CCT, U32]:
        """The nodes that these parts have, as a tree, and ``uint32[k]`` which they are."""
        tree = CCT(self._column("parent"), self._column("frame"))
        tree.validate(str(self._path))
        every = np.arange(len(tree), dtype=np.uint32)
        if len(members) == len(self.parts):
            return tree, every
        used = np.zeros(len(tree), bool)
        used[0] = True
        for member in members:
            used[self.node(member)] = True
        # Only nodes with records are there, and those without callees.
        above = tree.parent[used]
        while len(above := above[~used[above]]):
            used[above] = True
            above = tree.parent[np.unique(above)]
        chosen = every[used]
        number = np.zeros(len(tree), np.uint32)
        number[chosen] = np.arange(len(chosen))
        return CCT(number[tree.parent[chosen]], tree.frame[chosen]), chosen

    def node(self, member: int) -> U32:
        """The tree's node of each number that a part gives one."""
        nodes: U32 = self._part("node", self._node_start, member)
        if int(nodes.max(initial=0)) >= self.nodes:
            raise self._damaged()
        return nodes

    def cells(self, member: int) -> Cells:
        """The sums of a part, by its rows; nodes are the tree's."""
        line, node, event, records, value = (
            self._part(name, self._cell_start, member).astype(kind, copy=False)
            for name, kind in _CELLS.items()
        )
        if int(node.max(initial=0)) >= self.nodes:
            raise self._damaged()
        return Cells(line, node, event, records, value)

    def symbols(self, member: int) -> list[bytes]:
        """The payloads of a part's SYMBOLS chunks."""
        start = self._column("payload_start")
        try:
            payloads = self._facts.symbols[member]
            return [self._part("payload", start, payload).tobytes() for payload in payloads]
        except IndexError:
            raise self._damaged() from None

    def named(self, member: int) -> frozenset[int]:
        """The modules that a part has symbols of."""
        try:
            return self._facts.named[member]
        except IndexError:
            raise self._damaged() from None

    def _part(self, name: str, start: Array, number: int) -> Array:
        if not 0 <= number < len(start) - 1:
            raise self._damaged()
        return self._column(name, int(start[number]), int(start[number + 1]))

    def _column(self, name: str, first: int = 0, last: int | None = None) -> Array:
        kind, at, count = self._columns[name]
        last = count if last is None else last
        if not 0 <= first <= last <= count:
            raise self._damaged()
        size = (last - first) * kind.itemsize
        data = os.pread(self._file, size, self._body + at + first * kind.itemsize)
        if len(data) != size:
            raise self._damaged()
        return np.frombuffer(data, kind)

    def _damaged(self) -> FormatError:
        return FormatError(f"{self._path}: damaged")


_CELLS = {"row": np.uint32, "cell_node": np.uint32, "event": np.uint16, "records": np.uint64,
          "value": np.uint64}  # fmt: skip
CELL_COLUMNS: Sequence[str] = tuple(_CELLS)
"""The names of the columns of sums: row, node, event, records, value."""


@lru_cache(maxsize=_MOST_OPEN)
def open_shared(path: Path) -> SharedCompanion:
    """A shared companion, kept for the next part. Raises :class:`FormatError`."""
    return SharedCompanion(path)


def members_in(parts: Path) -> dict[str, dict[Measured, Member]]:
    """Return the places of companions that parts share, by the names of the parts' files: those
    that a killed merge left in the directory ``parts``. A part may have been made anew since."""
    members: dict[str, dict[Measured, Member]] = {}
    for path in parts.glob(f"*{SUFFIX}"):
        try:
            known = SharedCompanion(path).parts
        except FormatError:
            continue
        for number, (name, measured) in enumerate(known):
            members.setdefault(name, {})[measured] = Member(path, number)
    return members
