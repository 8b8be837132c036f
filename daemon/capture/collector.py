"""The collector: from what the kernel sends to what the measurement holds.

Each round empties the sample ring in one numpy view, then the event ring, so that whatever a sample
refers to is known. Work per sample is a few compiled loops over the whole batch; Python runs once
per new stack, thread or process. Who does what:

- :class:`~hpcd.daemon.capture.thread_lifecycle.ThreadLifecycle` knows each thread's trace line;
- :class:`~hpcd.daemon.capture.stack_resolver.StackResolver` turns stacks into CCT nodes;
- :class:`~hpcd.daemon.capture.thread_times.ThreadTimes` makes records of waits;
- :class:`~hpcd.daemon.capture.call_recorder.CallRecorder` keeps calls of recorded functions;
- :class:`~hpcd.daemon.naming.jit_naming.JitNaming` names code made at run time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hpcd.array_types import I64, U32, U64, Mask
from hpcd.bpf.layouts import THREAD_EVENT, EventKind, Switch, ThreadEvent
from hpcd.bpf.map_sizes import MAX_EVENTS
from hpcd.bpf.sampler import Sampler
from hpcd.daemon.capture.deferred_paths import DeferredPaths
from hpcd.daemon.capture.report_loops import ReportLoops, Tally, report_loops
from hpcd.daemon.capture.stack_resolver import StackResolver
from hpcd.daemon.capture.thread_lifecycle import ThreadLifecycle
from hpcd.daemon.capture.thread_lines import NO_LINE
from hpcd.daemon.capture.thread_times import Records, ThreadTimes, joined
from hpcd.daemon.naming.jit_naming import JitNaming
from hpcd.measurement.call_codec import Calls
from hpcd.measurement.record_columns import by_line_and_time
from hpcd.measurement.writer import MeasurementWriter

if TYPE_CHECKING:
    from hpcd.daemon.capture.call_recorder import CallRecorder

_STACK = int(EventKind.STACK)  # nearly all events are such
_COLUMNS = ("time", "value", "thread", "stack", "cache", "event")


class Collector:
    """Moves samples from the rings into a measurement.

    A sample stands for what the programs say its event counted, in periods: ``periods[event]`` of
    what it counts. With ``thread_times`` what threads do between samples is recorded too.
    """

    def __init__(
        self,
        sampler: Sampler,
        threads: ThreadLifecycle,
        stacks: StackResolver,
        jit: JitNaming,
        writer: MeasurementWriter,
        periods: Sequence[int],
        thread_times: ThreadTimes | None = None,
        deferred: DeferredPaths | None = None,
        calls: CallRecorder | None = None,
    ) -> None:
        self._sampler = sampler
        self._calls = calls
        self._deferred = deferred
        # Records of paths that are not finished, and all later ones of their lines: the records of
        # a line are written in order of time.
        self._held: list[Records] = []
        self._held_lines = np.zeros(0, np.uint32)
        self._late_sums: list[Records] = []
        self._last_time = np.zeros(64, np.uint64)  # written, by line
        self._threads = threads
        self._stacks = stacks
        self._jit = jit
        self._writer = writer
        self._periods = _PeriodCounter(periods)
        self._thread_times = thread_times
        self._written_nodes = 1
        self._round_began = 0
        # Announced since the last round.
        self._new_stacks: list[bytes] = []
        self._new_copied: list[bytes] = []
        self.recorded = 0
        """Samples recorded."""
        self.recorded_periods = 0
        """Periods of the first event that its recorded samples stand for."""
        self.switches = 0
        """Context switches accounted for."""
        self.dropped: Counter[str] = Counter()
        """Samples left out, by reason."""

    @property
    def backlog(self) -> int:
        """Stacks taken from the ring of events that the next round makes paths of."""
        return len(self._new_stacks) + len(self._new_copied)

    def take_events(self) -> None:
        """Between rounds: follow what threads and processes do, and read the mappings that changed.

        Of all that a round does this alone cannot wait, as code that is not known yet costs a copy
        of the stack for each path through it, and who has ended is not to be asked any more.
        """
        new_stack = self._new_stacks.append
        for raw in self._sampler.take_events():
            kind = raw[8]  # EVENT_HEADER.kind, little endian
            if kind == _STACK:
                new_stack(raw)
            elif kind == EventKind.COPIED:
                self._new_copied.append(raw)
            elif kind == EventKind.PROGRAM:
                self._threads.on_program(raw)
            elif kind == EventKind.OBJECT:
                if self._calls:
                    self._calls.on_object(raw)
            else:
                self._threads.on_event(ThreadEvent(*THREAD_EVENT.unpack(raw)))
        self._threads.refresh_mappings()

    def drain(self) -> int:
        """One round; returns the samples taken."""
        began = time.monotonic_ns()
        # Before the events: whatever these samples refer to is known then.
        samples = self._sampler.take_samples()
        calls = self._sampler.take_calls() if self._calls else None
        self.take_events()
        stacks, self._new_stacks = self._threads.mark_replaced(self._new_stacks), []
        copied, self._new_copied = self._new_copied, []
        if self._deferred:
            stand_ins = self._deferred.add(copied, self._sampler.take_copies())
            self._stacks.add(stacks, copied, stand_ins)
        else:
            self._stacks.add(stacks)
        if len(samples):
            self._record(samples)
        if self._calls and calls is not None:
            self._write_calls(self._calls.take(calls))
        self._stacks.end_round()
        self._end_threads()
        self.finish_paths(began)
        if self._deferred:
            # Not whenever paths are finished: samples that are still in their ring may name those
            # of the last round.
            self._deferred.end_round()
        self._round_began = began
        return len(samples)

    def finish_paths(self, now: int, *, last: bool = False) -> None:
        """Finish the paths that can be by ``now`` (ns), and write their records."""
        deferred = self._deferred
        if not deferred:
            return
        deferred.finish_paths(now, last=last)
        self._count_finished()
        self._write_held()
        if self._calls:
            self._write_calls(self._calls.finished(last=last))
        if self._thread_times and deferred.any_known:
            self._thread_times.rename_nodes(lambda node: deferred.translate(node)[0])
            self._late_sums = [
                replace(part, node=deferred.translate(part.node)[0]) for part in self._late_sums
            ]
        self._stacks.settle(deferred.translate)

    def _count_finished(self) -> None:
        if self._deferred:
            node, samples = self._deferred.drain_counted()
            self._stacks.cct.count_samples(np.repeat(node, samples))

    def settle_waits(self) -> None:
        """Write what is known of waits that go on, and the sums of short ones.

        Once a flush: what is in the measurement is then at most a second behind.
        """
        if self._thread_times:
            waits = self._thread_times.split_open_waits(self._round_began)
            if len(waits.line):
                self._write(waits)
            self._write_short_waits(self._thread_times.drain_short_waits())

    def _write_short_waits(self, records: Records) -> None:
        """Write sums of short waits, those of paths that are not finished when these are.

        A sum has the time of one of its waits: not before what its line has written, nor after
        what is held of it.
        """
        if not (len(records.line) or self._late_sums):
            return
        if not self._deferred:
            self._write(records)
            return
        records = joined([records, *self._late_sums])
        node, late = self._deferred.translate(records.node)
        self._reserve_lines(records.line)
        written = self._last_time[records.line]
        held = np.isin(records.line, self._held_lines)
        late |= held & (written == 0)
        time = np.where(held, written, np.maximum(records.time, written))
        records = replace(records, node=node, time=time)
        self._late_sums = [_select(records, late)] if late.any() else []
        finished = _select(records, ~late)
        self._write_finished(_select(finished, by_line_and_time(finished.line, finished.time)))

    def name_jit_frames(self, *, last: bool = False) -> None:
        """Name frames in code made at run time as far as their runtimes tell by now."""
        cct = self._stacks.cct
        self._jit.name_frames(cct.frame[: cct.count], last=last)

    def finish(self, now: int) -> None:
        """The recording ends at ``now``, and with it all lines."""
        self.drain()
        self._threads.finish()
        self._end_threads()
        self._end_threads()
        self.finish_paths(now, last=True)
        if self._thread_times:
            open_lines = self._thread_times.open_lines()
            self._write(self._thread_times.end(dict.fromkeys(open_lines, now)))
            self._write_short_waits(self._thread_times.drain_short_waits())
        self.name_jit_frames(last=True)
        self._jit.close()

    def _end_threads(self) -> None:
        ends = self._threads.end_round()
        if ends and self._thread_times:
            self._write(self._thread_times.end(ends))

    def _record(self, samples: npt.NDArray[np.void]) -> None:
        loops = report_loops()
        if loops:
            self._record_compiled(loops, samples)
            return
        # Columns of their own: rows of 32 bytes are slow to choose from.
        moment, value, thread, stack, cache, event = (
            np.ascontiguousarray(samples[name]) for name in _COLUMNS
        )
        has_path = event != Switch.IN
        node, resolved = self._stacks.nodes_of(cache, stack, has_path)
        numbers, index = np.unique(thread, return_inverse=True)
        line = self._threads.numbered.of(numbers.tolist())[index]
        kept = self._known(~resolved, line)
        if not kept.all():
            moment, value, event = moment[kept], value[kept], event[kept]
            node, line, has_path = node[kept], line[kept], has_path[kept]
        self._count_samples(node[has_path])
        taken = int(np.count_nonzero(event < MAX_EVENTS))
        self.recorded += taken
        self.switches += len(event) - taken
        self._write_samples(Records(line, moment, node, event, value))

    def _record_compiled(self, loops: ReportLoops, reports: npt.NDArray[np.void]) -> None:
        """The same by compiled loops."""
        times, cct, periods = self._thread_times, self._stacks.cct, self._periods
        node, line, lost, strange = self._stacks.look_up(loops, reports, self._threads.numbered)
        if len(lost) or strange:
            forgotten = np.zeros(len(line), bool)
            forgotten[lost] = True
            kept = self._known(forgotten, line)
            reports, node, line = reports[kept], node[kept], line[kept]
        tally = Tally(cct.samples, cct.ending, cct.count, periods.periods)
        if times:
            outcome = times.record(loops, reports, node, line, tally)
        else:
            outcome = loops.samples(reports, node, line, tally)
        records = Records(*outcome.records)
        if outcome.strange:
            self._count_samples(node[(reports["event"] != Switch.IN) & (node >= cct.count)])
        first = outcome.periods
        if outcome.odd:
            samples = np.flatnonzero(records.event < len(periods.periods))
            event = records.event[samples]
            records.value[samples] = periods.count(event, records.value[samples])
            first = int(records.value[records.event == 0].sum())
        self.recorded_periods += first
        self.recorded += outcome.samples
        self.switches += len(reports) - outcome.samples
        self._write(records)

    def _known(self, forgotten: Mask, line: U32) -> Mask:
        """Which reports have a stack and a line."""
        strange = (line == NO_LINE) & ~forgotten
        # Neither can happen; if it does it is counted, not attributed to another.
        for reason, missing in ("stack forgotten", forgotten), ("thread unknown", strange):
            if missing.any():
                self.dropped[reason] += int(missing.sum())
        known: Mask = ~(forgotten | strange)
        return known

    def _count_samples(self, node: U32) -> None:
        if self._deferred:
            node, unfinished = self._deferred.translate(node)
            if unfinished.any():
                self._deferred.count_samples(node[unfinished])
                node = node[~unfinished]
        self._stacks.cct.count_samples(node)

    def _write_samples(self, reports: Records) -> None:
        """Write samples, and the waits between the switches beside them."""
        waits: list[Records] = []
        if self._thread_times:
            reports = _select(reports, by_line_and_time(reports.line, reports.time))
            waits = [
                self._thread_times.advance(
                    reports.line, reports.time, reports.event, reports.value, reports.node
                )
            ]
        samples = _select(reports, np.flatnonzero(reports.event < MAX_EVENTS))
        value = self._periods.count(samples.event, samples.value)
        self.recorded_periods += int(value[samples.event == 0].sum())
        # Together: a wait stays behind a sample of its line before it whose path is not finished.
        self._write(joined([*waits, replace(samples, value=value)]))

    def _write(self, records: Records) -> None:
        if self._deferred:
            node, unfinished = self._deferred.translate(records.node)
            if len(self._held_lines) or unfinished.any():
                waiting = np.union1d(self._held_lines, records.line[unfinished]).astype(np.uint32)
                held = np.isin(records.line, waiting)
                records = replace(records, node=node)
                self._held.append(_select(records, held))
                self._held_lines = waiting
                records = _select(records, ~held)
            elif node is not records.node:
                records = replace(records, node=node)
        self._write_finished(records)

    def _write_held(self) -> None:
        """Write what is held of each line up to the first path that is still not finished."""
        if not self._held or not self._deferred:
            return
        records = joined(self._held)
        records = _select(records, by_line_and_time(records.line, records.time))
        node, unfinished = self._deferred.translate(records.node)
        records = replace(records, node=node)
        place = np.arange(len(node))
        first = np.append(True, records.line[1:] != records.line[:-1])[: len(node)]
        begin = np.maximum.accumulate(np.where(first, place, 0))
        held = np.maximum.accumulate(np.where(unfinished, place, -1)) >= begin
        self._held = [_select(records, held)] if held.any() else []
        self._held_lines = np.unique(records.line[held])
        self._write_finished(_select(records, ~held))

    def _write_calls(self, parts: list[Calls]) -> None:
        if parts:
            self._write_nodes()
        for calls in parts:
            self._writer.add_calls(calls)

    def _write_nodes(self) -> None:
        """Have the writer know the nodes there are by now."""
        cct = self._stacks.cct
        if cct.count > self._written_nodes:
            fresh = slice(self._written_nodes, cct.count)
            self._writer.add_nodes(cct.parent[fresh], cct.frame[fresh])
            self._written_nodes = cct.count

    def _write_finished(self, records: Records) -> None:
        """Write ``records``, those of each line in order of time."""
        self._write_nodes()
        if len(records.line):
            self._writer.add_records(
                records.line, records.time, records.node, records.event, records.value
            )
            if self._deferred and self._thread_times:
                self._reserve_lines(records.line)
                loops = report_loops()
                if loops:
                    loops.note_newest(records.line, records.time, self._last_time)
                    return
                last = np.flatnonzero(np.append(records.line[1:] != records.line[:-1], True))
                np.maximum.at(self._last_time, records.line[last], records.time[last])

    def _reserve_lines(self, line: U32) -> None:
        """Make room for the times of these lines."""
        size = int(line.max(initial=0)) + 1
        if size > len(self._last_time):
            grown = np.zeros(2 * size, np.uint64)
            grown[: len(self._last_time)] = self._last_time
            self._last_time = grown


def _select(records: Records, which: Mask | I64) -> Records:
    return Records(
        records.line[which],
        records.time[which],
        records.node[which],
        records.event[which],
        records.value[which],
    )


class _PeriodCounter:
    """Whole periods of each event in what its samples counted.

    The remainder counts for the event's next sample, so that the sum is right at any rate.
    """

    def __init__(self, periods: Sequence[int]) -> None:
        self.periods: U64 = np.array(periods, dtype=np.uint64)
        self._remainder = np.zeros_like(self.periods)

    def count(self, event: npt.NDArray[np.uint16], value: U64) -> U64:
        """How many periods of its event (u64[n]) each sample stands for."""
        one_period = value == self.periods[event]
        result: U64 = one_period.astype(np.uint64)
        for number in np.unique(event[~one_period]).tolist():
            at = np.flatnonzero(~one_period & (event == number))
            total = np.cumsum(value[at], dtype=np.uint64) + self._remainder[number]
            level = total // self.periods[number]
            result[at] = np.diff(level, prepend=np.uint64(0))
            self._remainder[number] = total[-1] % self.periods[number]
        return result
