"""The sampler: its maps, its programs, and the threads it is attached to."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from hpcd.bpf import maps, syscalls
from hpcd.bpf.btf import task_offsets
from hpcd.bpf.loader import load_sampler
from hpcd.bpf.records import CACHE_SET_BITS, COUNTERS, MAX_EVENTS, SAMPLE
from hpcd.bpf.ring import Ring
from hpcd.bpf.tables import MAX_RULES, KernelMemory
from hpcd.errors import TargetError, UsageError

# 52,000 samples: half a second of 100 CPUs at 997 Hz, should the reader be held up.
SAMPLE_RING_BYTES = 2 << 20
# New stacks of 60 frames are 500 bytes; programs that never repeat one send a few MB a second, and
# the ring is emptied when it is an eighth full.
EVENT_RING_BYTES = 4 << 20
MAX_PROCESSES = 16384
MAX_THREADS = 131072
# struct walk in stack/unwind.h: its head, a window of the stack, then 1152 frames.
_WALK_BYTES = 80 + 64 + 288 + 520 + 16 + 32 + 8 * 1152
# In the place of a CPU's number, in thread numbers that user space gives.
_USER_NUMBERS = 1023
RULE_BYTES = 16


@dataclass(frozen=True, slots=True)
class Overhead:
    """What the programs cost so far: seconds of BPF run time and how often they ran.

    ``switches`` is the part spent on threads leaving CPUs and coming back, walks included.
    """

    seconds: float
    switches: float
    runs: int
    missed: int


class Sampler:
    """Samples the threads it is attached to, or every CPU, until closed.

    ``events`` are numbered in order; a sample says the number of its event. With ``waiting``,
    threads that leave their CPU and come back are reported too (:class:`hpcd.bpf.records.Switch`).
    With ``everything``, all processes are targets; with ``selecting``, processes that are none are
    reported when they exec, and with ``control_groups`` when they enter a control group. With
    ``only_user``, a target that runs a program with another user's rights is one no longer.

    ``loader`` is one of :data:`hpcd.bpf.loader.LOADERS`; loading takes 1 to 2.5 s with bcc, 0.2 s
    from an object.

    Raises :class:`hpcd.errors.PrivilegeError` or :class:`hpcd.errors.PlatformError` in one line
    when it cannot work here.
    """

    def __init__(
        self,
        events: Sequence[syscalls.PerfEvent],
        *,
        follow_children: bool = True,
        waiting: bool = True,
        everything: bool = False,
        selecting: bool = False,
        control_groups: bool = False,
        only_user: int | None = None,
        loader: str = "auto",
        sample_ring: int = SAMPLE_RING_BYTES,
        event_ring: int = EVENT_RING_BYTES,
    ) -> None:
        if not 1 <= len(events) <= MAX_EVENTS:
            raise UsageError(f"between 1 and {MAX_EVENTS} events can be sampled at once")
        caches = 2 * maps.possible_cpus()
        self._perf_events = tuple(events)
        self.caches = caches
        self._waiting = waiting
        self.memory = KernelMemory()
        self.samples = Ring("samples", sample_ring)
        self.events = Ring("events", event_ring)
        self._rules = maps.Map("rules", maps.ARRAY, 4, RULE_BYTES, MAX_RULES)
        self._processes = maps.Map(
            "processes", maps.HASH, 4, 16, MAX_PROCESSES, flags=maps.NO_PREALLOC
        )
        self._threads = maps.Map("threads", maps.HASH, 4, 40, MAX_THREADS, flags=maps.NO_PREALLOC)
        self._born = maps.Map("born", maps.HASH, 4, 4, MAX_THREADS, flags=maps.NO_PREALLOC)
        self._counters = maps.Map("counters", maps.PERCPU_ARRAY, 4, COUNTERS.itemsize, 1)
        self._next_thread = maps.Map("next_thread", maps.PERCPU_ARRAY, 4, 4, 1)
        self._scratch = maps.Map("scratch", maps.PERCPU_ARRAY, 4, _WALK_BYTES, 2)
        self._cache = maps.Map("stack_cache", maps.ARRAY, 4, 16, caches << CACHE_SET_BITS)
        self._settings = maps.Map("settings", maps.ARRAY, 4, 16, 1)
        self._jumps = maps.Map("programs", maps.PROG_ARRAY, 4, 4, 1)
        self._switch_jumps = maps.Map("switch_programs", maps.PROG_ARRAY, 4, 4, 1)
        self._hit_jumps = maps.Map("hit_programs", maps.PROG_ARRAY, 4, 4, 1)
        constants = {
            "FD_MEMORY": self.memory.map.fd,
            "FD_SAMPLES": self.samples.map.fd,
            "FD_EVENTS": self.events.map.fd,
            "FD_RULES": self._rules.fd,
            "FD_PROCESSES": self._processes.fd,
            "FD_THREADS": self._threads.fd,
            "FD_BORN": self._born.fd,
            "FD_COUNTERS": self._counters.fd,
            "FD_NEXT_THREAD": self._next_thread.fd,
            "FD_SCRATCH": self._scratch.fd,
            "FD_STACK_CACHE": self._cache.fd,
            "FD_SETTINGS": self._settings.fd,
            "FD_PROGRAMS": self._jumps.fd,
            "FD_SWITCH_PROGRAMS": self._switch_jumps.fd,
            "FD_HIT_PROGRAMS": self._hit_jumps.fd,
            "FOLLOW_CHILDREN": int(follow_children),
            "EVERYTHING": int(everything),
            "WAITING": int(waiting),
            "ONLY_USER": 0xFFFFFFFF if only_user is None else only_user,
            "SELECTING": int(selecting),
            **task_offsets(),
        }
        tracepoints = {
            "on_fork": "sched_process_fork",
            "on_exec": "sched_process_exec",
            "on_exit": "sched_process_exit",
        }
        if waiting:
            tracepoints |= {"on_switch": "sched_switch", "on_wakeup": "sched_wakeup"}
        if control_groups:
            tracepoints["on_cgroup"] = "cgroup_attach_task"
        numbered = list(enumerate(events))
        hits = [n for n, event in numbered if event.type == syscalls.PERF_TYPE_TRACEPOINT]
        sampled = [n for n, _ in numbered if n not in hits]
        self._sampled = [(n, events[n]) for n in sampled]
        self._programs = load_sampler(
            constants,
            [*(f"sample_{number}" for number in sampled), "walk_sample"],
            [*tracepoints, *(["walk_switch"] if waiting else [])],
            [*(f"hit_{number}" for number in hits), "walk_hit"] if hits else [],
            loader,
        )
        fds = self._programs.fds
        self._jumps.update(struct.pack("<I", 0), struct.pack("<I", fds["walk_sample"]))
        if waiting:
            self._switch_jumps.update(struct.pack("<I", 0), struct.pack("<I", fds["walk_switch"]))
        if hits:
            self._hit_jumps.update(struct.pack("<I", 0), struct.pack("<I", fds["walk_hit"]))
        self._stats = syscalls.enable_stats()
        self._raw = [
            syscalls.raw_tracepoint(name, fds[program]) for program, name in tracepoints.items()
        ]
        # The program of a tracepoint runs on every CPU, whichever its event was opened for.
        self._hits = []
        for number in hits:
            fd = syscalls.perf_event_open(events[number], -1, 0)
            self._hits.append(fd)
            syscalls.perf_attach(fd, fds[f"hit_{number}"])
            syscalls.perf_enable(fd)
        self._attached: dict[int, list[int]] = {}
        self._cpus: dict[int, list[int]] = {}
        self._inherit = syscalls.INHERIT | (0 if follow_children else syscalls.INHERIT_THREAD)
        self._user_threads = 0

    # --- targets ---

    def attach_thread(self, tid: int) -> bool:
        """Sample ``tid`` and the threads and children it will have; False when it is gone."""
        if tid in self._attached:
            return True
        try:
            self._attached[tid] = self._open(tid, -1, self._inherit)
        except TargetError:
            return False
        return True

    def attach_cpu(self, cpu: int) -> None:
        """Sample whatever runs on ``cpu``."""
        self._cpus[cpu] = self._open(-1, cpu, syscalls.EXCLUDE_IDLE)

    def _open(self, tid: int, cpu: int, flags: int) -> list[int]:
        fds: list[int] = []
        try:
            for _, event in self._sampled:
                opened = replace(event, flags=event.flags | flags | syscalls.DISABLED)
                fds.append(syscalls.perf_event_open(opened, tid, cpu))
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise
        for (number, _), fd in zip(self._sampled, fds, strict=True):
            syscalls.perf_attach(fd, self._programs.fds[f"sample_{number}"])
            syscalls.perf_enable(fd)
        return fds

    def inherited(self, tid: int) -> bool:
        """Whether ``tid`` was born with the event of a thread attached to before."""
        value = self._born.lookup(struct.pack("<I", tid))
        return value is not None and value != bytes(4)

    @property
    def attached(self) -> int:
        """Threads and CPUs events were opened for; threads started by those inherit them."""
        return len(self._attached) + len(self._cpus)

    def detach_thread(self, tid: int) -> None:
        """Close the events of ``tid``, and with them those other threads inherited from it."""
        for fd in self._attached.pop(tid, ()):
            os.close(fd)

    def add_thread(self, tid: int) -> int | None:
        """Number a thread that already runs; None when the programs have numbered it."""
        self._user_threads += 1
        number = self._user_threads << 10 | _USER_NUMBERS
        fresh = self._threads.add(
            struct.pack("<I", tid), struct.pack("<IIQQQQ", number, 0, 0, 0, 0, 0)
        )
        return number if fresh else None

    def forget_thread(self, tid: int) -> None:
        """Drop the number of a thread that was gone before it could be attached to."""
        self._threads.delete(struct.pack("<I", tid))

    def exclude_process(self, pid: int) -> None:
        """Never record ``pid`` and what it starts."""
        self._processes.update(struct.pack("<I", pid), struct.pack("<IIII", 0, 0, 0, 1))

    def set_process(self, pid: int, entry: bytes) -> None:
        """Point process ``pid`` at its address space (:attr:`hpcd.bpf.tables.Space.entry`)."""
        self._processes.update(struct.pack("<I", pid), entry)

    def records(self, pid: int) -> bool:
        """Whether process ``pid`` is recorded, as the kernel sees it."""
        entry = self._processes.lookup(struct.pack("<I", pid))
        return entry is not None and entry[12:] == bytes(4)

    def forget_process(self, pid: int) -> None:
        """Drop the entry of a process that is gone."""
        self._processes.delete(struct.pack("<I", pid))

    def set_rules(self, first: int, rules: npt.NDArray[np.void]) -> None:
        """Store unwind rules from index ``first`` (RULE_DTYPE rows)."""
        self._rules.update_range(first, rules)

    def set_pace(self, frequency: int, walk_one_in: int) -> None:
        """Sample the first event, which must be a clock, ``frequency`` times a second, and take the
        path of one in ``walk_one_in`` threads that leave their CPU."""
        period = 1_000_000_000 // frequency
        # At the rate they were opened with, events need no thinning.
        thinned = period if frequency < self._perf_events[0].frequency else 0
        self._settings.update(struct.pack("<I", 0), struct.pack("<QII", thinned, walk_one_in, 0))
        if not self._waiting:
            return  # a sample says what its event was opened with, whatever became of that
        for fds in (*self._attached.values(), *self._cpus.values()):
            syscalls.perf_set_period(fds[0], period)

    # --- results ---

    def take_samples(self) -> npt.NDArray[np.void]:
        """All samples waiting (:data:`hpcd.bpf.records.SAMPLE`). Take these before the events."""
        return self.samples.take_fixed(SAMPLE)

    def take_events(self) -> Iterator[bytes]:
        """All events waiting: stacks, threads, and what became of them."""
        return self.events.take_any()

    @property
    def filling(self) -> bool:
        """Whether a ring is an eighth full: time to empty it."""
        return any(8 * ring.pending > ring.size for ring in (self.samples, self.events))

    @property
    def news(self) -> int:
        """A descriptor that is readable when a process may have become a target."""
        return self.events.news

    def counters(self) -> npt.NDArray[np.void]:
        """One :data:`hpcd.bpf.records.COUNTERS` summed over the CPUs."""
        each = self._counters.lookup_percpu(0, COUNTERS)
        total = np.zeros(1, dtype=COUNTERS)
        for name in COUNTERS.names or ():
            total[name] = each[name].sum(axis=0)
        return total

    def overhead(self) -> Overhead:
        """Cost of the sampling program, the walk included, and of the lifecycle ones."""
        by_name = {name: syscalls.program_info(fd) for name, fd in self._programs.fds.items()}
        infos = by_name.values()
        switching = ("on_switch", "on_wakeup", "walk_switch")
        return Overhead(
            sum(info.run_ns for info in infos) / 1e9,
            sum(by_name[name].run_ns for name in switching if name in by_name) / 1e9,
            sum(info.runs for info in infos),
            sum(info.recursion_misses for info in infos),
        )

    def stop(self) -> None:
        """Detach from every thread. What is in the rings can still be taken."""
        for held in (self._attached, self._cpus):
            for fds in held.values():
                for fd in fds:
                    os.close(fd)
            held.clear()
        for held_once in (self._raw, self._hits):
            for fd in held_once:
                os.close(fd)
            held_once.clear()

    def close(self) -> None:
        """Stop, unload and free everything."""
        self.stop()
        os.close(self._stats)
        self._programs.close()
        self.samples.close()
        self.events.close()
        self.memory.close()
        for table in (
            self._rules,
            self._processes,
            self._threads,
            self._born,
            self._counters,
            self._next_thread,
            self._scratch,
            self._cache,
            self._settings,
            self._jumps,
            self._switch_jumps,
            self._hit_jumps,
        ):
            table.close()
