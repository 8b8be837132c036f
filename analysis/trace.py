"""Trace records of a database: reading them by line and time, and drawing them.

The records of a measurement's lines are in its part (:mod:`hpcd.analysis.part`), in the
measurement's own clock and with its own nodes and events; the columns here say which line is where,
and what its numbers mean in the database.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hpcd.analysis.blocks import BLOCK_RECORDS
from hpcd.analysis.columns import open_bounds, open_column, save_column
from hpcd.analysis.part import Part
from hpcd.errors import FormatError
from hpcd.measurement.codec import TIME_UNIT_NS
from hpcd.model.cct import NO_NODE

I64 = npt.NDArray[np.int64]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
U16 = npt.NDArray[np.uint16]
Array = npt.NDArray[Any]

# Blocks decoded together for a picture: their arrays fit a core's cache.
_GROUP_BLOCKS = 64
# Pixels narrower than this are found by search: their times, whole nanoseconds, are too unevenly
# spaced to be computed.
_EVEN_NS = 10_000.0
# Decoding and numpy let other threads run; a picture needs no more of them than this.
_THREADS = 4


@dataclass(frozen=True, slots=True)
class Records:
    """Records of one line in time order: ``time`` ``int64[n]`` (ns since the origin), ``node``
    ``uint32[n]``, ``event`` ``uint16[n]``, ``value`` ``uint64[n]``.
    """

    time: I64
    node: U32
    event: U16
    value: U64

    def __len__(self) -> int:
        return len(self.time)


@dataclass(frozen=True, slots=True)
class TraceMap:
    """What the numbers in ``m`` parts mean in the database.

    Nodes of part ``p`` are ``node[node_start[p]:node_start[p + 1]]`` (``uint32``), its events
    likewise ``event`` (``uint16``); ``shift`` ``int64[m]`` turns its times into database times, in
    ns. Trace line ``i`` is row ``row[i]`` of part ``part[i]`` (``uint32[lines]`` both).
    """

    node: U32
    node_start: I64
    event: U16
    event_start: I64
    shift: I64
    part: U32
    row: U32

    def save(self, folder: Path) -> None:
        """Write one column file each. Raises :class:`StorageError`."""
        for name in TraceMap.__slots__:
            save_column(folder / f"{name}.npy", getattr(self, name))

    @staticmethod
    def load(folder: Path, parts: int, lines: int, nodes: int) -> TraceMap:
        """Map what :meth:`save` wrote. Raises :class:`FormatError`."""
        node = open_column(folder / "node.npy", np.uint32)
        event = open_column(folder / "event.npy", np.uint16)
        found = TraceMap(
            node=node,
            node_start=open_bounds(folder / "node_start.npy", parts, len(node)),
            event=event,
            event_start=open_bounds(folder / "event_start.npy", parts, len(event)),
            shift=open_column(folder / "shift.npy", np.int64, parts),
            part=open_column(folder / "part.npy", np.uint32, lines),
            row=open_column(folder / "row.npy", np.uint32, lines),
        )
        if int(found.part.max(initial=0)) >= max(parts, 1) or int(node.max(initial=0)) >= nodes:
            raise FormatError(f"{folder}: damaged")
        return found


class Trace:
    """The trace records of a database. Parts are mapped when first asked for."""

    def __init__(self, folder: Path, names: Sequence[str], mapping: TraceMap, first: I64) -> None:
        """``names`` are the parts' files; ``first`` ``int64[lines + 1]`` where records begin."""
        self._folder = folder
        self._names = names
        self._map = mapping
        self._first = first
        self._parts: dict[int, Part] = {}

    def __len__(self) -> int:
        return int(self._first[-1]) if len(self._first) else 0

    def part(self, number: int) -> Part:
        """Part ``number``. Raises :class:`FormatError` when it is damaged."""
        if number not in self._parts:
            part = Part(self._folder / self._names[number])
            mine = np.flatnonzero(self._map.part == number)
            rows = self._map.row[mine]
            if int(rows.max(initial=0)) >= max(len(part), 1) or bool(
                (part.lines.records[rows] != np.diff(self._first)[mine]).any()
            ):
                raise FormatError(f"{part.path}: does not belong to this database")
            self._parts[number] = part
        return self._parts[number]

    def records(self, line: int, t0: int | None = None, t1: int | None = None) -> Records:
        """Records of ``line`` with ``t0 <= time < t1``. O(records of the blocks they are in)."""
        number = int(self._map.part[line])
        part, row, shift = self.part(number), int(self._map.row[line]), int(self._map.shift[number])
        low, high = part.lines.block[row : row + 2].tolist()
        base = part.blocks.base[low:high]
        if t1 is not None:
            high = low + int(np.searchsorted(base, -((shift - t1) // TIME_UNIT_NS)))
        if t0 is not None:
            low += max(int(np.searchsorted(base, (t0 - shift) // TIME_UNIT_NS)) - 1, 0)
        chosen = np.arange(low, max(high, low))
        full = np.arange(BLOCK_RECORDS) < part.blocks.records[chosen][:, None]
        tick, local = part.places(chosen) if len(chosen) else _nothing()
        time = tick[full] * TIME_UNIT_NS + shift
        node = self._canonical(number, local[full])
        event, value = np.zeros(len(time), np.uint16), np.ones(len(time), np.uint64)
        if len(chosen):
            events, values = part.weights(chosen)
            event, value = self._event(number, events[full]), values[full]
        begin = 0 if t0 is None else int(np.searchsorted(time, t0))
        end = len(time) if t1 is None else int(np.searchsorted(time, t1))
        span = slice(begin, max(begin, end))
        return Records(time[span], node[span], event[span], value[span])

    def sample(self, lines: I64, times: I64, spacing: float, begin: I64, end: I64) -> U32:
        """Nodes ``uint32[len(lines), len(times)]`` at ``times`` (ns, ascending, evenly spaced).

        Row ``i`` is drawn from column ``begin[i]`` to ``end[i]``, NO_NODE elsewhere and on lines
        without records. Each pixel shows the record closest to its time, the earlier of two; where
        it covers several records, the one closest to a moment less than half a pixel (``spacing``
        ns) away, if that saves decoding them. O(h · w) and, below that, O(h · records shown).
        """
        nodes = np.full((len(lines), len(times)), NO_NODE, np.uint32)
        parts = self._map.part[lines]
        drawn = np.flatnonzero((begin < end) & (self._first[lines + 1] > self._first[lines]))
        order = drawn[np.argsort(parts[drawn], kind="stable")]
        cuts = np.flatnonzero(np.diff(parts[order])) + 1
        tasks: list[Callable[[], None]] = []
        for rows in np.split(order, cuts) if len(order) else []:
            number = int(parts[rows[0]])
            picture = _Picture(
                self.part(number), self._part_nodes(number), self._map.row[lines[rows]],
                times - self._map.shift[number], spacing, begin[rows], end[rows], nodes, rows,
            )  # fmt: skip
            tasks += picture.tasks()
        _run(tasks)
        return nodes

    def _part_nodes(self, number: int) -> U32:
        low, high = self._map.node_start[number : number + 2].tolist()
        return self._map.node[low:high]

    def _canonical(self, number: int, local: U32) -> U32:
        table = self._part_nodes(number)
        if int(local.max(initial=0)) >= max(len(table), 1):
            raise FormatError(f"{self.part(number).path}: records of nodes that do not exist")
        found: U32 = table[local] if len(local) else local
        return found

    def _event(self, number: int, local: U16) -> U16:
        low, high = self._map.event_start[number : number + 2].tolist()
        if int(local.max(initial=0)) >= max(high - low, 1):
            raise FormatError(f"{self.part(number).path}: records of events that do not exist")
        found: U16 = self._map.event[low:high][local] if len(local) else local
        return found


def _nothing() -> tuple[I64, U32]:
    shape = (0, BLOCK_RECORDS)
    return np.zeros(shape, np.int64), np.zeros(shape, np.uint32)


def _run(tasks: Sequence[Callable[[], None]]) -> None:
    threads = min(len(os.sched_getaffinity(0)), _THREADS, len(tasks))
    if threads <= 1:
        for task in tasks:
            task()
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(lambda task: task(), tasks):
            pass


class _Picture:
    """The rows of a picture that come from one part.

    ``local`` are the rows' lines in the part, ``times`` the pixels' in the part's clock (ns);
    ``place`` the rows' places in ``out``.
    """

    def __init__(
        self, part: Part, table: U32, local: U32, times: I64, spacing: float, begin: I64, end: I64,
        out: U32, place: I64,
    ) -> None:  # fmt: skip
        self._part = part
        self._table = table
        self._local = local.astype(np.int64)
        self._times = times
        self._spacing = spacing
        self._begin, self._end = begin, end
        self._out, self._place = out, place
        self._search = spacing < _EVEN_NS
        # One more, after every time there can be: what lies behind the last pixel.
        self._ahead = np.append(times, np.iinfo(np.int64).max)

    def tasks(self) -> list[Callable[[], None]]:
        """What to do, each part of it on its own."""
        wide = self._part.lines.wide[self._local] != 0
        level = np.full(len(self._local), -1)
        for kind in (False, True):
            mine = np.flatnonzero(wide == kind)
            if len(mine):
                levels, _ = self._part.levels(int(self._local[mine[0]]))
                rows = self._local[mine]
                fits = levels.step[:, rows] * TIME_UNIT_NS <= self._spacing
                level[mine] = (fits & (levels.count[:, rows] > 0)).sum(axis=0) - 1
        tasks: list[Callable[[], None]] = []
        seen = np.flatnonzero(level >= 0)
        for rows in np.array_split(seen, max(len(seen) // 128, 1)) if len(seen) else []:
            tasks.append(lambda rows=rows: self._overviews(rows, level[rows]))  # type: ignore[misc]
        group: list[tuple[int, int, int]] = []
        blocks = 0
        for row in np.flatnonzero(level < 0).tolist():
            low, high = self._blocks(row)
            group.append((row, low, high))
            blocks += high - low
            if blocks >= _GROUP_BLOCKS:
                tasks.append(lambda group=group: self._exact(group))  # type: ignore[misc]
                group, blocks = [], 0
        if group:
            tasks.append(lambda: self._exact(group))
        return tasks

    # --- from the overview ---

    def _overviews(self, rows: I64, level: I64) -> None:
        index: dict[int, I64] = {}
        for row, k in zip(rows.tolist(), level.tolist(), strict=True):
            line = int(self._local[row])
            levels, entries = self._part.levels(line)
            step = int(levels.step[k, line]) * TIME_UNIT_NS
            if step not in index:
                index[step] = (2 * self._times + step) // (2 * step)
            begin, end = int(self._begin[row]), int(self._end[row])
            first, count = int(levels.first[k, line]), int(levels.count[k, line])
            at = index[step][begin:end] - first
            if at[0] < 0 or at[-1] >= count:
                at = np.clip(at, 0, count - 1)
            offset = int(levels.offset[k, line])
            words = self._part.words(line)
            self._draw(row, begin, words, entries[offset : offset + count][at])

    def _draw(self, row: int, begin: int, words: U32, values: Array) -> None:
        try:
            nodes = self._table[words[values]]
        except IndexError:
            raise FormatError(f"{self._part.path}: damaged") from None
        self._out[self._place[row], begin : begin + len(nodes)] = nodes

    # --- record by record ---

    def _blocks(self, row: int) -> tuple[int, int]:
        """The blocks that have the records between a row's first and last pixel."""
        table, line = self._part.lines.block, int(self._local[row])
        low, high = int(table[line]), int(table[line + 1])
        base = self._part.blocks.base[low:high]
        first, last = self._times[self._begin[row]], self._times[self._end[row] - 1]
        a, z = np.searchsorted(base, [first // TIME_UNIT_NS, last // TIME_UNIT_NS], side="right")
        begin = max(int(a) - 1, 0)
        return low + begin, low + max(int(z), begin + 1)

    def _exact(self, group: list[tuple[int, int, int]]) -> None:
        part = self._part
        chosen = np.concatenate([np.arange(low, high) for _, low, high in group])
        ticks, nodes = part.places(chosen)
        time, node = ticks.ravel(), nodes.ravel()
        if int(node.max(initial=0)) >= len(self._table):
            raise FormatError(f"{part.path}: records of nodes that do not exist")
        stops = np.cumsum([high - low for _, low, high in group]) * BLOCK_RECORDS
        starts = stops - [(high - low) * BLOCK_RECORDS for _, low, high in group]
        # A record owns the pixels up to the middle between it and the next.
        middle = np.empty(len(time), np.int64)
        np.add(time[:-1], time[1:], out=middle[:-1])
        after = [self._next(row, high) for row, _, high in group]
        last = time[stops - 1]
        middle[stops - 1] = [
            (1 << 62) // TIME_UNIT_NS if behind is None else int(own) + behind[0]
            for own, behind in zip(last.tolist(), after, strict=True)
        ]
        middle *= TIME_UNIT_NS // 2
        upto = self._columns(middle)
        for (row, _, _), start, stop, behind in zip(
            group, starts.tolist(), stops.tolist(), after, strict=True
        ):
            begin, end = int(self._begin[row]), int(self._end[row])
            bounds = np.clip(upto[start:stop], begin, end)
            count = np.diff(bounds, prepend=begin)
            out = self._out[self._place[row]]
            reached = int(bounds[-1])
            out[begin:reached] = self._table[np.repeat(node[start:stop], count)]
            if reached < end and behind is not None:
                out[reached:end] = self._table[behind[1]]

    def _next(self, row: int, high: int) -> tuple[int, int] | None:
        """Time (ticks) and node of the first record behind the blocks of a row."""
        if high >= int(self._part.lines.block[int(self._local[row]) + 1]):
            return None
        node = int(self._part.blocks.node[high])
        if node >= len(self._table):
            raise FormatError(f"{self._part.path}: records of nodes that do not exist")
        return int(self._part.blocks.base[high]), node

    def _columns(self, middle: I64) -> I64:
        """How many pixels are not later than each of ``middle`` (ns)."""
        if self._search:
            return np.searchsorted(self._times, middle, side="right")
        # Computed a thousandth of a pixel too low, then put right by looking.
        place = (middle - int(self._times[0])) * (1.0 / self._spacing)
        place += 0.999
        np.clip(place, 0, len(self._times), out=place)
        found = place.astype(np.int64)
        found += self._ahead[found] <= middle
        return found
