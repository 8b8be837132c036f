"""The sampler's programs, with their maps and the events they run at."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from hpcd.bpf.events.cpu_clock import CpuClock
from hpcd.bpf.kernel import libbpf, maps, syscalls
from hpcd.bpf.kernel_targets import KernelTargets
from hpcd.bpf.loading.kernel_facilities import (
    Helper,
    has_helper,
    require_memory_reads,
    require_user_registers,
)
from hpcd.bpf.loading.loader import Programs, chosen_loader, load_sampler
from hpcd.bpf.loading.object_loader import ObjectPrograms
from hpcd.bpf.loading.preempt_count import NO_PREEMPT_COUNT, preempt_count_constants
from hpcd.bpf.sampler_maps import KernelMemory, SamplerMaps
from hpcd.bpf.sampler_options import SamplerOptions
from hpcd.bpf.wire import CALL_SLOTS, FIRST_CALL_CONTEXT, MAX_EVENTS, EventPace, Settings
from hpcd.errors import HpcdError, PlatformError, UsageError
from hpcd.processors import machine_seconds

if TYPE_CHECKING:
    from hpcd.bpf.calls.call_programs import CallPrograms

# Without a hypervisor in between an interrupt is late by microseconds, seldom by 100.
_LATE_NS = 500_000
_DEFAULTS = SamplerOptions()


def _hash_keys() -> dict[str, int]:
    """Return the secret that the programs hash call paths with: no other recording has it."""
    start, first, second = struct.unpack("<3Q", os.urandom(24))
    return {"HASH_START": start, "HASH_FIRST": first | 1, "HASH_SECOND": second | 1}


class SamplerPrograms:
    """The programs of one :class:`~hpcd.bpf.sampler.Sampler`, which closes them.

    ``events`` are numbered in order; a sample says the number of its event. ``cpus`` are those to
    sample on. Loading takes 1 to 2.5 s with bcc, 0.1 s from an object.

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
        require_user_registers()
        require_memory_reads()
        contexts = CALL_SLOTS if options.calls else 0
        self.caches = (FIRST_CALL_CONTEXT + contexts) * maps.possible_cpus()
        """Stack caches: of each CPU one for each program that may preempt another."""
        self.events = tuple(events)
        self.on_demand = options.on_demand
        """:attr:`SamplerOptions.on_demand`"""
        # By the program that runs at each.
        self._counters: dict[str, list[int]] = {}
        self._clocks: dict[str, CpuClock] = {}
        self._tracepoints: list[int] = []
        self._walkers: Programs | ObjectPrograms | None = None
        self.walker_error: HpcdError | None = None
        """Why what walks stacks could not be loaded."""
        numbered = list(enumerate(events))
        hits = [n for n, event in numbered if event.type == syscalls.PERF_TYPE_TRACEPOINT]
        opened = {f"sample_{n}": event for n, event in numbered if n not in hits}
        with ExitStack() as resources:
            resources.callback(self._close_events)
            resources.callback(self.stop)
            self._open_events({**opened, **options.events()}, cpus)
            self.memory = KernelMemory()
            resources.callback(self.memory.close)
            self.rings: dict[str, maps.Map] = {}
            """The maps of the rings of samples, events and copied stacks, in this order."""
            sizes = options.ring_bytes(maps.possible_cpus())
            for name, size in zip(("samples", "events", "copies"), sizes, strict=True):
                self.rings[name] = maps.ring_map(name, size)
                resources.callback(self.rings[name].close)
            self.calls: CallPrograms | None = None
            if options.calls:
                from hpcd.bpf.calls.call_programs import CallPrograms  # most recordings record none

                self.calls = CallPrograms(options.calls, options.loader)
                resources.callback(self.calls.close)
            self.maps = SamplerMaps(self.caches)
            resources.callback(self.maps.close)
            for number, event in numbered:
                pace = EventPace(interval=event.pace_ns).pack()
                self.maps.paces.update(struct.pack("<I", number), pace * maps.possible_cpus())
            self.targets = KernelTargets(self.maps)
            """The processes and threads that the programs record."""
            self._programs = self._load(options, hits)
            resources.callback(self._programs.close)
            self.memory.wait()
            resources.callback(self._close_walkers)
            resources.callback(os.close, libbpf.enable_stats())
            self._raw, self._hits = options.tracepoints(), hits
            self._resources = resources.pop_all()

    def _load(self, options: SamplerOptions, hits: list[int]) -> Programs | ObjectPrograms:
        """Load the programs that ``options`` need and let the walks call themselves."""
        self.constants = {
            "FD_MEMORY": self.memory.map.fd,
            "FD_SAMPLES": self.rings["samples"].fd,
            "FD_EVENTS": self.rings["events"].fd,
            "FD_COPIES": self.rings["copies"].fd,
            **self.maps.constants(),
            **options.constants(),
            **_hash_keys(),
            "PROBING": 0,
            "KEEPING_KERNEL_PARTS": int(has_helper(Helper.LOOP)),
            **(
                preempt_count_constants()
                if options.waiting and options.wakers
                else NO_PREEMPT_COUNT
            ),
            **(self.calls.constants() if self.calls else {}),
        }
        self.walks_later = options.background and chosen_loader(options.loader) == "object"
        """Whether :meth:`load_walkers` is still to be called."""
        self._walker_names = (
            ["walk_sample"],
            ["walk_saved", *(["walk_switch"] if options.waiting else [])],
            ["walk_hit"] if hits else [],
        )
        now = ([], [], []) if self.walks_later else self._walker_names
        deferring = ["defer_switch"] if options.waiting else []
        hitting = [*(f"hit_{number}" for number in hits), "defer_hit"] if hits else []
        programs = load_sampler(
            self.constants,
            [*self._clocks, *self._counters, *now[0], "defer_sample"],
            [*options.tracepoints(), *now[1], *deferring],
            [*now[2], *hitting],
            options.loader,
            self.calls.attach_types() if self.calls else None,
            background=self.walks_later,
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
            (self.maps.programs, "sample"),
            (self.maps.switch_programs, "switch"),
            (self.maps.hit_programs, "hit"),
        ):
            for slot, part in enumerate(("walk", "defer")):
                fd = programs.fds.get(f"{part}_{kind}")
                if fd is not None:
                    table.update(struct.pack("<I", slot), struct.pack("<I", fd))

    def load_walkers(self) -> None:
        """Load what walks stacks, by any thread; until then all paths are deferred. Should it fail,
        :attr:`walker_error` says why."""
        self.walks_later = False
        try:
            self._walkers = load_sampler(self.constants, *self._walker_names, background=True)
            self._enter(self._walkers)
        except HpcdError as error:
            self.walker_error = error

    @property
    def fds(self) -> dict[str, int]:
        """Descriptors of the programs that are loaded by now, by their names."""
        return self._programs.fds | (self._walkers.fds if self._walkers else {})

    def _attach_tracepoints(self) -> None:
        """Attach to raw tracepoints and to the events that are tracepoints."""
        fds = self._programs.fds
        for program, name in self._raw.items():
            self._tracepoints.append(libbpf.raw_tracepoint(name, fds[program]))
        # The program of a tracepoint runs on every CPU, whichever its event was opened for.
        for number in self._hits:
            fd = syscalls.perf_event_open(self.events[number], -1, 0)
            self._tracepoints.append(fd)
            syscalls.perf_attach(fd, fds[f"hit_{number}"])
            syscalls.perf_enable(fd)

    def set_pace(self, frequency: int, walk_one_in: int) -> None:
        """Sample the first event, which must be a clock, ``frequency`` times a second, and take the
        path of one in ``walk_one_in`` threads that leave their CPU.

        The clock goes on; the programs pass over some of its firings, drawn at random.
        """
        full_ns = self.events[0].clock_period_ns
        period_ns = max(1_000_000_000 // frequency, full_ns)
        passed_over = round((1 - full_ns / period_ns) * (1 << 32))
        # Such time is in no thread's CPU time (proc_stat(5), "steal").
        _, stolen, _ = machine_seconds()
        self.maps.settings.update(
            struct.pack("<I", 0),
            Settings(
                period=period_ns,
                walk_one_in=walk_one_in,
                passed_over=passed_over,
                late=_LATE_NS,
                stolen=int(stolen > 0),
            ).pack(),
        )

    def attach(self) -> None:
        """Sample from now on. A CPU that does not have one of the events is left out.

        Raises :class:`PlatformError` when no CPU has the events; nothing stays open then.
        """
        try:
            self._attach_tracepoints()
            for program, fds in self._counters.items():
                for fd in fds:
                    syscalls.perf_attach(fd, self._programs.fds[program])
                    syscalls.perf_enable(fd)
            for program, clock in self._clocks.items():
                clock.attach(self._programs.fds[program])
        except BaseException:
            self.stop()
            raise

    def _open_events(self, events: Mapping[str, syscalls.PerfEvent], cpus: Sequence[int]) -> None:
        """Open the event of each program on ``cpus``. Clocks begin to tick, but no program runs
        yet."""
        for program, event in events.items():
            period_ns = event.clock_period_ns
            if period_ns:
                self._clocks[program] = CpuClock(event, period_ns, cpus)
                continue
            self._counters[program] = fds = []
            refusal: PlatformError | None = None
            opened = replace(event, flags=event.flags | syscalls.DISABLED)
            if event.pace_ns:
                opened = replace(opened, period=1, frequency=0)
            for cpu in cpus:
                try:
                    fds.append(syscalls.perf_event_open(opened, -1, cpu))
                except PlatformError as error:  # such as a counter of other cores than this
                    refusal = error
            if refusal and not fds:
                raise refusal

    def stop_events(self) -> None:
        """Take no sample from now on. The tracepoints still tell of threads."""
        for clock in self._clocks.values():
            clock.stop()
        for fds in self._counters.values():
            for fd in fds:
                syscalls.perf_disable(fd)

    def stop(self) -> None:
        """Detach from every CPU. Records in the rings can still be taken."""
        self.stop_events()
        for fd in self._tracepoints:
            os.close(fd)
        self._tracepoints.clear()

    def _close_events(self) -> None:
        for clock in self._clocks.values():
            clock.close()
        self._clocks.clear()
        for fds in self._counters.values():
            for fd in fds:
                os.close(fd)
        self._counters.clear()

    def _close_walkers(self) -> None:
        if self._walkers:
            self._walkers.close()

    def close(self) -> None:
        """Stop, unload and free everything; calling again does nothing."""
        self._resources.close()
