"""One recording: attach to targets, collect until told to stop, leave a measurement."""

from __future__ import annotations

import contextlib
import math
import os
import platform
import resource
import select
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

from hpcd.bpf.events import EventSpec, parse_events
from hpcd.bpf.maps import ARRAY, Map, possible_cpus
from hpcd.bpf.mmap_events import MmapEvents
from hpcd.bpf.records import DROPS, EventKind
from hpcd.bpf.sampler import Sampler
from hpcd.bpf.tables import Tables
from hpcd.daemon import memory, processes
from hpcd.daemon.attachment import Attachment
from hpcd.daemon.budget import Budget, Cost, Pace
from hpcd.daemon.collector import Collector
from hpcd.daemon.kernel_symbols import KernelSymbols
from hpcd.daemon.modules import Modules
from hpcd.daemon.selector import Selector
from hpcd.daemon.targets import Targets
from hpcd.daemon.timeline import NO_EVENT, Timelines, wait_events
from hpcd.daemon.unwind.decoder import Decoder
from hpcd.errors import StorageError, TargetError, UsageError
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.identity import Node
from hpcd.sandbox.limits import raise_descriptor_limit

# A prime, so that sampling cannot fall into step with anything periodic in the target; close to
# 1 kHz, the rate at which HPCToolkit's papers trace.
DEFAULT_FREQUENCY = 997
# The kernel's own default limit (kernel.perf_event_max_sample_rate) is 100 kHz.
MAX_FREQUENCY = 25_000
# The rings are looked at this often; they are emptied when they fill, every DRAIN_SECONDS, or when
# something calls for it: until the mappings of a new process have been read its code is unknown.
_POLL_SECONDS = 0.1
DRAIN_SECONDS = 0.5
# Answering calls at once may cost this share of a CPU in the long run, and at any moment what has
# been saved up in _SAVED_SECONDS; after that a call of targets waits for at most _LONGEST_SECONDS.
# Of a whole node, where programs come and go all the time, it may wait longer.
_SHARE, _SHARE_OF_NODE = 1 / 20, 1 / 50
_SAVED_SECONDS = 0.2
_LONGEST_SECONDS = 0.02
# A recorder that is killed loses no more than the last second, the way to the disk included.
FLUSH_SECONDS = 0.7
_SETTLE_SECONDS = 3.0
# What is freed in a minute is a tenth of a recorder's memory; to give it back takes 1 ms.
_GIVE_BACK_SECONDS = 30.0
_NICE = -5
# Waits shorter than a context switch and back are the price of switching, not a cause of their own.
DEFAULT_THRESHOLD_NS = 50_000
# Modules of more processes than this are analysed while recording.
_LOOK_AHEAD = 64
# Targets start unwinding whole at once if their tables are ready; longer than this nobody waits,
# and stacks end as "module not yet analysed" until they are.
_TABLE_WAIT_SECONDS = 1.5


@dataclass(slots=True)
class Options:
    """What to record and how."""

    selector: Selector
    output: Path
    frequency: int = DEFAULT_FREQUENCY
    """Of the CPU time that cpu-clock samples, the event recorded unless others are named."""
    events: list[EventSpec] = field(default_factory=list)
    duration: float | None = None
    children: bool = True
    unstarted: bool = False
    """The target has yet to exec what is to be recorded: its present code is of no interest."""
    waits: bool = True
    """Record how long threads are blocked or wait for a CPU, and where."""
    threshold_ns: int = DEFAULT_THRESHOLD_NS
    """Shorter waits are summed by call path."""
    overhead: float | None = None
    """Share of the targets' CPU time (and at least of one CPU) that recording may cost; the rate is
    adapted to it."""
    owner: tuple[int, int] | None = None
    """Whose the measurement is (uid, gid), when it is not to be root's."""
    only_user: int | None = None
    """Record this user's processes alone, whatever is selected and whatever they run."""
    loader: str = "auto"
    """How the programs are loaded, one of :data:`hpcd.bpf.loader.LOADERS`."""
    existing: bool = False
    """The output directory is there already, and empty."""
    extra: dict[str, object] = field(default_factory=dict)


@dataclass(slots=True)
class Progress:
    """What a progress line shows."""

    seconds: float
    samples: int
    rate: float
    dropped: int
    truncated: int
    threads: int
    bytes: int


class Recording:
    """Records :class:`Options` until the duration is over, the targets have ended or
    :meth:`request_stop` is called. Whatever ends it, the measurement is closed properly."""

    def __init__(self, options: Options) -> None:
        if not 1 <= options.frequency <= MAX_FREQUENCY:
            raise UsageError(f"frequency must lie between 1 and {MAX_FREQUENCY} Hz")
        if not options.selector:
            raise UsageError("nothing selected to record")
        for pid in options.selector.pids:
            processes.require_target(pid)
        self._options = options
        self._stop = threading.Event()
        self._attached = False
        self._ended_cpu = 0.0
        pace = Pace(options.frequency)
        self._budget = Budget(options.overhead, pace) if options.overhead else None
        self.summary: dict[str, object] = {}
        """What was recorded so far, about a second old."""
        self._rates: list[dict[str, object]] = []
        self._cpu_start = _own_cpu()
        self._start = time.monotonic()

    def request_stop(self) -> None:
        """End the recording at the next round. Safe in signal handlers and threads."""
        self._stop.set()

    def run(
        self,
        progress: Callable[[Progress], None] | None = None,
        attached: Callable[[], None] | None = None,
    ) -> dict[str, object]:
        """Record; returns the summary that is also stored in the measurement.

        ``attached`` is called once when sampling has begun.
        """
        options = self._options
        _require_privilege()
        memory.keep_little()
        raise_descriptor_limit()
        # On a machine that is busy with what is recorded, the recorder must still get its turn.
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, _NICE)
        writer = MeasurementWriter(
            options.output,
            _node(),
            options={"frequency": options.frequency, **options.extra},
            owner=options.owner,
            existing=options.existing,
        )
        try:
            return self._record(writer, progress, attached)
        except BaseException:
            if self._attached:
                with contextlib.suppress(StorageError):
                    writer.close({"closed": False})
            else:
                writer.discard()
            raise

    def _record(
        self,
        writer: MeasurementWriter,
        progress: Callable[[Progress], None] | None,
        attached: Callable[[], None] | None,
    ) -> dict[str, object]:
        options = self._options
        events = _ordered(options.events) or parse_events("cpu-clock", options.frequency)
        for number, event in enumerate(events):
            event.require()
            writer.add_event(event.model(number))
        periods = [
            (event.period or 1_000_000_000 // event.frequency) if event.clock else 1
            for event in events
        ]
        timelines = None
        if options.waits:
            cpu = 0 if _is_cpu_time(events[0]) else NO_EVENT
            timelines = Timelines(cpu, periods[0], len(events), options.threshold_ns)
            for wait in wait_events(len(events)):
                writer.add_event(wait)
        with contextlib.ExitStack() as stack:
            helper = stack.enter_context(ThreadPoolExecutor(1))
            modules = Modules(Decoder(), writer.add_module)
            stack.callback(modules.close)
            # The decoder works on the targets' modules, and the kernel's symbols are read, while
            # the programs are being compiled.
            symbols = helper.submit(KernelSymbols)
            if not options.unstarted:
                self._look_ahead(modules)
            selector = options.selector
            sampler = Sampler(
                [event.perf_event() for event in events],
                follow_children=options.children,
                waiting=options.waits,
                everything=selector.everything,
                selecting=selector.open_ended and not selector.everything,
                control_groups=selector.by_control_group,
                only_user=options.only_user,
                loader=options.loader,
            )
            stack.callback(sampler.close)
            if _is_cpu_time(events[0]):
                sampler.set_pace(events[0].frequency, 1)
                self._note_rate(Pace(events[0].frequency))
            elif self._budget:
                raise UsageError("an overhead budget needs cpu-clock among the events")
            mmaps = MmapEvents(possible_cpus())
            stack.callback(mmaps.close)
            tables = Tables(sampler.memory)
            targets = Targets(modules, tables, sampler, writer.add_process)
            collector = Collector(
                sampler, targets, modules, writer, symbols.result(), sampler.caches, periods,
                timelines,
            )  # fmt: skip
            collector.mapped = mmaps.lookup
            attachment = Attachment(
                selector,
                sampler,
                targets,
                collector.take_up,
                children=options.children,
                only_user=options.only_user,
            )
            modules.install_within(_TABLE_WAIT_SECONDS, tables, sampler.set_rules)
            self._parts = _Parts(
                sampler,
                targets,
                modules,
                tables,
                collector,
                writer,
                mmaps,
                attachment,
                timelines,
                not _is_cpu_time(events[0]),
            )
            self._attach()
            self._start = time.monotonic()
            self._attached = True
            if attached:
                attached()
            self._loop(progress)
            sampler.stop()
            collector.drain()
            self._account(collector, attachment)
            collector.finish(time.monotonic_ns())
            summary = self._summary(final=True)
            writer.close(summary)
            return summary

    # --- attaching ---

    def _look_ahead(self, modules: Modules) -> None:
        pids = list(self._options.selector.scan())[:_LOOK_AHEAD]
        if self._options.children:
            for pid in list(pids):
                pids.extend(processes.descendants(pid))
        for number, pid in enumerate(dict.fromkeys(pids), 1):
            modules.mappings(pid, number)

    def _attach(self) -> None:
        selector, sampler = self._options.selector, self._parts.sampler
        for pid in (os.getpid(), *processes.descendants(os.getpid())):
            if pid not in selector.pids:
                sampler.exclude_process(pid)
        if selector.everything:
            for cpu in processes.online_cpus():
                sampler.attach_cpu(cpu)
            return
        self._parts.attachment.attach(unstarted=self._options.unstarted)
        if not sampler.attached and not selector.open_ended:
            raise TargetError(f"process {selector.pids[0]} ended before hpcd could attach to it")

    # --- collecting ---

    def _loop(self, progress: Callable[[Progress], None] | None) -> None:
        parts = self._parts
        collector, writer = parts.collector, parts.writer
        deadline = None if self._options.duration is None else self._start + self._options.duration
        flushed = drained = given_back = self._start
        if self._options.selector.everything:
            share, longest = _SHARE_OF_NODE, math.inf
        else:
            share, longest = _SHARE, _LONGEST_SECONDS
        # Up to this moment the answers given so far use up their share.
        paid = self._start - _SAVED_SECONDS
        last = (self._start, 0)
        memory.give_back()
        writer.add_clock_pair(*_clock_pair())
        forever = self._options.selector.open_ended
        wakers = [*parts.mmaps.descriptors, parts.modules.news, parts.sampler.news]
        while (forever or parts.targets.alive) and not self._stop.is_set():
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                break
            wait = _POLL_SECONDS if deadline is None else min(_POLL_SECONDS, deadline - now)
            # New code wakes the loop at once, and so do its table (until then, stacks that lead
            # through it end there) and processes that may be targets.
            breath = paid - now
            called = select.select(
                [parts.modules.news] if breath > 0 else wakers, [], [],
                min(wait, breath) if breath > 0 else wait,
            )[0]  # fmt: skip
            if parts.modules.news in called and parts.modules.install(
                parts.tables, parts.sampler.set_rules
            ):
                parts.targets.refresh_incomplete()
                collector.place_again()
                memory.give_back()
                called.remove(parts.modules.news)
            now = time.monotonic()
            spent = time.thread_time()
            due = now - drained >= DRAIN_SECONDS or now - flushed >= FLUSH_SECONDS
            mapped = parts.mmaps.take() if due or called else set()
            collector.refresh |= mapped
            urgent = parts.sampler.news in called or self._concern_targets(mapped)
            if urgent or due or parts.sampler.filling:
                drained = now
                collector.drain()
                self._account(collector, parts.attachment)
            now = time.monotonic()
            cost = time.thread_time() - spent
            paid = max(paid, now - _SAVED_SECONDS) + min(cost / share, longest)
            if now - flushed >= FLUSH_SECONDS:
                flushed = now
                writer.add_clock_pair(*_clock_pair())
                collector.name_jit_frames()
                collector.settle_waits()
                self._keep_budget(now)
                self.summary = self._summary()
                writer.flush(self.summary)
                if now - given_back >= _GIVE_BACK_SECONDS:
                    given_back = now
                    memory.give_back()
                if progress:
                    progress(self._progress(last, now))
                last = (now, collector.recorded)

    def _concern_targets(self, pids: set[int]) -> bool:
        """Whether a process is among these that is recorded, or has just been started by one."""
        everything, sampler = self._options.selector.everything, self._parts.sampler
        return bool(pids) and (everything or any(map(sampler.records, pids)))

    def _keep_budget(self, now: float) -> None:
        # What the first seconds cost is the price of beginning: nothing to slow down for.
        if not self._budget or now - self._start < _SETTLE_SECONDS:
            return
        overhead = self._parts.sampler.overhead()
        pace = self._budget.step(
            now,
            Cost(
                overhead.seconds - overhead.switches,
                overhead.switches,
                _own_cpu(),
                self._cpu_time(final=False),
            ),
        )
        if pace:
            self._parts.sampler.set_pace(pace.frequency, pace.walk_one_in)
            self._note_rate(pace)

    def _note_rate(self, pace: Pace) -> None:
        self._rates = [*self._rates, {"time_ns": time.monotonic_ns(), **asdict(pace)}]

    def _account(self, collector: Collector, attachment: Attachment) -> None:
        """Pass on who came and went in this round."""
        came, collector.came = collector.came, []
        for what, pid, other in came:
            if what is EventKind.FORK:
                attachment.forked(other, pid)
            elif what is EventKind.EXIT:
                attachment.gone(pid)
            else:
                attachment.consider(pid)
        ended, collector.ended_runtime = collector.ended_runtime, []
        for pid, tid, seconds in ended:
            self._ended_cpu += max(seconds - attachment.baseline.pop((pid, tid), 0.0), 0.0)
            attachment.forget_thread(tid)

    def _progress(self, last: tuple[float, int], now: float) -> Progress:
        collector, sampler, writer = (
            self._parts.collector, self._parts.sampler, self._parts.writer
        )  # fmt: skip
        counters = sampler.counters()[0]
        endings = collector.cct.endings()
        return Progress(
            seconds=now - self._start,
            samples=collector.recorded,
            rate=(collector.recorded - last[1]) / max(now - last[0], 1e-9),
            dropped=int(counters["dropped"].sum()) + sum(collector.dropped.values()),
            truncated=sum(
                sum(where.values()) for ending, where in endings.items() if not ending.whole
            ),
            threads=collector.lines,
            bytes=sum(writer.bytes_written.values()),
        )

    # --- accounting ---

    def _summary(self, *, final: bool = False) -> dict[str, object]:
        parts = self._parts
        sampler, modules, collector, writer = (
            parts.sampler, parts.modules, parts.collector, parts.writer
        )  # fmt: skip
        counters = sampler.counters()[0]
        dropped = {
            name: int(number)
            for name, number in zip(DROPS, counters["dropped"], strict=False)
            if number
        }
        for name, number in collector.dropped.items():
            dropped[name] = dropped.get(name, 0) + number
        lost = writer.dropped_storage
        if lost:
            dropped["storage"] = lost
        endings = collector.cct.endings()
        truncated = {
            ending.label: sum(where.values())
            for ending, where in endings.items()
            if not ending.whole
        }
        times = parts.timelines.totals(time.monotonic_ns()) if parts.timelines else None
        # Of several events only that of CPU time can be foretold.
        alone = len(self._options.events) <= 1 and not parts.cpu_event_missing
        expected = self._cpu_time(final=final) * self._options.frequency if alone else 0.0
        overhead = sampler.overhead()
        return {
            "samples": {
                "expected": round(expected),
                "taken": int(counters["taken"]),
                "recorded": collector.recorded,
                "dropped": dropped,
            },
            "switches": {
                "taken": int(counters["switches"]),
                "recorded": collector.switches,
            },
            "time": asdict(times) if times else {},
            "jobs": parts.timelines.jobs() if parts.timelines else {},
            "unwind": {
                "paths": int(collector.cct.samples.sum()),
                "complete": sum(
                    sum(where.values()) for ending, where in endings.items() if ending.whole
                ),
                "truncated": truncated,
                "modules": {
                    ending.label: {modules.name(number): n for number, n in where.items()}
                    for ending, where in endings.items()
                    if not ending.whole
                },
                "failures": modules.failures,
            },
            "rates": self._rates,
            "threads": collector.lines,
            "measurement": str(self._options.output),
            "duration_s": round(time.monotonic() - self._start, 3),
            "overhead": {
                "collector_cpu_s": round(_own_cpu() - self._cpu_start, 3),
                "bpf_s": round(overhead.seconds, 4),
                "bpf_switches_s": round(overhead.switches, 4),
            },
        }

    def _cpu_time(self, *, final: bool) -> float:
        """CPU seconds the targets' threads used while attached.

        At the end from the scheduler's own accounts of each thread, which costs a file a thread;
        until then from the switches seen.
        """
        parts = self._parts
        if parts.timelines and (not final or self._options.selector.everything):
            return parts.timelines.totals(time.monotonic_ns()).cpu
        total = self._ended_cpu
        for (pid, tid), seconds in self._running_cpu().items():
            total += seconds - parts.attachment.baseline.get((pid, tid), 0.0)
        return max(total, 0.0)

    def _running_cpu(self) -> dict[tuple[int, int], float]:
        found = {
            (pid, tid): processes.cpu_seconds(pid, tid)
            for pid in self._parts.targets.alive
            for tid in processes.thread_ids(pid)
        }
        return {thread: seconds for thread, seconds in found.items() if seconds is not None}


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a recording consists of while it runs."""

    sampler: Sampler
    targets: Targets
    modules: Modules
    tables: Tables
    collector: Collector
    writer: MeasurementWriter
    mmaps: MmapEvents
    attachment: Attachment
    timelines: Timelines | None
    cpu_event_missing: bool


def _is_cpu_time(event: EventSpec) -> bool:
    """Whether its samples are worth CPU time, at a rate that can be changed."""
    return event.name == "cpu-clock" and event.clock and bool(event.frequency)


def _ordered(events: Sequence[EventSpec]) -> list[EventSpec]:
    """``events`` with the one that samples CPU time first."""
    return sorted(events, key=lambda event: not _is_cpu_time(event))


def _own_cpu() -> float:
    """CPU seconds of this process and of the helpers it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _node() -> Node:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return Node(platform.node(), boot, platform.release(), platform.machine(), os.cpu_count() or 1)


def _clock_pair() -> tuple[int, int]:
    """Monotonic and real time of one moment: the real time lies between two readings."""
    before = time.monotonic_ns()
    real = time.time_ns()
    after = time.monotonic_ns()
    return (before + after) // 2, real


def _require_privilege() -> None:
    """Say at once, before anything is made, when the kernel will not have it."""
    Map("probe", ARRAY, 4, 8, 1).close()
