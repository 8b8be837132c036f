"""Sparse metrics: sums per (trace line, CCT node, event), in bulk and in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hpcd.array_types import F64, I64, U16, U32, U64

# Sums waiting to be added up: 28 bytes each.
_PENDING_LIMIT = 4 << 20
# Entries of the tables records are counted in, 4 bytes each (12 where values are not 1): 64 lines
# of 200,000 contexts.
_TABLE_LIMIT = 16 << 20
# Entries of a table for one record, at most: looking through more takes longer than sorting.
_WORTH_ENTRIES = 8
# Entries of the table that sums of a line are united in, 16 bytes each.
_LINE_LIMIT = 4 << 20
# Events counted in one pass; recordings have a dozen.
_MOST_SLOTS = 32


@dataclass(frozen=True, slots=True)
class Cells:
    """Sums sorted by (line, node, event), each combination once.

    ``line`` and ``node`` ``uint32[n]``, ``event`` ``uint16[n]``, ``records`` and ``value``
    ``uint64[n]``: how many records, and the sum of their values.
    """

    line: U32
    node: U32
    event: U16
    records: U64
    value: U64

    def __len__(self) -> int:
        return len(self.line)


EMPTY_CELLS = Cells(
    np.zeros(0, np.uint32), np.zeros(0, np.uint32), np.zeros(0, np.uint16),
    np.zeros(0, np.uint64), np.zeros(0, np.uint64),
)  # fmt: skip


class CellSum:
    """Adds up records batch by batch.

    Where every (line, node) there can be fits a table, records are counted in it: a tenth of the
    cost of sorting them. Beyond that memory is the distinct cells, plus a bounded backlog.
    """

    def __init__(
        self, lines: int, nodes: int, *, limit: int = _TABLE_LIMIT, loops: Any = None,
        expected: int | None = None,
    ) -> None:  # fmt: skip
        """For ``lines`` lines and ``nodes`` nodes; tables have ``limit`` entries at most.

        ``expected`` is about how many records there will be. ``loops`` are
        :class:`MergeLoops`, if numpy is not to do the work.
        """
        self._lines, self._nodes = lines, nodes
        self._loops = loops
        self._slots = None
        if expected is not None and lines * nodes > _WORTH_ENTRIES * expected:
            limit = 0
        if loops is not None and 0 < lines * nodes <= limit:
            self._slots = _Slots(loops, lines * nodes, min(limit // (lines * nodes), _MOST_SLOTS))
        self._limit = limit
        self._tables: dict[int, _Table] = {}
        self._counted = 0
        self._pending: list[Cells] = []
        self._count = 0
        self._settled = 0

    def add(self, line: U32, run: I64, node: U32, event: U16 | None, value: U64 | None) -> None:
        """Records of a batch: line ``line[i]`` has ``node[run[i]:run[i+1]]``.

        ``event`` None means all are event 0, ``value`` None that all are 1.
        """
        if self._counted + len(node) >= 1 << 32:
            self._empty_tables()
        self._counted += len(node)
        if (
            self._slots is not None
            and event is not None
            and value is not None
            and self._slots.add(line, run, node, event, value, self._nodes)
        ):
            return
        table = self._table(0) if event is None else None
        if table is not None:
            table.add(np.repeat(line.astype(np.int64) * self._nodes, np.diff(run)) + node, value)
            return
        numbers = np.repeat(np.arange(len(line), dtype=np.uint32), np.diff(run))
        for code in [0] if event is None else np.unique(event).tolist():
            mine = None if event is None else np.flatnonzero(event == code)
            if mine is not None and len(mine) == len(node):
                mine = None
            where = numbers if mine is None else numbers[mine]
            nodes = node if mine is None else node[mine]
            values = value if mine is None or value is None else value[mine]
            table = self._table(code)
            if table is not None:
                first = line.astype(np.int64) * self._nodes
                table.add(first[where] + nodes, values)
                continue
            place, nodes, records, sums = _sum(where, nodes, values)
            self._append(
                Cells(line[place], nodes, np.full(len(nodes), code, np.uint16), records, sums)
            )

    def add_sums(self, cells: Cells) -> None:
        """Sums of records, in any order, but each combination once."""
        if not self._pending:
            self._pending.append(EMPTY_CELLS)  # a table alone is taken for a sorted one
        self._append(cells)

    def result(self) -> Cells:
        """Everything added so far."""
        self._empty_tables()
        self._settle()
        return self._pending[0]

    def _table(self, event: int) -> _Table | None:
        if event not in self._tables:
            size = self._lines * self._nodes
            if (len(self._tables) + 1) * size > self._limit:
                return None
            self._tables[event] = _Table(size)
        return self._tables[event]

    def _empty_tables(self) -> None:
        for event, table in sorted(self._tables.items()):
            self._append(table.cells(self._nodes, event))
        self._tables.clear()
        if self._slots is not None:
            for cells in self._slots.take(self._nodes):
                self._append(cells)
        self._counted = 0

    def _append(self, cells: Cells) -> None:
        self._pending.append(cells)
        self._count += len(cells)
        if self._count > max(_PENDING_LIMIT, 2 * self._settled):
            self._settle()

    def _settle(self) -> None:
        united = None
        if self._loops is not None and len(self._pending) > 1:
            united = _united(self._pending, self._lines, self._nodes, self._loops)
        self._pending = [add_cells(self._pending) if united is None else united]
        self._count = self._settled = len(self._pending[0])


class _Slots:
    """The tables of up to ``most`` events, each of ``size`` entries, counted in one pass."""

    def __init__(self, loops: Any, size: int, most: int) -> None:
        self._loops = loops
        self._most, self._size = most, size
        self._clear()

    def _clear(self) -> None:
        self._used = 0
        self._slot_of = np.full(1 << 16, -1, np.int16)
        # Memory is taken where something is counted: a table no event needs costs nothing.
        self._records = np.zeros((self._most, self._size), np.uint32)
        self._more = np.zeros((self._most, self._size), np.uint64)

    def add(self, line: U32, run: I64, node: U32, event: U16, value: U64, nodes: int) -> bool:
        """Count records as :meth:`CellSum.add` is given them, if there is a table for each."""
        used = self._loops.slots(event, self._slot_of, self._used, self._most)
        if used < 0:
            self._used = int(self._slot_of.max()) + 1
            return False
        self._used = used
        self._loops.count(
            line, run, node, event, value, self._slot_of, nodes, self._records, self._more
        )
        return True

    def take(self, nodes: int) -> list[Cells]:
        """The cells of each event; nothing is counted then."""
        cells = []
        for event in np.flatnonzero(self._slot_of >= 0).tolist():
            slot = int(self._slot_of[event])
            cells.append(_cells(self._records[slot], self._more[slot], nodes, event))
        if cells:
            self._clear()
        return cells


def _cells(counted: U32, more: U64 | None, nodes: int, event: int) -> Cells:
    """What a table by line and node has of an event."""
    used = np.flatnonzero(counted)
    records = counted[used].astype(np.uint64)
    return Cells(
        (used // nodes).astype(np.uint32),
        (used % nodes).astype(np.uint32),
        np.full(len(used), event, np.uint16),
        records,
        records if more is None else records + more[used],
    )


class _Table:
    """Records of one event by line and node; of their values, what is more than 1 each."""

    def __init__(self, size: int) -> None:
        self._records = np.zeros(size, np.uint32)
        self._more: U64 | None = None

    def add(self, key: I64, value: U64 | None) -> None:
        np.add.at(self._records, key, np.uint32(1))
        odd = np.zeros(0, np.int64) if value is None else np.flatnonzero(value != 1)
        if value is not None and len(odd):
            if self._more is None:
                self._more = np.zeros(len(self._records), np.uint64)
            # A value of 0 adds -1: two's complement sums come out right all the same.
            np.add.at(self._more, key[odd], value[odd] - np.uint64(1))

    def cells(self, nodes: int, event: int) -> Cells:
        return _cells(self._records, self._more, nodes, event)


def _sum(line: U32, node: U32, value: U64 | None) -> tuple[U32, U32, U64, U64]:
    """Distinct (line, node) of records with their counts and the sums of their values."""
    node_bits = int(node.max(initial=0)).bit_length()
    line_bits = int(line.max(initial=0)).bit_length()
    # numpy sorts 32-bit keys six times as fast as 64-bit ones.
    kind: type[np.uint32] | type[np.uint64]
    kind = np.uint32 if node_bits + line_bits <= 32 else np.uint64
    key: npt.NDArray[np.unsignedinteger] = np.left_shift(line, kind(node_bits), dtype=kind) | node
    sorted_key = np.sort(key)
    starts = _starts(sorted_key)
    distinct = sorted_key[starts]
    records = np.diff(starts, append=len(key)).astype(np.uint64)
    sums = records
    if value is not None:
        # Most values are 1: only what differs is sorted with its value. The difference may be
        # negative (a value of 0); two's complement sums come out right all the same.
        odd = np.flatnonzero(value != 1)
        if len(odd):
            order = odd[np.argsort(key[odd], kind="stable")]
            at = _starts(key[order])
            sums = records.copy()
            place = np.searchsorted(distinct, key[order][at])
            sums[place] += np.add.reduceat(value[order] - np.uint64(1), at)
    mask = kind((1 << node_bits) - 1)
    lines = (distinct >> kind(node_bits)).astype(np.uint32)
    return lines, (distinct & mask).astype(np.uint32), records, sums


def sum_by(index: npt.NDArray[np.integer], weights: F64, count: int) -> F64:
    """``float64[count]``: the weights of each index added up."""
    sums: F64 = np.bincount(index, weights, count).astype(np.float64, copy=False)
    return sums


def _starts(keys: npt.NDArray[np.unsignedinteger]) -> I64:
    """Where each run of equal keys begins."""
    if not len(keys):
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))


def _order(line: U32, node: U32, event: U16) -> I64:
    """The order of cells by line, node, event."""
    bits = [int(column.max(initial=0)).bit_length() for column in (line, node, event)]
    if sum(bits) > 64:
        return np.lexsort((event, node, line))
    # One key sorts in half the time of three.
    key = line.astype(np.uint64) << np.uint64(bits[1] + bits[2])
    key |= node.astype(np.uint64) << np.uint64(bits[2])
    key |= event
    return np.argsort(key, kind="stable")


def _united(parts: list[Cells], lines: int, nodes: int, loops: Any) -> Cells | None:
    """The same as :func:`add_cells` by compiled loops, if a line fits a table."""
    columns = [
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("line", "node", "event", "records", "value")
    ]
    events = np.flatnonzero(np.bincount(columns[2]))
    if not 0 < len(events) * nodes <= _LINE_LIMIT:
        return None
    slot_of = np.zeros(int(events[-1]) + 1, np.int64)
    slot_of[events] = np.arange(len(events))
    table = np.zeros((len(events) * nodes, 2), np.uint64)
    return Cells(*loops.united_sums(*columns, lines, slot_of, events.astype(np.uint16), table))


def add_cells(parts: list[Cells]) -> Cells:
    """One sorted table from many; equal cells are added."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return EMPTY_CELLS
    line = np.concatenate([part.line for part in parts])
    node = np.concatenate([part.node for part in parts])
    event = np.concatenate([part.event for part in parts])
    order = _order(line, node, event)
    line, node, event = line[order], node[order], event[order]
    new = np.ones(len(line), bool)
    new[1:] = (line[1:] != line[:-1]) | (node[1:] != node[:-1]) | (event[1:] != event[:-1])
    starts = np.flatnonzero(new)
    if not len(starts):
        return Cells(line, node, event, np.zeros(0, np.uint64), np.zeros(0, np.uint64))
    records = np.concatenate([part.records for part in parts])[order]
    value = np.concatenate([part.value for part in parts])[order]
    return Cells(
        line[starts],
        node[starts],
        event[starts],
        np.add.reduceat(records, starts),
        np.add.reduceat(value, starts),
    )
