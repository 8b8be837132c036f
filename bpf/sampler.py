"""The sampler: its maps, its programs, and the threads it is attached to."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpcd.bpf import maps, syscalls
from hpcd.bpf.btf import task_offsets
from hpcd.bpf.loader import Programs
from hpcd.bpf.records import CACHE_SET_BITS, COUNTERS, SAMPLE
from hpcd.bpf.ring import Ring
from hpcd.bpf.tables import MAX_RULES, KernelMemory
from hpcd.errors import TargetError

# 100,000 samples: a second of 100 CPUs at 997 Hz, should the reader be held up.
SAMPLE_RING_BYTES = 4 << 20
# New stacks of 60 frames are 500 bytes; programs that never repeat one send a few MB a second.
EVENT_RING_BYTES = 8 << 20
MAX_PROCESSES = 16384
MAX_THREADS = 131072
# struct walk in stack/unwind.h: its head, then 1152 frames.
_WALK_BYTES = 80 + 32 + 288 + 32 + 8 * 1152
RULE_BYTES = 16


@dataclass(frozen=True, slots=True)
class Overhead:
    """What the programs cost so far: seconds of BPF run time and how often they ran."""

    seconds: float
    runs: int
    missed: int


class Sampler:
    """Samples the threads it is attached to until closed.

    Loading takes 1 to 2.5 s with bcc. Raises :class:`hpcd.errors.PrivilegeError` or
    :class:`hpcd.errors.PlatformError` in one line when it cannot work here.
    """

    def __init__(
        self,
        *,
        follow_children: bool = True,
        sample_ring: int = SAMPLE_RING_BYTES,
        event_ring: int = EVENT_RING_BYTES,
    ) -> None:
        cpus = maps.possible_cpus()
        self.memory = KernelMemory()
        self.samples = Ring("samples", sample_ring)
        self.events = Ring("events", event_ring)
        self._rules = maps.Map("rules", maps.ARRAY, 4, RULE_BYTES, MAX_RULES)
        self._processes = maps.Map(
            "processes", maps.HASH, 4, 16, MAX_PROCESSES, flags=maps.NO_PREALLOC
        )
        self._threads = maps.Map("threads", maps.HASH, 4, 8, MAX_THREADS, flags=maps.NO_PREALLOC)
        self._born = maps.Map("born", maps.HASH, 4, 4, MAX_THREADS, flags=maps.NO_PREALLOC)
        self._counters = maps.Map("counters", maps.PERCPU_ARRAY, 4, COUNTERS.itemsize, 1)
        self._next_thread = maps.Map("next_thread", maps.PERCPU_ARRAY, 4, 4, 1)
        self._scratch = maps.Map("scratch", maps.PERCPU_ARRAY, 4, _WALK_BYTES, 1)
        self._cache = maps.Map("stack_cache", maps.ARRAY, 4, 16, cpus << CACHE_SET_BITS)
        self._jumps = maps.Map("programs", maps.PROG_ARRAY, 4, 4, 1)
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
            "FD_PROGRAMS": self._jumps.fd,
            "FOLLOW_CHILDREN": int(follow_children),
            "EVENT_ID": 0,
            **task_offsets(),
        }
        self._programs = Programs(
            "sampler.bpf.c", constants, ["sample", "walk"], ["on_fork", "on_exec", "on_exit"]
        )
        fds = self._programs.fds
        self._jumps.update(struct.pack("<I", 0), struct.pack("<I", fds["walk"]))
        self._stats = syscalls.enable_stats()
        self._raw = [
            syscalls.raw_tracepoint(name, fds[program])
            for name, program in (
                ("sched_process_fork", "on_fork"),
                ("sched_process_exec", "on_exec"),
                ("sched_process_exit", "on_exit"),
            )
        ]
        self._attached: dict[int, int] = {}
        self._inherit = syscalls.INHERIT | (0 if follow_children else syscalls.INHERIT_THREAD)

    # --- targets ---

    def attach_thread(self, tid: int, event: syscalls.PerfEvent) -> bool:
        """Sample ``tid`` and the threads and children it will have; False when it is gone."""
        if tid in self._attached:
            return True
        flags = event.flags | self._inherit | syscalls.DISABLED
        opened = syscalls.PerfEvent(event.type, event.config, event.frequency, event.period, flags)
        try:
            fd = syscalls.perf_event_open(opened, tid, -1)
        except TargetError:
            return False
        self._attached[tid] = fd
        syscalls.perf_attach(fd, self._programs.fds["sample"])
        syscalls.perf_enable(fd)
        return True

    def inherited(self, tid: int) -> bool:
        """Whether ``tid`` was born with the event of a thread attached to before."""
        value = self._born.lookup(struct.pack("<I", tid))
        return value is not None and value != bytes(4)

    @property
    def attached(self) -> int:
        """Threads events were opened for; those they start inherit them."""
        return len(self._attached)

    def set_process(self, pid: int, entry: bytes) -> None:
        """Point process ``pid`` at its address space (:attr:`hpcd.bpf.tables.Space.entry`)."""
        self._processes.update(struct.pack("<I", pid), entry)

    def forget_process(self, pid: int) -> None:
        """Drop the entry of a process that is gone."""
        self._processes.delete(struct.pack("<I", pid))

    def set_rules(self, first: int, rules: npt.NDArray[np.void]) -> None:
        """Store unwind rules from index ``first`` (RULE_DTYPE rows)."""
        self._rules.update_range(first, rules)

    # --- results ---

    def take_samples(self) -> npt.NDArray[np.void]:
        """All samples waiting (:data:`hpcd.bpf.records.SAMPLE`). Take these before the events."""
        return self.samples.take_fixed(SAMPLE)

    def take_events(self) -> Iterator[bytes]:
        """All events waiting: stacks, threads, and what became of them."""
        return self.events.take_any()

    def counters(self) -> npt.NDArray[np.void]:
        """One :data:`hpcd.bpf.records.COUNTERS` summed over the CPUs."""
        each = self._counters.lookup_percpu(0, COUNTERS)
        total = np.zeros(1, dtype=COUNTERS)
        for name in COUNTERS.names or ():
            total[name] = each[name].sum(axis=0)
        return total

    def overhead(self) -> Overhead:
        """Cost of the sampling program, the walk included, and of the lifecycle ones."""
        infos = [syscalls.program_info(fd) for fd in self._programs.fds.values()]
        return Overhead(
            sum(info.run_ns for info in infos) / 1e9,
            sum(info.runs for info in infos),
            sum(info.recursion_misses for info in infos),
        )

    def stop(self) -> None:
        """Detach from every thread. What is in the rings can still be taken."""
        for fd in self._attached.values():
            os.close(fd)
        self._attached.clear()
        for fd in self._raw:
            os.close(fd)
        self._raw.clear()

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
            self._jumps,
        ):
            table.close()
