"""What a merge does with each record by compiled loops (:mod:`hpcd.native`).

Each function does what a function of numpy calls beside its caller does, with the same result to
the byte, in one pass. Arrays have the types and shapes that the callers document, and are
contiguous. A line, node or block that there is not raises :class:`IndexError`, as numpy does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from hpcd.array_types import F64, I64, U8, U16, U32, U64, Array
from hpcd.measurement.record_loops import RecordLoops
from hpcd.native.native_library import array_of, declare, loops_in, struct_of

_EVENTS = 1 << 16
_CONTEXT_BYTES = 64
"""``struct context`` of ``context_extremes.c``."""
_INT, _ADDRESS = ctypes.c_int64, ctypes.c_void_p
_U8, _U16, _U32, _U64 = (array_of(kind) for kind in (np.uint8, np.uint16, np.uint32, np.uint64))
_I16, _I32, _I64, _F64 = (array_of(kind) for kind in (np.int16, np.int32, np.int64, np.float64))

_LINES = struct_of(*[np.int64] * 3)
_LAID_OUT = struct_of(
    np.int64, np.int64, np.uint32, np.uint16, np.uint64, np.int64, np.int64, np.int64, np.uint64,
    np.uint64,
)  # fmt: skip
_STEPS = struct_of(np.uint32, np.uint64, np.uint64, np.uint32, np.uint32, np.int64, np.int64)
_UNITED = struct_of(np.uint32, np.uint32, np.uint16, np.uint64, np.uint64)
_OVERVIEWS = struct_of(*[np.int64] * 6, np.uint32, np.uint32)
_EXTREMES = struct_of(np.int64, *[np.float64] * 3, *[np.int64] * 3)


class MergeLoops:
    """The loops of ``line_entries.c``, ``record_sums.c``, ``trace_blocks.c``, ``overviews.c``,
    ``trees.c``, ``cell_order.c``, ``context_extremes.c``,
    ``node_numbers.c`` and ``part_tables.c``."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.reading = RecordLoops(library)
        """What reading a measurement does, compiled likewise."""
        self._entry_count = declare(library, "entry_count", (_U16, _U64, _INT, _F64), _INT)
        self._expand = declare(
            library, "expand",
            (_I64, _INT, _U64, _U32, _U16, _U64, _F64, _I64, _I64, _U32, _U16, _U64), ctypes.c_bool,
        )  # fmt: skip
        self._examine = declare(
            library, "examine",
            (_I64, _INT, _I64, _I64, _I64, _U64, _U16, _I64, _I64, _I32, _I32), _INT,
        )  # fmt: skip
        self._lay_out = declare(
            library, "lay_out",
            (_I64, _INT, _I64, _I64, _I64, _U64, _U32, _U16, _U64, _U32, _INT, _F64, _I32, _INT,
             _U64, _ADDRESS, _ADDRESS, _I64), ctypes.c_bool,
        )  # fmt: skip
        self._slots = declare(library, "event_slots", (_U16, _INT, _I16, _INT, _INT), _INT)
        self._count = declare(
            library, "count_records",
            (_U32, _I64, _INT, _U32, _U16, _U64, _I16, _INT, _INT, _U32, _U64), ctypes.c_bool,
        )  # fmt: skip
        self._line_cells = declare(
            library, "line_cells",
            (_I64, _INT, _U32, _U16, _U64, _I64, _INT, _INT, _U32, _U64, _I64, _INT, _I64, _I64,
             _U64, _U64), _INT,
        )  # fmt: skip
        self._united_sums = declare(
            library, "united_sums",
            (_U32, _U32, _U16, _U64, _U64, _INT, _INT, _INT, _I64, _U16, _INT, _U64, _I64, _I64,
             _I64, _I64, _ADDRESS), _INT,
        )  # fmt: skip
        self._place_planes = declare(
            library, "place_planes",
            (_I64, _INT, _I64, _U32, _INT, _U8, _I64, _U32, _U16, _U16), ctypes.c_bool,
        )  # fmt: skip
        self._code_planes = declare(
            library, "code_planes",
            (_I64, _INT, _I64, _U16, _U64, _INT, _U8, _I64, _U16, _U16), ctypes.c_bool,
        )  # fmt: skip
        self._overview_pieces = declare(
            library, "overview_pieces", (_I64, _INT, _I64, _I64, _U32, _ADDRESS, _I64), _INT
        )
        self._overview_entries = declare(
            library, "overview_entries", (_INT, _I64, _I64, _U32, _ADDRESS, _I64, _U32)
        )
        self._thin = {
            np.dtype(kind): declare(
                library, name,
                (_I64, _INT, array_of(kind), _INT, _INT, _INT, _INT, ctypes.c_uint32,
                 ctypes.c_uint32, array_of(kind), _INT), ctypes.c_bool,
            )
            for name, kind in (("thin_entries16", np.uint16), ("thin_entries32", np.uint32))
        }  # fmt: skip
        self._few_nodes = declare(library, "few_nodes", (_U16, _INT, _U16, _U32, _U8), _INT)
        self._unite = declare(
            library, "unite_trees",
            (_U32, _U64, _I64, _INT, ctypes.c_uint64, _U32, _INT, _U32, _U64, _U32), _INT,
        )  # fmt: skip
        self._translate = declare(library, "translate_frames", (_U64, _INT, _U32, _INT, _U64))
        self._number_nodes = declare(
            library, "number_nodes",
            (_I64, _INT, _I64, _INT, _U32, _I64, _I64, _I64, _I64, _U32), ctypes.c_bool,
        )  # fmt: skip
        self._bare_nodes = declare(library, "bare_nodes", (_U32, _INT, _U32, _INT, _U8, _U32), _INT)
        self._by_context = declare(
            library, "cells_by_context",
            (_U32, _U32, _U16, _U64, _U64, _INT, _I64, _INT, _INT, _I64, _U32, _ADDRESS),
            ctypes.c_bool,
        )  # fmt: skip
        self._by_line = declare(
            library, "order_by_line", (_U32, _U32, _INT, _INT, _INT, _I64, _I64, _I64, _I64),
            ctypes.c_bool,
        )  # fmt: skip
        self._totals = declare(
            library, "cell_totals",
            (_U32, _U16, _U64, _U64, _INT, _I64, _INT, _INT, _INT, _F64), ctypes.c_bool,
        )  # fmt: skip
        self._extremes = declare(
            library, "inclusive_extremes",
            (_U32, _INT, _I64, _I64, _INT, _U32, _U16, _U64, _INT, _F64, _INT, _F64, _U8, _I64,
             _ADDRESS),
            ctypes.c_bool,
        )  # fmt: skip

        self._part_tables = declare(
            library, "part_tables",
            (_ADDRESS, _I64, _I64, _INT, _I64, _I64, _I64, _INT, _U8, _INT, _I64), ctypes.c_bool,
        )  # fmt: skip

    def expand(
        self, start: I64, time_ns: U64, node: U32, event: U16, value: U64, length: F64
    ) -> tuple[I64, I64, U32, U16, U64, bool]:
        """Entries of records with the ends of intervals: where lines begin, ticks, node, event,
        value, and whether all are of event 0 and value 1. ``length`` is that of each of the 65,536
        events."""
        event, value = np.ascontiguousarray(event), np.ascontiguousarray(value)
        total = self._entry_count(event, value, len(event), _of_events(length))
        starts, ticks = np.empty(len(start), np.int64), np.empty(total, np.int64)
        nodes, events = np.empty(total, np.uint32), np.empty(total, np.uint16)
        values = np.empty(total, np.uint64)
        plain: bool = self._expand(
            start, len(start) - 1, np.ascontiguousarray(time_ns), np.ascontiguousarray(node),
            event, value, length, starts, ticks, nodes, events, values,
        )  # fmt: skip
        return starts, ticks, nodes, events, values, plain

    def examine(
        self, rows: I64, first: I64, begin: I64, end: I64, time_ns: U64, event: U16, counts: I64,
        last: I64, slot_of: Array, used: int,
    ) -> tuple[int, int]:  # fmt: skip
        """Of records of lines, which lie in stretches: how many there are, -1 where a line's are
        not in order or begin before the ``last`` of it; and how many slots their events need, each
        its own: ``slot_of`` ``int32[65536]``."""
        number = np.array([used], np.int32)
        records = self._examine(
            rows, len(rows), first, begin, end, time_ns, event, counts, last, _of_events(slot_of),
            number,
        )  # fmt: skip
        return records, int(number[0])

    def lay_out(
        self, rows: I64, stretches: tuple[I64, I64, I64], records: tuple[U64, U32, U16, U64],
        meaning: tuple[U32, F64, Array], lines: tuple[I64, I64, I64], table: U64, slots: int,
        buffers: tuple[Any, ...],
    ) -> tuple[int, int, int, bool]:  # fmt: skip
        """Entries of records with the ends of intervals, where blocks of them begin, and their
        sums.

        ``rows`` are the lines; ``stretches`` where each line's stretches begin, and where these
        begin and end in the columns ``records``; they are in order (:meth:`examine`). ``meaning``
        are the part's number of each node, the length of each event and its slot; ``lines`` the
        entries, first and last ticks of all lines so far; ``table`` ``uint64[nodes * slots, 2]`` is
        0, and so again at the end.

        Fills ``buffers``: where each line's entries begin, ticks, nodes, events, values, where
        blocks begin, and sums. Returns how many entries, blocks and sums there are, and whether all
        entries are of event 0 and value 1.
        """
        number, length, slot_of = meaning
        made = np.empty(4, np.int64)
        assert len(table) == len(number) * slots
        fits = self._lay_out(
            rows, len(rows), *stretches, *records, number, len(number), _of_events(length),
            _of_events(slot_of), slots, table, _LINES(*lines),
            _LAID_OUT(*buffers[:-1], *buffers[-1]), made,
        )  # fmt: skip
        _exists(fits)
        entries, blocks, cells, plain = made.tolist()
        return entries, blocks, cells, bool(plain)

    def slots(self, event: U16, slot_of: Array, used: int, most: int) -> int:
        """Give every event a slot, in ``int16[65536]``; how many are used, or -1 where there are
        more events than slots."""
        number: int = self._slots(event, len(event), _of_events(slot_of), used, most)
        return number

    def count(
        self, line: U32, start: I64, node: U32, event: U16, value: U64, slot_of: Array, nodes: int,
        records: U32, more: U64,
    ) -> None:  # fmt: skip
        """Count records, and what their values are above 1, by slot of the event, line and node;
        all events have a slot (:meth:`slots`)."""
        lines = records.shape[1] // nodes
        _exists(self._count(
            line, start, len(line), node, event, value, slot_of, lines, nodes, records, more
        ))  # fmt: skip

    def line_cells(
        self, start: I64, node: U32, event: U16, value: U64, slot_of: I64, nodes: int
    ) -> tuple[I64, I64, U64, U64]:
        """Sums of records line by line: where each line's begin, nodes times slots plus the slots
        of their events, ascending, how many records, and the sums of their values. ``slot_of`` has
        all events."""
        slots, total = int(slot_of.max(initial=-1)) + 1, len(node)
        longest = int(np.diff(start).max(initial=0))
        first, keys = np.empty(len(start), np.int64), np.empty(total, np.int64)
        records, sums = np.empty(total, np.uint64), np.empty(total, np.uint64)
        made = self._line_cells(
            start, len(start) - 1, node, event, value, slot_of, slots, nodes,
            np.zeros(nodes * slots, np.uint32), np.zeros(nodes * slots, np.uint64),
            np.empty(2 * longest, np.int64), longest, first, keys, records, sums,
        )  # fmt: skip
        _exists(made >= 0)
        return first, keys[:made], records[:made], sums[:made]

    def united_sums(
        self, line: U32, node: U32, event: U16, records: U64, value: U64, lines: int, slot_of: I64,
        event_of: U16, table: U64,
    ) -> tuple[U32, U32, U16, U64, U64]:  # fmt: skip
        """Sums by line, node and event, ascending, each once; equal ones are added.

        ``slot_of`` are places of events in ``event_of``, ascending; ``table``
        ``uint64[nodes * events, 2]`` is 0 and is so again at the end.
        """
        total = len(line)
        united = (
            np.empty(total, np.uint32), np.empty(total, np.uint32), np.empty(total, np.uint16),
            np.empty(total, np.uint64), np.empty(total, np.uint64),
        )  # fmt: skip
        made = self._united_sums(
            line, node, event, records, value, total, lines, len(table) // len(event_of), slot_of,
            event_of, len(event_of), table, np.empty(lines + 1, np.int64),
            np.empty(lines, np.int64), np.empty(total, np.int64), np.empty(2 * total, np.int64),
            _UNITED(*united),
        )  # fmt: skip
        _exists(made >= 0)
        lines_, nodes, events, counted, added = united
        return lines_[:made], nodes[:made], events[:made], counted[:made], added[:made]

    def place_planes(self, cuts: I64, time: I64, node: U32) -> tuple[U8, I64, U32, U16, U16]:
        """Times and nodes of blocks before they are compressed: their bytes, where each block
        begins and the last ends, least steps, planes of times and of nodes."""
        number = len(cuts) - 1
        data, begin = np.empty(8 * len(time), np.uint8), np.empty(number + 1, np.int64)
        least, wide = np.empty(number, np.uint32), np.empty(number, np.uint16)
        wide_node = np.empty(number, np.uint16)
        _exists(self._place_planes(
            cuts, number, time, node, len(time), data, begin, least, wide, wide_node
        ))  # fmt: skip
        return data, begin, least, wide, wide_node

    def code_planes(self, cuts: I64, time: I64, event: U16, value: U64) -> tuple[U8, I64, U16, U16]:
        """Codes of blocks before they are compressed: their bytes, where each block begins and the
        last ends, planes of codes and of other values."""
        number = len(cuts) - 1
        data, begin = np.empty(11 * len(time), np.uint8), np.empty(number + 1, np.int64)
        wide, wide_other = np.empty(number, np.uint16), np.empty(number, np.uint16)
        _exists(self._code_planes(
            cuts, number, time, event, value, len(time), data, begin, wide, wide_other
        ))  # fmt: skip
        return data, begin, wide, wide_other

    def overview(
        self, line: I64, start: I64, time: I64, node: U32, state: Sequence[I64],
        first: tuple[I64, U32], last: tuple[I64, U32],
    ) -> tuple[I64, U32]:  # fmt: skip
        """Entries of lines' overviews up to the middle before their last records: pieces of line,
        shift, index of the first entry and number of entries, and all their nodes.

        ``state`` are shift, records, entries and the next entry of each line so far, ``first`` and
        ``last`` times and nodes of its first and last records.
        """
        known = _OVERVIEWS(*state, first[0], last[0], first[1], last[1])
        pieces = np.empty((len(line), 4), np.int64)
        total = self._overview_pieces(line, len(line), start, time, node, known, pieces)
        values = np.empty(total, np.uint32)
        self._overview_entries(len(line), start, time, node, known, pieces, values)
        return pieces, values

    def thin(
        self, pieces: I64, entries: U16 | U32, step: int, begin: int, low: int,
        ends: tuple[int, int], nodes: U16 | U32,
    ) -> None:  # fmt: skip
        """Put every so many of a stretch's ``entries``, which lie in ``pieces`` ``int64[k, 5]``
        (line, shift of the step, index of the first, how many, and where they are), into ``nodes``,
        which are of the index ``begin`` and the following ones of ``step``; from ``low`` on. What
        the pieces do not reach are the nodes ``ends``."""
        _exists(self._thin[nodes.dtype](
            pieces, len(pieces), entries, len(entries), step, begin, low, *ends, nodes, len(nodes)
        ))  # fmt: skip

    def few_nodes(self, nodes: U16) -> tuple[U32, U8] | None:
        """The distinct ``nodes``, ascending, and the place of each of ``nodes`` among them; None
        where there are more than 256."""
        distinct, places = np.empty(256, np.uint32), np.empty(len(nodes), np.uint8)
        number = self._few_nodes(nodes, len(nodes), np.zeros(1 << 16, np.uint16), distinct, places)
        return None if number < 0 else (distinct[:number], places)

    def unite(self, parent: U32, frame: U64, start: I64, seed: int) -> tuple[U32, U64, U32]:
        """The union of trees that begin at ``start``, in the order in which its nodes are met:
        parents, frames, and the node of the union of each of theirs. ``seed`` is an odd number that
        nobody can foresee, so that no tree is made to be slow."""
        total = len(parent)
        size = max(16, 1 << (2 * total - 1).bit_length())
        parents, frames = np.empty(total, np.uint32), np.empty(total, np.uint64)
        ids = np.empty(total, np.uint32)
        used = self._unite(
            parent, frame, start, len(start) - 1, seed, np.zeros(size, np.uint32), size, parents,
            frames, ids,
        )  # fmt: skip
        _exists(used > 0)
        return parents[:used].copy(), frames[:used].copy(), ids

    def translate(self, frame: U64, module_map: U32) -> U64:
        """Frames with the modules that ``module_map`` says theirs are."""
        translated = np.empty(len(frame), np.uint64)
        self._translate(frame, len(frame), module_map, len(module_map), translated)
        return translated

    def number_nodes(self, node: I64, start: I64) -> tuple[I64, I64, U32]:
        """The nodes of parts that have records, each part's by how many, and where those of each
        part begin; and the place in its part's of each of ``node``. The nodes of a part begin at
        ``start``."""
        total, parts = len(node), len(start) - 1
        keys, spare, seen = (np.empty(total, np.int64) for _ in range(3))
        bounds, number = np.empty(parts + 1, np.int64), np.empty(total, np.uint32)
        _exists(self._number_nodes(
            node, total, start, parts, np.zeros(int(start[-1]), np.uint32), keys, spare, seen,
            bounds, number,
        ))  # fmt: skip
        return seen[: int(bounds[-1])], bounds, number

    def bare_nodes(self, parent: U32, seen: U32) -> U32:
        """The nodes that are neither ``seen`` nor have children."""
        bare, nodes = np.empty(len(parent), np.uint32), len(parent)
        number = self._bare_nodes(parent, nodes, seen, len(seen), np.ones(nodes, np.uint8), bare)
        _exists(number >= 0)
        return bare[:number]

    def cells_by_context(
        self, line: U32, node: U32, event: U16, records: U64, value: U64, slot_of: I64, slots: int,
        nodes: int,
    ) -> tuple[Array, ...] | None:  # fmt: skip
        """Sums by slot of their event, node and line, those given by line: steps of lines, records
        less one, values less records; nodes of contexts and how many sums each has; where those of
        each slot begin, sums and contexts. None where lines do not ascend, or a node is not below
        ``nodes``."""
        n = len(line)
        found = (
            np.empty(n, np.uint32), np.empty(n, np.uint64), np.empty(n, np.uint64),
            np.empty(n, np.uint32), np.empty(n, np.uint32), np.empty(slots + 1, np.int64),
            np.empty(slots + 1, np.int64),
        )  # fmt: skip
        done = self._by_context(
            line, node, event, records, value, n, slot_of, slots, nodes,
            np.zeros(slots * nodes, np.int64), np.zeros(slots * nodes, np.uint32), _STEPS(*found),
        )  # fmt: skip
        return found if done else None

    def order_by_line(self, line: U32, node: U32, lines: int, nodes: int) -> tuple[I64, I64]:
        """The order of sums by line and node, equal ones as they come, and where those of each line
        begin."""
        first, order = np.zeros(lines + 1, np.int64), np.empty(len(line), np.int64)
        _exists(self._by_line(
            line, node, len(line), lines, nodes, np.empty(len(line), np.int64),
            np.zeros(nodes, np.int64), first, order,
        ))  # fmt: skip
        return order, first

    def cell_totals(
        self, place: U32, event: U16, records: U64, value: U64, slot_of: I64, slots: int, count: int
    ) -> F64:  # fmt: skip
        """``float64[1 + slots, count]``: what sums add up to at their ``place``, first all records,
        then the values of each slot."""
        totals = np.zeros((1 + slots, count))
        _exists(self._totals(
            place, event, records, value, len(place), slot_of, len(slot_of), slots, count, totals
        ))  # fmt: skip
        return totals

    def inclusive_extremes(
        self, parent: U32, begin: I64, end: I64, node: U32, event: U16, amount: U64, scale: F64,
        mean: F64,
    ) -> tuple[Any, ...]:  # fmt: skip
        """Of each node's inclusive values over all lines: how many are not 0, the sum of squared
        distances to ``mean``, the least and the most of those, where, and the first line of 0."""
        nodes = len(parent)
        found = (
            np.zeros(nodes, np.int64), np.zeros(nodes), np.full(nodes, np.inf),
            np.full(nodes, -np.inf), np.zeros(nodes, np.int64), np.zeros(nodes, np.int64),
            np.zeros(nodes, np.int64),
        )  # fmt: skip
        _exists(self._extremes(
            np.ascontiguousarray(parent), nodes, begin, end, len(begin), node, event, amount,
            len(node), np.ascontiguousarray(scale), len(scale), np.ascontiguousarray(mean),
            np.empty((nodes + 1) * _CONTEXT_BYTES, np.uint8), np.empty(nodes, np.int64),
            _EXTREMES(*found),
        ))  # fmt: skip
        return found

    def part_tables(
        self, columns: Sequence[I64], width: I64, begin: I64, count: I64, less: I64
    ) -> list[bytes]:
        """The byte planes of each part's ``columns``: of each column ``count`` numbers from
        ``begin`` on, less ``less`` (all ``int64[parts, columns]``), in ``width`` bytes."""
        room = int((count * width).sum())
        planes, end = np.empty(room, np.uint8), np.empty(len(begin), np.int64)
        length = np.array([len(column) for column in columns], np.int64)
        _exists(self._part_tables(
            struct_of(*[np.int64] * len(columns))(*columns), length, width, len(columns), begin,
            count, less, len(begin), planes, room, end,
        ))  # fmt: skip
        whole, bounds = planes.tobytes(), [0, *end.tolist()]
        return [whole[a:b] for a, b in pairwise(bounds)]


def _of_events(table: Array) -> Array:
    """A table that has all events there can be."""
    if len(table) != _EVENTS:
        raise ValueError(f"a table of {len(table)} events, not {_EVENTS}")
    return table


def _exists(found: bool) -> None:
    if not found:
        raise IndexError("a line, a node or a block that there is not")


def merge_loops() -> MergeLoops | None:
    """The loops, or None where they were not compiled."""
    return loops_in(MergeLoops)
