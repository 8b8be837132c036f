"""The recorder's kernels: stacks to call paths and CCT nodes, reports to trace records.

They are ``call_paths.c`` and ``thread_reports.c`` of :mod:`hpcd.kernels`, whose ``kernels.h`` has
the structures. Arrays must be contiguous.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hpcd.array_types import I64, U16, U32, U64, Mask
from hpcd.bpf.wire import SLOT_BITS
from hpcd.daemon.capture.records.record_batch import RecordBatch
from hpcd.kernels.library import CStructure, kernels, structure
from hpcd.measurement.record_columns import (
    Columns,
    as_structure,
    empty_columns,
    first_rows,
    last_rows,
    scratch,
)


class Paths(NamedTuple):
    """Call paths of ``n`` stacks."""

    cache: U16
    """u16[n]: the stack cache that each stack is in."""
    stack: U32
    """u32[n]: its slot there and the slot's generation."""
    length: I64
    """i64[n]: frames of each path."""
    pid: U32
    """u32[n]: the process that each is of."""
    frames: U64
    """u64[sum(length)]: the paths one after another, the outermost frame first."""
    missing: U64
    """u64[k]: kernel addresses that were not in the table; their frames are undefined."""
    raw_at: I64
    """i64[m]: positions in ``frames`` of user addresses outside of all modules."""
    raw_of: I64
    """i64[m]: the stacks that these are of."""
    python_at: I64
    """i64[p]: positions in ``frames`` of Python frames, which are their first words there."""
    python_of: I64
    """i64[p]: the stacks that these are of."""
    python_position: U64
    """u64[p]: their second words."""


class EndedWaits(NamedTuple):
    """``n`` waits that have ended and are not short, with their wakers; or ``n`` stretches in which
    threads waited for a CPU, with those who had it, without ``path`` and ``futex``."""

    line: U32
    """u32[n]: trace lines."""
    time: U64
    """u64[n]: when each line left its CPU, or the stretch began, ns."""
    duration: U64
    """u64[n]: ns until it was woken, or of the stretch."""
    node: U32
    """u32[n]: the call path that it left in."""
    waker: U32
    """u32[n]: numbers of the threads that woke or ran, 0 of others."""
    kind: U16
    """u16[n]: :class:`hpcd.model.codes.Waker`, or of stretches ``Interferer``; perhaps plus
    :data:`hpcd.bpf.wire.OTHER_WAKER`."""
    path: U32
    """u32[n]: call paths of wakers, 0 where not known."""
    futex: U64
    """u64[n]: the futexes that lines slept on (:class:`hpcd.bpf.wire.Sample`)."""

    def first(self, count: int) -> EndedWaits:
        """Return copies of the first ``count`` waits."""
        return EndedWaits(
            self.line[:count].copy(), self.time[:count].copy(), self.duration[:count].copy(),
            self.node[:count].copy(), self.waker[:count].copy(), self.kind[:count].copy(),
            self.path[:count].copy(), self.futex[:count].copy(),
        )  # fmt: skip


def _wait_room(n: int) -> EndedWaits:
    return EndedWaits(
        np.empty(n, np.uint32), np.empty(n, np.uint64), np.empty(n, np.uint64),
        np.empty(n, np.uint32), np.empty(n, np.uint32), np.empty(n, np.uint16),
        np.empty(n, np.uint32), np.empty(n, np.uint64),
    )  # fmt: skip


NO_WAITS = _wait_room(0)


class BatchOutcome(NamedTuple):
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
    waits: EndedWaits
    interferers: EndedWaits
    beside: int
    """Reports of call paths of wakers, and of interferers."""


def gather_paths(stacks: list[bytes], spans: U64, known: CStructure) -> Paths:
    """Return the call paths of ``stacks``
    (:class:`hpcd.bpf.wire.StackEvent` and frames each).

    ``spans`` u64[2 m] has the begins and ends of kernel functions: the scheduler, the entry,
    and those that write a thread's registers. ``known`` is a ``struct frame_table``. Raises
    :class:`ValueError` if a stack does not have as many frames as it says.
    """
    n = len(stacks)
    data = np.frombuffer(b"".join(stacks), np.uint8)
    sizes = np.fromiter(map(len, stacks), np.int64, n)
    words = len(data) // 8
    cache, stack, length = np.empty(n, np.uint16), np.empty(n, np.uint32), np.empty(n, np.int64)
    pid = np.empty(n, np.uint32)
    frames, missing = np.empty(words, np.uint64), np.empty(words, np.uint64)
    raw_at, raw_of = np.empty(words, np.int64), np.empty(words, np.int64)
    python_at, python_of = np.empty(words, np.int64), np.empty(words, np.int64)
    python_position = np.empty(words, np.uint64)
    paths = structure(
        "paths", cache=cache, stack=stack, length=length, pid=pid, frames=frames,
        missing=missing, raw_at=raw_at, raw_of=raw_of,
        python_at=python_at, python_of=python_of, python_position=python_position,
    )  # fmt: skip
    total = kernels.gather_paths(data, sizes, n, spans, len(spans) // 2, known, paths)
    if total < 0:
        raise ValueError("a stack that has not as many frames as it says")
    absent, raw = paths.pointer.missing_count, paths.pointer.raw_count
    python = paths.pointer.python_count
    return Paths(
        cache, stack, length, pid, frames[:total], missing[:absent], raw_at[:raw], raw_of[:raw],
        python_at[:python], python_of[:python], python_position[:python],
    )  # fmt: skip


def insert_paths(
    frames: U64, lengths: I64, user: I64, left: I64, beyond: int, tree: CStructure, leaf: U32
) -> int:
    """Fill ``leaf`` u32[n] with the last nodes of n call paths, and make the nodes that there
    are not, until there may be no room in ``tree`` (``struct tree``) for a path's.

    A path of user number ``user[i]`` has the node ``beyond`` where ``left`` i64, the nodes that may
    still be made for each user, which is updated, does not suffice for it.
    Returns the number of paths that are done. ``lengths`` i64[n] must not be more than
    ``frames`` u64 holds.
    """
    done: int = kernels.insert_paths(frames, lengths, len(lengths), user, left, beyond, tree, leaf)
    return done


def index_nodes(tree: CStructure) -> None:
    """Enter all nodes of ``tree`` in its index, which must be empty."""
    kernels.index_nodes(tree)


def look_up(reports: npt.NDArray[np.void], held: U32, threads: U32) -> tuple[U32, U32, I64, int]:
    """Return the nodes u32[n] and trace lines u32[n] of ``reports``
    (:class:`hpcd.bpf.wire.Sample`), the positions of those whose stack is in no cache, and
    the number of those without a line, which is 2^32 - 1 then.

    ``held`` u32[caches, slots, 2] are the nodes and generations in at least one cache,
    ``threads`` a table of :class:`~hpcd.daemon.capture.records.thread_lines.ThreadLines`.
    """
    n = len(reports)
    node, line = np.empty(n, np.uint32), np.empty(n, np.uint32)
    missing, unknown = np.empty(n, np.int64), np.empty(1, np.int64)
    absent: int = kernels.look_up(
        reports, n, held, len(held), SLOT_BITS, threads, len(threads), node, line, missing,
        unknown,
    )  # fmt: skip
    return node, line, missing[:absent], int(unknown[0])


def take_samples(
    reports: npt.NDArray[np.void], node: U32, line: U32, tree: CStructure, periods: CStructure
) -> BatchOutcome:
    """Return records of ``reports`` of samples alone, in their order.

    Raises :class:`ValueError` for an event out of range, with nothing changed.
    """
    n = len(reports)
    room, outcome = empty_columns(n), _no_outcome()
    if not kernels.take_samples(reports, n, node, line, tree, periods, as_structure(room), outcome):
        raise ValueError("a report of an event that is not sampled")
    return _outcome(room, outcome)


def record_reports(
    reports: npt.NDArray[np.void], node: U32, line: U32, times: CStructure, tree: CStructure,
    periods: CStructure,
) -> BatchOutcome:  # fmt: skip
    """Account for ``reports`` in ``times`` (``struct times``) and return the records of their
    samples and waits, by line and time.

    Raises :class:`ValueError` for a line that has not begun or an event out of range, with
    nothing changed.
    """
    n = len(reports)
    room, outcome = empty_columns(3 * n), _no_outcome()
    memory, waits = scratch(kernels.report_bytes(n)), _wait_room(n)
    interferers = _wait_room(n)
    if not kernels.record_reports(
        reports, n, node, line, times, tree, periods, memory, as_structure(room),
        structure("wait_columns", **waits._asdict()),
        structure("wait_columns", **interferers._asdict()), outcome,
    ):  # fmt: skip
        raise ValueError("a report of an event or a trace line that there is not")
    return _outcome(room, outcome, waits, interferers)


def cut_lines(line: U32, until: I64, lost: Mask, times: CStructure) -> BatchOutcome:
    """Account for ``line`` u32[n], which have begun, up to ``until`` i64[n] (ns), of some of which
    the last reports were ``lost`` bool[n]."""
    n = len(line)
    room, outcome = empty_columns(2 * n), _no_outcome()
    kernels.cut_lines(line, until, lost, n, times, as_structure(room), outcome)
    return _outcome(room, outcome)


def note_newest(line: U32, time: U64, newest: U64) -> None:
    """Raise ``newest`` u64[lines] to the time of each line's last record."""
    kernels.note_newest(line, time, len(line), newest, len(newest))


def sum_short(short: RecordBatch) -> RecordBatch:
    """Return short waits summed by line, node and event, with the latest of their times."""
    n = len(short.line)
    room = empty_columns(n)
    memory = scratch(kernels.sum_bytes(n))
    sums = kernels.sum_short(as_structure(short.columns()), memory, as_structure(room))
    return RecordBatch(*first_rows(room, sums))


def _no_outcome() -> CStructure:
    return structure("outcome")


def _outcome(
    room: Columns, outcome: CStructure, waits: EndedWaits = NO_WAITS,
    interferers: EndedWaits = NO_WAITS,
) -> BatchOutcome:  # fmt: skip
    counts = outcome.pointer
    rows = RecordBatch(*first_rows(room, counts.records))
    rest = RecordBatch(*last_rows(room, len(room[0]) - counts.shorts))
    return BatchOutcome(
        rows, rest, counts.samples, counts.odd, counts.first, counts.strange,
        waits.first(counts.waits), interferers.first(counts.interferers), counts.beside,
    )  # fmt: skip
