"""From reports to records by compiled loops: what :mod:`hpcd.daemon.capture.collector`,
:mod:`~hpcd.daemon.capture.stack_resolver` and :mod:`~hpcd.daemon.capture.thread_times` do by numpy.

Arrays have the types and shapes that the callers document, and are contiguous.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hpcd.array_types import I64, U8, U32, U64
from hpcd.bpf.layouts import SAMPLE, SLOT_BITS
from hpcd.measurement.record_columns import (
    Columns,
    empty_columns,
    first_rows,
    last_rows,
    scratch,
)
from hpcd.native.native_library import array_of, declare, loops_in, struct_of

ITEM_BYTES = 16
"""``struct item`` of ``sorting.h``."""

_I64 = ctypes.c_int64

TIMES = struct_of(
    np.int64, int, np.int64, np.uint16, np.uint32, np.uint16, int, np.int64, int, np.uint16,
    np.uint16, int, int, int, int, int,
)  # fmt: skip
"""``struct times``: what is known of threads, as
:class:`~hpcd.daemon.capture.thread_times.ThreadTimes` has it."""


class Tally(NamedTuple):
    """A CCT's ``samples`` (:meth:`~hpcd.daemon.capture.cct_builder.CCTBuilder.count_samples`) and
    ``ending`` of so many ``nodes``, and what one sample of each event counts, u64[n]."""

    samples: U64
    ending: U8
    nodes: int
    periods: U64


class Outcome(NamedTuple):
    """What came of reports."""

    records: Columns
    shorts: Columns
    """Short waits."""
    samples: int
    odd: int
    """Samples that count other than one period of their event; where there are any, the records of
    samples have for values what they count, else 1."""
    periods: int
    """Samples of the first event."""
    strange: int
    """Reports of nodes that there are not."""


class ReportLoops:
    """The loops of ``thread_reports.c``."""

    def __init__(self, library: ctypes.CDLL) -> None:
        narrow, wide, kinds = array_of(np.uint32), array_of(np.uint64), array_of(np.uint16)
        places, data, reports = array_of(np.int64), array_of(np.uint8), array_of(SAMPLE)
        columns = (narrow, wide, narrow, kinds, wide)
        self._look_up = declare(
            library, "look_up",
            (reports, _I64, narrow, _I64, _I64, narrow, _I64, narrow, narrow, places, places),
            _I64,
        )  # fmt: skip
        taken, tally = (reports, _I64, narrow, narrow), (wide, data, _I64, wide, _I64)
        self._take_samples = declare(
            library, "take_samples", (*taken, *tally, *columns, places), ctypes.c_bool
        )
        self._report_bytes = declare(library, "report_bytes", (_I64,), _I64)
        self._record_reports = declare(
            library, "record_reports",
            (*taken, ctypes.c_void_p, *tally, data, *columns, places), ctypes.c_bool,
        )  # fmt: skip
        self._note_newest = declare(library, "note_newest", (narrow, wide, _I64, wide, _I64))
        self._sum_short = declare(library, "sum_short", (*columns, _I64, data, *columns), _I64)

    def look_up(
        self, reports: npt.NDArray[np.void], held: U32, threads: U32
    ) -> tuple[U32, U32, I64, int]:
        """Of ``reports`` (:data:`hpcd.bpf.layouts.SAMPLE`): nodes u32[n], lines u32[n], the places
        of those whose stack is in no cache, and how many have no line, which is then 2^32 - 1.

        ``held`` u32[caches, slots, 2] are the nodes and generations in at least one cache,
        ``threads`` a table of :class:`~hpcd.daemon.capture.thread_lines.ThreadLines`.
        """
        n = len(reports)
        node, line = np.empty(n, np.uint32), np.empty(n, np.uint32)
        missing, strange = np.empty(n, np.int64), np.empty(1, np.int64)
        absent: int = self._look_up(
            reports, n, held, len(held), SLOT_BITS, threads, len(threads), node, line, missing,
            strange,
        )  # fmt: skip
        return node, line, missing[:absent], int(strange[0])

    def samples(self, reports: npt.NDArray[np.void], node: U32, line: U32, tally: Tally) -> Outcome:
        """Records of ``reports`` of samples alone, as they come. Raises :class:`ValueError` for an
        event out of range, with nothing changed."""
        n = len(reports)
        room, counts = empty_columns(n), np.empty(6, np.int64)
        if not self._take_samples(
            reports, n, node, line, tally.samples, tally.ending, tally.nodes, tally.periods,
            len(tally.periods), *room, counts,
        ):  # fmt: skip
            raise ValueError("a report of an event that is not sampled")
        return _outcome(room, counts)

    def record(
        self, reports: npt.NDArray[np.void], node: U32, line: U32, times: ctypes.Array[Any],
        tally: Tally,
    ) -> Outcome:  # fmt: skip
        """Records of samples and waits, by line and time, of ``reports``, all of which have a line
        and are accounted for in ``times`` (:data:`TIMES`). Raises :class:`ValueError` for a line
        that has not begun or an event out of range, with nothing changed."""
        n = len(reports)
        room, counts = empty_columns(3 * n), np.empty(6, np.int64)
        if not self._record_reports(
            reports, n, node, line, times, tally.samples, tally.ending, tally.nodes, tally.periods,
            len(tally.periods), scratch(self._report_bytes(n)), *room, counts,
        ):  # fmt: skip
            raise ValueError("a report of an event or a trace line that there is not")
        return _outcome(room, counts)

    def note_newest(self, line: U32, time: U64, newest: U64) -> None:
        """Raise ``newest`` u64[lines] to the times of each line's last record."""
        self._note_newest(line, time, len(line), newest, len(newest))

    def sum_short(self, short: Columns) -> Columns:
        """Short waits summed by line, node and event; each with the latest of their times."""
        n = len(short[0])
        room = empty_columns(n)
        return first_rows(room, self._sum_short(*short, n, scratch(2 * ITEM_BYTES * n), *room))


def _outcome(room: Columns, counts: I64) -> Outcome:
    records, shorts, samples, odd, periods, strange = counts.tolist()
    rows, rest = first_rows(room, records), last_rows(room, len(room[0]) - shorts)
    return Outcome(rows, rest, samples, odd, periods, strange)


@cache
def report_loops() -> ReportLoops | None:
    """The loops, or None where they were not compiled."""
    return loops_in(ReportLoops)
