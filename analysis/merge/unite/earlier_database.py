"""The extended database: its tree, sums and symbols replace its parts' own.

A part has trees, sums and symbols in its scratch file until they are united with other parts'. A
database has the united ones in its own nodes, events and modules, so only the translation of these
to the new database is needed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from hpcd.analysis.arrays.cell_store import CellStore
from hpcd.analysis.arrays.column_files import open_bounds, open_column
from hpcd.analysis.arrays.node_maps import NodeMaps
from hpcd.analysis.arrays.sparse_sums import EMPTY_CELLS, Cells, join_cells
from hpcd.analysis.database import directory
from hpcd.analysis.database.sqlite_reader import connect, each_row
from hpcd.analysis.merge.unite.canonical_modules import unite_modules
from hpcd.analysis.trace.part_contents import PartContents
from hpcd.array_types import I64, U16, U32
from hpcd.errors import FormatError
from hpcd.masks import marked
from hpcd.model.cct import CCT
from hpcd.rows import take_rows


@dataclass(frozen=True, slots=True)
class EarlierPart:
    """Part ``number`` of the database ``root``; ``nodes`` is a column from the database's nodes
    to nodes of the new one."""

    root: Path
    number: int
    nodes: Path

    def sums(self, event_map: U16) -> tuple[U32, Cells]:
        """The new database's node of each number of the part; and the sums by row of the part, node
        and event of the new database.

        ``event_map`` maps the part's events to the new ones. Raises :class:`FormatError`.
        """
        columns = _opened(self.root, (self.root / directory.MANIFEST).stat().st_ino)
        known: U32 = open_column(self.nodes, np.uint32)
        cells = columns.part_sums(self.number)
        low, high = columns.event_start[self.number : self.number + 2].tolist()
        own = columns.event[low:high]
        if len(own) != len(event_map):
            raise FormatError(f"{self.root}: part {self.number} does not belong to it")
        events = np.zeros(int(own.max(initial=0)) + 1, np.uint16)
        events[own] = event_map
        if int(cells.event.max(initial=0)) >= len(events):
            raise FormatError(f"{self.root}: damaged (sums of events that do not exist)")
        mapped = Cells(cells.line, known[cells.node], events[cells.event], cells.records,
                       cells.value)  # fmt: skip
        return known[columns.nodes[self.number]], mapped


class _Columns:
    """Columns of a database from which a worker reads one part after the other."""

    def __init__(self, root: Path) -> None:
        manifest = directory.read_manifest(root)
        parts, lines, nodes, cells = (
            int(manifest[name]) for name in ("parts", "lines", "nodes", "cells")
        )
        trace, metrics = root / "trace", root / "metrics"
        self.nodes = NodeMaps(trace, parts, nodes)
        self.event: U16 = open_column(trace / "event.npy", np.uint16)
        self.event_start = open_bounds(trace / "event_start.npy", parts, len(self.event))
        self._store = CellStore(metrics, lines, cells, nodes)
        line: U32 = open_column(metrics / "line.npy", np.uint32, lines)
        part = _part_of(root, int(manifest["measurements"]))
        measurement: U32 = open_column(trace / "measurement.npy", np.uint32, lines)
        # The sequence has the lines part by part, in each row by row.
        self._bounds = np.searchsorted(part[measurement[line]], np.arange(parts + 1))
        row: U32 = open_column(trace / "row.npy", np.uint32, lines)
        self._row = row[line]
        self._chunk = -1
        self._held: tuple[Cells, I64] = (EMPTY_CELLS, np.zeros(1, np.int64))

    def part_sums(self, number: int) -> Cells:
        """The sums of a part by row of it, node and event."""
        low, high = self._bounds[number : number + 2].tolist()
        pieces: list[Cells] = []
        at = low
        while at < high:
            chunk = int(np.searchsorted(self._store.line_start, at, side="right")) - 1
            if chunk != self._chunk:
                self._held = self._store.by_line(chunk)
                self._chunk = chunk
            first, end = self._store.line_start[chunk : chunk + 2].tolist()
            end = min(end, high)
            cells, bounds = self._held
            own = slice(int(bounds[at - first]), int(bounds[end - first]))
            row = self._row[first:end][cells.line[own]]
            pieces.append(replace(take_rows(cells, own), line=row))
            at = end
        return join_cells(pieces)


@lru_cache(maxsize=1)
def _opened(root: Path, _inode: int) -> _Columns:
    return _Columns(root)


class EarlierDatabase:
    """The database ``root``, some of whose ``parts`` are kept."""

    def __init__(self, root: Path, parts: Sequence[PartContents]) -> None:
        """Take ``parts`` in the order of their numbers. Raises :class:`FormatError`."""
        self.root = root
        number = _numbers(root)
        part_of = _part_of(root, len(number)).tolist()
        # A part may have a measurement that was in another one when this database was made.
        known = {
            one.id: one
            for at, part in enumerate(parts)
            for one in part.measurements
            if one.id in number and part_of[number[one.id]] == at
        }
        if known.keys() != number.keys():
            raise FormatError(f"{root}: parts and the table of measurements do not agree")
        self.measurements = sorted(known.values(), key=lambda one: number[one.id])
        """The contents of the measurements in the database."""
        self._number = number
        _, self._modules = unite_modules(
            [one.modules for one in self.measurements], [one.host for one in self.measurements],
            [one.id for one in self.measurements],
        )  # fmt: skip

    def modules(self, kept: Sequence[tuple[int, U32]]) -> U32:
        """Return ``uint32[n]``: the new database's module of each module of this one, 0 where no
        measurement of ``kept`` has it.

        ``kept`` are pairs of a measurement's id and ``uint32[k]``, the new database's module of
        each of its own.
        """
        top = max((int(table.max(initial=0)) for table in self._modules), default=0)
        modules = np.zeros(top + 1, np.uint32)
        for measurement, new in kept:
            old = self._modules[self._number[measurement]]
            modules[old] = new
        modules[0] = 0
        return modules

    def tree(self, parts: Collection[int]) -> tuple[CCT, U32]:
        """The nodes that the ``parts`` of these numbers have, as a tree, and ``uint32[k]`` which
        they are."""
        manifest = directory.read_manifest(self.root)
        nodes, count = int(manifest["nodes"]), int(manifest["parts"])
        folder = self.root / "cct"
        tree = CCT(
            open_column(folder / "parent.npy", np.uint32, nodes),
            open_column(folder / "frame.npy", np.uint64, nodes),
        )
        tree.validate(str(self.root))
        if len(parts) == count:
            return tree, np.arange(nodes, dtype=np.uint32)
        maps = NodeMaps(self.root / "trace", count, nodes)
        used = marked(nodes, 0)
        for part in parts:
            # A part numbers all nodes of its tree, so that a node's callers are among them.
            used[maps[part]] = True
        chosen = np.flatnonzero(used).astype(np.uint32)
        number = np.zeros(nodes, np.uint32)
        number[chosen] = np.arange(len(chosen))
        return CCT(number[tree.parent[chosen]], tree.frame[chosen]), chosen


def part_number(path: Path) -> int:
    """The number of a part of a database. Raises :class:`FormatError`."""
    try:
        return int(path.stem)
    except ValueError:
        raise FormatError(f"{path}: not a part of a database") from None


def _part_of(root: Path, measurements: int) -> U32:
    """``uint32[measurements]``: the part of each measurement of a database."""
    part: U32 = open_column(root / "trace" / "part.npy", np.uint32, measurements)
    return part


def _numbers(root: Path) -> Mapping[int, int]:
    """The number of each measurement of a database."""
    path = root / directory.SQLITE
    if not path.is_file():
        raise FormatError(f"{path}: missing")
    connection = connect(path)
    try:
        rows = list(each_row(connection, path, "SELECT uid, id FROM measurement"))
        return {int(uid, 16): int(number) for uid, number in rows}
    except (ValueError, TypeError):
        raise FormatError(f"{path}: measurement table is damaged") from None
    finally:
        connection.close()
