"""One recording: attach to targets, collect until stopped, close the measurement."""

from __future__ import annotations

import contextlib
import os
import platform
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

from hpcd.bpf.events import EventSpec, parse_events
from hpcd.bpf.io_calls import io_functions, system_call_table
from hpcd.bpf.loading.loader import chosen_loader
from hpcd.bpf.loading.pid_namespace import require_hosts_namespace
from hpcd.bpf.mapping_events import MmapEvents
from hpcd.bpf.maps import ARRAY, Map, possible_cpus
from hpcd.bpf.memory_calls import (
    PAGE_TOUCH,
    add_memory_calls,
    memory_functions,
    no_system_calls,
)
from hpcd.bpf.probe_maps import ProbeMaps
from hpcd.bpf.sampler import Sampler, SamplerOptions
from hpcd.bpf.saved_walk import SavedWalker
from hpcd.bpf.table_memory import Tables
from hpcd.daemon.capture import heap
from hpcd.daemon.capture.budget import Budget, SamplingRate
from hpcd.daemon.capture.call_recorder import CallRecorder
from hpcd.daemon.capture.collector import Collector
from hpcd.daemon.capture.deferred_paths import DeferredPaths
from hpcd.daemon.capture.session import (
    Parts,
    Progress,
    RateChange,
    Session,
    Terms,
    own_cpu_seconds,
)
from hpcd.daemon.capture.stack_resolver import StackResolver
from hpcd.daemon.capture.thread_lifecycle import ThreadLifecycle
from hpcd.daemon.capture.thread_times import ThreadTimes, wait_events
from hpcd.daemon.naming.jit_naming import JitNaming
from hpcd.daemon.naming.kernel_naming import KernelNaming
from hpcd.daemon.naming.kernel_symbols import KernelSymbols
from hpcd.daemon.naming.load_modules import Modules
from hpcd.daemon.probes.probe_spec import ProbeSpec
from hpcd.daemon.probes.probes import Probes
from hpcd.daemon.targets import processes
from hpcd.daemon.targets.attachment import Attachment
from hpcd.daemon.targets.patience import WithheldError
from hpcd.daemon.targets.process_table import Targets
from hpcd.daemon.targets.program_files import program_files
from hpcd.daemon.targets.selector import Selector
from hpcd.daemon.targets.sleeping_threads import SleepingThreads, sleeping_threads
from hpcd.daemon.targets.user_accounts import TABLE_BYTES, UserAccounts
from hpcd.daemon.unwind.decoder_process import Decoder
from hpcd.errors import HpcdError, StorageError, UsageError
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.calls import CalledFunction
from hpcd.model.identity import Host
from hpcd.sandbox.limits import raise_descriptor_limit

__all__ = [
    "DEFAULT_FREQUENCY",
    "DEFAULT_THRESHOLD_NS",
    "MAX_FREQUENCY",
    "Options",
    "Progress",
    "Recording",
]

# A prime, so that sampling cannot fall into step with anything periodic in the target; close to
# 1 kHz, the rate at which HPCToolkit's papers trace.
DEFAULT_FREQUENCY = 997
# The kernel's own default limit (kernel.perf_event_max_sample_rate) is 100 kHz.
MAX_FREQUENCY = 25_000
_NICE = -5
# Waits shorter than a context switch and back are the price of switching, not a cause of their own.
DEFAULT_THRESHOLD_NS = 50_000
# Modules of this many processes are analysed before the programs are loaded.
_MAX_PRELOADED_PROCESSES = 64
# Sampling begins when the targets' unwind tables are ready, or after this time; stacks then end as
# "module not yet analysed" until they are.
_TABLE_WAIT_SECONDS = 1.5
# A command is held until the tables of what it is known to run are there, or for so long; the
# largest program here, chromium, takes 25 s of CPU time, once.
_COMMAND_WAIT_SECONDS = 60.0


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
    before_exec: bool = False
    """The target is about to exec what is to be recorded: its current mappings are ignored."""
    command: tuple[str, ...] = ()
    """What it will exec: the files it names are analysed before it starts."""
    analysing: Callable[[int], None] | None = None
    """Called with the number of such files when that takes a while, as it does the first time."""
    analysing_last: Callable[[int], None] | None = None
    """Called with the number of files that the last call paths wait for at the end, likewise."""
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
    only_groups: tuple[int, ...] = ()
    """With ``only_user``: the groups whose rights that user has."""
    table_bytes: int = TABLE_BYTES
    """Table memory of each user's programs but root's."""
    max_memory: int = 0
    """The recording ends when the recorder takes more bytes; 0: any."""
    max_cpu: float | None = None
    """Share of one CPU that the recorder may take: it samples less, and then records less."""
    io: bool = False
    """Record the system calls of input and output."""
    memory: bool = False
    """Record what maps memory, gives it back and touches it first."""
    probes: list[ProbeSpec] = field(default_factory=list)
    """Functions whose calls are recorded."""
    loader: str = "auto"
    """How the programs are loaded, one of :data:`hpcd.bpf.loading.loader.LOADERS`."""
    existing: bool = False
    """The output directory is there already, and empty."""
    extra: dict[str, object] = field(default_factory=dict)


class Recording:
    """Records :class:`Options` until the duration is over, the targets have ended or
    :meth:`request_stop` is called. Whatever ends it, the measurement is closed properly."""

    def __init__(self, options: Options) -> None:
        if not 1 <= options.frequency <= MAX_FREQUENCY:
            raise UsageError(f"frequency must lie between 1 and {MAX_FREQUENCY} Hz")
        if not options.selector:
            raise UsageError("nothing selected to record")
        require_hosts_namespace()
        for pid in options.selector.pids:
            processes.require_target(pid)
        self._options = options
        self._stop = threading.Event()
        self._session: Session | None = None
        self._cpu_start = own_cpu_seconds()

    @property
    def summary(self) -> dict[str, object]:
        """What was recorded so far, about a second old; empty before the first flush."""
        return self._session.summary if self._session else {}

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
        heap.limit_arenas()
        raise_descriptor_limit()
        # On a machine that is busy with what is recorded, the recorder must still get its turn.
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, _NICE)
        writer = MeasurementWriter(
            options.output,
            _host(),
            options={"frequency": options.frequency, **options.extra},
            owner=options.owner,
            existing=options.existing,
        )
        try:
            return self._record(writer, progress, attached)
        except BaseException:
            if self._session:
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
        events = self._announce_events(writer)
        with contextlib.ExitStack() as stack:
            parts = self._assemble(stack, writer, events)
            self._session = Session(self._terms(events), parts, self._stop)
            if attached:
                attached()
            self._session.run(progress)
            summary = self._session.finish(self._options.analysing_last)
            writer.close(summary)
            return summary

    # --- before the first sample ---

    def _announce_events(self, writer: MeasurementWriter) -> list[EventSpec]:
        """The events to sample, the one that samples CPU time first; the writer knows them now."""
        options = self._options
        events = _ordered(options.events) or parse_events("cpu-clock", options.frequency)
        for number, event in enumerate(events):
            event.require()
            writer.add_event(event.model(number))
        if options.waits:
            for wait in wait_events(len(events)):
                writer.add_event(wait)
        if options.overhead and not _is_cpu_time(events[0]):
            raise UsageError("an overhead budget needs cpu-clock among the events")
        return events

    def _terms(self, events: list[EventSpec]) -> Terms:
        options = self._options
        cpu_event = events[0] if _is_cpu_time(events[0]) else None
        # Of several events only the number of CPU time samples can be predicted.
        alone = len(options.events) <= 1 and cpu_event
        return Terms(
            selector=options.selector,
            before_exec=options.before_exec,
            duration=options.duration,
            output=str(options.output),
            cpu_start=self._cpu_start,
            period_ns=1_000_000_000 // cpu_event.frequency if cpu_event else 0,
            alone=bool(alone),
            budget=Budget(self._share(), SamplingRate(options.frequency))
            if options.overhead
            else None,
            own_budget=Budget(options.max_cpu, SamplingRate(cpu_event.frequency))
            if options.max_cpu and cpu_event
            else None,
            max_cpu=options.max_cpu,
            max_memory=options.max_memory,
            call_share=options.overhead / 2 if options.overhead else options.max_cpu,
            first_rate=RateChange.now(SamplingRate(cpu_event.frequency)) if cpu_event else None,
        )

    def _assemble(
        self, stack: contextlib.ExitStack, writer: MeasurementWriter, events: list[EventSpec]
    ) -> Parts:
        """Everything a session needs, closed by ``stack``; the programs are loaded."""
        options = self._options
        periods = [
            (event.period or 1_000_000_000 // event.frequency) if event.clock else 1
            for event in events
        ]
        thread_times = None
        if options.waits:
            thread_times = ThreadTimes(len(events), options.threshold_ns)
        background = stack.enter_context(ThreadPoolExecutor(2))
        accounts = UserAccounts(options.table_bytes)
        modules = Modules(Decoder(), writer.add_module, accounts)
        stack.callback(modules.close)
        # The decoder works on the targets' modules, and the kernel's symbols are read, while the
        # programs are being compiled.
        symbols: Future[KernelSymbols] = background.submit(KernelSymbols)
        preparing = background.submit(self._prepare_modules, modules)
        functions = self._functions()
        sampler = self._load_sampler(events, functions)
        stack.callback(sampler.close)
        # Not in the background: what a loader writes to standard error is captured by taking the
        # descriptor, also from whoever else writes to it meanwhile.
        walker = cache(partial(_walker, sampler))
        if chosen_loader(options.loader) == "bcc":  # compiling would hold up the first samples
            walker()
        if _is_cpu_time(events[0]):
            sampler.set_pace(events[0].frequency, 1)
        mmaps = MmapEvents(possible_cpus())
        stack.callback(mmaps.close)
        tables = Tables(sampler.memory)
        targets = Targets(modules, tables, sampler, mmaps.history, writer.add_process, accounts)
        kernel = KernelNaming(symbols.result, modules, writer)
        stacks = StackResolver(modules, kernel, mmaps.lookup, sampler.caches)
        deferred = DeferredPaths(walker, mmaps, modules, tables, targets.number_of, stacks.insert)
        stack.callback(deferred.close)
        threads = ThreadLifecycle(targets, writer, stacks, thread_times, deferred.add_one)
        jit = JitNaming(modules, targets, writer)
        calls = None
        probes = None
        if options.probes and sampler.probes:
            probes = self._probes(sampler, sampler.probes, len(functions), writer)
            stack.callback(probes.close)
            targets.watcher = probes
        if functions or probes:
            calls = CallRecorder(functions, threads, stacks, deferred, writer)
        collector = Collector(
            sampler, threads, stacks, jit, writer, periods, thread_times, deferred, calls
        )
        attachment = Attachment(
            options.selector,
            sampler,
            targets,
            children=options.children,
            only_user=options.only_user,
            only_groups=options.only_groups,
            sleeping=self._sleeping_threads(stack),
        )
        preparing.result()
        modules.install_within(_TABLE_WAIT_SECONDS, tables, sampler.set_rules)
        if options.command and modules.pending:
            if options.analysing:
                options.analysing(modules.pending)
            modules.install_within(_COMMAND_WAIT_SECONDS, tables, sampler.set_rules)
        return Parts(
            sampler=sampler,
            targets=targets,
            modules=modules,
            tables=tables,
            collector=collector,
            threads=threads,
            stacks=stacks,
            deferred=deferred,
            writer=writer,
            mmaps=mmaps,
            attachment=attachment,
            thread_times=thread_times,
            calls=calls,
            probes=probes,
        )

    def _share(self) -> float:
        """Of the targets' CPU time, what sampling may cost, and probes as much again."""
        share = self._options.overhead or 1.0
        return share / 2 if self._options.probes else share

    def _probes(
        self, sampler: Sampler, maps: ProbeMaps, first: int, writer: MeasurementWriter
    ) -> Probes:
        """The probes; those in files that a command will map are attached before it runs."""
        options = self._options
        probes = Probes(
            options.probes,
            maps,
            sampler.probe_programs(),
            first,
            writer.add_function,
            each_apart=options.only_user is not None,
            share=self._share() if options.overhead else None,
        )
        try:
            probes.start()
            if options.before_exec:
                probes.prepare(program_files(options.command), options.selector.pids[0])
        except BaseException:
            probes.close()
            raise
        return probes

    def _sleeping_threads(self, stack: contextlib.ExitStack) -> SleepingThreads | None:
        """What reads the stacks of threads that sleep when they are attached to, closed by
        ``stack``. Not wanted without waits, nor of what is about to exec."""
        if not self._options.waits or self._options.before_exec:
            return None
        sleeping = sleeping_threads()
        if sleeping:
            stack.callback(sleeping.close)
        return sleeping

    def _functions(self) -> list[CalledFunction]:
        """The functions whose calls are recorded, numbered from 0."""
        functions = io_functions(0) if self._options.io else []
        if self._options.memory:
            functions += memory_functions(len(functions))
        return functions

    def _load_sampler(self, events: list[EventSpec], functions: list[CalledFunction]) -> Sampler:
        options, selector = self._options, self._options.selector
        touched = next((f.id for f in functions if f.name == PAGE_TOUCH), None)
        table = system_call_table(0) if options.io else no_system_calls()
        if touched is not None:
            add_memory_calls(table, touched)
        return Sampler(
            [event.perf_event() for event in events],
            processes.online_cpus(),
            SamplerOptions(
                follow_children=options.children,
                waiting=options.waits,
                everything=selector.everything,
                selecting=selector.open_ended and not selector.everything,
                control_groups=selector.by_control_group,
                only_user=options.only_user,
                touched_function=touched,
                system_calls=table if functions else None,
                probes=bool(options.probes),
                loader=options.loader,
            ),
        )

    def _prepare_modules(self, modules: Modules) -> None:
        """Have the modules of the targets there are analysed, or those the command will run."""
        if self._options.before_exec:
            modules.prepare(program_files(self._options.command))
            return
        only_user, only_groups = self._options.only_user, self._options.only_groups
        pids = list(self._options.selector.scan())[:_MAX_PRELOADED_PROCESSES]
        if self._options.children:
            for pid in list(pids):
                pids.extend(processes.descendants(pid))
        for number, pid in enumerate(dict.fromkeys(pids), 1):
            # What another user's map is not told, nor is it waited for.
            if only_user is None or processes.is_open_to(pid, only_user, only_groups):
                with contextlib.suppress(WithheldError):
                    modules.mappings(pid, number)


def _is_cpu_time(event: EventSpec) -> bool:
    """Whether its samples are worth CPU time, at a rate that can be changed."""
    return event.name == "cpu-clock" and event.clock and bool(event.frequency)


def _ordered(events: Sequence[EventSpec]) -> list[EventSpec]:
    """``events`` with the one that samples CPU time first."""
    return sorted(events, key=lambda event: not _is_cpu_time(event))


def _walker(sampler: Sampler) -> SavedWalker | None:
    """The walker of copied stacks, None where the kernel cannot run it: paths that begin before
    their code is known stay truncated there."""
    try:
        return sampler.saved_walker()
    except HpcdError:
        return None


def _host() -> Host:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return Host(platform.node(), boot, platform.release(), platform.machine(), os.cpu_count() or 1)


def _require_privilege() -> None:
    """Fail before anything is made when the kernel refuses BPF maps."""
    Map("probe", ARRAY, 4, 8, 1).close()
