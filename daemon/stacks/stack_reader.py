"""Snapshots of what threads do: each thread's stack is read, walked, and placed in load modules."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np

from hpcd.array_types import U64
from hpcd.bpf.events import parse_events
from hpcd.bpf.layouts import STACK_EVENT, EventKind
from hpcd.bpf.sampler import Sampler, SamplerOptions
from hpcd.bpf.saved_walk import SavedWalker
from hpcd.bpf.table_memory import Tables
from hpcd.bpf.task_stacks import HAS_REGISTERS, TaskStack, TaskStacks, Wanted
from hpcd.daemon.capture.stack_resolver import StackResolver
from hpcd.daemon.naming.kernel_naming import KernelNaming
from hpcd.daemon.naming.kernel_symbols import KernelSymbols
from hpcd.daemon.naming.load_modules import Modules
from hpcd.daemon.stacks.address_spaces import AddressSpaces
from hpcd.daemon.stacks.function_names import FunctionNames
from hpcd.daemon.stacks.running_threads import RunningThreads
from hpcd.daemon.stacks.thread_activity import activity_of, notes_on, stands_somewhere
from hpcd.daemon.stacks.wait_reasons import WaitReasons
from hpcd.daemon.targets import processes
from hpcd.daemon.unwind.decoder_process import Decoder
from hpcd.errors import TargetError
from hpcd.model.stack_snapshot import Activity, StackSnapshot, ThreadStack
from hpcd.model.unwind_status import UnwindStatus

_FREQUENCY = 997
# So often a snapshot goes back to processes that have executed a program or mapped code meanwhile,
# and to threads that ran.
_MOST_ROUNDS = 3
_NAP_SECONDS = 0.0002
_REREAD = (UnwindStatus.NO_MAPPING, UnwindStatus.NO_TABLE, UnwindStatus.NO_PROCESS)


class StackReader:
    """Reads the stacks of all threads of some processes, again and again if asked to.

    Needs root. Raises :class:`hpcd.errors.PrivilegeError` and
    :class:`hpcd.errors.PlatformError` in one line where it cannot.
    """

    def __init__(self) -> None:
        with ExitStack() as resources:
            background = resources.enter_context(ThreadPoolExecutor(1))
            self._stacks = TaskStacks()
            resources.callback(self._stacks.close)
            symbols: Future[KernelSymbols] = background.submit(KernelSymbols)
            self._names = FunctionNames()
            resources.callback(self._names.close)
            self._modules = Modules(Decoder(), self._names.add_module)
            resources.callback(self._modules.close)
            (event,) = parse_events("cpu-clock", _FREQUENCY)
            self._sampler = Sampler(
                [event.perf_event()],
                processes.online_cpus(),
                SamplerOptions(follow_children=False, waiting=False),
            )
            resources.callback(self._sampler.close)
            self._walker: SavedWalker = self._sampler.saved_walker()
            resources.callback(self._walker.close)
            self._tables = Tables(self._sampler.memory)
            self._spaces = AddressSpaces(self._modules, self._tables, self._sampler)
            self._running = RunningThreads(self._sampler)
            kernel = KernelNaming(symbols.result, self._modules, self._names)
            self._resolver = StackResolver(
                self._modules, kernel, lambda *_: None, self._sampler.caches
            )
            self._resources = resources.pop_all()

    def close(self) -> None:
        """Unload the programs."""
        self._resources.close()

    def snapshot(self, pids: Sequence[int]) -> StackSnapshot:
        """What the threads of ``pids`` do now. Raises :class:`TargetError` when none exists."""
        began = time.monotonic_ns()
        images, clock = self._identify(pids)
        if not images:
            raise TargetError("no process to read: all that were selected have ended")
        self._spaces.read(images)
        reading = time.monotonic_ns()
        records, stacks = self._read(images)
        read = time.monotonic_ns()
        events = [stacks[tid] for tid in records if tid in stacks]
        nodes = dict(
            zip(
                (tid for tid in records if tid in stacks),
                self._resolver.insert(events).tolist(),
                strict=True,
            )
        )
        paths, numbers = self._paths(sorted(set(nodes.values())))
        reasons = WaitReasons(records.values(), self._spaces)
        threads = [
            self._thread(record, clock, numbers.get(nodes.get(tid, -1), 0), tid in stacks)
            for tid, record in records.items()
        ]
        try:
            for thread in threads:
                thread.wait = reasons.of(records[thread.tid])
            gone_on = self._gone_on(records)
            for thread in threads:
                if thread.tid in gone_on and thread.wait:
                    thread.wait = reasons.of_call(records[thread.tid])
        finally:
            reasons.close()
        found = {pid: mapped.process for pid in images if (mapped := self._spaces.get(pid))}
        self._names.name(paths, self._modules, found)
        return StackSnapshot(
            began,
            (read - reading) / 1e9,
            threads,
            found,
            dict(self._names.modules),
            self._names.symbols,
            paths,
            images={
                number: descriptor
                for number in self._names.modules
                if (descriptor := self._modules.image(number)) is not None
            },
            notes=[f"{name}: {why}" for name, why in self._modules.failures.items()],
        )

    # --- reading ---

    def _identify(self, pids: Sequence[int]) -> tuple[dict[int, int], int]:
        """The program each process runs, and what the scheduler's clock has to be moved by."""
        time.sleep(_NAP_SECONDS)  # so that this thread has come to its CPU just now
        wanted = dict.fromkeys((*pids, os.getpid()), Wanted.IDENTITY)
        images: dict[int, int] = {}
        offsets = []
        for record in self._stacks.read(wanted):
            offsets.append(record.time - record.reader_arrival)
            images[record.tgid] = record.image
        images.pop(os.getpid(), None)
        return images, min(offsets)

    def _read(self, images: dict[int, int]) -> tuple[dict[int, TaskStack], dict[int, bytes]]:
        """The threads of these processes, by tid, and the stack of each that has one as an event
        of the programs (:data:`STACK_EVENT`)."""
        records: dict[int, TaskStack] = {}
        stacks: dict[int, bytes] = {}
        again = set(images)
        for _ in range(_MOST_ROUNDS):
            fresh = {record.tid: record for record in self._iterate(again)}
            self._spaces.read(
                {r.tgid: r.image for r in fresh.values() if r.image != images.get(r.tgid)}
            )
            images |= {record.tgid: record.image for record in fresh.values()}
            records = {t: r for t, r in records.items() if r.tgid not in again} | fresh
            outdated = self._walk(fresh, stacks)
            running = [tid for tid, record in fresh.items() if record.on_cpu]
            if running:
                stacks |= self._running.sample(running)
            again = {records[tid].tgid for tid in running if tid not in stacks}
            again |= {
                record.tgid
                for record in fresh.values()
                if not record.on_cpu and not stands_somewhere(record)
            }
            if outdated and self._spaces.refresh(outdated):
                self._walk({t: r for t, r in fresh.items() if r.tgid in outdated}, stacks)
            if not again:
                break
        return records, stacks

    def _gone_on(self, records: dict[int, TaskStack]) -> set[int]:
        """Threads that are no longer where they were read, or not for certain: what their memory
        holds now says nothing of what they waited for."""
        pids = {record.tgid for record in records.values()}
        still = {
            record.tid
            for record in self._stacks.read(dict.fromkeys(pids, Wanted.IDENTITY))
            if (before := records.get(record.tid)) is not None
            and not record.on_cpu
            and (record.start, record.switches) == (before.start, before.switches)
        }
        return records.keys() - still

    def _iterate(self, pids: set[int]) -> list[TaskStack]:
        wanted = {}
        for pid in pids:
            mapped = self._spaces.get(pid)
            whole = mapped is not None and not mapped.withheld
            wanted[pid] = Wanted.USER if whole else Wanted.KERNEL
        return list(self._stacks.read(wanted))

    def _walk(self, records: dict[int, TaskStack], stacks: dict[int, bytes]) -> set[int]:
        """Walk these threads' stacks into ``stacks``; the processes whose mappings may be out of
        date."""
        outdated = set()
        for tid, record in records.items():
            stacks.pop(tid, None)
            if record.on_cpu or not stands_somewhere(record):
                continue
            ending, event = self._walked(record)
            stacks[tid] = event
            if ending in _REREAD:
                outdated.add(record.tgid)
        return outdated

    def _walked(self, record: TaskStack) -> tuple[UnwindStatus, bytes]:
        mapped = self._spaces.get(record.tgid)
        ending, depth, frames = UnwindStatus.KERNEL_ONLY, 0, np.zeros(0, np.uint64)
        if record.parts & HAS_REGISTERS:
            ending = UnwindStatus.READ_FAULT
            if mapped is None or mapped.space is None:
                ending = UnwindStatus.NO_PROCESS
            elif record.size:
                number, depth, frames = self._walker.walk(record.copy, mapped.space)
                ending = UnwindStatus(number)
        return ending, stack_event(record, ending, depth, frames)

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


def stack_event(record: TaskStack, ending: UnwindStatus, depth: int, frames: U64) -> bytes:
    """A stack as the programs would have sent it: ``depth`` user frames, those kept ``frames``."""
    head = _EVENT.pack(
        record.time, EventKind.STACK, record.tgid, 0, 0, record.kernel_frames, depth, ending, 0
    )
    return head + record.kernel + frames.tobytes()


_EVENT = struct.Struct("<QIIIIHHHH")
assert _EVENT.size == STACK_EVENT.itemsize
