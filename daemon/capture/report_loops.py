"""From reports to records by compiled loops: what :mod:`hpcd.daemon.capture.collector`,
:mod:`~hpcd.daemon.capture.stack_resolver` and :mod:`~hpcd.daemon.capture.thread_times` do by numpy.

Arrays have the types and shapes that the callers document, and are contiguous.
"""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np
import numpy.typing as npt

from hpcd.array_types import I64, U16, U32, U64
from hpcd.bpf.layouts import SAMPLE, SLOT_BITS
from hpcd.measurement.record_writing import ITEM_BYTES, Columns, empty_columns, first_rows, scratch
from hpcd.native.native_library import array_of, declare, loops_in

_I64 = ctypes.c_int64

Short = tuple[U32, U32, U16, I64, I64]
"""Short waits: lines, nodes, events, begins (ns), lengths (ns)."""


class ReportLoops:
    """The loops of ``thread_reports.c``."""

    def __init__(self, library: ctypes.CDLL) -> None:
        narrow, wide, kinds = array_of(np.uint32), array_of(np.uint64), array_of(np.uint16)
        places, data, reports = array_of(np.int64), array_of(np.uint8), array_of(SAMPLE)
        columns = (narrow, wide, narrow, kinds, wide)
        short = (narrow, narrow, kinds, places, places)
        self._look_up = declare(
            library, "look_up",
            (reports, _I64, narrow, kinds, _I64, _I64, narrow, narrow, _I64, narrow, narrow,
             places, places),
            _I64,
        )  # fmt: skip
        self._take_reports = declare(
            library, "take_reports",
            (reports, _I64, narrow, narrow, ctypes.c_bool, data, *columns), _I64,
        )  # fmt: skip
        self._count_nodes = declare(library, "count_nodes", (narrow, kinds, _I64, wide, _I64), _I64)
        self._take_samples = declare(
            library, "take_samples", (*columns, _I64, wide, _I64, *columns, places), _I64
        )
        self._note_newest = declare(library, "note_newest", (narrow, wide, _I64, wide, _I64))
        self._advance = declare(
            library, "advance",
            (narrow, wide, kinds, wide, narrow, _I64, places, _I64, places, kinds, narrow, kinds,
             _I64, places, _I64, kinds, kinds, _I64, _I64, _I64, ctypes.c_uint16, ctypes.c_uint16,
             *columns, *short, places),
            _I64,
        )  # fmt: skip
        self._sum_short = declare(
            library, "sum_short", (*short, _I64, data, narrow, narrow, kinds, wide, wide), _I64
        )

    def look_up(
        self, reports: npt.NDArray[np.void], nodes: U32, generations: U16, numbers: U32, lines: U32
    ) -> tuple[U32, U32, I64, int]:
        """Of ``reports`` (:data:`hpcd.bpf.layouts.SAMPLE`): nodes u32[n], lines u32[n], the places
        of those whose stack is in no cache, and how many have no line, which is then 2^32 - 1.

        ``nodes`` and ``generations`` are ``[caches, slots]``; ``numbers`` and ``lines`` a table of
        threads as :class:`~hpcd.daemon.capture.thread_lines.ThreadLines` has it.
        """
        n = len(reports)
        node, line = np.empty(n, np.uint32), np.empty(n, np.uint32)
        missing, strange = np.empty(n, np.int64), np.empty(1, np.int64)
        absent: int = self._look_up(
            reports, n, nodes, generations, len(nodes), SLOT_BITS, numbers, lines, len(numbers),
            node, line, missing, strange,
        )  # fmt: skip
        return node, line, missing[:absent], int(strange[0])

    def take(
        self, reports: npt.NDArray[np.void], node: U32, line: U32, *, in_order: bool
    ) -> Columns:
        """Columns of the reports; by line and time, if ``in_order``."""
        n = len(reports)
        result = empty_columns(n)
        items = scratch(2 * ITEM_BYTES * n)
        kept = self._take_reports(reports, n, node, line, in_order, items, *result)
        return result if kept == n else first_rows(result, kept)

    def count_nodes(self, node: U32, event: U16, samples: U64, count: int) -> int:
        """Count those that have a path in ``samples`` u64[count or more]; how many have a node
        that is not below ``count``."""
        strange: int = self._count_nodes(node, event, len(node), samples, count)
        return strange

    def samples_of(self, reports: Columns, periods: U64, room: Columns) -> tuple[int, int]:
        """Fill ``room`` with the samples among ``reports``. How many they are, and how many of
        them count other than one period: where none does their values are 1, else what they count.
        Below 0: an event is not known."""
        odd = np.empty(1, np.int64)
        taken: int = self._take_samples(
            *reports, len(reports[0]), periods, len(periods), *room, odd
        )
        return taken, int(odd[0])

    def note_newest(self, line: U32, time: U64, newest: U64) -> None:
        """Raise ``newest`` u64[lines] to the times of each line's last record."""
        self._note_newest(line, time, len(line), newest, len(newest))

    def advance(
        self, reports: Columns, slot_of: I64, states: tuple[I64, U16, U32, U16], sums: I64,
        tables: tuple[U16, U16], numbers: tuple[int, int, int, int, int], room: Columns,
    ) -> tuple[int, Short]:  # fmt: skip
        """Account for ``reports`` (:meth:`ThreadTimes.advance`): writes the waits into ``room``,
        which is for twice as many, those until a thread could run before those since; their
        number, and the short ones. Raises :class:`KeyError` for a line that has not begun or a
        kind out of range, with nothing changed."""
        line, time, node, kind, value = reports
        n = len(line)
        short: Short = (
            np.empty(2 * n, np.uint32), np.empty(2 * n, np.uint32), np.empty(2 * n, np.uint16),
            np.empty(2 * n, np.int64), np.empty(2 * n, np.int64),
        )  # fmt: skip
        count = np.empty(1, np.int64)
        state_time, state_kind, state_node, state_group = states
        waits: int = self._advance(
            line, time, kind, value, node, n, slot_of, len(slot_of), state_time, state_kind,
            state_node, state_group, len(state_time), sums, len(sums), *tables, *numbers,
            *room, *short, count,
        )  # fmt: skip
        if waits < 0:
            raise KeyError("a report of a trace line that has not begun")
        shorts = int(count[0])
        line_, node_, event_, begin_, length_ = short
        return waits, (
            line_[:shorts], node_[:shorts], event_[:shorts], begin_[:shorts], length_[:shorts]
        )  # fmt: skip

    def sum_short(self, short: Short) -> Columns:
        """Short waits summed by line, node and event; each with the latest of their times."""
        n = len(short[0])
        line, time, node, event, value = empty_columns(n)
        items = scratch(2 * ITEM_BYTES * n)
        sums = self._sum_short(*short, n, items, line, node, event, time, value)
        return line[:sums], time[:sums], node[:sums], event[:sums], value[:sums]


@cache
def report_loops() -> ReportLoops | None:
    """The loops, or None where they were not compiled."""
    return loops_in(ReportLoops)
