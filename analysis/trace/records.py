"""Trace records of a database: reading them by line and time, and drawing them.

The records of a line are in a part (:mod:`hpcd.analysis.trace.part`), in the clock of the
measurement and with the part's numbers of nodes and events; the columns here map lines to
parts, and the parts' numbers to the database's.
"""

from __future__ import annotations

import mmap
import resource
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np

from hpcd.analysis.arrays.column_files import are_below, open_bounds, open_column
from hpcd.analysis.arrays.node_maps import NodeMaps
from hpcd.analysis.trace.blocks import BLOCK_RECORDS
from hpcd.analysis.trace.line_pictures import LinePictures, PartRows
from hpcd.analysis.trace.part import Part
from hpcd.analysis.trace.part_file import expect
from hpcd.array_types import I64, U16, U32, U64
from hpcd.distinct import begins_run
from hpcd.errors import FormatError
from hpcd.measurement.codec import TIME_UNIT_NS
from hpcd.model.cct import NO_NODE


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
    """The meaning in the database of the numbers in its parts.

    Nodes of part ``p`` are ``node[p]`` (``uint32[n]``), its events
    ``event[event_start[p]:event_start[p + 1]]`` (``uint16``). Trace line ``i`` is of measurement
    ``measurement[i]``, and row ``row[i]`` of part ``part[i]`` (``uint32[lines]`` all); ``shift``
    ``int64[measurements]`` turns a measurement's times into database times, in ns.
    """

    node: NodeMaps
    event: U16
    event_start: I64
    shift: I64
    measurement: U32
    part: U32
    row: U32

    @staticmethod
    def load(folder: Path, parts: int, measurements: int, lines: int, nodes: int) -> TraceMap:
        """Map the columns in ``folder``. Raises :class:`FormatError`."""
        event = open_column(folder / "event.npy", np.uint16)
        part_of = open_column(folder / "part.npy", np.uint32, measurements)
        measurement = open_column(folder / "measurement.npy", np.uint32, lines)
        if not are_below(measurement, measurements):
            raise FormatError(f"{folder}: damaged (measurements that do not exist)")
        if not are_below(part_of, parts):
            raise FormatError(f"{folder}: damaged (parts that do not exist)")
        return TraceMap(
            node=NodeMaps(folder, parts, nodes),
            event=event,
            event_start=open_bounds(folder / "event_start.npy", parts, len(event)),
            shift=open_column(folder / "shift.npy", np.int64, measurements),
            measurement=measurement,
            part=part_of[measurement],
            row=open_column(folder / "row.npy", np.uint32, lines),
        )


# Pages of files that a process may hold; more make it look as large as all it ever drew.
_MOST_MAPPED = 256 << 20


def _mapped() -> int:
    """Bytes of files in this process's memory (proc_pid_statm(5)); 0 where that is not known."""
    try:
        shared = int(Path("/proc/self/statm").read_bytes().split()[2])
    except (OSError, IndexError, ValueError):
        return 0
    return shared * mmap.PAGESIZE


class Trace:
    """The trace records of a database. Parts are mapped when they are first needed."""

    def __init__(self, paths: Sequence[Path], mapping: TraceMap, first: I64) -> None:
        """``paths`` are the parts' files; ``first`` ``int64[lines + 1]`` where records begin."""
        self.part_paths = paths
        """The files of the parts."""
        self._map = mapping
        self._first = first
        self._parts: dict[int, Part] = {}
        # The other half is for other open files.
        self._most_open = max(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2, 2)
        self._pictures = LinePictures()

    def __len__(self) -> int:
        return int(self._first[-1]) if len(self._first) else 0

    def measurements(self, lines: Sequence[int]) -> list[int]:
        """The measurement each of ``lines`` is from."""
        numbers: list[int] = self._map.measurement[list(lines)].tolist()
        return numbers

    def part_of(self, line: int) -> Part:
        """The part that has the records of ``line``. Raises :class:`FormatError`."""
        return self.part(int(self._map.part[line]))

    def part(self, number: int) -> Part:
        """Part ``number``. Raises :class:`FormatError` when it is damaged."""
        part = self._parts.get(number)
        if part is None:
            self._make_room()
            part = Part(self.part_paths[number])
            mine, rows = self.part_lines(number)
            if not are_below(rows, len(part)) or bool(
                (part.lines.records[rows] != np.diff(self._first)[mine]).any()
            ):
                raise FormatError(f"{part.path}: does not belong to this database")
            self._parts[number] = part
        return part

    def _make_room(self) -> None:
        """Close the older half of the parts if more would take too many descriptors: a mapped
        file keeps its own. Parts in use stay open."""
        if len(self._parts) < self._most_open:
            return
        for number in list(self._parts)[: self._most_open // 2]:
            self._parts.pop(number, None)

    def part_lines(self, number: int) -> tuple[I64, U32]:
        """The trace lines of part ``number``, ``int64[n]``, and their rows in it, ``uint32[n]``."""
        lines = self._lines_by_part[self._bounds[number] : self._bounds[number + 1]]
        return lines, self._map.row[lines]

    def part_mapping(self, number: int) -> tuple[U32, U16]:
        """Return the database's node of each node of part ``number``, and its event of each of the
        part's events."""
        low, high = self._map.event_start[number : number + 2].tolist()
        return self._map.node[number], self._map.event[low:high]

    def shifts(self, lines: I64) -> I64:
        """``int64[n]``: the ns to add to the part's times of each of ``lines``."""
        return self._map.shift[self._map.measurement[lines]]

    @cached_property
    def _lines_by_part(self) -> I64:
        return np.argsort(self._map.part, kind="stable")

    @cached_property
    def _bounds(self) -> I64:
        parts = self._map.part[self._lines_by_part]
        return np.searchsorted(parts, np.arange(len(self.part_paths) + 1))

    def records(self, line: int, t0: int | None = None, t1: int | None = None) -> Records:
        """Records of ``line`` with ``t0 <= time < t1``. O(records of the blocks they are in)."""
        number = int(self._map.part[line])
        part, row = self.part(number), int(self._map.row[line])
        shift = int(self._map.shift[self._map.measurement[line]])
        low, high = part.lines.block[row : row + 2].tolist()
        base = part.blocks.base[low:high]
        if t1 is not None:
            high = low + int(np.searchsorted(base, -((shift - t1) // TIME_UNIT_NS)))
        if t0 is not None:
            low += max(int(np.searchsorted(base, (t0 - shift) // TIME_UNIT_NS)) - 1, 0)
        selected = slice(low, max(high, low))
        full = np.arange(BLOCK_RECORDS) < part.blocks.records[selected][:, None]
        since, local = part.places(selected)
        ticks = since.astype(np.int64) + part.blocks.base[selected][:, None]
        time = ticks[full] * TIME_UNIT_NS + shift
        node = self._canonical(number, local[full])
        events, values = part.weights(selected, since)
        event, value = self._event(number, events[full]), values[full]
        begin = 0 if t0 is None else int(np.searchsorted(time, t0))
        end = len(time) if t1 is None else int(np.searchsorted(time, t1))
        span = slice(begin, max(begin, end))
        return Records(time[span], node[span], event[span], value[span])

    def block_times(self, line: int) -> I64:
        """``int64[blocks]``: when each block of ``line`` begins (ns), for reading a long line in
        pieces."""
        number = int(self._map.part[line])
        part, row = self.part(number), int(self._map.row[line])
        low, high = part.lines.block[row : row + 2].tolist()
        base: I64 = part.blocks.base[low:high]
        return base * TIME_UNIT_NS + int(self._map.shift[self._map.measurement[line]])

    def sample(
        self, lines: I64, times: I64, spacing: float, begin: I64, end: I64, row: I64 | None = None
    ) -> U32:
        """Pixels ``uint32[len(lines), len(times)]`` at ``times`` (ns, ascending, evenly spaced), as
        :mod:`hpcd.analysis.trace.states` describes them.

        Row ``i`` is drawn from column ``begin[i]`` to ``end[i]``, NO_NODE elsewhere and on lines
        without records. With ``row`` ``int64[len(lines)]`` line ``i`` is drawn in that row instead,
        of as many as the last of them says. Each pixel shows the wait that its time is in, else the
        sample closest to it between the same waits, the earlier of two; where it covers several
        records, a moment less than half a pixel (``spacing`` ns) away, if that saves decoding them.
        O(h · w) and, below that, O(h · records shown).
        """
        places = np.arange(len(lines)) if row is None else row
        pixels = np.full((int(places.max(initial=-1)) + 1, len(times)), NO_NODE, np.uint32)
        drawn = np.flatnonzero((begin < end) & (self._first[lines + 1] > self._first[lines]))
        parts, shifts = self._map.part[lines], self.shifts(lines)
        order = drawn[np.lexsort((shifts[drawn], parts[drawn]))]
        parts, shifts = parts[order], shifts[order]
        first = np.flatnonzero(begins_run(parts, shifts))
        bounds = np.append(first, len(order)).tolist()
        local = self._map.row[lines[order]].astype(np.int64)
        columns = (places[order], local, begin[order], end[order])
        spans = list(
            zip(parts[first].tolist(), shifts[first].tolist(), pairwise(bounds), strict=True)
        )
        # Files being drawn stay open until they are drawn, whichever are closed for the next.
        together = max(self._most_open // 2, 1)
        for at in range(0, len(spans), together):
            groups = self._groups(spans[at : at + together], columns)
            self._pictures.draw(groups, times, spacing, pixels)
        self.release_beyond(_MOST_MAPPED)
        return pixels

    def _groups(
        self, spans: Sequence[tuple[int, int, tuple[int, int]]], columns: tuple[I64, ...]
    ) -> list[PartRows]:
        """Return the rows of some parts: for each part its number, the ns to add to its times, and
        its positions in ``columns``, the columns of :class:`PartRows`."""
        fresh = {number for number, _, _ in spans} - self._parts.keys()
        expect(self.part_paths[number] for number in sorted(fresh))
        return [
            PartRows(
                self.part(number), self._map.node[number], shift,
                *(column[low:high] for column in columns),
            )
            for number, shift, (low, high) in spans
        ]  # fmt: skip

    def release_beyond(self, most: int) -> None:
        """Give all parts back to the kernel if this process has more than ``most`` bytes of files
        in its memory; pages needed again are mapped again."""
        if _mapped() > most:
            for part in list(self._parts.values()):  # another thread may be opening one
                part.file.release()

    def _canonical(self, number: int, local: U32) -> U32:
        table = self._map.node[number]
        if not are_below(local, len(table)):
            raise FormatError(f"{self.part(number).path}: records of nodes that do not exist")
        return table[local]

    def _event(self, number: int, local: U16) -> U16:
        low, high = self._map.event_start[number : number + 2].tolist()
        if not are_below(local, high - low):
            raise FormatError(f"{self.part(number).path}: records of events that do not exist")
        return self._map.event[low:high][local]
