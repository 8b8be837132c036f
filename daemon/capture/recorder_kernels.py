"""The recorder's compiled kernels: stacks to call paths and CCT nodes, reports to trace records.

They are ``call_paths.c`` and ``thread_reports.c`` of :mod:`hpcd.native`. Arrays must be contiguous.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hpcd.array_types import I64, U16, U32, U64
from hpcd.bpf.layouts import SAMPLE, SLOT_BITS
from hpcd.daemon.capture.record_batch import RecordBatch
from hpcd.errors import PlatformError
from hpcd.measurement.record_writing import (
    ITEM_BYTES,
    empty_columns,
    first_rows,
    last_rows,
    scratch,
)
from hpcd.native.native_library import array_of, declare, loops_in, struct_of

Struct = ctypes.Array[Any]
"""A struct of C, made by one of the functions below; its arrays must be kept as long."""

TREE = struct_of(
    np.uint64, np.uint64, np.uint64, np.uint32, np.uint32, np.uint8, int, int, np.uint32, int, int
)
"""``struct tree``: the arrays of :class:`~hpcd.daemon.capture.cct_builder.CCTBuilder`."""
TREE_COUNT = 7
"""The field of ``struct tree`` that is the number of nodes."""
TIMES = struct_of(
    np.int64, int, np.int64, np.uint16, np.uint32, np.uint16, int, np.int64, int, np.uint16,
    np.uint16, int, int, int, int, int,
)  # fmt: skip
"""``struct times``: the arrays of :class:`~hpcd.daemon.capture.thread_times.ThreadTimes`."""
PERIODS = struct_of(np.uint64, int)
"""``struct periods``: what one sample of each event counts, u64[n], and n."""
FRAME_TABLE = struct_of(np.uint64, np.uint64, int)
"""``struct frame_table``: the arrays of
:class:`~hpcd.daemon.capture.stack_resolver.KernelFrames`, and their length."""

_PATHS = struct_of(
    np.uint16, np.uint32, np.int64, np.uint64, np.uint64, np.int64, np.int64, int, int
)
_COLUMNS = struct_of(np.uint32, np.uint64, np.uint32, np.uint16, np.uint64)


class Paths(NamedTuple):
    """Call paths of ``n`` stacks."""

    cache: U16
    """u16[n]: the stack cache that each stack is in."""
    stack: U32
    """u32[n]: its slot there and the slot's generation."""
    length: I64
    """i64[n]: frames of each path."""
    frames: U64
    """u64[sum(length)]: the paths one after another, the outermost frame first."""
    missing: U64
    """u64[k]: kernel addresses that were not in the table; their frames are undefined."""
    raw_at: I64
    """i64[m]: positions in ``frames`` of user addresses outside of all modules."""
    raw_of: I64
    """i64[m]: the stacks that these are of."""


class Outcome(NamedTuple):
    """Records of a batch of reports, and what there was among these."""

    records: RecordBatch
    short_waits: RecordBatch
    samples: int
    odd: int
    """Samples that count other than one period of their event. If there are any, the values of
    samples' records are what these counted, else 1."""
    first: int
    """Samples of the first event."""
    strange: int
    """Reports of nodes that are not in the tree."""


class RecorderKernels:
    """The functions of ``call_paths.c`` and ``thread_reports.c``."""

    def __init__(self, library: ctypes.CDLL) -> None:
        u8, u32, u64, i64 = map(array_of, (np.uint8, np.uint32, np.uint64, np.int64))
        reports, count, struct = array_of(SAMPLE), ctypes.c_int64, ctypes.c_void_p

        def function(name: str, *arguments: Any, result: Any = None) -> Any:
            return declare(library, name, arguments, result)

        self._gather_paths = function(
            "gather_paths", u8, i64, count, u64, count, struct, struct, result=count
        )
        self._insert_paths = function("insert_paths", u64, i64, count, struct, u32, result=count)
        self._index_nodes = function("index_nodes", struct)
        self._look_up = function(
            "look_up", reports, count, u32, count, count, u32, count, u32, u32, i64, i64,
            result=count,
        )  # fmt: skip
        self._take_samples = function(
            "take_samples", reports, count, u32, u32, struct, struct, struct, i64,
            result=ctypes.c_bool,
        )  # fmt: skip
        self._report_bytes = function("report_bytes", count, result=count)
        self._record_reports = function(
            "record_reports", reports, count, u32, u32, struct, struct, struct, u8, struct, i64,
            result=ctypes.c_bool,
        )  # fmt: skip
        self._cut_lines = function("cut_lines", u32, i64, count, struct, struct, i64)
        self._note_newest = function("note_newest", u32, u64, count, u64, count)
        self._sum_short = function("sum_short", struct, count, u8, struct, result=count)

    def gather_paths(self, stacks: list[bytes], spans: U64, known: Struct) -> Paths:
        """Return the call paths of ``stacks``
        (:data:`hpcd.bpf.layouts.STACK_EVENT` and frames each).

        ``spans`` u64[2 m] has the begins and ends of kernel functions: the scheduler, the entry,
        and those that write a thread's registers. ``known`` is a :data:`FRAME_TABLE`. Raises
        :class:`ValueError` if a stack does not have as many frames as it says.
        """
        n = len(stacks)
        data = np.frombuffer(b"".join(stacks), np.uint8)
        sizes = np.fromiter(map(len, stacks), np.int64, n)
        words = len(data) // 8
        cache, stack, length = np.empty(n, np.uint16), np.empty(n, np.uint32), np.empty(n, np.int64)
        frames, missing = np.empty(words, np.uint64), np.empty(words, np.uint64)
        raw_at, raw_of = np.empty(words, np.int64), np.empty(words, np.int64)
        paths = _PATHS(cache, stack, length, frames, missing, raw_at, raw_of, 0, 0)
        total = self._gather_paths(data, sizes, n, spans, len(spans) // 2, known, paths)
        if total < 0:
            raise ValueError("a stack that has not as many frames as it says")
        absent, raw = paths[-2:]
        return Paths(
            cache, stack, length, frames[:total], missing[:absent], raw_at[:raw], raw_of[:raw]
        )

    def insert_paths(self, frames: U64, lengths: I64, tree: Struct, leaf: U32) -> int:
        """Fill ``leaf`` u32[n] with the last nodes of n call paths, and make the nodes that there
        are not, until there may be no room in ``tree`` (:data:`TREE`) for a path's.

        Returns the number of paths that are done. ``lengths`` i64[n] must not be more than
        ``frames`` u64 holds.
        """
        done: int = self._insert_paths(frames, lengths, len(lengths), tree, leaf)
        return done

    def index_nodes(self, tree: Struct) -> None:
        """Enter all nodes of ``tree`` in its index, which must be empty."""
        self._index_nodes(tree)

    def look_up(
        self, reports: npt.NDArray[np.void], held: U32, threads: U32
    ) -> tuple[U32, U32, I64, int]:
        """Return the nodes u32[n] and trace lines u32[n] of ``reports``
        (:data:`hpcd.bpf.layouts.SAMPLE`), the positions of those whose stack is in no cache, and
        the number of those without a line, which is 2^32 - 1 then.

        ``held`` u32[caches, slots, 2] are the nodes and generations in at least one cache,
        ``threads`` a table of :class:`~hpcd.daemon.capture.thread_lines.ThreadLines`.
        """
        n = len(reports)
        node, line = np.empty(n, np.uint32), np.empty(n, np.uint32)
        missing, unknown = np.empty(n, np.int64), np.empty(1, np.int64)
        absent: int = self._look_up(
            reports, n, held, len(held), SLOT_BITS, threads, len(threads), node, line, missing,
            unknown,
        )  # fmt: skip
        return node, line, missing[:absent], int(unknown[0])

    def take_samples(
        self, reports: npt.NDArray[np.void], node: U32, line: U32, tree: Struct, periods: Struct
    ) -> Outcome:
        """Return records of ``reports`` of samples alone, in their order.

        Raises :class:`ValueError` for an event out of range, with nothing changed.
        """
        n = len(reports)
        room, counts = empty_columns(n), np.empty(6, np.int64)
        if not self._take_samples(reports, n, node, line, tree, periods, _COLUMNS(*room), counts):
            raise ValueError("a report of an event that is not sampled")
        return _outcome(room, counts)

    def record_reports(
        self, reports: npt.NDArray[np.void], node: U32, line: U32, times: Struct, tree: Struct,
        periods: Struct,
    ) -> Outcome:  # fmt: skip
        """Account for ``reports`` in ``times`` (:data:`TIMES`) and return the records of their
        samples and waits, by line and time.

        Raises :class:`ValueError` for a line that has not begun or an event out of range, with
        nothing changed.
        """
        n = len(reports)
        room, counts = empty_columns(3 * n), np.empty(6, np.int64)
        memory = scratch(self._report_bytes(n))
        if not self._record_reports(
            reports, n, node, line, times, tree, periods, memory, _COLUMNS(*room), counts
        ):
            raise ValueError("a report of an event or a trace line that there is not")
        return _outcome(room, counts)

    def cut_lines(self, line: U32, until: I64, times: Struct) -> Outcome:
        """Account for ``line`` u32[n], which have begun, up to ``until`` i64[n] (ns)."""
        n = len(line)
        room, counts = empty_columns(2 * n), np.empty(6, np.int64)
        self._cut_lines(line, until, n, times, _COLUMNS(*room), counts)
        return _outcome(room, counts)

    def note_newest(self, line: U32, time: U64, newest: U64) -> None:
        """Raise ``newest`` u64[lines] to the time of each line's last record."""
        self._note_newest(line, time, len(line), newest, len(newest))

    def sum_short(self, short: RecordBatch) -> RecordBatch:
        """Return short waits summed by line, node and event, with the latest of their times."""
        n = len(short.line)
        room = empty_columns(n)
        memory = scratch(2 * ITEM_BYTES * n)
        sums = self._sum_short(_COLUMNS(*short.columns()), n, memory, _COLUMNS(*room))
        return RecordBatch(*first_rows(room, sums))


def _outcome(room: tuple[U32, U64, U32, U16, U64], counts: I64) -> Outcome:
    records, shorts, samples, odd, first, strange = counts.tolist()
    rows = RecordBatch(*first_rows(room, records))
    rest = RecordBatch(*last_rows(room, len(room[0]) - shorts))
    return Outcome(rows, rest, samples, odd, first, strange)


@cache
def recorder_kernels() -> RecorderKernels:
    """Return the kernels. Raises :class:`PlatformError` if they cannot be loaded."""
    kernels = loops_in(RecorderKernels)
    if kernels is None:
        raise PlatformError(
            "hpcd's kernels are not compiled for this machine: run make objects in its source tree"
        )
    return kernels
