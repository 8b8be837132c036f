"""Where every thread's time went: on a CPU, waiting for something, or waiting for a CPU.

The sampler reports each time a thread leaves its CPU, with the call path it leaves on, and each
time it comes back. Two reports in a row bound a stretch of time of one kind, so that the three
kinds together are the thread's life. Waits become records of interval events, or, when they are
short, are summed by call path. The time on CPUs is only summed: what samples stand for is decided
by the clock that takes them, since a weight that depends on what the thread did before would favour
some of its code.

Work per report is a compiled loop over the whole batch, or a dozen numpy operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from hpcd.bpf.layouts import Switch
from hpcd.daemon.capture.report_loops import TIMES, Outcome, ReportLoops, Tally, report_loops
from hpcd.measurement.codec import TIME_UNIT_NS
from hpcd.measurement.record_writing import Columns, empty_columns
from hpcd.measurement.summary import JobSeconds, ThreadSeconds
from hpcd.model.identity import Event

U16 = npt.NDArray[np.uint16]
U32 = npt.NDArray[np.uint32]
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

BORN = 32
"""Beside :class:`Switch`: a thread that has not run yet."""

# An open wait is written in pieces this long, so that a recorder that dies loses no more; with
# many sleeping threads the pieces are longer, so that they stay below a thousand records a second.
_PIECE_NS = 1_000_000_000
_PIECE_NS_PER_THREAD = 1_000_000
# Job names come from environments: what a user may make up is bounded; the rest is one job.
_MOST_JOBS = 1000
_CPU, _BLOCKED, _READY = range(3)
_IN = int(Switch.IN)


class Wait(IntEnum):
    """Events of waiting, numbered from the first number the sampled events leave free."""

    BLOCKED = 0
    IO = 1
    UNINTERRUPTIBLE = 2
    FAULT = 3
    STOPPED = 4
    RUNNABLE = 5
    PREEMPTED = 6
    SHORT_BLOCKED = 7
    SHORT_RUNNABLE = 8


_EVENTS = {
    Wait.BLOCKED: ("blocked", "blocked_time"),
    Wait.IO: ("blocked-io", "blocked_time"),
    Wait.UNINTERRUPTIBLE: ("blocked-uninterruptible", "blocked_time"),
    Wait.FAULT: ("page-fault-wait", "blocked_time"),
    Wait.STOPPED: ("stopped", "blocked_time"),
    Wait.RUNNABLE: ("runnable", "runnable_time"),
    Wait.PREEMPTED: ("preempted", "runnable_time"),
    Wait.SHORT_BLOCKED: ("short-blocked", "blocked_time"),
    Wait.SHORT_RUNNABLE: ("short-runnable", "runnable_time"),
}

# What a thread waits for until it is woken, by how it left its CPU; and from then on.
_UNTIL_WOKEN = np.zeros(BORN + 1, np.uint16)
_UNTIL_WOKEN[Switch.SLEEPING] = Wait.BLOCKED
_UNTIL_WOKEN[Switch.IO] = Wait.IO
_UNTIL_WOKEN[Switch.UNINTERRUPTIBLE] = Wait.UNINTERRUPTIBLE
_UNTIL_WOKEN[Switch.FAULT] = Wait.FAULT
_UNTIL_WOKEN[Switch.STOPPED] = Wait.STOPPED
_ONCE_RUNNABLE = np.full(BORN + 1, Wait.RUNNABLE, np.uint16)
_ONCE_RUNNABLE[Switch.RUNNABLE] = Wait.PREEMPTED


def wait_events(first: int) -> list[Event]:
    """The events of waiting, numbered from ``first``.

    Intervals are counted in the trace's own time unit, so that one ends exactly where the next
    begins; sums of short waits in nanoseconds.
    """
    return [
        Event(
            first + wait,
            name,
            "s",
            1e-9 if wait >= Wait.SHORT_BLOCKED else TIME_UNIT_NS / 1e9,
            metric,
            interval=wait < Wait.SHORT_BLOCKED,
        )
        for wait, (name, metric) in _EVENTS.items()
    ]


@dataclass(frozen=True, slots=True)
class Records:
    """Trace records: ``line`` u32[n], ``time`` u64[n] ns, ``node`` u32[n], ``event`` u16[n],
    ``value`` u64[n]."""

    line: U32
    time: npt.NDArray[np.uint64]
    node: U32
    event: U16
    value: npt.NDArray[np.uint64]


_NO_RECORDS = Records(*empty_columns(0))


class ThreadTimes:
    """The state of every living trace line; turns reports into waits.

    ``first`` is the number :func:`wait_events` begin at, ``threshold_ns`` the length from which a
    wait is recorded by itself. 40 bytes a line; those of lines that end are used again.
    """

    def __init__(self, first: int, threshold_ns: int) -> None:
        self.first = first
        """The number of the first event of waiting."""
        self._threshold = threshold_ns
        self._slot: dict[int, int] = {}  # of each line that has begun and not ended
        self._slot_of: I64 = np.full(256, -1, np.int64)  # the same, by line
        self._free: list[int] = []
        self._line: U32 = np.zeros(256, np.uint32)
        self._time: I64 = np.zeros(256, np.int64)
        self._begun: I64 = np.zeros(256, np.int64)
        self._node: U32 = np.zeros(256, np.uint32)
        self._kind: U16 = np.zeros(256, np.uint16)
        self._short: list[Columns] = []
        self._group: U16 = np.zeros(256, np.uint16)
        self._groups: dict[str, int] = {}
        # CPU, blocked and runnable ns of each group.
        self._sums = np.zeros((1, 3), np.int64)
        self._ended_ns = 0
        # What compiled loops are given, until one of the arrays is replaced.
        self._compiled: Any = None

    def begin(self, line: int, time: int, kind: int, node: int, job: str = "") -> None:
        """Line ``line`` of a process of ``job`` is accounted for from ``time`` on.

        ``kind`` says what it is doing: :attr:`Switch.IN` for running, another :class:`Switch` for
        waiting after it has left its CPU that way, :data:`BORN`; ``node`` its call path, or 0.
        """
        slot = self._free.pop() if self._free else len(self._slot)
        self._reserve(slot + 1)
        self._slot[line] = slot
        if line >= len(self._slot_of):
            more = np.full(max(line + 1, 2 * len(self._slot_of)) - len(self._slot_of), -1, np.int64)
            self._slot_of, self._compiled = np.append(self._slot_of, more), None
        self._slot_of[line] = slot
        self._line[slot] = line
        self._time[slot] = self._begun[slot] = time
        self._kind[slot] = kind
        self._node[slot] = node
        self._group[slot] = self._group_of(job)

    def record(
        self, loops: ReportLoops, reports: npt.NDArray[np.void], node: U32, line: U32, tally: Tally
    ) -> Outcome:
        """Account for ``reports`` (:data:`hpcd.bpf.layouts.SAMPLE`, in any order), with their nodes
        and lines, by compiled loops: records of samples and waits by line and time."""
        if self._compiled is None:
            self._compiled = TIMES(
                self._slot_of, len(self._slot_of), self._time, self._kind, self._node, self._group,
                len(self._time), self._sums, len(self._sums), _UNTIL_WOKEN, _ONCE_RUNNABLE,
                self._threshold, self.first, self.first + Wait.RUNNABLE,
                self.first + Wait.SHORT_BLOCKED, self.first + Wait.SHORT_RUNNABLE,
            )  # fmt: skip
        outcome = loops.record(reports, node, line, self._compiled, tally)
        if len(outcome.shorts[0]):
            self._short.append(outcome.shorts)
        return outcome

    def advance(
        self,
        line: U32,
        time: npt.NDArray[np.uint64],
        kind: U16,
        value: npt.NDArray[np.uint64],
        node: U32,
    ) -> Records:
        """The same by numpy, of reports sorted by line and time; returns the waits.

        ``kind`` is an event's number or a :class:`Switch`, ``value`` what the programs sent with
        it, ``node`` its call path (anything for :attr:`Switch.IN`).
        """
        n = len(line)
        first = np.append(True, line[1:] != line[:-1])
        starts = np.flatnonzero(first)
        last = np.append(starts[1:], n) - 1
        number = np.cumsum(first) - 1  # of each report's line, in this batch
        slots = np.array([self._slot[number] for number in line[starts].tolist()], np.int64)
        arrives = kind == Switch.IN
        before_time, before_kind = np.empty(n, np.int64), np.empty(n, np.uint16)
        now = time.astype(np.int64)
        # Pieces of an open wait may have been written beyond a report that was under way.
        now = np.maximum(now, self._time[slots][number])
        before_time[1:], before_kind[1:] = now[:-1], kind[:-1]
        before_time[starts], before_kind[starts] = self._time[slots], self._kind[slots]
        # The last path at each report, and before it.
        at = np.maximum.accumulate(np.where(arrives, -1, np.arange(n)))
        path = np.where(at >= starts[number], node[at], self._node[slots][number])
        previous = np.empty(n, np.uint32)
        previous[1:] = path[:-1]
        previous[starts] = self._node[slots]

        # Arriving without having left: the report of leaving was lost.
        lost = arrives & (before_kind <= Switch.IN)
        waited = lost | (before_kind > Switch.IN)
        before_kind = np.where(lost, np.uint16(Switch.SLEEPING), before_kind)

        ran = np.where(waited, 0, now - before_time)
        np.add.at(self._sums[:, _CPU], self._group[slots][number], ran)
        w = np.flatnonzero(waited)
        woken = np.where(arrives[w], value[w].astype(np.int64), 0)
        records = self._waits(
            slots[number[w]], before_time[w], now[w], woken, before_kind[w], previous[w]
        )
        self._time[slots] = now[last]
        self._kind[slots] = kind[last]
        self._node[slots] = path[last]
        return records

    def rename_nodes(self, rename: Callable[[U32], U32]) -> None:
        """Replace the call paths of what goes on, and of short waits, by ``rename`` of them."""
        self._node[:] = rename(self._node)
        self._short = [
            (line, time, rename(node), event, length)
            for line, time, node, event, length in self._short
        ]

    def split_open_waits(self, cut: int) -> Records:
        """Records of open waits up to ``cut`` (ns), of those that are long enough to be split."""
        waiting = self._kind > _IN
        due = (waiting & (self._time <= cut - _PIECE_NS)).nonzero()[0]
        if not len(due):
            return _NO_RECORDS
        step = _PIECE_NS_PER_THREAD * int(np.count_nonzero(waiting))
        due = due[self._time[due] <= cut - step]
        return self._cut(due, cut) if len(due) else _NO_RECORDS

    def end(self, times: dict[int, int]) -> Records:
        """End lines at ``times`` (ns by line); returns the rest of their waits."""
        times = {line: time for line, time in times.items() if line in self._slot}
        slots = np.array([self._slot.pop(line) for line in times], np.int64)
        self._slot_of[list(times)] = -1
        time = np.maximum(np.fromiter(times.values(), np.int64, len(times)), self._time[slots])
        waiting = self._kind[slots] > Switch.IN
        waits = self._cut(slots[waiting], time[waiting])
        ran = time - self._time[slots]  # 0 for who waited: that is written now
        self._kind[slots] = _IN  # nothing of a free slot is due
        np.add.at(self._sums[:, _CPU], self._group[slots], ran)
        self._ended_ns += int((time - self._begun[slots]).sum())
        self._free.extend(slots.tolist())
        return waits

    def open_lines(self) -> list[int]:
        """Lines that have begun and not ended."""
        return list(self._slot)

    def drain_short_waits(self) -> Records:
        """Short waits since the last time, summed by line, call path and kind."""
        if not self._short:
            return joined([])
        short = joined([Records(*part) for part in self._short])
        line, time, node, event, length = (
            short.line, short.time, short.node, short.event, short.value
        )  # fmt: skip
        self._short = []
        loops = report_loops()
        if loops:
            return Records(*loops.sum_short((line, time, node, event, length)))
        order = np.lexsort((time, event, node, line))
        line, time, node = line[order], time[order], node[order]
        event, length = event[order], length[order]
        changes = (line[1:] != line[:-1]) | (node[1:] != node[:-1]) | (event[1:] != event[:-1])
        begins = np.flatnonzero(np.append(True, changes))
        ends = np.append(begins[1:], len(line)) - 1
        sums = np.add.reduceat(length, begins)
        return Records(line[ends], time[ends], node[ends], event[ends], sums)

    def totals(self, now: int) -> ThreadSeconds:
        """Times accounted for so far; what threads are doing counts up to ``now`` (ns)."""
        slots = self._living()
        since = np.maximum(now - self._time[slots], 0)
        alive = np.maximum(now - self._begun[slots], 0)
        kind = self._kind[slots]
        ready = (kind == Switch.RUNNABLE) | (kind == BORN)
        busy = kind <= Switch.IN
        cpu, blocked, runnable = (int(column) for column in self._sums.sum(axis=0))
        return ThreadSeconds(
            (cpu + int(since[busy].sum())) / 1e9,
            (blocked + int(since[~busy & ~ready].sum())) / 1e9,
            (runnable + int(since[ready].sum())) / 1e9,
            (self._ended_ns + int(alive.sum())) / 1e9,
        )

    def jobs(self) -> dict[str, JobSeconds]:
        """Seconds of each named job's threads, as far as they were reported."""
        return {
            job: JobSeconds(
                *(float(self._sums[group, column]) / 1e9 for column in (_CPU, _BLOCKED, _READY))
            )
            for job, group in self._groups.items()
            if job
        }

    # --- inside ---

    def _living(self) -> I64:
        return np.fromiter(self._slot.values(), np.int64, len(self._slot))

    def _cut(self, slots: I64, cut: int | I64) -> Records:
        """Write waits up to ``cut`` and let them go on from there."""
        start = self._time[slots]
        end = np.maximum(np.broadcast_to(np.asarray(cut, np.int64), start.shape), start)
        never = np.zeros(len(slots), np.int64)
        kind, node = self._kind[slots], self._node[slots]
        self._time[slots] = end
        return self._waits(slots, start, end, never, kind, node)

    def _group_of(self, job: str) -> int:
        group = self._groups.get(job)
        if group is None:
            if len(self._groups) > _MOST_JOBS:
                return self._group_of("")
            group = self._groups[job] = len(self._groups)
            if group >= len(self._sums):
                self._sums = np.concatenate([self._sums, np.zeros_like(self._sums)])
                self._compiled = None
        return group

    def _waits(self, slots: I64, start: I64, end: I64, woken: I64, kind: U16, node: U32) -> Records:
        """Records of the waits [start, end), of which [woken, end) was for a CPU."""
        line, group = self._line[slots], self._group[slots]
        # Who was never woken waited for the event until the end; who never slept, for a CPU.
        turn = np.where(woken > 0, np.clip(woken, start, end), end)
        turn = np.where((kind == Switch.RUNNABLE) | (kind == BORN), start, turn)
        np.add.at(self._sums[:, _BLOCKED], group, turn - start)
        np.add.at(self._sums[:, _READY], group, end - turn)
        until, after = self.first + _UNTIL_WOKEN[kind], self.first + _ONCE_RUNNABLE[kind]
        long = end - start >= self._threshold
        short = ~long
        for part, begin, stop, event in (
            (short & (turn > start), start, turn, Wait.SHORT_BLOCKED),
            (short & (end > turn), turn, end, Wait.SHORT_RUNNABLE),
        ):
            if part.any():
                self._short.append(
                    (
                        line[part],
                        start[part].astype(np.uint64),
                        node[part],
                        np.full(int(part.sum()), self.first + event, np.uint16),
                        (stop - begin)[part].astype(np.uint64),
                    )
                )
        ticks = [moment // TIME_UNIT_NS for moment in (start, turn, end)]
        pieces = []
        for begin, stop, event_of in ((ticks[0], ticks[1], until), (ticks[1], ticks[2], after)):
            part = long & (stop > begin)
            pieces.append(
                Records(
                    line[part],
                    (begin[part] * TIME_UNIT_NS).astype(np.uint64),
                    node[part],
                    event_of[part].astype(np.uint16),
                    (stop - begin)[part].astype(np.uint64),
                )
            )
        return joined(pieces)

    def _reserve(self, count: int) -> None:
        size = len(self._time)
        if count > size:
            self._compiled = None
            for name in ("_line", "_time", "_begun", "_node", "_kind", "_group"):
                column = getattr(self, name)
                setattr(self, name, np.concatenate([column, np.zeros_like(column)]))


def joined(parts: Sequence[Records]) -> Records:
    """All records of ``parts``, one after another."""
    parts = [part for part in parts if len(part.line)]
    if not parts:
        return _NO_RECORDS
    if len(parts) == 1:
        return parts[0]
    return Records(
        np.concatenate([part.line for part in parts]),
        np.concatenate([part.time for part in parts]),
        np.concatenate([part.node for part in parts]),
        np.concatenate([part.event for part in parts]),
        np.concatenate([part.value for part in parts]),
    )
