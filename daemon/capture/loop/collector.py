"""The collector: from what the kernel sends to what the measurement holds.

Each round empties the sample ring in one numpy view, then the event ring, so that whatever a sample
refers to is known. Work per sample is a few compiled kernels over the whole batch; Python runs once
per new stack, thread or process. A round's way:

- :meth:`~hpcd.daemon.capture.paths.stack_resolver.StackResolver.resolve`: stacks to call paths;
- :meth:`~hpcd.daemon.capture.paths.cct_builder.CCTBuilder.insert`: call paths to CCT nodes;
- :meth:`~hpcd.daemon.capture.paths.stack_caches.StackCaches.look_up`: samples to nodes and trace
  lines;
- :meth:`~hpcd.daemon.capture.threads.thread_times.ThreadTimes.account`: samples and context
  switches to records of samples and waits;
- :meth:`~hpcd.daemon.capture.loop.record_writer.RecordWriter.write`: records to the measurement.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hpcd.array_types import U16, U32, U64
from hpcd.bpf.sampler import Sampler
from hpcd.bpf.wire import Drop, EventHead, EventKind, ThreadEvent
from hpcd.daemon.capture.calls.wait_recorder import WaitRecorder
from hpcd.daemon.capture.loop.record_writer import RecordWriter
from hpcd.daemon.capture.paths.deferred_paths import DeferredPaths
from hpcd.daemon.capture.paths.stack_resolver import StackResolver
from hpcd.daemon.capture.records.record_batch import RecordBatch
from hpcd.daemon.capture.records.recorder_kernels import take_samples
from hpcd.daemon.capture.records.thread_lines import NO_LINE
from hpcd.daemon.capture.threads.thread_lifecycle import ThreadLifecycle
from hpcd.daemon.capture.threads.thread_times import ThreadTimes
from hpcd.daemon.naming.jit_naming import JitNaming
from hpcd.daemon.targets.lifecycle import AttachedThread
from hpcd.distinct import distinct
from hpcd.kernels.library import structure
from hpcd.measurement.writer import MeasurementWriter

if TYPE_CHECKING:
    from hpcd.daemon.capture.calls.call_recorder import CallRecorder

_STACK = int(EventKind.STACK)  # nearly all events are such
_KIND = EventHead.reader("kind")


class Collector:
    """Moves samples from the rings into a measurement.

    ``periods[event]`` is what the event counts in one period; a sample represents what the BPF
    programs counted, in periods. With ``thread_times`` what threads do between samples is recorded
    too, and by ``waits`` who ended their waits.
    """

    def __init__(
        self,
        sampler: Sampler,
        threads: ThreadLifecycle,
        stacks: StackResolver,
        jit: JitNaming,
        writer: MeasurementWriter,
        periods: Sequence[int],
        deferred: DeferredPaths,
        thread_times: ThreadTimes | None = None,
        waits: WaitRecorder | None = None,
        calls: CallRecorder | None = None,
    ) -> None:
        self._sampler = sampler
        self._threads = threads
        self._stacks = stacks
        self._jit = jit
        self._records = RecordWriter(writer, stacks.cct, deferred.stand_ins)
        self._periods = _PeriodCounter(periods)
        self._deferred = deferred
        self._thread_times = thread_times
        self._waits = waits
        self._calls = calls
        self._round_began = 0
        # Announced since the last round.
        self._new_stacks: list[bytes] = []
        self._new_copied: list[bytes] = []
        self.recorded = 0
        """Samples recorded."""
        self.recorded_periods = 0
        """Periods of the first event that its recorded samples represent."""
        self.switches = 0
        """Context switches accounted for."""
        self.dropped: Counter[str] = Counter()
        """Samples left out, by reason."""

    @property
    def backlog(self) -> int:
        """Number of stacks taken from the ring of events since the last round."""
        return len(self._new_stacks) + len(self._new_copied)

    def take_events(self) -> None:
        """Between rounds: follow what threads and processes do, and read the mappings that changed.

        Of all that a round does this alone cannot wait: code that is not known yet costs a copy of
        the stack for each path through it, and a process that has ended cannot be read any more.
        """
        new_stack, kind_of = self._new_stacks.append, _KIND
        before = len(self._new_stacks), len(self._new_copied)
        for raw in self._sampler.take_events():
            (kind,) = kind_of(raw)
            if kind == _STACK:
                new_stack(raw)
            elif kind == EventKind.COPIED:
                self._new_copied.append(raw)
            elif kind == EventKind.FUNCTION:
                self._stacks.on_function(raw)
            elif kind == EventKind.PROGRAM:
                self._threads.on_program(raw)
            elif kind == EventKind.OBJECT:
                if self._calls:
                    self._calls.on_object(raw)
            else:
                self._threads.on_event(ThreadEvent.unpack(raw))
        self._threads.refresh_mappings()
        self._stacks.read_ahead(self._new_stacks[before[0] :] + self._new_copied[before[1] :])
        self._jit.hold_files()

    def drain(self) -> int:
        """Make one round; return the number of reports taken."""
        began = time.monotonic_ns()
        # Before the events: whatever these reports refer to is known then.
        reports = self._sampler.take_samples()
        calls = self._sampler.take_calls() if self._calls else None
        self.take_events()
        self._add_stacks()
        if len(reports):
            self._record(reports)
        if self._calls and calls is not None:
            self._records.write_calls(self._calls.take(calls))
        self._stacks.caches.end_round()
        self._end_threads()
        self.finish_paths(began)
        # Not whenever paths are finished: samples that are still in their ring may name those of
        # the last round.
        self._deferred.end_round()
        self._round_began = began
        return len(reports)

    def _add_stacks(self) -> None:
        """Make CCT nodes of the stacks announced since the last round, stand-ins of those that were
        copied."""
        stacks, self._new_stacks = self._threads.mark_replaced(self._new_stacks), []
        copied, self._new_copied = self._new_copied, []
        stand_ins = self._deferred.add(copied, self._sampler.take_copies())
        caches = self._stacks.caches
        if stacks:
            paths = self._stacks.resolve(stacks)
            node = self._stacks.insert_paths(paths)
            caches.announce(paths.cache, paths.stack, node)
        if copied:
            caches.announce_deferred(copied, stand_ins)

    def _record(self, reports: npt.NDArray[np.void]) -> None:
        """Account for ``reports`` (:class:`hpcd.bpf.wire.Sample`), and write their records."""
        cct, periods = self._stacks.cct, self._periods
        node, line, forgotten, unknown = self._stacks.caches.look_up(
            reports, self._threads.numbered
        )
        if len(forgotten) or unknown:
            kept = np.ones(len(line), bool)
            kept[forgotten] = False
            # Neither can happen; if it does it is counted, not attributed to another.
            strange = kept & (line == NO_LINE)
            for reason, count in (
                ("stack forgotten", len(forgotten)),
                ("thread unknown", int(np.count_nonzero(strange))),
            ):
                if count:
                    self.dropped[reason] += count
            kept &= ~strange
            reports, node, line = reports[kept], node[kept], line[kept]
        account = self._thread_times.account if self._thread_times else take_samples
        outcome = account(reports, node, line, cct.struct, periods.struct)
        records, first = outcome.records, outcome.first
        if outcome.strange:
            stand_in = node >= cct.count
            self._count_samples(node[stand_in])
        if outcome.odd:
            periods.count(records)
            first = int(records.value[records.event == 0].sum())
        self.recorded_periods += first
        self.recorded += outcome.samples
        self.switches += len(reports) - outcome.samples - outcome.beside
        self._records.write(records)
        if self._waits:
            self._waits.take(outcome.waits, outcome.interferers)

    def _count_samples(self, stand_in: U32) -> None:
        """Count samples of paths that were deferred."""
        node, unfinished = self._deferred.stand_ins.translate(stand_in)
        self._deferred.stand_ins.count_samples(node[unfinished])
        self._stacks.cct.count_samples(node[~unfinished])

    def finish_paths(self, now: int, *, last: bool = False) -> None:
        """Finish the paths that can be by ``now`` (ns), and write their records."""
        self._deferred.finish_paths(now, last=last)
        stand_ins = self._deferred.stand_ins
        node, samples = stand_ins.drain_counted()
        self._stacks.cct.count_samples(np.repeat(node, samples))
        self._records.write_held()
        for part in (self._waits, self._calls):
            if part:
                self._records.write_calls(part.finished(last=last))
        if stand_ins.any_in_use:
            if self._thread_times:
                self._thread_times.rename_nodes(lambda node: stand_ins.translate(node)[0])
            self._records.translate_late_sums()
        self._stacks.caches.settle(stand_ins.translate)

    def add_resident(self, thread: AttachedThread, line: int) -> None:
        """Record the memory that a process held when its ``thread`` was attached to, on ``line``;
        if memory is recorded."""
        if self._calls:
            self._calls.add_resident(thread, line)

    def settle_waits(self) -> None:
        """Write open waits as far as they have lasted, and the sums of short waits.

        Once a flush: what is in the measurement is then at most a second behind.
        """
        if self._thread_times:
            waits = self._thread_times.split_open_waits(self._round_began, self._unreported())
            if len(waits):
                self._records.write(waits)
            self._records.write_short_waits(self._thread_times.drain_short_waits())

    def name_jit_frames(self, *, last: bool = False) -> None:
        """Name frames in code made at run time as far as their runtimes have named it by now."""
        cct = self._stacks.cct
        self._jit.name_frames(cct.frame[: cct.count], last=last)

    def finish(self, now: int) -> None:
        """End the recording, and with it all lines: it was stopped at ``now`` (ns)."""
        self.drain()
        # Also of threads that are about to end, whose end is not reported any more.
        self._threads.unreported |= self._unreported()
        self._threads.finish()
        self._end_threads()
        self._end_threads()
        self.finish_paths(now, last=True)
        if self._thread_times:
            ends = dict.fromkeys(self._thread_times.open_lines().tolist(), now)
            self._records.write(self._thread_times.end(ends, self._threads.unreported))
            self._records.write_short_waits(self._thread_times.drain_short_waits())
        self.name_jit_frames(last=True)
        self._jit.close()

    def _end_threads(self) -> None:
        ends = self._threads.end_round()
        if ends and self._thread_times:
            self._records.write(self._thread_times.end(ends, self._threads.unreported))
            self._threads.unreported.difference_update(ends)

    def _unreported(self) -> set[int]:
        """Return the trace lines of living threads whose last reports were lost."""
        dropped = self._sampler.counters()[0]["dropped"]
        if not dropped[[Drop.SAMPLE_RING, Drop.USER_SHARE]].any():
            return set()
        return self._threads.lines_of(self._sampler.targets.unreported())


class _PeriodCounter:
    """Whole periods of each event in what its samples counted.

    The remainder counts for the event's next sample, so that the sum is right at any rate.
    """

    def __init__(self, periods: Sequence[int]) -> None:
        self._periods: U64 = np.array(periods, dtype=np.uint64)
        self._remainder = np.zeros_like(self._periods)
        self.struct = structure("periods", count=self._periods, events=len(self._periods))
        """The periods as kernels take them."""

    def count(self, records: RecordBatch) -> None:
        """Replace the values of samples among ``records``, their counts, by the number of
        periods of their event that each represents."""
        samples = np.flatnonzero(records.event < len(self._periods))
        event, value = records.event[samples], records.value[samples]
        records.value[samples] = self._periods_in(event, value)

    def _periods_in(self, event: U16, value: U64) -> U64:
        one_period = value == self._periods[event]
        result: U64 = one_period.astype(np.uint64)
        for number in distinct(event[~one_period]).tolist():
            at = np.flatnonzero(~one_period & (event == number))
            total = np.cumsum(value[at], dtype=np.uint64) + self._remainder[number]
            level = total // self._periods[number]
            result[at] = np.diff(level, prepend=np.uint64(0))
            self._remainder[number] = total[-1] % self._periods[number]
        return result
