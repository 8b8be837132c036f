"""Snapshots of what threads do: each thread's stack is read, walked, and placed in load modules."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np

from hpcd.array_types import U64
from hpcd.bpf.events.cpu_clock import online_cpus
from hpcd.bpf.events.event_names import parse_events
from hpcd.bpf.loading.host_namespaces import require_host
from hpcd.bpf.sampler import Sampler
from hpcd.bpf.sampler_options import SamplerOptions
from hpcd.bpf.sampler_programs import SamplerPrograms
from hpcd.bpf.saved_walk import SavedWalker
from hpcd.bpf.table_memory import UnwindTables
from hpcd.bpf.task_stacks import TaskStack
from hpcd.daemon.access.thread_reading import ThreadReading
from hpcd.daemon.access.user_accounts import UserAccounts
from hpcd.daemon.capture.paths.stack_resolver import StackResolver
from hpcd.daemon.naming.kernel_naming import KernelNaming
from hpcd.daemon.naming.kernel_symbols import KernelSymbols
from hpcd.daemon.naming.load_modules import Modules
from hpcd.daemon.naming.module_mappings import ModuleMappings
from hpcd.daemon.runtimes.java.java_processes import JavaProcesses
from hpcd.daemon.runtimes.java.method_naming import JavaNaming
from hpcd.daemon.runtimes.python.frame_naming import PythonNaming
from hpcd.daemon.runtimes.python.python_processes import PythonProcesses
from hpcd.daemon.stacks.address_spaces import AddressSpaces
from hpcd.daemon.stacks.function_names import FunctionNames
from hpcd.daemon.stacks.reading_rights import ReadingRights
from hpcd.daemon.stacks.running_threads import FREQUENCY, RunningThreads
from hpcd.daemon.stacks.thread_activity import activity_of, notes_on
from hpcd.daemon.stacks.thread_walks import ThreadWalks
from hpcd.daemon.stacks.wait_reasons import WaitReasons
from hpcd.daemon.unwind.decoder_process import Decoder
from hpcd.errors import TargetError
from hpcd.model.stack_snapshot import Activity, StackSnapshot, ThreadStack


class StackReader:
    """Reads the stacks of all threads of some processes, again and again if asked to.

    Needs root. Raises :class:`hpcd.errors.PrivilegeError` and
    :class:`hpcd.errors.PlatformError` in one line where it cannot.
    """

    def __init__(self, accounts: UserAccounts | None = None) -> None:
        """``accounts`` limit what each user's programs may take of table memory."""
        with ExitStack() as resources:
            background = resources.enter_context(ThreadPoolExecutor(1))
            self._reading = ThreadReading()
            resources.callback(self._reading.close)
            symbols: Future[KernelSymbols] = background.submit(KernelSymbols)
            self._names = FunctionNames()
            resources.callback(self._names.close)
            self._modules = Modules(Decoder(), self._names.add_module, accounts)
            resources.callback(self._modules.close)
            (event,) = parse_events("cpu-clock", FREQUENCY)
            options = SamplerOptions(follow_children=False, waiting=False)
            programs = SamplerPrograms([event.perf_event()], online_cpus(), options)
            self._sampler = Sampler(programs)
            resources.callback(self._sampler.close)
            require_host()
            self._walker: SavedWalker = self._sampler.saved_walker()
            resources.callback(self._walker.close)
            self._tables = UnwindTables(programs.memory)
            mappings = ModuleMappings(self._modules)
            pythons = PythonProcesses(
                mappings,
                self._sampler.targets,
                "",
                self._modules.accounts,
                lambda pid: self._spaces.user_of(pid),
            )
            javas = JavaProcesses(
                mappings, self._sampler.targets, "", lambda pid: self._spaces.user_of(pid)
            )
            self._spaces = AddressSpaces(
                self._modules, mappings, self._tables, self._sampler, (pythons, javas)
            )
            naming = PythonNaming(pythons, self._modules, self._names, self._spaces.user_of)
            java = JavaNaming(
                javas, self._modules, self._names, self._modules.accounts, self._spaces.user_of
            )
            running = RunningThreads(self._sampler)
            self._threads = ThreadWalks(
                self._reading,
                self._spaces,
                self._walker,
                running,
                pythons.entries,
                javas.resting_frames,
            )
            kernel = KernelNaming(symbols.result, self._modules, self._names)
            self._resolver = StackResolver(
                mappings, kernel, lambda *_: None, programs.caches, python=naming, java=java
            )
            self._resources = resources.pop_all()

    def close(self) -> None:
        """Unload the programs."""
        self._resources.close()

    def snapshot(self, pids: Sequence[int], rights: ReadingRights | None = None) -> StackSnapshot:
        """Return what the threads of ``pids`` do now. Raises :class:`TargetError` when none exists.

        With ``rights``, of those that these let be read, and nothing of another process: one that
        has executed a program meanwhile is left out, as that may have had other rights.
        """
        admitted = rights.admitted(pids) if rights else {}
        images, clock = self._threads.identify(list(admitted) if rights else pids)
        if not images:
            raise TargetError("no process to read: all that were selected have ended")
        programs = dict(images)
        snapshot = self._snapshot(images, clock, rights)
        if not rights:
            return snapshot
        now, _ = self._threads.identify(list(programs))
        same = {pid for pid in rights.still(admitted) if now.get(pid) == programs.get(pid)}
        return snapshot.of_processes(same & programs.keys())

    def _snapshot(
        self, images: dict[int, int], clock: int, rights: ReadingRights | None
    ) -> StackSnapshot:
        self._spaces.keep(images)
        self._spaces.read(images)
        reading = time.monotonic_ns()
        records, stacks = self._threads.read(images)
        read = time.monotonic_ns()
        standing = [tid for tid in records if tid in stacks]
        nodes: dict[int, int] = {}
        if standing:
            inserted = self._resolver.insert([stacks[tid] for tid in standing])
            nodes = dict(zip(standing, inserted.tolist(), strict=True))
        paths, numbers = self._paths(sorted(set(nodes.values())))
        sees = rights.sees if rights else None
        reasons = WaitReasons(records.values(), self._spaces, self._reading.withheld, sees)
        threads = [
            self._thread(record, clock, numbers.get(nodes.get(tid, -1), 0), tid in stacks)
            for tid, record in records.items()
        ]
        for thread in threads:
            thread.wait = reasons.of(records[thread.tid])
        gone_on = self._threads.gone_on(records)
        for thread in threads:
            if thread.tid in gone_on and thread.wait:
                thread.wait = reasons.of_call(records[thread.tid])
        processes = {pid: mapped.process for pid in images if (mapped := self._spaces.get(pid))}
        self._names.name(paths, self._modules, processes)
        return StackSnapshot(
            reading,
            (read - reading) / 1e9,
            threads,
            processes,
            dict(self._names.modules),
            self._names.symbols,
            paths,
            images={
                number: descriptor
                for number in self._names.modules
                if (descriptor := self._modules.image(number)) is not None
            },
            notes=[f"{name}: {why}" for name, why in self._modules.failures.items()]
            + [
                f"process {pid}: its memory cannot be read, it holds its address space locked"
                for pid in sorted(self._reading.withheld & images.keys())
            ],
        )

    # --- putting together ---

    def _paths(self, nodes: Sequence[int]) -> tuple[list[U64], dict[int, int]]:
        """The frames of each node's path, outermost first, and the number of each node's; path 0
        has none."""
        cct = self._resolver.cct
        paths, numbers = [np.zeros(0, np.uint64)], {}
        for node in nodes:
            at, frames = node, []
            while at:
                frames.append(int(cct.frame[at]))
                at = int(cct.parent[at])
            numbers[node] = len(paths)
            paths.append(np.array(frames[::-1], np.uint64))
        return paths, numbers

    @staticmethod
    def _thread(record: TaskStack, clock: int, path: int, standing: bool) -> ThreadStack:
        activity = activity_of(record)
        seconds = None
        if activity is not Activity.RUNNING and record.arrival:
            left = max(record.departure, record.arrival) + clock
            seconds = max(record.time - left, 0) / 1e9
        return ThreadStack(
            tid=record.tid,
            pid=record.tgid,
            name=record.comm.decode(errors="replace"),
            start_ns=record.start,
            activity=activity,
            switches=record.switches,
            seconds=seconds,
            path=path,
            notes=notes_on(record, standing),
        )
