"""Sparse metrics: sums per (trace line, CCT node, event), in bulk and in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpcd.array_types import F64, I64, U16, U32, U64
from hpcd.distinct import begins_run
from hpcd.kernels.library import CStructure, kernels, structure
from hpcd.rows import join_rows

# Sums waiting to be added up: 28 bytes each.
_PENDING_LIMIT = 4 << 20
# Entries of the table that sums of a line are made in, 16 bytes each.
_LINE_LIMIT = 4 << 20


@dataclass(frozen=True, slots=True)
class Cells:
    """Sums sorted by (line, node, event), each combination once.

    ``line`` and ``node`` ``uint32[n]``, ``event`` ``uint16[n]``, ``records`` and ``value``
    ``uint64[n]``: the number of records, and the sum of their values.
    """

    line: U32
    node: U32
    event: U16
    records: U64
    value: U64

    def __len__(self) -> int:
        return len(self.line)

    def as_structure(self) -> CStructure:
        """A ``struct sums`` of them, contiguous."""
        columns = {name: np.ascontiguousarray(getattr(self, name)) for name in Cells.__slots__}
        return structure("sums", **columns, n=len(self))


EMPTY_CELLS = Cells(
    np.zeros(0, np.uint32), np.zeros(0, np.uint32), np.zeros(0, np.uint16),
    np.zeros(0, np.uint64), np.zeros(0, np.uint64),
)  # fmt: skip


class CellSum:
    """Adds up sums batch by batch. Memory is the distinct cells, plus a bounded backlog."""

    def __init__(self, lines: int, nodes: int) -> None:
        self._lines, self._nodes = lines, nodes
        self._pending: list[Cells] = [EMPTY_CELLS]
        self._count = 0
        self._settled = 0

    def add(self, line: U32, start: I64, node: U32, event: U16, value: U64) -> None:
        """Add records: line ``line[i]``, each once, has ``start[i]:start[i + 1]`` of the rest."""
        sums = sum_records(line, start, node, event, value, self._nodes)
        self.add_sums(sums[0])

    def add_sums(self, cells: Cells) -> None:
        """Add sums of records, in any order."""
        self._pending.append(cells)
        self._count += len(cells)
        if self._count > max(_PENDING_LIMIT, 2 * self._settled):
            self._settle()

    def result(self) -> Cells:
        """Everything added so far."""
        self._settle()
        return self._pending[0]

    def _settle(self) -> None:
        united = _unite(self._pending, self._lines, self._nodes)
        self._pending = [add_cells(self._pending) if united is None else united]
        self._count = self._settled = len(self._pending[0])


def sum_records(
    line: U32, start: I64, node: U32, event: U16, value: U64, nodes: int
) -> tuple[Cells, I64]:
    """Return the sums of records line by line (``line[i]`` has ``start[i]:start[i + 1]``), and
    ``int64[len(line) + 1]``, the start of each line's sums. Nodes are below ``nodes``."""
    table = _SlotTable(event, nodes)
    if not table.fits:
        owner = np.repeat(np.arange(len(line), dtype=np.uint32), np.diff(start))
        cells = add_cells([Cells(owner, node, event, np.ones(len(node), np.uint64), value)])
        first = np.searchsorted(cells.line, np.arange(len(line) + 1))
        return Cells(line[cells.line], cells.node, cells.event, cells.records, cells.value), first
    first, keys = np.empty(len(start), np.int64), np.empty(len(node), np.int64)
    records, sums = np.empty(len(node), np.uint64), np.empty(len(node), np.uint64)
    count = kernels.sum_lines(
        start, len(line), node, event, value, table.slot_of,
        table.room(int(np.diff(start).max(initial=0))), first, keys, records, sums,
    )  # fmt: skip
    _check(count >= 0)
    key, codes = keys[:count], table.event_of
    return Cells(
        np.repeat(line, np.diff(first)), (key // len(codes)).astype(np.uint32),
        codes[key % len(codes)], records[:count], sums[:count],
    ), first  # fmt: skip


class _SlotTable:
    """A table of nodes and events in which the sums of a line are made."""

    def __init__(self, event: U16, nodes: int) -> None:
        self._nodes = nodes
        codes = np.flatnonzero(np.bincount(event, minlength=1))
        self.event_of: U16 = codes.astype(np.uint16)
        self.slot_of = np.zeros(int(codes.max(initial=0)) + 1, np.int64)
        self.slot_of[codes] = np.arange(len(codes))
        self.fits = len(codes) * nodes <= _LINE_LIMIT
        """Whether there may be a table of that size."""

    def room(self, most: int) -> CStructure:
        """A ``struct sum_room`` for lines of up to ``most`` records or sums."""
        slots = len(self.event_of)
        table, keys = np.zeros((slots * self._nodes, 2), np.uint64), np.empty(2 * most, np.int64)
        return structure(
            "sum_room", table=table, nodes=self._nodes, slots=slots, keys=keys, most=most
        )


def _unite(parts: list[Cells], lines: int, nodes: int) -> Cells | None:
    """Return one sorted table of ``parts``, equal cells added; None where a line's table would be
    too large: then :func:`add_cells` does it, by sorting."""
    whole = join_cells(parts)
    table = _SlotTable(whole.event, nodes)
    if not table.fits:
        return None
    total = len(whole)
    united = Cells(
        np.empty(total, np.uint32), np.empty(total, np.uint32), np.empty(total, np.uint16),
        np.empty(total, np.uint64), np.empty(total, np.uint64),
    )  # fmt: skip
    count = kernels.unite_sums(
        whole.as_structure(), lines, table.slot_of, table.event_of, table.room(total),
        np.empty(lines + 1, np.int64), np.empty(lines, np.int64), np.empty(total, np.int64),
        united.as_structure(),
    )  # fmt: skip
    _check(count >= 0)
    return Cells(*(getattr(united, name)[:count] for name in Cells.__slots__))


def _check(exists: bool) -> None:
    if not exists:
        raise IndexError("sums of lines or nodes that do not exist")


def sum_by(index: npt.NDArray[np.integer], weights: F64, count: int) -> F64:
    """``float64[count]``: the weights ``float64[n]`` of each index added up; of ``float64[m, n]``
    row by row, ``float64[m, count]``."""
    if weights.ndim > 1:
        return np.array([sum_by(index, row, count) for row in weights]).reshape(len(weights), count)
    sums: F64 = np.bincount(index, weights, count).astype(np.float64, copy=False)
    return sums


def sum_whole(index: npt.NDArray[np.integer], values: I64, count: int) -> I64:
    """``int64[count]``: the whole ``values`` of each index added up, exactly."""
    sums = np.zeros(count, np.int64)
    np.add.at(sums, index, values)
    return sums


def _order(line: U32, node: U32, event: U16) -> I64:
    bits = [int(column.max(initial=0)).bit_length() for column in (line, node, event)]
    if sum(bits) > 64:
        return np.lexsort((event, node, line))
    # One key sorts in half the time of three.
    key = line.astype(np.uint64) << np.uint64(bits[1] + bits[2])
    key |= node.astype(np.uint64) << np.uint64(bits[2])
    key |= event
    return np.argsort(key, kind="stable")


def join_cells(parts: list[Cells]) -> Cells:
    """Concatenate ``parts``."""
    return join_rows(parts) if parts else EMPTY_CELLS


def add_cells(parts: list[Cells]) -> Cells:
    """Return one sorted table of ``parts``, in any order; equal cells are added."""
    whole = join_cells(parts)
    order = _order(whole.line, whole.node, whole.event)
    line, node, event = whole.line[order], whole.node[order], whole.event[order]
    starts = np.flatnonzero(begins_run(line, node, event))
    if not len(starts):
        return whole
    return Cells(
        line[starts],
        node[starts],
        event[starts],
        np.add.reduceat(whole.records[order], starts),
        np.add.reduceat(whole.value[order], starts),
    )
