"""Threads and processes that come and go: their trace lines, names and ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import takewhile
from typing import NamedTuple

from hpcd.bpf.wire import EventKind, StackEvent, SwitchEvent, ThreadEvent
from hpcd.daemon.access import processes
from hpcd.daemon.capture.paths.stack_resolver import StackResolver
from hpcd.daemon.capture.records.thread_lines import ThreadLines
from hpcd.daemon.capture.threads.cpu_account import CpuAccount
from hpcd.daemon.capture.threads.thread_affinities import ThreadAffinities
from hpcd.daemon.capture.threads.thread_times import BORN, ThreadTimes
from hpcd.daemon.targets.cpu_limits import CpuLimits
from hpcd.daemon.targets.lifecycle import AttachedThread
from hpcd.daemon.targets.process_table import Targets
from hpcd.daemon.targets.reported_program import ReportedProgram
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.codes import UnwindStatus
from hpcd.model.identity import Thread

_MAX_PROGRAMS = 256
# How long the end of a thread is waited for that has begun to end: the kernel may drop it 10 s late
# (CONFIG_RCU_LAZY).
_MAX_EXIT_NS = 20_000_000_000
_STILL = 1 << 63
# By the state in /proc.
_SWITCHES = {
    "R": SwitchEvent.SWITCHED_IN,
    "D": SwitchEvent.OUT_UNINTERRUPTIBLE,
    "T": SwitchEvent.OUT_STOPPED,
    "t": SwitchEvent.OUT_STOPPED,
}
_WALKED = StackEvent.reader("time", "tgid", "end_reason")
# Endings of a walk by the rules of another file than the mapped one.
_STRAYED = frozenset(
    {
        UnwindStatus.NO_ROWS, UnwindStatus.READ_FAULT, UnwindStatus.BAD_ADDRESS,
        UnwindStatus.NO_PROGRESS, UnwindStatus.REGISTER_LOST, UnwindStatus.BROKEN_CHAIN,
    }
)  # fmt: skip


class _Exit(NamedTuple):
    """When a thread began to end, and since when nothing but its end can come (monotonic ns): not
    yet (``_STILL``) of the main thread of a process that goes on. ``name`` is its name then."""

    time: int
    left: int
    name: str


class ThreadLifecycle:
    """Owns which trace line each thread has, and which processes' mappings are out of date.

    Threads are numbered by the BPF programs; a number is not used again while samples of its thread
    may come in. ``thread_times`` is None when waits are not recorded.
    """

    def __init__(
        self,
        targets: Targets,
        writer: MeasurementWriter,
        stacks: StackResolver,
        thread_times: ThreadTimes | None,
        defer: Callable[[bytes, bytes], int] | None = None,
        *,
        on_demand: bool = False,
    ) -> None:
        """``defer`` gives the CCT node of a stack (its event and its copy) that is walked later.
        ``on_demand``: the programs request mappings when they are needed."""
        self._on_demand = on_demand
        self._defer = defer
        self._targets = targets
        self._writer = writer
        self._stacks = stacks
        self._thread_times = thread_times
        self.numbered = ThreadLines()
        """Threads by number."""
        self._threads: dict[int, Thread] = {}
        self._lines = 0
        # Threads (and when they ended) whose end was reported in this round and in the last:
        # samples taken before it may come in one round late.
        self._ended: dict[int, int] = {}
        self._ended_last_round: dict[int, int] = {}
        self.unreported: set[int] = set()
        """Trace lines of ended threads whose last reports were lost."""
        self._out_of_date: set[int] = set()
        self._mapped: set[int] = set()
        # By pid: since when and until when its paths led through code that had been replaced.
        self._replaced: dict[int, tuple[int, int]] = {}
        self._round_ended = 0
        self._candidates: list[int] = []
        # By pid, until their exec is taken from the ring.
        self._programs: dict[int, ReportedProgram] = {}
        self.cpu = CpuAccount()
        """The CPU time of the threads, as the scheduler counts it."""
        self.limits = CpuLimits()
        """The limits of CPU time of their control groups."""
        self.affinities = ThreadAffinities()
        """The CPUs that they may run on."""
        # Threads that have begun to end.
        self._exiting: dict[int, _Exit] = {}

    @property
    def line_count(self) -> int:
        """Trace lines so far."""
        return self._lines

    def lines_of(self, numbers: Iterable[int]) -> set[int]:
        """Return the trace lines of the living threads among ``numbers``."""
        return {self._threads[number].line for number in numbers if number in self._threads}

    # --- what happens ---

    def on_event(self, event: ThreadEvent) -> None:
        """Handle an event of the ring that is about a thread or a process."""
        pid = event.tgid
        match event.kind:
            case EventKind.THREAD:
                self._on_start(event)
            case EventKind.EXIT:
                self._on_exit(event)
            case EventKind.FREE:
                self._on_end(event)
            case EventKind.FORK:
                inherited = self._targets.on_fork(
                    event.other, pid, event.time, event.image,
                    start_ns=event.start, known=bool(event.thread),
                )  # fmt: skip
                if not inherited or (event.other in self._out_of_date and not self._on_demand):
                    self._out_of_date.add(pid)
            case EventKind.EXEC if pid in self._targets:
                if event.thread:
                    self._begin_command(event)
                if event.other in self._threads:
                    # Another thread than the main one began the program, and goes on as the main.
                    self._exiting.pop(event.other, None)
                    self.cpu.take_over(event.other, event.runtime)
                program = self._programs.pop(pid, None)
                self._targets.on_exec(pid, event.image, _text(event.comm), event.time, program)
                self.limits.watch(pid)  # as systemd-run it may have moved itself before
                if not (self._on_demand and self._targets.is_known(pid)):
                    self._out_of_date.add(pid)
            case EventKind.EXEC | EventKind.MOVED:
                self._candidates.append(pid)
            case EventKind.REFRESH:
                self._out_of_date.add(pid)

    def on_program(self, event: bytes) -> None:
        """Keep the report of a process that begins a program; its exec follows."""
        if len(self._programs) >= _MAX_PROGRAMS:  # of those the ring of events had no room
            self._programs.clear()
        pid, program = ReportedProgram.of(event)
        self._programs[pid] = program

    def register_existing_thread(self, thread: AttachedThread) -> int:
        """Give a line to a thread that ran before it was attached to; return the line."""
        state = thread.state
        line = self._new_line(
            thread.number, thread.pid, state.tid, state.name, state.start_ns, thread.cpu_ns,
            thread.time_ns, thread,
        )  # fmt: skip
        if self._thread_times:
            if thread.copy and self._defer:
                node = self._defer(self._stacks.in_scheduler(thread.stack), thread.copy)
            elif state.running:
                node = self._stacks.never_sampled
            else:
                node = self._stacks.node_before_attach(thread.kernel_stack)
            process = self._targets.target(thread.pid).process
            self._thread_times.begin(
                line,
                thread.time_ns,
                _SWITCHES.get(state.state, SwitchEvent.OUT_SLEEPING),
                node,
                process.job,
                process.uid,
            )
        return line

    def _on_start(self, event: ThreadEvent) -> None:
        pid = event.tgid
        used_ns = 0 if event.other else event.runtime
        name = _text(event.comm)
        line = self._new_line(event.thread, pid, event.tid, name, event.start, used_ns, event.time)
        if self._thread_times:
            # A thread that is new to the system waits for its first CPU.
            state = BORN if event.other else SwitchEvent.SWITCHED_IN
            process = self._targets.target(pid).process
            self._thread_times.begin(
                line, event.time, state, self._stacks.never_sampled, process.job, process.uid
            )

    def _begin_command(self, event: ThreadEvent) -> None:
        """A thread that was held begins the command: its CPU time until then was hpcd's."""
        thread = self._threads.get(event.thread)
        if not thread:
            return
        self._threads[event.thread] = replace(thread, cpu_before_ns=event.runtime)
        self.cpu.restart(event.thread, event.runtime)
        if self._thread_times:
            self._thread_times.restart(thread.line, event.time)

    def _on_exit(self, event: ThreadEvent) -> None:
        """The thread begins to end; it is recorded until :meth:`_on_end`."""
        thread = self._threads.get(event.thread)
        if thread:
            # No name is sent when it ended for hpcd alone: it belongs to another user now.
            name = _text(event.comm) or thread.name
            left = event.time if event.tid != event.tgid else _STILL
            self._exiting[event.thread] = _Exit(event.time, left, name)
            self.cpu.update(event.thread, event.runtime)
        if event.other:
            for number, exiting in self._exiting.items():
                if exiting.left == _STILL and self._threads[number].tid == event.tgid:
                    self._exiting[number] = exiting._replace(left=event.time)
            self._targets.on_exit(event.tgid, event.time)

    def _on_end(self, event: ThreadEvent) -> None:
        number = event.thread
        thread = self._threads.pop(number, None)
        exiting = self._exiting.pop(number, None)
        used_ns = self.cpu.end(number, event.runtime, event.time)
        if thread:
            name = _text(event.comm) or (exiting or thread).name
            self._add_ended(thread, name, event.time, used_ns)
            self._ended[number] = event.time
            if event.other:
                self.unreported.add(thread.line)

    def _add_ended(self, thread: Thread, name: str, end_ns: int | None, used_ns: int) -> None:
        """Write a thread that has ended, or whose recording has. (replace() takes three times as
        long.)"""
        self._writer.add_thread(
            Thread(
                thread.line, thread.process, thread.tid, name, thread.start_ns, end_ns, used_ns,
                thread.attached_ns, thread.asleep_since_ns, thread.cpu_before_ns,
            )
        )  # fmt: skip

    def end_unreported(self) -> None:
        """End the threads and processes that have ended while the event ring was full, so that no
        event reported it; else a recording of a command would never end. Their end is now."""
        now = time.monotonic_ns()
        for number in self.cpu.not_running():
            if number in self._threads and number not in self._exiting:
                self._on_end(ThreadEvent(time=now, thread=number))
        for pid in self._targets.alive:
            if all(processes.has_ended(pid, tid) for tid in processes.thread_ids(pid)):
                self._targets.on_exit(pid, now)

    def _end_overdue(self) -> None:
        """End the threads that began to end long ago: no kernel is sure to report their end."""
        before = time.monotonic_ns() - _MAX_EXIT_NS
        begun = takewhile(lambda exiting: exiting[1].time < before, self._exiting.items())
        for number, exiting in list(begun):
            if exiting.left < before:
                self._on_end(ThreadEvent(time=exiting.time, thread=number))

    def _new_line(
        self, number: int, pid: int, tid: int, name: str, start_ns: int, used_ns: int, time_ns: int,
        attached: AttachedThread | None = None,
    ) -> int:  # fmt: skip
        if pid not in self._targets:
            self._out_of_date.add(pid)  # recording everything, this is the first of it
        process = self._targets.target(pid, name).process
        line = self._lines
        self._lines += 1
        self.cpu.begin(number, process, tid, used_ns, time_ns)
        if tid == pid:
            self.limits.watch(pid)
        thread = Thread(line, process.id, tid, name, start_ns, cpu_before_ns=used_ns)
        if attached and attached.asleep_since_ns is not None:
            thread = replace(
                thread, attached_ns=attached.time_ns, asleep_since_ns=attached.asleep_since_ns
            )
        self.numbered[number] = line
        self._threads[number] = thread
        self.affinities.begin(thread)
        self._writer.add_thread(thread)
        return line

    # --- what follows from it ---

    def request_refresh(self, pids: Iterable[int]) -> None:
        """These processes have mapped code: have their mappings read again in the next round."""
        if not self._on_demand:
            self._out_of_date.update(pids)
            return
        self._mapped.update(pids)
        for pid in self._mapped:
            since = self._targets.replaced_at(pid)
            if since is not None:
                self._note_replaced(pid, since)

    def refresh_mappings(self) -> None:
        """Read the mappings that are out of date."""
        if self._mapped:
            self._out_of_date.update(filter(self._targets.has_space, self._mapped))
            self._mapped.clear()
        for pid in self._out_of_date | self._targets.withheld:
            self._targets.refresh(pid)
        self._out_of_date.clear()
        for pid, since in self._targets.drain_replaced().items():
            self._note_replaced(pid, since)
        if self._replaced:
            now = time.monotonic_ns()
            self._replaced = {
                pid: (since, min(until, now)) for pid, (since, until) in self._replaced.items()
            }

    def _note_replaced(self, pid: int, since: int) -> None:
        """``pid`` has been walked since then by mappings of code that another file replaced."""
        begun, _ = self._replaced.get(pid, (since, _STILL))
        self._replaced[pid] = (min(begun, since), _STILL)

    def mark_replaced(self, stacks: list[bytes]) -> list[bytes]:
        """``stacks``, as the ring of events has them; those that were walked by mappings of code
        that had been replaced ended where no mapping was known.

        Where mappings are read on demand, up to a round later, that is also said of those that
        seem to be whole."""
        return [self._marked(event) for event in stacks] if self._replaced else stacks

    def _marked(self, event: bytes) -> bytes:
        taken, pid, ending = _WALKED(event)
        since, until = self._replaced.get(pid, (_STILL, 0))
        wrong = ending in _STRAYED or (self._on_demand and ending == UnwindStatus.COMPLETE)
        if not wrong or not since <= taken <= until:
            return event
        return StackEvent.replaced(event, end_reason=UnwindStatus.NO_MAPPING)

    def end_round(self) -> dict[int, int]:
        """Ends (ns) by trace line of the threads without any further sample."""
        ends = {self.numbered.pop(number): time for number, time in self._ended_last_round.items()}
        self._ended_last_round, self._ended = self._ended, {}
        self._end_overdue()
        self.affinities.read_some(self._threads)
        self._targets.refresh_postponed()
        self._targets.spaces.free_retired()
        if self._replaced:
            self._replaced = {
                pid: times for pid, times in self._replaced.items() if times[1] > self._round_ended
            }
        self._round_ended = time.monotonic_ns()
        return ends

    def drain_candidates(self) -> list[int]:
        """Pids of processes that may have become targets since the last call, in order."""
        candidates, self._candidates = self._candidates, []
        return candidates

    def finish(self) -> None:
        """The recording ends, and with it all threads that go on, which have the names that they
        have now. :meth:`end_round` has the ends of those that were about to end."""
        for number, thread in self._threads.items():
            exiting = self._exiting.get(number)
            end_ns = exiting.time if exiting else None
            name = exiting.name if exiting else self.cpu.name_of(number) or thread.name
            self._add_ended(thread, name, end_ns, self.cpu.end(number, 0, end_ns))
        self._threads.clear()
        self._ended |= {number: exiting.time for number, exiting in self._exiting.items()}
        self._exiting.clear()


def _text(value: bytes) -> str:
    return value.rstrip(b"\0").decode(errors="replace")
