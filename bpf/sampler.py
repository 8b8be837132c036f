"""The sampler: its maps, its programs, and the CPUs it is attached to."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hpcd.bpf import libbpf, maps, syscalls
from hpcd.bpf.cpu_clock import CpuClock, periods
from hpcd.bpf.layouts import (
    CALL,
    CALL_SLOTS,
    COUNTERS,
    FIRST_CALL_CONTEXT,
    MAX_EVENTS,
    PROCESS,
    SAMPLE,
    SETTINGS,
    THREAD,
    THREAD_CPU_BITS,
    THREAD_DTYPE,
    THREADS_PER_CPU,
)
from hpcd.bpf.loading.btf import task_offsets
from hpcd.bpf.loading.loader import Programs, chosen_loader, load_sampler
from hpcd.bpf.loading.object_loader import ObjectPrograms
from hpcd.bpf.program_cost import Overhead, program_overhead
from hpcd.bpf.ring import Ring
from hpcd.bpf.sampler_maps import SamplerMaps
from hpcd.bpf.sampler_options import SamplerOptions
from hpcd.bpf.saved_walk import SavedWalker
from hpcd.bpf.table_memory import KernelMemory, Space
from hpcd.errors import HpcdError, PlatformError, UsageError

if TYPE_CHECKING:
    from hpcd.bpf.call_programs import CallPrograms

# Stacks of what is not ready to be unwound, a few KB each; emptied when it is an eighth full.
COPY_RING_BYTES = 32 << 20
# In the place of a CPU's number, in thread numbers that user space gives.
_USER_NUMBERS = (1 << THREAD_CPU_BITS) - 1
# The rest of a thread that user space numbers: in no system call, no page fault.
_IDLE_THREAD = [0] * (len(THREAD_DTYPE.names or ()) - 2)
# Without a hypervisor in between an interrupt is late by microseconds, seldom by 100.
_LATE_NS = 500_000


_DEFAULTS = SamplerOptions()


# How often the stack is copied for an address in no mapping, until the mappings are read again:
# when they had changed, and when they had not, so that there is likely nothing to be found.
_CREDIT, _CREDIT_UNCHANGED = 4000, 256


def _process(space: Space | None, image: int, credit: int = _CREDIT) -> bytes:
    """``struct process`` of a target with this address space."""
    if space is None:
        return PROCESS.pack(0, 0, 0, 0, image, credit)
    return PROCESS.pack(space.address, space.count, 0, 0, image, credit)


class Sampler:
    """Samples threads of the processes it is given, or of all, until closed.

    ``events`` are numbered in order; a sample says the number of its event. ``cpus`` are those to
    sample on. Loading takes 1 to
    2.5 s with bcc, 0.2 s from an object.

    Raises :class:`hpcd.errors.PrivilegeError` or :class:`hpcd.errors.PlatformError` in one line
    when it cannot work here; nothing stays open then.
    """

    def __init__(
        self,
        events: Sequence[syscalls.PerfEvent],
        cpus: Sequence[int],
        options: SamplerOptions = _DEFAULTS,
    ) -> None:
        if not 1 <= len(events) <= MAX_EVENTS:
            raise UsageError(f"between 1 and {MAX_EVENTS} events can be sampled at once")
        contexts = CALL_SLOTS if options.calls else 0
        self.caches = (FIRST_CALL_CONTEXT + contexts) * maps.possible_cpus()
        self._perf_events = tuple(events)
        self._user_threads = 0
        self._counters: dict[int, list[int]] = {}
        self._clocks: dict[int, CpuClock] = {}
        self._tracepoints: list[int] = []
        self._walkers: Programs | ObjectPrograms | None = None
        self._walker_error: HpcdError | None = None
        numbered = list(enumerate(events))
        hits = [n for n, event in numbered if event.type == syscalls.PERF_TYPE_TRACEPOINT]
        self._sampled = [(n, event) for n, event in numbered if n not in hits]
        with ExitStack() as resources:
            resources.callback(self.stop)
            self._open_events(cpus)
            self.memory = KernelMemory()
            resources.callback(self.memory.close)
            self.samples = Ring("samples", options.sample_ring)
            resources.callback(self.samples.close)
            # Calls have paths of their own, several times as many as samples have.
            event_ring = options.event_ring * (4 if options.calls else 1)
            self.events = Ring("events", event_ring)
            resources.callback(self.events.close)
            self.copies = Ring("copies", COPY_RING_BYTES)
            resources.callback(self.copies.close)
            self.calls: CallPrograms | None = None
            if options.calls:
                from hpcd.bpf.call_programs import CallPrograms  # most recordings record none

                self.calls = CallPrograms(options.calls, options.loader)
                resources.callback(self.calls.close)
            self._maps = SamplerMaps(resources, self.caches)
            self._programs = self._load(options, hits)
            resources.callback(self._programs.close)
            resources.callback(self._close_walkers)
            resources.callback(os.close, libbpf.enable_stats())
            self._raw, self._hits = options.tracepoints(), hits
            self._resources = resources.pop_all()

    def _load(self, options: SamplerOptions, hits: list[int]) -> Programs | ObjectPrograms:
        """Load the programs that ``options`` need and let the walks call themselves."""
        self._constants = {
            "FD_MEMORY": self.memory.map.fd,
            "FD_SAMPLES": self.samples.map.fd,
            "FD_EVENTS": self.events.map.fd,
            "FD_COPIES": self.copies.map.fd,
            **self._maps.constants(),
            **options.constants(),
            **task_offsets(),
            "PROBING": 0,
            **(self.calls.constants() if self.calls else {}),
            "SAVED_STACK": 0,
        }
        self._background = options.background and chosen_loader(options.loader) == "object"
        self._walker_names = (
            ["walk_sample"],
            ["walk_switch"] if options.waiting else [],
            ["walk_hit"] if hits else [],
        )
        now = ([], [], []) if self._background else self._walker_names
        deferring = ["defer_switch"] if options.waiting else []
        hitting = [*(f"hit_{number}" for number in hits), "defer_hit"] if hits else []
        programs = load_sampler(
            self._constants,
            [*(f"sample_{number}" for number, _ in self._sampled), *now[0], "defer_sample"],
            [*options.tracepoints(), *now[1], *deferring],
            [*now[2], *hitting],
            options.loader,
            self.calls.attach_types() if self.calls else None,
            background=self._background,
        )
        try:
            self._enter(programs)
        except BaseException:
            programs.close()
            raise
        return programs

    def _enter(self, programs: Programs | ObjectPrograms) -> None:
        """Let the walks call these."""
        for table, kind in (
            (self._maps.programs, "sample"),
            (self._maps.switch_programs, "switch"),
            (self._maps.hit_programs, "hit"),
        ):
            for slot, part in enumerate(("walk", "defer")):
                fd = programs.fds.get(f"{part}_{kind}")
                if fd is not None:
                    table.update(struct.pack("<I", slot), struct.pack("<I", fd))

    @property
    def walks_later(self) -> bool:
        """Whether :meth:`load_walkers` is to be called."""
        return self._background

    def load_walkers(self) -> None:
        """Load what walks stacks, by any thread; until then all paths are deferred. Should it fail,
        :meth:`take_samples` raises why."""
        try:
            self._walkers = load_sampler(self._constants, *self._walker_names, background=True)
            self._enter(self._walkers)
        except HpcdError as error:
            self._walker_error = error

    def saved_walker(self) -> SavedWalker:
        """What walks the stacks that were copied. Raises what :class:`SavedWalker` does."""
        maps_, background = self._maps, self._background
        return SavedWalker(
            self._constants, maps_.saved, maps_.saved_programs, background=background
        )

    def _attach_tracepoints(self) -> None:
        """Attach to raw tracepoints and to the events that are tracepoints."""
        fds = self._programs.fds
        for program, name in self._raw.items():
            self._tracepoints.append(libbpf.raw_tracepoint(name, fds[program]))
        # The program of a tracepoint runs on every CPU, whichever its event was opened for.
        for number in self._hits:
            fd = syscalls.perf_event_open(self._perf_events[number], -1, 0)
            self._tracepoints.append(fd)
            syscalls.perf_attach(fd, fds[f"hit_{number}"])
            syscalls.perf_enable(fd)

    # --- targets ---

    def attach(self) -> None:
        """Sample from now on. A CPU that does not have one of the events is left out.

        Raises :class:`PlatformError` when no CPU has the events; nothing stays open then.
        """
        try:
            self._attach_tracepoints()
            for number, fds in self._counters.items():
                for fd in fds:
                    syscalls.perf_attach(fd, self._programs.fds[f"sample_{number}"])
                    syscalls.perf_enable(fd)
            for number, clock in self._clocks.items():
                clock.attach(self._programs.fds[f"sample_{number}"])
        except BaseException:
            self._detach()
            raise

    def _open_events(self, cpus: Sequence[int]) -> None:
        """Open the events on ``cpus``. Clocks begin to tick, but no program runs yet."""
        for number, event in self._sampled:
            period_ns = event.clock_period_ns
            if period_ns:
                self._clocks[number] = CpuClock(event, period_ns, cpus)
                continue
            self._counters[number] = fds = []
            refusal: PlatformError | None = None
            for cpu in cpus:
                opened = replace(event, flags=event.flags | syscalls.DISABLED)
                try:
                    fds.append(syscalls.perf_event_open(opened, -1, cpu))
                except PlatformError as error:  # such as a counter of other cores than this
                    refusal = error
            if refusal and not fds:
                raise refusal

    def _detach(self) -> None:
        for clock in self._clocks.values():
            clock.close()
        self._clocks.clear()
        for fds in self._counters.values():
            for fd in fds:
                os.close(fd)
        self._counters.clear()

    def add_thread(self, tid: int, *, before_exec: bool = False) -> int | None:
        """Number a thread that already runs; None when the programs have numbered it.

        With ``before_exec`` it is recorded from its next exec on.
        """
        if self._user_threads >= THREADS_PER_CPU:
            return None
        self._user_threads += 1
        number = self._user_threads << THREAD_CPU_BITS | _USER_NUMBERS
        fresh = self._maps.threads.add(
            struct.pack("<I", tid), THREAD.pack(number, int(before_exec), *_IDLE_THREAD)
        )
        return number if fresh else None

    def forget_thread(self, tid: int) -> None:
        """Drop the number of a thread that was gone before its state could be read."""
        self._maps.threads.delete(struct.pack("<I", tid))

    def exclude_process(self, pid: int) -> None:
        """Never record ``pid`` and what it starts."""
        self._maps.processes.update(struct.pack("<I", pid), PROCESS.pack(0, 0, 0, 1, 0, 0))

    def forget_process(self, pid: int) -> None:
        """Take a process that was gone when it was registered out of those recorded."""
        self._maps.processes.delete(struct.pack("<I", pid))

    def add_process(self, pid: int, space: Space | None, image: int = 0) -> None:
        """Make ``pid`` a target whose mappings are ``space``; None: they are not known yet.

        They are not used when it runs another program than ``image`` by now (of a
        :class:`~hpcd.bpf.layouts.ThreadEvent`; 0: not known).
        """
        if not self._is_excluded(pid):
            self._maps.processes.update(struct.pack("<I", pid), _process(space, image))

    def _is_excluded(self, pid: int) -> bool:
        """Whether the programs have let go of ``pid``, or were told to: that is for good."""
        entry = self._maps.processes.lookup(struct.pack("<I", pid))
        return entry is not None and PROCESS.unpack(entry)[3] != 0

    def set_space(
        self, pid: int, space: Space | None, image: int = 0, *, changed: bool = True
    ) -> bool:
        """As :meth:`add_process` for a target; False when it has ended. ``changed`` says whether
        it is another space than before."""
        if self._is_excluded(pid):
            return False
        entry = _process(space, image, _CREDIT if changed else _CREDIT_UNCHANGED)
        return self._maps.processes.replace(struct.pack("<I", pid), entry)

    def records(self, pid: int) -> bool:
        """Whether process ``pid`` is recorded, as the kernel sees it."""
        entry = self._maps.processes.lookup(struct.pack("<I", pid))
        return entry is not None and PROCESS.unpack(entry)[3] == 0

    def set_rules(self, first: int, rules: npt.NDArray[np.void]) -> None:
        """Store unwind rules from index ``first`` (RULE_DTYPE rows)."""
        self._maps.rules.update_range(first, rules)

    def set_pace(self, frequency: int, walk_one_in: int) -> None:
        """Sample the first event, which must be a clock, ``frequency`` times a second, and take the
        path of one in ``walk_one_in`` threads that leave their CPU.

        The clock goes on; the programs pass over some of its firings, drawn at random.
        """
        full_ns = self._perf_events[0].clock_period_ns
        period_ns = max(1_000_000_000 // frequency, full_ns)
        passed_over = round((1 - full_ns / period_ns) * (1 << 32))
        lengths = periods(full_ns)
        step = round((lengths[-1] - lengths[0]) / (len(lengths) - 1)) if len(lengths) > 1 else 0
        late = _LATE_NS if cpu_time_is_stolen() else 0
        self._maps.settings.update(
            struct.pack("<I", 0),
            SETTINGS.pack(period_ns, walk_one_in, passed_over, lengths[0], step, late),
        )

    # --- results ---

    def take_samples(self) -> npt.NDArray[np.void]:
        """All samples waiting (:data:`hpcd.bpf.layouts.SAMPLE`). Take these before the events."""
        if self._walker_error:
            raise self._walker_error
        return self.samples.take_fixed(SAMPLE)

    def take_calls(self) -> npt.NDArray[np.void]:
        """All calls waiting (:data:`hpcd.bpf.layouts.CALL`). Take these before the events."""
        return self.calls.take() if self.calls else np.empty(0, CALL)

    def probe_programs(self) -> dict[str, int]:
        """Descriptors of the programs that run at probes, for :class:`hpcd.bpf.uprobes.Uprobes`."""
        from hpcd.bpf.uprobes import PROBE_PROGRAMS

        fds = self._programs.fds
        return {name: fds[name] for name in PROBE_PROGRAMS if name in fds}

    def take_events(self) -> Iterator[bytes]:
        """All events waiting: stacks, threads, and what became of them."""
        return self.events.take_any()

    def take_copies(self) -> Iterator[bytes]:
        """All copied stacks waiting (:data:`hpcd.bpf.layouts.STACK_COPY`). Take these after the
        events."""
        return self.copies.take_any()

    @property
    def filling(self) -> bool:
        """Whether a ring is an eighth full: time to empty it."""
        rings = [self.samples, self.events, self.copies]
        if self.calls:
            rings.append(self.calls.ring)
        return any(8 * ring.pending > ring.size for ring in rings)

    @property
    def urgent_descriptor(self) -> int:
        """A descriptor that is readable when a process may have become a target."""
        return self.events.urgent_descriptor

    def counters(self) -> npt.NDArray[np.void]:
        """One :data:`hpcd.bpf.layouts.COUNTERS` summed over the CPUs."""
        by_cpu = self._maps.counters.lookup_percpu(0, COUNTERS)
        total = np.zeros(1, dtype=COUNTERS)
        for name in COUNTERS.names or ():
            total[name] = by_cpu[name].sum(axis=0)
        return total

    def overhead(self) -> Overhead:
        """Cost of the sampling program, the walk included, and of the lifecycle ones."""
        fds = self._programs.fds | (self._walkers.fds if self._walkers else {})
        return program_overhead(fds, self.calls.NAMES if self.calls else ())

    def stop(self) -> None:
        """Detach from every CPU. What is in the rings can still be taken."""
        self._detach()
        for fd in self._tracepoints:
            os.close(fd)
        self._tracepoints.clear()

    def _close_walkers(self) -> None:
        if self._walkers:
            self._walkers.close()

    def close(self) -> None:
        """Stop, unload and free everything; calling again does nothing."""
        self._resources.close()


def cpu_time_is_stolen() -> bool:
    """Whether the hypervisor has taken CPUs away from this machine and the kernel keeps account of
    it (proc_stat(5), "steal"): such time is in no thread's CPU time."""
    counts = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()
    return len(counts) > 8 and int(counts[8]) > 0
