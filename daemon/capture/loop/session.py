"""A recording while it runs: the loop that empties the rings, and its progress and summary."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterable

from hpcd.daemon.access import processes
from hpcd.daemon.access.token_bucket import TokenBucket
from hpcd.daemon.capture.loop import heap
from hpcd.daemon.capture.loop.budget import Cost, SamplingRate
from hpcd.daemon.capture.loop.descriptors import readable
from hpcd.daemon.capture.loop.recording_summary import RecordingAccount
from hpcd.daemon.capture.loop.session_parts import CpuSampling, Parts, Progress
from hpcd.daemon.capture.loop.stop_request import StopRequest
from hpcd.daemon.capture.recording_options import Options
from hpcd.daemon.naming.file_naming import name_frames
from hpcd.daemon.targets.lifecycle import attach_held
from hpcd.daemon.unwind.work_limit import MOST_SECONDS
from hpcd.errors import TargetError
from hpcd.measurement.summary import Summary
from hpcd.processors import own_cpu_seconds

# The rings are emptied when they fill, of which the programs tell, or this often: a recorder that
# is killed loses no more than the last second, the way to the disk included.
_FLUSH_SECONDS = 0.9
# Time between summaries of a recording of a whole node; at once where samples were lost:
# it takes a file in /proc for each thread.
_SUMMARY_SECONDS = 3.0
# Neither rings of calls nor limits wake the recorder: the time between looks at them.
_POLL_SECONDS = 0.1
# Stacks that wait for a round: 10 MB of them.
_MOST_BACKLOG = 1 << 15
# A wake-up is for new code: until the mappings of a new process have been read its code is unknown.
# Time within which a program maps its libraries; on a whole node they are read together.
_MAPPING_SECONDS = 0.01
# CPU share that immediate wake-ups may use (token bucket), of selected processes and of a whole
# node, where programs come and go all the time. Beyond it they wait, at most _MAX_WAKEUP_DELAY_S
# for selected processes and as long as it takes for a node.
_WAKEUP_BUDGET, _WAKEUP_BUDGET_NODE = 1 / 20, 1 / 50
_WAKEUP_SAVED_SECONDS = 0.2
_MAX_WAKEUP_DELAY_S = 0.02
# The same for wake-ups by mappings of which none is a target's, where no target has mapped code
# lately: on a busy node programs start all the time. What a target maps meanwhile is found a tenth
# of a second later, and paths through it are finished then.
_IDLE_WAKEUP_BUDGET, _IDLE_SAVED_SECONDS, _MAX_IDLE_DELAY_S = 1 / 500, 0.01, 0.1
_LATELY_SECONDS = 1.0
# Of tables that have arrived those that take longer wait for the next round. What waits for them is
# looked at once for all of a round.
_INSTALL_SECONDS = 0.3
# How long, after the end, for tables that sampled code still needs: who has ended the recording
# waits for all together, well within the 20 s that the service has patience for; who let it end by
# itself for each, large ones as well, or the next recording of the program found none either.
_LAST_TABLES_SECONDS = 10.0
_LAST_TABLE_SECONDS = MOST_SECONDS + 5.0
_LOOK_SECONDS = 0.2
# A wait as long is explained to the user.
_NOTICEABLE_SECONDS = 2.0
# The first seconds have the cost of the start: nothing to slow down for.
_SETTLE_SECONDS = 3.0
# CPU time the recorder may have saved up where it is limited: what it takes to begin, and a rush.
_OWN_BURST_SECONDS = 2.0
# A tenth of a recorder's memory is freed in a minute; to trim the heap takes 1 ms.
_TRIM_SECONDS = 30.0
# Selected processes whose end is known at once; of thousands one more drain makes no difference.
_MAX_ENDS = 64


class Session:
    """Runs one recording from attach to the last drain. Owns the loop's clocks and the summary.

    Making one attaches to the targets and begins to count the duration; raises
    :class:`TargetError` when the only target is gone.
    """

    def __init__(
        self, options: Options, sampling: CpuSampling, parts: Parts, stop: StopRequest
    ) -> None:
        self._options = options
        self._sampling = sampling
        self._parts = parts
        self._stop = stop
        self.summary: Summary | None = None
        """The summary of the recording so far, some seconds old."""
        self._attach()
        self._ends = ProcessEnds(options.selector.pids)
        self._account = RecordingAccount(sampling, parts)
        self._flushed = self._trimmed = time.monotonic()
        self._start = self._account.start
        self._summarized = -math.inf
        """When it was summed up last."""
        self._lost = self._events_lost = 0
        if parts.calls:
            parts.calls.start(self._start)
        if options.selector.everything:
            share, max_delay = _WAKEUP_BUDGET_NODE, math.inf
        else:
            share, max_delay = _WAKEUP_BUDGET, _MAX_WAKEUP_DELAY_S
        self._wakeups = TokenBucket(share, _WAKEUP_SAVED_SECONDS, self._start, max_delay)
        self._idle_wakeups = TokenBucket(
            _IDLE_WAKEUP_BUDGET, _IDLE_SAVED_SECONDS, self._start, _MAX_IDLE_DELAY_S
        )
        self._mapped = self._flushed
        """When a target was last known to map code."""
        self._limit_reached = ""
        self._stopped = 0.0
        self._own_cpu = time.process_time()
        self._own = None
        if options.max_cpu:
            saved = _OWN_BURST_SECONDS / options.max_cpu
            self._own = TokenBucket(options.max_cpu, saved, self._start)

    def _attach(self) -> None:
        selector, sampler = self._options.selector, self._parts.sampler
        sampler.read_copies_ahead()
        if self._options.before_exec:
            self._adopt_child(selector.pids[0])
            return
        # hpcd itself may be selected, or come from a target.
        for pid in (os.getpid(), *processes.descendants(os.getpid())):
            if pid not in selector.pids:
                sampler.targets.exclude_process(pid)
        sampler.programs.attach()
        if not selector.everything:
            self._parts.attachment.attach()
            self._register_attached()
            if not self._parts.targets.alive and not selector.open_ended:
                raise TargetError(
                    f"process {selector.pids[0]} ended before hpcd could attach to it"
                )

    def _adopt_child(self, pid: int) -> None:
        """Record a command that is held, or has begun already."""
        sampler, begun = self._parts.sampler, self._parts.begun
        if begun:
            thread = begun.thread
        else:
            sampler.targets.exclude_process(os.getpid())
            sampler.programs.attach()
            thread = attach_held(sampler.targets, pid)
        self._parts.attachment.adopt(thread)
        self._register_attached()

    def run(self, progress: Callable[[Progress], None] | None) -> None:
        """Collect until the targets or the duration end or the stop event is set."""
        heap.trim_heap()
        self._parts.writer.add_clock_pair(*_clock_pair())
        while (seconds_left := self._seconds_left()) > 0:
            woken = self._wait(min(self._patience(), seconds_left))
            if self._install_tables(woken):
                woken.remove(self._parts.modules.installer.ready)
            due = time.monotonic() - self._flushed >= _FLUSH_SECONDS
            self._drain_when_needed(woken, due=due)
            if due:
                self._flush(progress)
            self._keep_to_limits()

    def finish(self, analysing: Callable[[int], None] | None = None) -> Summary:
        """Stop sampling and write the remaining records; returns the summary.

        Where the last paths need tables that take a while, ``analysing`` is called with how many
        files are still being analysed. A request to stop ends the wait for them.
        """
        self._ends.close()
        programs = self._parts.sampler.programs
        programs.stop_events()
        # In between: CPU time is that in which samples were taken, and of threads that end from now
        # on the tracepoints tell.
        self._parts.threads.cpu.read()
        if self._parts.probes:
            self._parts.probes.detach()
        programs.stop()
        self._stopped = time.monotonic()
        self._account.stop()
        self._parts.mmaps.take()
        self._parts.deferred.wait_for_walker()
        self._drain()
        self._end_unreported()
        self._parts.targets.read_titles(all_alive=True)
        self._wait_for_tables(analysing)
        # Threads that go on were recorded until then, however long the tables took.
        self._parts.collector.finish(round(self._stopped * 1e9))
        cct = self._parts.stacks.cct
        late = name_frames(self._parts.modules, self._parts.writer, cct.frame[: cct.count])
        summary = self._summarize(final=True)
        return summary._replace(files_not_named=tuple(late)) if late else summary

    def _summarize(self, *, final: bool = False) -> Summary:
        until = self._stopped or time.monotonic()
        return self._account.summarize(until=until, limit=self._limit_reached, final=final)

    def _wait_for_tables(self, analysing: Callable[[int], None] | None) -> None:
        """The last paths may lead through code that is still being analysed."""
        parts = self._parts
        hurried = self._stop.is_set()
        self._stop.clear()
        began = time.monotonic()
        end = began + (_LAST_TABLES_SECONDS if hurried else _LAST_TABLE_SECONDS)
        while parts.deferred.waiting_for_tables and parts.modules.installer.pending:
            if self._stop.is_set() or time.monotonic() > end:
                return
            if parts.modules.installer.install_next(_LOOK_SECONDS):
                parts.deferred.tables_came()
                parts.collector.finish_paths(time.monotonic_ns())
                if not hurried:
                    end = time.monotonic() + _LAST_TABLE_SECONDS
            elif analysing and time.monotonic() > began + _NOTICEABLE_SECONDS:
                analysing(parts.modules.installer.pending)
                analysing = None

    # --- the loop ---

    def _seconds_left(self) -> float:
        """Until the recording is over; 0 or less when it is."""
        if self._stop.is_set():
            return 0.0
        if not (self._options.selector.open_ended or self._parts.targets.alive):
            return 0.0
        if self._options.duration is None:
            return math.inf
        return self._start + self._options.duration - time.monotonic()

    def _patience(self) -> float:
        """Return how long the loop may wait for something to do."""
        if self._parts.calls or self._own or self._options.max_memory:
            return _POLL_SECONDS
        return max(self._flushed + _FLUSH_SECONDS - time.monotonic(), 0.0)

    def _wait(self, seconds: float) -> list[int]:
        """Wait for something to do; returns the descriptors that are readable.

        New code wakes the loop at once, and so do its unwind table (until then, stacks that lead
        through it end there), processes that may be targets, and the end of a selected one. While
        the budget of wake-ups is used up only tables do, rings that fill, and the request to stop.
        """
        parts = self._parts
        sources = (
            self._stop.descriptor,
            parts.modules.installer.ready,
            parts.sampler.full_descriptor,
        )
        now = time.monotonic()
        delay = self._wakeups.delay(now)
        if delay > 0:
            return readable(sources, min(seconds, delay))
        news = (*self._ends.descriptors, parts.sampler.urgent_descriptor)
        delay = self._idle_wakeups.delay(now)
        if delay > 0 and now - self._mapped > _LATELY_SECONDS:
            return readable((*sources, *news), min(seconds, delay))
        woken = readable((*sources, *news, parts.mmaps.descriptor), seconds)
        if self._options.selector.everything and any(source not in sources for source in woken):
            time.sleep(_MAPPING_SECONDS)
        return woken

    def _install_tables(self, woken: list[int]) -> bool:
        """Hand unwind tables that have arrived to the programs; False when there are none."""
        parts = self._parts
        if parts.modules.installer.ready not in woken:
            return False
        installed, end = False, time.monotonic() + _INSTALL_SECONDS
        while time.monotonic() < end and parts.modules.installer.install():
            installed = True
            if parts.sampler.filling:
                self._drain()
        if not installed:
            return False
        parts.targets.refresh_incomplete()
        parts.stacks.resolve_pending_stacks()
        parts.deferred.tables_came()
        parts.collector.finish_paths(time.monotonic_ns())
        heap.trim_heap()
        return True

    def _drain_when_needed(self, woken: list[int], *, due: bool) -> None:
        """Empty the rings if that is ``due`` or one fills; else take what cannot wait."""
        parts = self._parts
        now, cpu = time.monotonic(), time.thread_time()
        # Readable until it is emptied, though it may hold little by now.
        full = parts.sampler.full_descriptor in woken or parts.sampler.filling
        mapped = parts.mmaps.take() if due or woken else set()
        parts.threads.request_refresh(mapped)
        urgent = parts.sampler.urgent_descriptor in woken
        if self._includes_target(mapped):
            urgent, self._mapped = True, now
        urgent |= self._ends.take(woken)
        if due or full or parts.collector.backlog > _MOST_BACKLOG:
            self._drain()
        elif urgent:
            parts.collector.take_events()
            self._attach_new()
            self._wakeups.spend(time.monotonic(), time.thread_time() - cpu)
        elif mapped:
            self._idle_wakeups.spend(time.monotonic(), time.thread_time() - cpu)

    def _drain(self) -> None:
        """Empty the rings and attach to new targets."""
        self._parts.collector.drain()
        self._attach_new()

    def _end_unreported(self) -> None:
        lost = self._account.events_lost()
        if lost != self._events_lost:
            self._events_lost = lost
            self._parts.threads.end_unreported()

    def _attach_new(self) -> None:
        for pid in self._parts.threads.drain_candidates():
            self._parts.attachment.on_exec(pid)
        self._register_attached()

    def _register_attached(self) -> None:
        for thread in self._parts.attachment.drain_attached():
            line = self._parts.threads.register_existing_thread(thread)
            if thread.state.tid == thread.pid and not self._options.before_exec:
                self._parts.collector.add_resident(thread, line)

    def _flush(self, progress: Callable[[Progress], None] | None) -> None:
        collector, writer = self._parts.collector, self._parts.writer
        lost, before = self._account.samples_lost(), self._flushed
        now = self._flushed = time.monotonic()
        if self.summary and lost != self._lost and self._summarized < before:
            writer.flush(self.summary)  # none were until the clocks were read last
        writer.add_clock_pair(*_clock_pair())
        if lost != self._lost:
            self._end_unreported()
        collector.name_jit_frames()
        collector.settle_waits()
        self._parts.targets.read_titles()
        self._keep_budget(now)
        if self._parts.probes:
            self._parts.probes.keep_to_limits(now, self._account.cpu_seconds(final=False))
        if self._parts.calls:
            self._parts.calls.keep_pace(now, self._account.cpu_seconds(final=False))
        pause = _SUMMARY_SECONDS if self._options.selector.everything else 0.0
        if lost != self._lost or now - self._summarized >= pause:
            self._lost, self._summarized = lost, now
            self.summary = self._summarize()
            writer.flush(self.summary)
        else:
            writer.flush()
        if now - self._trimmed >= _TRIM_SECONDS:
            self._trimmed = now
            heap.trim_heap()
            self._parts.modules.rest()
        if progress:
            progress(self._account.progress(now))

    def _includes_target(self, pids: set[int]) -> bool:
        """Whether a process is among these that is recorded, or has just been started by one, and
        whose mappings no program requests."""
        everything, sampler = self._options.selector.everything, self._parts.sampler
        if sampler.programs.on_demand:
            return False
        return bool(pids) and (everything or any(map(sampler.targets.records, pids)))

    # --- limits ---

    def _keep_to_limits(self) -> None:
        """Pause when this process has taken more CPU time than it may: what the rings cannot hold
        meanwhile is lost, and counted. End when it has taken more memory than it may."""
        if self._own:
            now, cpu = time.monotonic(), time.process_time()
            self._own.spend(now, cpu - self._own_cpu)
            self._own_cpu = cpu
            delay = self._own.delay(now)
            if delay > 0:
                self._stop.wait(min(delay, _FLUSH_SECONDS))
        most = self._options.max_memory
        if most and not self._limit_reached and heap.resident_bytes() > most:
            self._limit_reached = f"ended: the recorder takes more than {most / 1e6:,.0f} MB"
            self._stop.set()

    # --- sampling rate ---

    def _keep_budget(self, now: float) -> None:
        sampling = self._sampling
        budgets = [budget for budget in (sampling.budget, sampling.own_budget) if budget]
        if not budgets or now - self._start < _SETTLE_SECONDS:
            return
        changed = False
        targets = self._account.cpu_seconds(final=False)
        if sampling.budget:
            overhead = self._parts.sampler.overhead()
            seconds = overhead.seconds - overhead.switches - overhead.calls
            cost = Cost(seconds, overhead.switches, own_cpu_seconds(), targets)
            changed |= sampling.budget.step(now, cost) is not None
        if sampling.own_budget:
            own = Cost(0.0, 0.0, time.process_time(), 0.0)
            changed |= sampling.own_budget.step(now, own) is not None
        if changed:
            rate = SamplingRate(
                min(budget.rate.frequency for budget in budgets),
                max(budget.rate.walk_one_in for budget in budgets),
            )
            self._account.change_rate(rate)
            self._parts.sampler.programs.set_pace(rate.frequency, rate.walk_one_in)


class ProcessEnds:
    """Descriptors of ``pids``, each readable once its process has ended (pidfd_open(2)): the end of
    a selected process is known at once, not at the next look into the rings."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._open: set[int] = set()
        for pid in list(pids)[:_MAX_ENDS]:
            with contextlib.suppress(OSError):  # gone already, or Linux before 5.3
                self._open.add(os.pidfd_open(pid))

    @property
    def descriptors(self) -> frozenset[int]:
        """Those of the processes that have not ended, as far as is known."""
        return frozenset(self._open)

    def take(self, readable: Iterable[int]) -> bool:
        """Whether a process is among the ``readable`` ones, which are then forgotten."""
        ended = self._open.intersection(readable)
        self._open -= ended
        for descriptor in ended:
            os.close(descriptor)
        return bool(ended)

    def close(self) -> None:
        """Forget all."""
        self.take(self._open)


def _clock_pair() -> tuple[int, int]:
    """Monotonic and real time of one moment: the real time lies between two readings."""
    before = time.monotonic_ns()
    real = time.time_ns()
    after = time.monotonic_ns()
    return (before + after) // 2, real
