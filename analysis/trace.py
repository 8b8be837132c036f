"""Trace records of a database: reading them by line and time, and drawing them.

The records of a measurement's lines are in its part (:mod:`hpcd.analysis.part`), in the
measurement's own clock and with its own nodes and events; the columns here say which line is where,
and what its numbers mean in the database.
"""

from __future__ import annotations

from collections.abc import Sequence
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

# Blocks decoded together for a picture: enough to share among threads, their arrays still cached.
_GROUP_BLOCKS = 256
# Pixels narrower than this are found by search: their times, whole nanoseconds, are too unevenly
# spaced to be computed.
_EVEN_NS = 10_000.0
# A time after all others, in ticks; sums of two, in ns, fit 64 bits.
_NEVER = (1 << 62) // TIME_UNIT_NS


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
        since, local = part.places(chosen) if len(chosen) else _nothing()
        ticks = since.astype(np.int64) + part.blocks.base[chosen][:, None]
        time = ticks[full] * TIME_UNIT_NS + shift
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
        for rows in np.split(order, cuts) if len(order) else []:
            number = int(parts[rows[0]])
            _Picture(
                self.part(number), self._part_nodes(number), self._map.row[lines[rows]],
                times - self._map.shift[number], spacing, begin[rows], end[rows], nodes, rows,
            ).draw()  # fmt: skip
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


def _nothing() -> tuple[U64, U32]:
    shape = (0, BLOCK_RECORDS)
    return np.zeros(shape, np.uint64), np.zeros(shape, np.uint32)


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

    def draw(self) -> None:
        """Fill the rows in."""
        wide = self._part.lines.wide[self._local] != 0
        level = np.full(len(self._local), -1)
        for kind in (False, True):
            mine = np.flatnonzero(wide == kind)
            if len(mine):
                levels, _ = self._part.levels(int(self._local[mine[0]]))
                rows = self._local[mine]
                fits = levels.step[:, rows] * TIME_UNIT_NS <= self._spacing
                level[mine] = (fits & (levels.count[:, rows] > 0)).sum(axis=0) - 1
        seen = np.flatnonzero(level >= 0)
        self._overviews(seen, level[seen])
        exact = np.flatnonzero(level < 0)
        if len(exact):
            self._exact(exact)

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

    def _exact(self, rows: I64) -> None:
        """Rows whose records are decoded, those with as many blocks together."""
        first, blocks = np.array([self._blocks(row) for row in rows.tolist()]).T
        for count in np.unique(blocks).tolist():
            mine = np.flatnonzero(blocks == count)
            each = max(_GROUP_BLOCKS // count, 1)
            for at in range(0, len(mine), each):
                group = mine[at : at + each]
                self._decode(rows[group], first[group], count)

    def _blocks(self, row: int) -> tuple[int, int]:
        """The first block with records between a row's pixels, and how many there are."""
        table, line = self._part.lines.block, int(self._local[row])
        low, high = int(table[line]), int(table[line + 1])
        base = self._part.blocks.base[low:high]
        first, last = self._times[self._begin[row]], self._times[self._end[row] - 1]
        a, z = base.searchsorted([first // TIME_UNIT_NS, last // TIME_UNIT_NS], side="right")
        begin = max(int(a) - 1, 0)
        return low + begin, max(int(z), begin + 1) - begin

    def _decode(self, rows: I64, first: I64, count: int) -> None:
        """Draw ``rows`` from ``count`` blocks each, from ``first`` on."""
        part = self._part
        chosen = (first[:, None] + np.arange(count)).ravel()
        since, node = part.places(chosen)
        node = node.reshape(len(rows), -1)
        if int(node.max(initial=0)) >= len(self._table):
            raise FormatError(f"{part.path}: records of nodes that do not exist")
        base = part.blocks.base[chosen]
        after, behind = self._next(rows, first + count)
        begin, end = self._begin[rows][:, None], self._end[rows][:, None]
        if (count - 1) * BLOCK_RECORDS > len(self._times):
            upto = self._many(since, base, after)
        else:
            time = (since.astype(np.int64) + base[:, None]).reshape(len(rows), -1)
            upto, node = self._few(time, node, after, begin, end)
        bounds = np.empty((len(rows), upto.shape[1] + 1), np.int64)
        bounds[:, :1] = begin
        np.clip(upto, begin, end, out=bounds[:, 1:])
        values = self._table[np.repeat(node.ravel(), np.diff(bounds).ravel())]
        width = len(self._times)
        if (bounds[:, -1] == width).all() and not begin.any():
            self._out[self._place[rows]] = values.reshape(len(rows), width)
            return
        at = 0
        reached = bounds[:, -1].tolist()
        for k, row in enumerate(rows.tolist()):
            low, high, stop = int(begin[k, 0]), reached[k], int(end[k, 0])
            out = self._out[self._place[row]]
            out[low:high] = values[at : at + high - low]
            out[high:stop] = self._table[behind[k]]
            at += high - low

    def _many(self, since: npt.NDArray[np.unsignedinteger], base: I64, after: I64) -> I64:
        """How many pixels each record and those before it own, where pixels have many records.

        Within a thousandth of a pixel: single precision.
        """
        scale = TIME_UNIT_NS / self._spacing
        offset = (base * TIME_UNIT_NS - int(self._times[0])) / self._spacing
        place = since.astype(np.float32)
        place *= np.float32(scale)
        place += offset.astype(np.float32)[:, None]
        place = place.reshape(len(after), -1)
        follower = (after * float(TIME_UNIT_NS) - float(self._times[0])) / self._spacing
        middle = np.empty_like(place)
        np.add(place[:, :-1], place[:, 1:], out=middle[:, :-1])
        middle[:, -1] = place[:, -1] + follower
        middle *= np.float32(0.5)
        middle += np.float32(1.0)
        np.clip(middle, 0, len(self._times), out=middle)
        return middle.astype(np.int32)

    def _few(self, time: I64, node: U32, after: I64, begin: I64, end: I64) -> tuple[I64, U32]:
        """The same, exactly, and the nodes of the few records around the pixels."""
        first = self._times[begin] // TIME_UNIT_NS
        last = self._times[end - 1] // TIME_UNIT_NS
        low = np.maximum((time <= first).sum(axis=1) - 1, 0)
        high = (time <= last).sum(axis=1)
        shown = int((high - low).max()) + 1
        if 2 * shown < time.shape[1]:
            columns = low[:, None] + np.arange(shown)
            np.minimum(columns, time.shape[1] - 1, out=columns)
            time = np.take_along_axis(time, columns, axis=1)
            node = np.take_along_axis(node, columns, axis=1)
        # A record owns the pixels up to the middle between it and the next.
        middle = np.empty_like(time)
        np.add(time[:, :-1], time[:, 1:], out=middle[:, :-1])
        middle[:, -1] = time[:, -1] + after
        middle *= TIME_UNIT_NS // 2
        return self._columns(middle), node

    def _next(self, rows: I64, high: I64) -> tuple[I64, U32]:
        """Time (ticks) and node of the first record behind the blocks of each row.

        A time after all others where there is none.
        """
        part = self._part
        exists = high < part.lines.block[self._local[rows] + 1]
        at = np.where(exists, high, 0)
        node = np.where(exists, part.blocks.node[at], 0)
        if int(node.max(initial=0)) >= len(self._table):
            raise FormatError(f"{part.path}: records of nodes that do not exist")
        return np.where(exists, part.blocks.base[at], _NEVER), node

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
