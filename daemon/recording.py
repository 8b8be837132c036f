"""One recording: attach to targets, collect until told to stop, leave a measurement."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import select
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from hpcd.bpf import syscalls
from hpcd.bpf.maps import ARRAY, Map, possible_cpus
from hpcd.bpf.mmap_events import MmapEvents
from hpcd.bpf.records import DROPS
from hpcd.bpf.sampler import Sampler
from hpcd.bpf.tables import NO_SPACE, Tables
from hpcd.daemon import processes
from hpcd.daemon.collector import Collector
from hpcd.daemon.kernel_symbols import KernelSymbols
from hpcd.daemon.modules import Modules
from hpcd.daemon.targets import Targets
from hpcd.daemon.unwind.decoder import Decoder
from hpcd.errors import StorageError, TargetError, UsageError
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.identity import Event, Node

# A prime, so that sampling cannot fall into step with anything periodic in the target; close to
# 1 kHz, the rate at which HPCToolkit's papers trace.
DEFAULT_FREQUENCY = 997
# The kernel's own default limit (kernel.perf_event_max_sample_rate) is 100 kHz.
MAX_FREQUENCY = 25_000
DRAIN_SECONDS = 0.1
FLUSH_SECONDS = 1.0
# Targets start unwinding whole at once if their tables are ready; longer than this nobody waits,
# and stacks end as "module not yet analysed" until they are.
_TABLE_WAIT_SECONDS = 1.5


@dataclass(slots=True)
class Options:
    """What to record and how."""

    pids: list[int]
    output: Path
    frequency: int = DEFAULT_FREQUENCY
    duration: float | None = None
    children: bool = True
    waiting: bool = False
    """The target has yet to exec what is to be recorded: its present code is of no interest."""
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
        for pid in options.pids:
            processes.require_target(pid)
        self._options = options
        self._stop = threading.Event()
        self._attached = False
        self._baseline: dict[tuple[int, int], float] = {}
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
        _raise_descriptor_limit()
        writer = MeasurementWriter(
            options.output, _node(), options={"frequency": options.frequency, **options.extra}
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
        period = 1_000_000_000 // options.frequency
        writer.add_event(Event(0, "cpu-clock", "s", period / 1e9, "cpu_time", options.frequency))
        modules = Modules(Decoder(), writer.add_module)
        sampler: Sampler | None = None
        mmaps: MmapEvents | None = None
        helper = ThreadPoolExecutor(1)
        try:
            # The decoder works on the targets' modules, and the kernel's symbols are read, while
            # the programs are being compiled.
            symbols = helper.submit(KernelSymbols)
            pids = self._pids()
            if not options.waiting:
                for number, pid in enumerate(pids, 1):
                    modules.mappings(pid, number)
            sampler = Sampler(follow_children=options.children)
            tables = Tables(sampler.memory)
            targets = Targets(modules, tables, sampler, writer.add_process)
            collector = Collector(
                sampler, targets, modules, writer, symbols.result(), possible_cpus(), period
            )
            mmaps = MmapEvents(possible_cpus())
            modules.wait(_TABLE_WAIT_SECONDS)
            modules.install(tables, sampler.set_rules)
            self._attach(sampler, targets)
            self._start = time.monotonic()
            self._attached = True
            if attached:
                attached()
            self._loop(sampler, targets, modules, tables, collector, writer, mmaps, progress)
            sampler.stop()
            collector.drain()
            collector.name_jit_frames()
            summary = self._summary(sampler, targets, modules, collector, writer)
            writer.close(summary)
            return summary
        finally:
            if mmaps:
                mmaps.close()
            if sampler:
                sampler.close()
            modules.close()
            helper.shutdown()

    # --- attaching ---

    def _pids(self) -> list[int]:
        pids = dict.fromkeys(self._options.pids)
        if self._options.children:
            for pid in self._options.pids:
                pids.update(dict.fromkeys(processes.descendants(pid)))
        return list(pids)

    def _attach(self, sampler: Sampler, targets: Targets) -> None:
        """Attach to every thread there is, again and again until no new one turns up.

        A thread started by one already attached inherits its event and must not get another.
        """
        event = syscalls.PerfEvent(
            syscalls.PERF_TYPE_SOFTWARE, syscalls.SW_CPU_CLOCK, self._options.frequency
        )
        seen: set[int] = set()
        fresh = True
        while fresh:
            fresh = False
            for pid in self._pids():
                if pid not in targets:
                    targets.target(pid)
                    if self._options.waiting:
                        sampler.set_process(pid, NO_SPACE)
                    else:
                        targets.refresh(pid)
                for tid in processes.thread_ids(pid):
                    if tid not in seen:
                        seen.add(tid)
                        fresh = True
                        if not sampler.inherited(tid):
                            self._baseline[pid, tid] = processes.cpu_seconds(pid, tid) or 0.0
                            sampler.attach_thread(tid, event)
        if not sampler.attached:
            raise TargetError(
                f"process {self._options.pids[0]} ended before hpcd could attach to it"
            )

    # --- collecting ---

    def _loop(
        self,
        sampler: Sampler,
        targets: Targets,
        modules: Modules,
        tables: Tables,
        collector: Collector,
        writer: MeasurementWriter,
        mmaps: MmapEvents,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        deadline = None if self._options.duration is None else self._start + self._options.duration
        flushed = self._start
        last = (self._start, 0)
        writer.add_clock_pair(*_clock_pair())
        while targets.alive and not self._stop.is_set():
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                break
            wait = DRAIN_SECONDS if deadline is None else min(DRAIN_SECONDS, deadline - now)
            # New code wakes the loop at once, and so does its table: until then, stacks that
            # lead through it end there.
            select.select([*mmaps.descriptors, modules.news], [], [], wait)
            collector.refresh |= mmaps.take()
            collector.drain()
            if modules.install(tables, sampler.set_rules):
                targets.refresh_incomplete()
            now = time.monotonic()
            if now - flushed >= FLUSH_SECONDS:
                flushed = now
                writer.add_clock_pair(*_clock_pair())
                collector.name_jit_frames()
                writer.flush(self._summary(sampler, targets, modules, collector, writer))
                if progress:
                    progress(self._progress(collector, sampler, writer, last, now))
                last = (now, collector.recorded)

    def _progress(
        self,
        collector: Collector,
        sampler: Sampler,
        writer: MeasurementWriter,
        last: tuple[float, int],
        now: float,
    ) -> Progress:
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

    def _summary(
        self,
        sampler: Sampler,
        targets: Targets,
        modules: Modules,
        collector: Collector,
        writer: MeasurementWriter,
    ) -> dict[str, object]:
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
        return {
            "samples": {
                "expected": round(self._cpu_time(targets, collector) * self._options.frequency),
                "taken": int(counters["taken"]),
                "recorded": collector.recorded - lost,
                "dropped": dropped,
            },
            "unwind": {
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
            "threads": collector.lines,
            "measurement": str(self._options.output),
            "duration_s": round(time.monotonic() - self._start, 3),
            "overhead": {
                "collector_cpu_s": round(_own_cpu() - self._cpu_start, 3),
                "bpf_s": round(sampler.overhead().seconds, 4),
            },
        }

    def _cpu_time(self, targets: Targets, collector: Collector) -> float:
        """CPU seconds the targets' threads used while attached, from the scheduler's accounts."""
        total = 0.0
        ended = {(pid, tid) for pid, tid, _ in collector.ended_runtime}
        for pid, tid, seconds in collector.ended_runtime:
            total += seconds - self._baseline.get((pid, tid), 0.0)
        for pid in targets.alive:
            for tid in processes.thread_ids(pid):
                seconds_now = processes.cpu_seconds(pid, tid)
                if seconds_now is not None and (pid, tid) not in ended:
                    total += seconds_now - self._baseline.get((pid, tid), 0.0)
        return max(total, 0.0)


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


def _raise_descriptor_limit() -> None:
    """One descriptor per thread attached to: take all that is allowed."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
