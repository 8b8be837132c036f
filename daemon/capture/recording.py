"""One recording: attach to targets, collect until stopped, close the measurement."""

from __future__ import annotations

import contextlib
import os
import platform
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path

from hpcd.bpf.events import EventSpec
from hpcd.bpf.loading.pid_namespace import require_hosts_namespace
from hpcd.bpf.mapping_events import MmapEvents
from hpcd.bpf.maps import ARRAY, Map, possible_cpus
from hpcd.bpf.table_memory import Tables
from hpcd.daemon.capture import heap
from hpcd.daemon.capture.budget import Budget, SamplingRate
from hpcd.daemon.capture.call_setup import CallSetup
from hpcd.daemon.capture.collector import Collector
from hpcd.daemon.capture.deferred_paths import DeferredPaths
from hpcd.daemon.capture.recording_options import MAX_FREQUENCY, Options
from hpcd.daemon.capture.sampler_loading import (
    SamplerLoading,
    is_cpu_time,
    recorded_events,
    sampler_options,
)
from hpcd.daemon.capture.session import Session, own_cpu_seconds
from hpcd.daemon.capture.session_parts import Parts, Progress, Terms
from hpcd.daemon.capture.stack_resolver import StackResolver
from hpcd.daemon.capture.stop_request import StopRequest
from hpcd.daemon.capture.thread_lifecycle import ThreadLifecycle
from hpcd.daemon.capture.thread_times import ThreadTimes, wait_events
from hpcd.daemon.naming.jit_naming import JitNaming
from hpcd.daemon.naming.kernel_naming import KernelNaming
from hpcd.daemon.naming.kernel_symbol_store import KernelSymbolStore
from hpcd.daemon.naming.kernel_symbols import KernelSymbols
from hpcd.daemon.naming.load_modules import Modules
from hpcd.daemon.targets import processes
from hpcd.daemon.targets.attachment import Attachment
from hpcd.daemon.targets.patience import WithheldError
from hpcd.daemon.targets.process_table import Targets
from hpcd.daemon.targets.program_files import program_files
from hpcd.daemon.targets.sleeping_threads import SleepingThreads
from hpcd.daemon.targets.user_accounts import UserAccounts
from hpcd.daemon.unwind.decoder_process import Decoder
from hpcd.errors import StorageError, UsageError
from hpcd.garbage import fewer_collections
from hpcd.measurement.summary import RateChange, Summary
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.identity import Host
from hpcd.sandbox.limits import raise_descriptor_limit

__all__ = ["Options", "Progress", "Recording"]

_NICE = -5
# Modules of this many processes are analysed before the programs are loaded.
_MAX_PRELOADED_PROCESSES = 64
# Sampling begins when the targets' unwind tables are ready, or after this time; stacks then end as
# "module not yet analysed" until they are.
_TABLE_WAIT_SECONDS = 1.5
# Tables from earlier recordings are put into table memory before a command starts, for so long: of
# 150 libraries it takes longer, and paths through the rest are deferred.
_KEPT_TABLE_SECONDS = 0.03
# What ends sooner has been recorded before, or waits for the decoder to start: it takes CPU time
# from what is recorded.
_DECODER_SECONDS = 0.2
# A command is held until the tables of what it is known to run are there, or for so long; the
# largest program here, chromium, takes 25 s of CPU time, once.
_COMMAND_WAIT_SECONDS = 60.0


class Recording:
    """Records :class:`Options` until the duration is over, the targets have ended or
    :meth:`request_stop` is called. Whatever ends it, the measurement is closed properly."""

    def __init__(self, options: Options, loading: SamplerLoading | None = None) -> None:
        """``loading`` is that of the sampler of these ``options``, where it was begun before."""
        if not 1 <= options.frequency <= MAX_FREQUENCY:
            raise UsageError(f"frequency must lie between 1 and {MAX_FREQUENCY} Hz")
        if not options.selector:
            raise UsageError("nothing selected to record")
        require_hosts_namespace()
        for pid in options.selector.pids:
            processes.require_target(pid)
        self._options = options
        self._loading = loading
        self._calls = loading.calls if loading else CallSetup(options)
        self._begun: Callable[[], object] = list
        self._stop = StopRequest()
        self._session: Session | None = None
        self._cpu_start = loading.cpu_start if loading else own_cpu_seconds()

    @property
    def summary(self) -> Summary | None:
        """What was recorded so far, some seconds old; None before the first flush."""
        return self._session.summary if self._session else None

    def request_stop(self) -> None:
        """End the recording at the next round. Safe in signal handlers and threads."""
        self._stop.set()

    def run(
        self,
        progress: Callable[[Progress], None] | None = None,
        attached: Callable[[], None] | None = None,
    ) -> Summary:
        """Record; returns the summary that is also stored in the measurement.

        ``attached`` is called once when sampling has begun.
        """
        options = self._options
        _require_privilege()
        heap.limit_arenas()
        raise_descriptor_limit()
        # On a machine that is busy with what is recorded, the recorder must still get its turn.
        # A user's recorder has the priority that the service gave it.
        if options.max_cpu is None:
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
                    writer.close(finished=False)
            else:
                writer.discard()
            raise

    def _record(
        self,
        writer: MeasurementWriter,
        progress: Callable[[Progress], None] | None,
        attached: Callable[[], None] | None,
    ) -> Summary:
        with contextlib.ExitStack() as stack:
            stack.enter_context(fewer_collections())
            loading = self._loading or SamplerLoading(self._options, self._calls)
            stack.callback(loading.close)
            events = self._announce_events(writer)
            parts = self._assemble(stack, writer, events, loading)
            self._session = Session(self._terms(events), parts, self._stop)
            if attached:
                attached()
            self._begun()
            self._session.run(progress)
            summary = self._session.finish(self._options.analysing_last)
            writer.close(summary)
            return summary

    # --- before the first sample ---

    def _announce_events(self, writer: MeasurementWriter) -> list[EventSpec]:
        """The events to sample, the one that samples CPU time first; the writer knows them now."""
        options = self._options
        events = recorded_events(options)
        for number, event in enumerate(events):
            event.require()
            writer.add_event(event.model(number))
        if options.waits:
            for wait in wait_events(len(events)):
                writer.add_event(wait)
        if options.overhead and not is_cpu_time(events[0]):
            raise UsageError("an overhead budget needs cpu-clock among the events")
        return events

    def _terms(self, events: list[EventSpec]) -> Terms:
        options = self._options
        cpu_event = events[0] if is_cpu_time(events[0]) else None
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
            budget=Budget(self._calls.sampling_share, SamplingRate(options.frequency))
            if options.overhead
            else None,
            own_budget=Budget(options.max_cpu, SamplingRate(cpu_event.frequency))
            if options.max_cpu and cpu_event
            else None,
            max_cpu=options.max_cpu,
            max_memory=options.max_memory,
            first_rate=RateChange.now(cpu_event.frequency) if cpu_event else None,
        )

    def _assemble(
        self,
        stack: contextlib.ExitStack,
        writer: MeasurementWriter,
        events: list[EventSpec],
        loading: SamplerLoading,
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
        decoder = Decoder()
        modules = Modules(decoder, writer.add_module, accounts)
        stack.callback(modules.close)
        # The targets' modules are looked up while the programs are being loaded.
        preparing = background.submit(self._prepare_modules, modules)
        on_demand = sampler_options(options, self._calls).on_demand
        mmaps = MmapEvents(possible_cpus(), at_once=not on_demand)
        stack.callback(mmaps.close)

        kernel_symbols = KernelSymbolStore()

        @cache
        def symbols() -> Future[KernelSymbols]:
            return background.submit(kernel_symbols.read)

        starter = threading.Timer(_DECODER_SECONDS, _start, [decoder])
        starter.daemon = True
        stack.callback(starter.cancel)

        def begun() -> None:
            """What is needed when sampling has begun: until then there is better to do."""
            if not kernel.load():
                symbols()
            starter.start()

        self._begun = begun
        sampler = loading.sampler()
        stack.callback(sampler.close)
        stack.callback(loading.close)
        if is_cpu_time(events[0]):
            sampler.set_pace(events[0].frequency, 1)
        tables = Tables(sampler.memory)
        targets = Targets(
            modules,
            tables,
            sampler,
            mmaps.history,
            writer.add_process,
            accounts,
            on_demand=on_demand,
        )
        kernel = KernelNaming(
            lambda: symbols().result(),
            modules,
            writer,
            kernel_symbols.load,
            sampler.program_functions,
        )
        stacks = StackResolver(modules, kernel, mmaps.lookup, sampler.caches)
        deferred = DeferredPaths(
            loading.saved_walker,
            mmaps,
            modules,
            tables,
            targets.number_at,
            stacks.insert,
            targets.space_of,
        )
        stack.callback(deferred.close)
        threads = ThreadLifecycle(
            targets, writer, stacks, thread_times, deferred.add_one, on_demand=on_demand
        )
        jit = JitNaming(modules, targets, writer)
        calls = account = None
        if sampler.calls:
            from hpcd.daemon.capture.call_account import CallAccount
            from hpcd.daemon.capture.call_recorder import CallRecorder

            calls = CallRecorder(self._calls.functions, threads, stacks, deferred, writer)
            account = CallAccount(calls, sampler, writer, self._calls.call_share, self._calls.lacks)
        probes = targets.watcher = self._calls.probes(sampler, writer)
        if probes:
            stack.callback(probes.close)
        collector = Collector(
            sampler, threads, stacks, jit, writer, periods, thread_times, deferred, calls
        )
        iterator = loading.iterator()
        sleeping = SleepingThreads(iterator) if iterator else None
        if sleeping:
            stack.callback(sleeping.close)
        attachment = Attachment(
            options.selector,
            sampler,
            targets,
            children=options.children,
            only_user=options.only_user,
            only_groups=options.only_groups,
            sleeping=sleeping,
        )
        preparing.result()
        if options.command and not modules.slow:
            modules.install_kept(_KEPT_TABLE_SECONDS, tables, sampler.set_rules)
        else:
            modules.install_within(_TABLE_WAIT_SECONDS, tables, sampler.set_rules)
        if options.command and modules.slow:
            if options.analysing:
                options.analysing(modules.slow)
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
            calls=account,
            probes=probes,
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


def _start(decoder: Decoder) -> None:
    """Have it ready when it is needed."""
    with contextlib.suppress(OSError):  # whoever needs it will be told
        decoder.start()


def _host() -> Host:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return Host(platform.node(), boot, platform.release(), platform.machine(), os.cpu_count() or 1)


def _require_privilege() -> None:
    """Fail before anything is made when the kernel refuses BPF maps."""
    Map("probe", ARRAY, 4, 8, 1).close()
