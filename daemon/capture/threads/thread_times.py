"""The time of every thread: on a CPU, waiting for something, or waiting for a CPU.

The sampler reports each time a thread leaves its CPU, with the call path it leaves on, and each
time it comes back. Two reports in a row bound a stretch of time of one kind, so that the three
kinds together are the thread's life. Waits become records of interval events, or, when they are
short, are summed by call path. The time on CPUs is only summed: what samples stand for is decided
by the clock that takes them, since a weight that depends on what the thread did before would favour
some of its code.

Work per report is compiled (``thread_reports.c``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from hpcd.array_types import I64, U8, U16, U32, U64, Mask
from hpcd.bpf.wire import SwitchEvent
from hpcd.daemon.capture.records.record_batch import NO_RECORDS, RecordBatch, joined
from hpcd.daemon.capture.records.recorder_kernels import (
    BatchOutcome,
    cut_lines,
    record_reports,
    sum_short,
)
from hpcd.kernels.library import CStructure, structure
from hpcd.measurement.codec import TIME_UNIT_NS
from hpcd.measurement.summary import JobSeconds, ThreadSeconds
from hpcd.model.identity import Event

BORN = 32
"""In addition to :class:`SwitchEvent`: a thread that has not run yet."""

# An open wait is written in pieces this long, so that a recorder that dies loses no more; with
# many sleeping threads the pieces are longer, so that they stay below a thousand records a second.
_PIECE_NS = 1_000_000_000
_PIECE_NS_PER_THREAD = 1_000_000
# Job names come from environments: those that a user may make up are bounded, and so are all;
# threads of further jobs are accounted for without one.
_MOST_JOBS_OF_USER = 1_000
_MOST_JOBS = 8_192
_CPU, _BLOCKED, _READY, _LOST = range(4)
_IN = int(SwitchEvent.SWITCHED_IN)


class WaitEvent(IntEnum):
    """Events of waiting, numbered from the first number the sampled events leave free."""

    BLOCKED = 0
    IO = 1
    UNINTERRUPTIBLE = 2
    FAULT = 3
    STOPPED = 4
    RUNNABLE = 5
    PREEMPTED = 6
    LOST = 7
    """It is not known whether the thread waited: its switches were not reported."""
    SHORT_BLOCKED = 8
    SHORT_RUNNABLE = 9


_EVENTS = {
    WaitEvent.BLOCKED: ("blocked", "blocked_time"),
    WaitEvent.IO: ("blocked-io", "blocked_time"),
    WaitEvent.UNINTERRUPTIBLE: ("blocked-uninterruptible", "blocked_time"),
    WaitEvent.FAULT: ("page-fault-wait", "blocked_time"),
    WaitEvent.STOPPED: ("stopped", "blocked_time"),
    WaitEvent.RUNNABLE: ("runnable", "runnable_time"),
    WaitEvent.PREEMPTED: ("preempted", "runnable_time"),
    WaitEvent.LOST: ("reports-lost", ""),
    WaitEvent.SHORT_BLOCKED: ("short-blocked", "blocked_time"),
    WaitEvent.SHORT_RUNNABLE: ("short-runnable", "runnable_time"),
}

# What a thread waits for until it is woken, by how it left its CPU; and from then on.
_UNTIL_WOKEN = np.zeros(BORN + 1, np.uint16)
_UNTIL_WOKEN[SwitchEvent.OUT_SLEEPING] = WaitEvent.BLOCKED
_UNTIL_WOKEN[SwitchEvent.OUT_IO] = WaitEvent.IO
_UNTIL_WOKEN[SwitchEvent.OUT_UNINTERRUPTIBLE] = WaitEvent.UNINTERRUPTIBLE
_UNTIL_WOKEN[SwitchEvent.OUT_FAULT] = WaitEvent.FAULT
_UNTIL_WOKEN[SwitchEvent.OUT_STOPPED] = WaitEvent.STOPPED
_ONCE_RUNNABLE = np.full(BORN + 1, WaitEvent.RUNNABLE, np.uint16)
_ONCE_RUNNABLE[SwitchEvent.OUT_RUNNABLE] = WaitEvent.PREEMPTED


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
            1e-9 if wait >= WaitEvent.SHORT_BLOCKED else TIME_UNIT_NS / 1e9,
            metric,
            interval=wait < WaitEvent.SHORT_BLOCKED,
        )
        for wait, (name, metric) in _EVENTS.items()
    ]


class ThreadTimes:
    """The state of every living trace line; turns reports into records of samples and waits.

    ``first`` is the number :func:`wait_events` begin at, ``threshold_ns`` the duration from which a
    wait is recorded by itself, ``lost_node`` the call path of times whose reports were lost. 89
    bytes a line; those of lines that end are used again.
    """

    def __init__(self, first: int, threshold_ns: int, lost_node: int = 0) -> None:
        self.first = first
        """The number of the first event of waiting."""
        self._threshold = threshold_ns
        self._lost_node = lost_node
        self._slot_of: I64 = np.full(256, -1, np.int64)  # by line, -1 unless it has begun
        self._slots = 0
        self._free: list[int] = []
        self._line: U32 = np.zeros(256, np.uint32)
        self._time: I64 = np.zeros(256, np.int64)
        self._begun: I64 = np.zeros(256, np.int64)
        self._left: I64 = np.zeros(256, np.int64)
        self._node: U32 = np.zeros(256, np.uint32)
        self._woken_by: U32 = np.zeros(256, np.uint32)
        self._futex: U64 = np.zeros(256, np.uint64)
        self._waited: I64 = np.zeros(256, np.int64)
        self._waited_at: U32 = np.zeros(256, np.uint32)
        self._again: U8 = np.zeros(256, np.uint8)
        self._ready: I64 = np.zeros(256, np.int64)
        self._came: I64 = np.zeros(256, np.int64)
        self._kind: U16 = np.zeros(256, np.uint16)
        self._short: list[RecordBatch] = []
        self._group: U16 = np.zeros(256, np.uint16)
        # By user and job; the first is that of threads without a job.
        self._groups: dict[tuple[int, str], int] = {(-1, ""): 0}
        self._jobs_of: Counter[int] = Counter()
        # CPU, blocked, runnable and unknown ns of each group.
        self._sums = np.zeros((1, _LOST + 1), np.int64)
        self._ended_ns = 0
        # The arrays as kernels take them, until one of them is replaced.
        self._struct: CStructure | None = None

    def begin(
        self, line: int, time: int, kind: int, node: int, job: str = "", uid: int = 0
    ) -> None:
        """Line ``line`` of a process of ``job``, of user ``uid``, is accounted for from ``time``
        on.

        ``kind`` says what it is doing: ``SWITCHED_IN`` of :class:`SwitchEvent` for running, another
        for waiting after it has left its CPU that way, :data:`BORN`; ``node`` its call path, or 0.
        """
        slot = self._free.pop() if self._free else self._slots
        self._slots = max(self._slots, slot + 1)
        self._reserve(self._slots)
        if line >= len(self._slot_of):
            more = np.full(max(line + 1, 2 * len(self._slot_of)) - len(self._slot_of), -1, np.int64)
            self._slot_of, self._struct = np.append(self._slot_of, more), None
        self._slot_of[line] = slot
        self._line[slot] = line
        self._time[slot] = self._begun[slot] = self._left[slot] = time
        self._kind[slot] = kind
        self._node[slot] = node
        for column in (
            self._woken_by, self._futex, self._waited, self._again, self._ready, self._came,
        ):  # fmt: skip
            column[slot] = 0
        self._group[slot] = self._group_of(job, uid)

    def restart(self, line: int, time: int) -> None:
        """Line ``line``, of which there was no report yet, is accounted for from ``time`` on, when
        it runs."""
        slot = self._slot_of[line]
        self._time[slot] = self._begun[slot] = time
        self._kind[slot], self._node[slot] = _IN, 0

    def account(
        self,
        reports: npt.NDArray[np.void],
        node: U32,
        line: U32,
        tree: CStructure,
        periods: CStructure,
    ) -> BatchOutcome:
        """Account for ``reports`` (:class:`hpcd.bpf.wire.Sample`, in any order) and return the
        records of samples and waits by line and time.

        ``node`` u32[n] and ``line`` u32[n] are theirs; samples are counted in ``tree``, by what
        one of each event counts (``periods``). Short waits are kept for :meth:`drain_short_waits`.
        Raises :class:`ValueError` for a line that has not begun or an event out of range, with
        nothing changed.
        """
        outcome = record_reports(reports, node, line, self._arrays(), tree, periods)
        self._keep_short(outcome)
        return outcome

    def rename_nodes(self, rename: Callable[[U32], U32]) -> None:
        """Replace the call paths of open waits, and of short ones, by ``rename`` of them."""
        self._node[:] = rename(self._node)
        self._woken_by[:] = rename(self._woken_by)
        self._waited_at[:] = rename(self._waited_at)
        self._short = [replace(part, node=rename(part.node)) for part in self._short]

    def split_open_waits(self, cut: int, lost: Collection[int] = ()) -> RecordBatch:
        """Return records of open waits up to ``cut`` (ns), of those that are long enough. Nothing
        is known of lines whose last reports were ``lost``."""
        waiting = self._kind > _IN
        waiting[self._slot_of[self._begun_lines(lost)]] = False
        due = (waiting & (self._time <= cut - _PIECE_NS)).nonzero()[0]
        if not len(due):
            return NO_RECORDS
        step = _PIECE_NS_PER_THREAD * int(np.count_nonzero(waiting))
        due = due[self._time[due] <= cut - step]
        none = np.zeros(len(due), bool)
        return self._cut(self._line[due], np.full(len(due), cut, np.int64), none)

    def end(self, times: dict[int, int], lost: Collection[int] = ()) -> RecordBatch:
        """End lines at ``times`` (ns by line) and return the rest of their waits, or of those whose
        last reports were ``lost`` that this is not known."""
        line = self._begun_lines(times)
        until = np.array([times[number] for number in line.tolist()], np.int64)
        waits = self._cut(line, until, np.isin(line, np.fromiter(lost, np.uint32, len(lost))))
        slots = self._slot_of[line]
        self._ended_ns += int((self._time[slots] - self._begun[slots]).sum())
        self._kind[slots] = _IN  # no wait of a free slot is due
        self._slot_of[line] = -1
        self._free.extend(slots.tolist())
        return waits

    def open_lines(self) -> U32:
        """Return the lines that have begun and not ended."""
        return np.flatnonzero(self._slot_of >= 0).astype(np.uint32)

    def drain_short_waits(self) -> RecordBatch:
        """Return short waits since the last call, summed by line, call path and kind."""
        short, self._short = joined(self._short), []
        return sum_short(short) if len(short) else short

    def totals(self, now: int) -> ThreadSeconds:
        """Times accounted for so far; what threads are doing counts up to ``now`` (ns)."""
        slots = self._slot_of[self.open_lines()]
        since = np.maximum(now - self._time[slots], 0)
        alive = np.maximum(now - self._begun[slots], 0)
        kind = self._kind[slots]
        ready = (kind == SwitchEvent.OUT_RUNNABLE) | (kind == BORN)
        busy = kind <= SwitchEvent.SWITCHED_IN
        cpu, blocked, runnable, lost = (int(column) for column in self._sums.sum(axis=0))
        return ThreadSeconds(
            (cpu + int(since[busy].sum())) / 1e9,
            (blocked + int(since[~busy & ~ready].sum())) / 1e9,
            (runnable + int(since[ready].sum())) / 1e9,
            (self._ended_ns + int(alive.sum())) / 1e9,
            lost / 1e9,
        )

    def jobs(self) -> dict[str, JobSeconds]:
        """Seconds of each named job's threads, as far as they were reported; a job is of all users
        who name it.

        In the order in which they are worth showing: each user's job that took most CPU time, then
        each user's second, and so on, of the same place by CPU time. So one user's many jobs, or
        jobs that only wait, leave others their places.
        """
        by_user: dict[int, list[tuple[int, str, int]]] = {}
        for (uid, job), group in self._groups.items():
            if job:
                by_user.setdefault(uid, []).append((-int(self._sums[group, _CPU]), job, group))
        order = sorted(
            (place, cpu, job, group)
            for jobs in by_user.values()
            for place, (cpu, job, group) in enumerate(sorted(jobs))
        )
        columns = [_CPU, _BLOCKED, _READY]
        sums: dict[str, I64] = {}
        for _, _, job, group in order:
            sums[job] = sums.get(job, 0) + self._sums[group, columns]
        return {job: JobSeconds(*(float(ns) / 1e9 for ns in of)) for job, of in sums.items()}

    # --- inside ---

    def _arrays(self) -> CStructure:
        if self._struct is None:
            self._struct = structure(
                "times", slot_of=self._slot_of, lines=len(self._slot_of), time=self._time,
                left=self._left, kind=self._kind, node=self._node, group=self._group,
                woken_by=self._woken_by, futex=self._futex, waited=self._waited,
                waited_at=self._waited_at, again=self._again, ready=self._ready, came=self._came,
                slots=len(self._time),
                sums=self._sums, groups=len(self._sums), until_woken=_UNTIL_WOKEN,
                once_runnable=_ONCE_RUNNABLE, threshold=self._threshold, first=self.first,
                runnable=self.first + WaitEvent.RUNNABLE, lost=self.first + WaitEvent.LOST,
                short_blocked=self.first + WaitEvent.SHORT_BLOCKED,
                short_runnable=self.first + WaitEvent.SHORT_RUNNABLE,
                lost_node=self._lost_node,
            )  # fmt: skip
        return self._struct

    def _keep_short(self, outcome: BatchOutcome) -> None:
        if len(outcome.short_waits):
            self._short.append(outcome.short_waits)

    def _begun_lines(self, lines: Collection[int]) -> U32:
        """``uint32[k]``: the ``lines`` that have begun and not ended."""
        line = np.fromiter(lines, np.uint32, len(lines))
        line = line[line < len(self._slot_of)]
        return line[self._slot_of[line] >= 0]

    def _cut(self, line: U32, until: I64, lost: Mask) -> RecordBatch:
        """Account for lines u32[n] up to ``until`` i64[n] ns; waits go on from there. Of some the
        last reports were ``lost`` bool[n]."""
        outcome = cut_lines(line, until, lost, self._arrays())
        self._keep_short(outcome)
        return outcome.records

    def _group_of(self, job: str, uid: int) -> int:
        if not job:
            return 0
        group = self._groups.get((uid, job))
        if group is None:
            if self._jobs_of[uid] >= _MOST_JOBS_OF_USER or len(self._groups) > _MOST_JOBS:
                return 0
            self._jobs_of[uid] += 1
            group = self._groups[uid, job] = len(self._groups)
            if group >= len(self._sums):
                self._sums = np.concatenate([self._sums, np.zeros_like(self._sums)])
                self._struct = None
        return group

    def _reserve(self, count: int) -> None:
        size = len(self._time)
        if count > size:
            self._struct = None
            for name in (
                "_line", "_time", "_begun", "_left", "_node", "_kind", "_group", "_woken_by",
                "_futex", "_waited", "_waited_at", "_again", "_ready", "_came",
            ):  # fmt: skip
                column = getattr(self, name)
                setattr(self, name, np.concatenate([column, np.zeros_like(column)]))
