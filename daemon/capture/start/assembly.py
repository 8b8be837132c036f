"""Putting a session together: the programs, the targets' modules, and all that takes samples."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from hpcd.bpf.events.mapping_events import MmapEvents
from hpcd.bpf.kernel.maps import possible_cpus
from hpcd.bpf.loading.loader import python_frames_lack
from hpcd.bpf.sampler import Sampler
from hpcd.bpf.table_memory import UnwindTables
from hpcd.daemon.access import processes
from hpcd.daemon.access.patience import WithheldError
from hpcd.daemon.access.user_accounts import UserAccounts
from hpcd.daemon.capture.calls.wait_recorder import WaitRecorder
from hpcd.daemon.capture.loop.collector import Collector
from hpcd.daemon.capture.loop.session_parts import Parts
from hpcd.daemon.capture.paths.deferred_paths import DeferredPaths
from hpcd.daemon.capture.paths.stack_resolver import StackResolver
from hpcd.daemon.capture.recording_options import Options
from hpcd.daemon.capture.start.sampler_loading import SamplerLoading, is_cpu_time, sampler_options
from hpcd.daemon.capture.threads.thread_lifecycle import ThreadLifecycle
from hpcd.daemon.capture.threads.thread_times import ThreadTimes
from hpcd.daemon.naming.jit_naming import JitNaming
from hpcd.daemon.naming.kernel_naming import KernelNaming
from hpcd.daemon.naming.kernel_symbols import KernelSymbols, KernelSymbolStore
from hpcd.daemon.naming.load_modules import Modules
from hpcd.daemon.naming.mapping_rows import KnownModule
from hpcd.daemon.naming.module_mappings import ModuleMappings
from hpcd.daemon.naming.other_wakers import OtherWakers
from hpcd.daemon.runtimes.java.java_processes import JavaProcesses
from hpcd.daemon.runtimes.java.method_naming import JavaNaming
from hpcd.daemon.runtimes.python.frame_naming import PythonNaming
from hpcd.daemon.runtimes.python.python_processes import PythonProcesses
from hpcd.daemon.runtimes.python.python_programs import KnownPythons
from hpcd.daemon.targets.attachment import Attachment
from hpcd.daemon.targets.process_table import Targets
from hpcd.daemon.targets.program_files import program_files
from hpcd.daemon.targets.sleeping_threads import SleepingThreads
from hpcd.daemon.unwind.decoder_process import Decoder
from hpcd.daemon.unwind.kept_tables import KnownCommands
from hpcd.measurement.writer import MeasurementWriter

if TYPE_CHECKING:
    from hpcd.daemon.capture.calls.call_account import CallAccount
    from hpcd.daemon.capture.calls.call_recorder import CallRecorder

# Modules of this many processes are analysed before the programs are loaded.
_MAX_PRELOADED_PROCESSES = 64
# Sampling begins when the targets' unwind tables are ready, or after this time; stacks then end as
# "module not yet analysed" until they are.
_TABLE_WAIT_SECONDS = 1.5
# Time to put tables from earlier recordings into table memory before a command starts: 150
# libraries take longer, and paths through the rest are deferred.
_KEPT_TABLE_SECONDS = 0.03
# What ends sooner has been recorded before, or waits for the decoder to start: it takes CPU time
# from what is recorded.
_DECODER_SECONDS = 0.2
# A command is held until the tables of what it is known to run are there, at most this long; the
# largest program here, chromium, takes 25 s of CPU time, once.
_COMMAND_WAIT_SECONDS = 60.0


class Assembly:
    """Makes the parts of a session of ``options``, which ``stack`` closes.

    While ``loading`` loads the BPF programs, the targets' modules are looked up on another thread.
    """

    def __init__(
        self,
        options: Options,
        loading: SamplerLoading,
        writer: MeasurementWriter,
        stack: contextlib.ExitStack,
    ) -> None:
        self._options = options
        self._loading = loading
        self._writer = writer
        self._events = loading.events
        self._stack = stack
        self._threads = stack.enter_context(ThreadPoolExecutor(2))
        self._accounts = UserAccounts(options.table_bytes)
        self._decoder = Decoder()
        self._modules = Modules(self._decoder, writer.add_module, self._accounts)
        self._mappings = ModuleMappings(self._modules)
        stack.callback(self._modules.close)
        self._command_modules: list[KnownModule] = []
        stack.callback(self._remember_command)
        self._preparing = self._threads.submit(self._prepare_modules)
        self._sampled = sampler_options(options, loading.calls)
        self._on_demand = self._sampled.on_demand
        self._symbol_store = KernelSymbolStore()
        self._symbols: Future[KernelSymbols] | None = None

    def parts(self) -> Parts:
        """Wait for the programs and make all parts.

        Raises what :meth:`SamplerLoading.sampler` does.
        """
        sampler = self._sampler()
        begun = self._loading.begun
        mmaps = begun.mmaps if begun else MmapEvents(possible_cpus(), at_once=not self._on_demand)
        self._stack.callback(mmaps.close)
        mappings, writer = self._mappings, self._writer
        tables = UnwindTables(sampler.programs.memory)
        targets = Targets(
            mappings,
            tables,
            sampler.targets,
            mmaps.history,
            writer.add_process,
            self._accounts,
            on_demand=self._on_demand,
            catch_up=mmaps.catch_up,
        )
        kernel = self._kernel_naming(sampler)
        lack = python_frames_lack(self._options.loader)
        pythons = PythonProcesses(mappings, sampler.targets, lack, self._accounts, targets.user_of)
        self._stack.callback(lambda: KnownPythons().remember(pythons.programs.values()))
        python = PythonNaming(pythons, self._modules, writer, targets.user_of)
        javas = JavaProcesses(mappings, sampler.targets, lack, targets.user_of)
        stacks = StackResolver(
            mappings,
            kernel,
            mmaps.history.lookup,
            sampler.programs.caches,
            targets.user_of,
            python,
            JavaNaming(javas, self._modules, writer, self._accounts, targets.user_of),
        )
        deferred = DeferredPaths(
            self._loading.saved_walker(),
            mmaps,
            mappings,
            tables,
            targets.number_at,
            stacks.insert,
            targets.space_of,
            targets.user_of if self._sampled.several_users else None,
        )
        thread_times = None
        if self._options.waits:
            thread_times = ThreadTimes(
                len(self._events), self._options.threshold_ns, stacks.reports_lost
            )
        threads = ThreadLifecycle(
            targets, writer, stacks, thread_times, deferred.add_one, on_demand=self._on_demand
        )
        calls, account = self._calls(sampler, threads, stacks, deferred)
        probes = self._loading.calls.probes(sampler, writer)
        targets.watchers = [pythons, javas, *([probes] if probes else [])]
        targets.unsettled = javas.unsettled
        if probes:
            self._stack.callback(probes.close)
        jit = JitNaming(self._modules, targets.owner_of, writer)
        waits = None
        if thread_times and self._options.wakers:
            owner = self._options.owner
            announced, user = sampler.programs.maps.outsiders.lookup, owner[0] if owner else None
            waits = WaitRecorder(
                stacks.caches, threads.numbered, deferred.stand_ins, writer,
                OtherWakers(announced, writer.add_object, user),
            )  # fmt: skip
        collector = Collector(
            sampler, threads, stacks, jit, writer, self._periods(), deferred, thread_times, waits,
            calls,
        )  # fmt: skip
        attachment = self._attachment(sampler, targets, pythons)
        self._install_tables(tables, sampler)
        return Parts(
            sampler=sampler,
            targets=targets,
            modules=self._modules,
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
            begun=begun,
            cpu_start=self._loading.cpu_start,
        )

    def _calls(
        self,
        sampler: Sampler,
        threads: ThreadLifecycle,
        stacks: StackResolver,
        deferred: DeferredPaths,
    ) -> tuple[CallRecorder | None, CallAccount | None]:
        if not sampler.calls:
            return None, None
        from hpcd.daemon.capture.calls.call_account import CallAccount
        from hpcd.daemon.capture.calls.call_recorder import CallRecorder

        setup = self._loading.calls
        calls = CallRecorder(setup.functions, threads, stacks, deferred.stand_ins, self._writer)
        return calls, CallAccount(calls, sampler, self._writer, setup.call_share, setup.lacks)

    def _remember_command(self) -> None:
        """Let the command begin at once next time, if the tables of all its files are kept now."""
        modules = self._command_modules
        if modules and not self._loading.begun and all(entry.table for entry in modules):
            with contextlib.suppress(OSError):  # one of them is gone
                KnownCommands().remember(
                    self._options.command,
                    [(entry.module.path, entry.module.build_id) for entry in modules],
                )

    def start_background_work(self) -> None:
        """Sampling has begun: start what nothing had to wait for until then."""
        if not self._kernel.load():
            self._read_symbols()
        starter = threading.Timer(_DECODER_SECONDS, self._start_decoder)
        starter.daemon = True
        self._stack.callback(starter.cancel)
        starter.start()

    def _start_decoder(self) -> None:
        with contextlib.suppress(OSError):  # whatever needs it will report that
            self._decoder.start()

    def _sampler(self) -> Sampler:
        sampler = self._loading.sampler()
        self._stack.callback(sampler.close)
        self._stack.callback(self._loading.close)
        if is_cpu_time(self._events[0]) and not self._loading.begun:
            sampler.programs.set_pace(self._events[0].frequency, 1)
        return sampler

    def _read_symbols(self) -> Future[KernelSymbols]:
        """Return the kernel's symbols, which are read once, on another thread."""
        if self._symbols is None:
            self._symbols = self._threads.submit(self._symbol_store.read)
        return self._symbols

    def _kernel_naming(self, sampler: Sampler) -> KernelNaming:
        self._kernel = KernelNaming(
            lambda: self._read_symbols().result(),
            self._modules,
            self._writer,
            self._symbol_store.load,
            sampler.program_functions,
        )
        return self._kernel

    def _periods(self) -> list[int]:
        """Return what each event counts in a period: ns of a clock, or times."""
        return [
            (event.period or 1_000_000_000 // event.frequency) if event.clock else 1
            for event in self._events
        ]

    def _attachment(
        self, sampler: Sampler, targets: Targets, pythons: PythonProcesses
    ) -> Attachment:
        iterator = self._loading.iterator()
        sleeping = SleepingThreads(iterator, pythons.entries) if iterator else None
        if sleeping:
            self._stack.callback(sleeping.close)
        options = self._options
        return Attachment(
            options.selector,
            sampler.targets,
            targets,
            children=options.children,
            only_user=options.only_user,
            only_groups=options.only_groups,
            sleeping=sleeping,
        )

    def _install_tables(self, tables: UnwindTables, sampler: Sampler) -> None:
        """Put the tables of the targets' modules into table memory, as far as they are worth
        waiting for."""
        self._preparing.result()
        installer, options = self._modules.installer, self._options
        installer.connect(tables, sampler.set_rules)
        begun = self._loading.begun is not None
        if begun or (options.command and not installer.slow):
            installer.install_kept(_KEPT_TABLE_SECONDS)
        else:
            installer.install_within(_TABLE_WAIT_SECONDS)
        if options.command and installer.slow and not begun:
            if options.analysing:
                options.analysing(installer.slow)
            installer.install_within(_COMMAND_WAIT_SECONDS)

    def _prepare_modules(self) -> None:
        """Start the analysis of modules that targets have mapped, or the command will map."""
        if self._options.before_exec:
            self._command_modules = self._modules.prepare(program_files(self._options.command))
            return
        only_user, only_groups = self._options.only_user, self._options.only_groups
        pids = list(self._options.selector.scan())[:_MAX_PRELOADED_PROCESSES]
        if self._options.children:
            pids += processes.descendants(*pids)
        for number, pid in enumerate(dict.fromkeys(pids), 1):
            # Of other users' processes nothing is read, nor is it waited for.
            if only_user is None or processes.is_open_to(pid, only_user, only_groups):
                with contextlib.suppress(WithheldError):
                    self._mappings.mappings(pid, number)
