"""Sums by line, context and event, as a database has them: in chunks, sorted and compressed.

A line of 200 records has half as many sums as records: uncompressed they took more room than all
other data. A chunk has the sums of some thousand consecutive lines of the *sequence* (part by
part, in each row by row), event by event, each context's together, its lines ascending: then
neighbouring numbers are similar, and unneeded contexts are skipped.

For each chunk and event there are two frames of zstd, of columns (:mod:`hpcd.measurement.columns`).
The first has the contexts: their number (u32), steps from one context to the next, and the number
of lines of each, less one. The second has the sums: steps from one line of a context to the next
(the first from 0), records less one, the sum of their values less records (two's complement).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hpcd.analysis.arrays.column_files import open_bounds, open_column
from hpcd.analysis.arrays.packed_columns import PackedColumns, pack_frame
from hpcd.analysis.arrays.sparse_sums import Cells, join_cells
from hpcd.array_types import I64, U16, U32, U64, Array
from hpcd.distinct import begins_run
from hpcd.errors import FormatError
from hpcd.kernels.library import kernels, structure
from hpcd.masks import positions

CHUNK_CELLS = 1 << 20
"""Approximate number of sums in a chunk, the unit of decoding."""

_HEAD = 4
_LEVEL = 1
# Bounds for scanning the table of events and contexts instead of sorting: entries per sum, and
# entries in any case. Scanning more takes longer.
_WORTH_ENTRIES = 4
_FEW_ENTRIES = 1 << 14


@dataclass(frozen=True, slots=True)
class PackedCells:
    """Packed sums of one chunk: for each of ``event`` ``uint16[n]`` two frames, the frame of its
    contexts first; ``cells`` ``int64[n]`` are the numbers of sums."""

    event: U16
    cells: I64
    frames: list[bytes]


def pack_cells(cells: Cells) -> PackedCells:
    """Pack ``cells``, in any order but each combination once; ``line`` counts from the chunk's
    first."""
    packed = _pack_by_table(cells)
    if packed is not None:
        return packed
    order = _order(cells.event, cells.node, cells.line)
    event, node, line = cells.event[order], cells.node[order], cells.line[order]
    records, value = cells.records[order], cells.value[order]
    bounds = np.flatnonzero(begins_run(event))
    frames = []
    ends = [*bounds[1:].tolist(), len(event)][: len(bounds)]
    for begin, end in zip(bounds.tolist(), ends, strict=True):
        own = slice(begin, end)
        first = np.flatnonzero(begins_run(node[own]))
        lines = np.diff(line[own], prepend=np.uint32(0))
        lines[first] = line[own][first]
        frames += _pack(
            np.diff(node[own][first], prepend=np.uint32(0)), np.diff(first, append=end - begin) - 1,
            lines, records[own] - np.uint64(1), value[own] - records[own],
        )  # fmt: skip
    sizes = np.diff(bounds, append=len(event)).astype(np.int64)
    return PackedCells(event[bounds], sizes, frames)


def _pack_by_table(cells: Cells) -> PackedCells | None:
    """Pack ``cells`` in linear time, where lines ascend and a table has room for all contexts."""
    codes = np.flatnonzero(np.bincount(cells.event)) if len(cells) else np.zeros(0, np.int64)
    n, slots, nodes = len(cells), len(codes), int(cells.node.max(initial=0)) + 1
    if not 0 < slots * nodes <= max(_WORTH_ENTRIES * n, _FEW_ENTRIES):
        return None
    slot_of = positions(int(codes[-1]) + 1, codes, 0)
    line, records, value = np.empty(n, np.uint32), *np.empty((2, n), np.uint64)
    node, count = np.empty((2, n), np.uint32)
    sums, contexts = np.empty((2, slots + 1), np.int64)
    out = structure(
        "context_sums", line=line, records=records, value=value, node=node, count=count, sums=sums,
        contexts=contexts,
    )  # fmt: skip
    if not kernels.order_by_context(
        cells.as_structure(), slot_of, slots, nodes, np.zeros(slots * nodes, np.int64),
        np.zeros(slots * nodes, np.uint32), out,
    ):  # fmt: skip
        return None
    frames = []
    for slot in range(len(codes)):
        own = slice(int(sums[slot]), int(sums[slot + 1]))
        mine = slice(int(contexts[slot]), int(contexts[slot + 1]))
        frames += _pack(
            np.diff(node[mine], prepend=np.uint32(0)), count[mine] - np.uint32(1),
            line[own], records[own], value[own],
        )  # fmt: skip
    return PackedCells(codes.astype(np.uint16), np.diff(sums), frames)


def _pack(steps: Array, more: Array, *sums: Array) -> list[bytes]:
    """Return the frame of the contexts of an event, and that of their sums."""
    head = len(steps).to_bytes(_HEAD, "little")
    return [pack_frame(_LEVEL, steps, more, head=head), pack_frame(_LEVEL, *sums)]


def _order(event: U16, node: U32, line: U32) -> npt.NDArray[np.integer]:
    bits = [int(column.max(initial=0)).bit_length() for column in (event, node, line)]
    place = max(len(line) - 1, 0).bit_length()
    if sum(bits) + place > 64:
        return np.lexsort((line, node, event))
    # Keys that have their places in them are sorted a fifth of the time it takes to sort places.
    key = event.astype(np.uint64) << np.uint64(bits[1] + bits[2] + place)
    key |= node.astype(np.uint64) << np.uint64(bits[2] + place)
    key |= line.astype(np.uint64) << np.uint64(place)
    key |= np.arange(len(line), dtype=np.uint64)
    key.sort()
    return (key & np.uint64((1 << place) - 1)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Contexts:
    """The contexts of a chunk's event: ``node`` ``uint32[n]`` ascending, and ``start``
    ``int64[n + 1]``, where the sums of each begin."""

    node: U32
    start: I64


@dataclass(frozen=True, slots=True)
class EventSums:
    """Sums of a chunk's event: ``line`` ``int64[k]`` counted from the chunk's first, ``records``
    and ``value`` ``uint64[k]``."""

    line: I64
    records: U64
    value: U64


class CellStore:
    """The sums of a database, read chunk by chunk.

    ``line_start`` ``int64[chunks + 1]``: where in the sequence the lines of each begin.
    """

    def __init__(self, folder: Path, lines: int, cells: int, nodes: int) -> None:
        """``folder`` has columns of ``cells`` entries. Raises :class:`FormatError`."""
        self._folder, self._nodes = folder, nodes
        self.line_start: I64 = open_column(folder / "chunk_line.npy", np.int64)
        if len(self.line_start) < 1:
            raise self._damaged("no chunks")
        open_bounds(folder / "chunk_line.npy", len(self.line_start) - 1, lines)
        chunks = len(self.line_start) - 1
        event: U16 = open_column(folder / "frame_event.npy", np.uint16)
        self.event = event
        self._frames = open_bounds(folder / "chunk_frame.npy", chunks, len(event))
        self._cells = open_column(folder / "frame_cells.npy", np.int64, len(event))
        self._packed = PackedColumns(
            folder / "cells.npy", folder / "frame_start.npy", 2 * len(event)
        )
        if int(self._cells.min(initial=1)) < 1 or int(self._cells.sum()) != cells:
            raise self._damaged("sizes of chunks")

    def __len__(self) -> int:
        return len(self.line_start) - 1

    def frames(self, chunk: int) -> list[tuple[int, int]]:
        """Return (event, frame) of each event with sums in chunk ``chunk``, events ascending."""
        low, high = self._frames[chunk : chunk + 2].tolist()
        return list(zip(self.event[low:high].tolist(), range(low, high), strict=True))

    def lines(self, chunk: int) -> int:
        """Return the number of lines of chunk ``chunk``."""
        return int(self.line_start[chunk + 1] - self.line_start[chunk])

    def cells(self, chunk: int) -> int:
        """Return the number of sums in chunk ``chunk``."""
        low, high = self._frames[chunk : chunk + 2].tolist()
        return int(self._cells[low:high].sum())

    def contexts(self, frame: int) -> Contexts:
        """The contexts of a frame. Raises :class:`FormatError`."""
        content = self._packed.content(2 * frame)
        count = int.from_bytes(content[:_HEAD], "little")
        if not 0 < count <= self._nodes:
            raise self._damaged("contexts of sums")
        steps, more = self._packed.columns(content, _HEAD, count, np.uint32, np.uint32)
        node = np.cumsum(steps, dtype=np.uint64)
        start = np.zeros(count + 1, np.int64)
        np.cumsum(more.astype(np.int64) + 1, out=start[1:])
        if int(node.max()) >= self._nodes or int(start[-1]) != int(self._cells[frame]):
            raise self._damaged("contexts of sums")
        return Contexts(node.astype(np.uint32), start)

    def sums(
        self, frame: int, chunk: int, contexts: Contexts, chosen: I64 | None = None
    ) -> EventSums:
        """Return the sums of a frame of ``chunk``; with ``chosen`` ``int64[j]``, ascending, only of
        these contexts, concatenated. Raises :class:`FormatError`."""
        content, cells = self._packed.content(2 * frame + 1), int(self._cells[frame])
        columns = self._packed.columns(content, 0, cells, np.uint32, np.uint64, np.uint64)
        count = np.diff(contexts.start)
        if chosen is not None:
            count = count[chosen]
        first = np.cumsum(count) - count
        if chosen is not None:
            within = np.arange(int(count.sum())) - np.repeat(first, count)
            places = np.repeat(contexts.start[:-1][chosen], count) + within
            columns = [column[places] for column in columns]
        steps, records, value = columns
        line = np.cumsum(steps, dtype=np.int64)
        line -= np.repeat(line[first] - steps[first].astype(np.int64), count)
        if len(line) and not 0 <= int(line.min()) <= int(line.max()) < self.lines(chunk):
            raise self._damaged("lines of sums")
        records = records + np.uint64(1)
        return EventSums(line, records, value + records)

    def chunk(self, chunk: int) -> Cells:
        """All sums of a chunk, by event, node and line. Raises :class:`FormatError`."""
        event_cells = []
        for event, frame in self.frames(chunk):
            contexts = self.contexts(frame)
            sums = self.sums(frame, chunk, contexts)
            event_cells.append(Cells(
                sums.line.astype(np.uint32), np.repeat(contexts.node, np.diff(contexts.start)),
                np.full(len(sums.line), event, np.uint16), sums.records, sums.value,
            ))  # fmt: skip
        return join_cells(event_cells)

    def by_line(self, chunk: int) -> tuple[Cells, I64]:
        """Return all sums of a chunk by line, node and event, and ``int64[lines + 1]``, the start
        of each line's sums. Raises :class:`FormatError`."""
        cells = self.chunk(chunk)
        order, start = order_by_line(cells, self.lines(chunk), self._nodes)
        return Cells(*(getattr(cells, name)[order] for name in Cells.__slots__)), start

    def release(self) -> None:
        """Let the kernel drop the pages that were read."""
        self._packed.release()

    def _damaged(self, what: str) -> FormatError:
        return FormatError(f"{self._folder}: damaged ({what})")


def order_by_line(cells: Cells, lines: int, nodes: int) -> tuple[I64, I64]:
    """``int64[n]``: the stable order of ``cells``, whose lines are below ``lines`` and nodes below
    ``nodes``, by line and node; and ``int64[lines + 1]``, the start of each line's cells. Raises
    :class:`IndexError` for others."""
    n = len(cells)
    first, order = np.zeros(lines + 1, np.int64), np.empty(n, np.int64)
    if not kernels.order_by_line(
        cells.line, cells.node, n, lines, nodes, np.empty(n, np.int64), np.zeros(nodes, np.int64),
        first, order,
    ):  # fmt: skip
        raise IndexError("sums of lines or nodes that do not exist")
    return order, first


@lru_cache(maxsize=1)
def _opened(folder: Path, lines: int, cells: int, nodes: int, _inode: int) -> CellStore:
    return CellStore(folder, lines, cells, nodes)


def open_store(folder: Path, lines: int, cells: int, nodes: int) -> CellStore:
    """:class:`CellStore`; the last one is kept, as a worker needs it for every task."""
    return _opened(folder, lines, cells, nodes, (folder / "cells.npy").stat().st_ino)


def chunks_of(cells: I64, most: int = CHUNK_CELLS) -> list[slice]:
    """Lines, with ``cells`` cells each, cut into chunks of about ``most``: none but a single line
    has more."""
    chunks, begin, held = [], 0, 0
    for line, count in enumerate(cells.tolist()):
        if held and held + count > most:
            chunks.append(slice(begin, line))
            begin, held = line, 0
        held += count
    return [*chunks, slice(begin, len(cells))] if len(cells) else []
