"""The maps of the sampler's programs, table memory among them."""

from __future__ import annotations

import mmap
import platform
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from hpcd.bpf import wire
from hpcd.bpf.kernel import maps
from hpcd.bpf.wire_structure import here
from hpcd.errors import PlatformError

if TYPE_CHECKING:  # with numpy, which is imported while the programs load
    from hpcd.array_types import U32

MAX_PROCESSES = 16384
MAX_THREADS = 131072
# Interpreters that are recognised at their exec: of each user those of a few environments.
MAX_PYTHON_PROGRAMS = 1024
# Processes that are not recorded and wake threads that are, or have their CPU, in a round: of
# others the names are not known.
MAX_OUTSIDERS = 4096
# Work items that recorded threads have queued for kernel workers, and workers at these: of more the
# oldest are forgotten.
_MOST_QUEUED = 4096

_MOST_TIDS = Path("/proc/sys/kernel/pid_max")


class SamplerMaps(maps.MapSet):
    """The programs' maps but for table memory and the rings, with ``caches`` stack caches."""

    def __init__(self, caches: int) -> None:
        super().__init__()
        cpus = maps.possible_cpus()
        self.rules = self.create("rules", maps.ARRAY, wire.Rule.BYTES, wire.MAX_RULES)
        self.processes = self.create("processes", maps.HASH, wire.Process.BYTES, MAX_PROCESSES)
        self.threads = self.create("threads", maps.HASH, wire.Thread.BYTES, MAX_THREADS)
        rows = -(-int(_MOST_TIDS.read_text()) // wire.TIDS_IN_ROW)
        registered = self.create(
            "registered", maps.ARRAY, wire.REGISTERED_BYTES, rows, flags=maps.MMAPABLE
        )
        self.registered = mmap.mmap(registered.fd, rows * wire.REGISTERED_BYTES)
        """A byte for each tid, not 0 where it may be a registered thread's."""
        self.resources.callback(self.registered.close)
        self.pythons = self.create("pythons", maps.HASH, wire.Python.BYTES, MAX_PROCESSES)
        self.python_programs = self.create(
            "python_programs", maps.LRU_HASH, wire.Python.BYTES, MAX_PYTHON_PROGRAMS,
            key_size=wire.PythonProgram.BYTES,
        )  # fmt: skip
        self.create("python_chains", maps.PERCPU_ARRAY, wire.PYTHON_CHAIN_BYTES, caches // cpus)
        self.create("python_sent", maps.ARRAY, 8, wire.SENT_FUNCTIONS)
        self.create(
            "python_functions", maps.PERCPU_ARRAY,
            wire.FunctionEvent.BYTES + wire.FUNCTION_TEXT, caches // cpus,
        )  # fmt: skip
        self.jvms = self.create("jvms", maps.HASH, wire.Jvm.BYTES, MAX_PROCESSES)
        self.create("jvm_frames", maps.PERCPU_ARRAY, wire.JVM_FRAME_BYTES, caches // cpus)
        self.counters = self.create("counters", maps.PERCPU_ARRAY, wire.Counters.BYTES, 1)
        self.create("next_thread", maps.PERCPU_ARRAY, 4, 1)
        self.create("scratch", maps.PERCPU_ARRAY, here(wire.WALK_BYTES), caches // cpus)
        self.create("stack_cache", maps.ARRAY, wire.CACHE_SET_BYTES, caches << wire.CACHE_SET_BITS)
        self.create("known", maps.ARRAY, wire.KNOWN_RULES_BYTES, caches)
        if platform.machine() != "aarch64":  # its programs have none (paths/kernel_part.h)
            self.create(
                "kernel_parts", maps.PERCPU_ARRAY, wire.KERNEL_PART_BYTES, wire.MOST_KERNEL_PARTS
            )
        self.settings = self.create("settings", maps.ARRAY, wire.Settings.BYTES, 1)
        self.paces = self.create("paces", maps.PERCPU_ARRAY, wire.EventPace.BYTES, wire.MAX_EVENTS)
        self.create("walk_budgets", maps.ARRAY, wire.BUDGET_BYTES, wire.USER_SLOTS * cpus)
        self.create("ring_budgets", maps.ARRAY, wire.BUDGET_BYTES, wire.RING_USES * wire.USER_SLOTS)
        self.create("occupancy", maps.ARRAY, wire.OCCUPANCY_BYTES, cpus)
        self.create("queued", maps.LRU_HASH, 4, _MOST_QUEUED, key_size=8)
        self.create("worked_for", maps.LRU_HASH, 4, _MOST_QUEUED)
        self.create("waking", maps.PERCPU_ARRAY, wire.WAKING_BYTES, 1)
        self.outsiders = self.create("outsiders", maps.LRU_HASH, wire.Outsider.BYTES, MAX_OUTSIDERS)
        self.create("long_walk", maps.PERCPU_ARRAY, wire.LONG_WALK_BYTES, 1)
        self.programs = self.create("programs", maps.PROG_ARRAY, 4, 2)
        self.switch_programs = self.create("switch_programs", maps.PROG_ARRAY, 4, 2)
        self.hit_programs = self.create("hit_programs", maps.PROG_ARRAY, 4, 2)
        self.create("copiers", maps.ARRAY, here(wire.COPIER_BYTES), caches)
        self.saved = self.create(
            "saved", maps.ARRAY, here(wire.SAVED_BYTES), 1, flags=maps.MMAPABLE
        )
        self.saved_programs = self.create("saved_programs", maps.PROG_ARRAY, 4, 1)


class KernelMemory:
    """Table memory in the kernel (its contents: :mod:`hpcd.bpf.table_memory`).

    An array of maps; inner ones are made as they are needed. Each is entered at once, but the
    kernel then waits until no program sees what was there before (maybe_wait_bpf_programs() of
    kernel/bpf/syscall.c), some 10 ms: a thread waits for the first one while programs are loaded.
    """

    def __init__(self) -> None:
        with ExitStack() as resources:
            first = self._segment(0)
            resources.callback(first.close)
            self.map = maps.Map(
                "memory", maps.ARRAY_OF_MAPS, 4, 4, wire.MAX_SEGMENTS, inner=first.fd
            )
            resources.callback(self.map.close)
            self._segments: list[maps.Map] = [first]
            beside = ThreadPoolExecutor(1, "table memory")
            self._entering = beside.submit(self._publish, 0)
            beside.shutdown(wait=False)
            resources.pop_all()

    @staticmethod
    def _segment(number: int) -> maps.Map:
        return maps.Map(f"segment{number}", maps.ARRAY, 4, wire.BLOCK_BYTES, wire.SEGMENT_BLOCKS)

    def _publish(self, number: int) -> None:
        self.map.update(struct.pack("<I", number), struct.pack("<I", self._segments[number].fd))

    def write(self, block: int, words: U32) -> None:
        """Store whole blocks, making segments as needed."""
        count = len(words) // wire.BLOCK_WORDS
        done = 0
        while done < count:
            segment, first = divmod(block + done, wire.SEGMENT_BLOCKS)
            while segment >= len(self._segments):
                if segment >= wire.MAX_SEGMENTS:
                    raise PlatformError("unwind tables exceed 4 GiB")
                self._segments.append(self._segment(len(self._segments)))
                self._publish(len(self._segments) - 1)
            part = min(count - done, wire.SEGMENT_BLOCKS - first)
            some = words[done * wire.BLOCK_WORDS : (done + part) * wire.BLOCK_WORDS]
            if part == 1:  # of most processes' mappings: without what a batch takes to prepare
                self._segments[segment].update(struct.pack("<I", first), some.tobytes())
            else:
                self._segments[segment].update_range(first, some)
            done += part

    def wait(self) -> None:
        """Wait until the first map has been entered. Raises :class:`PlatformError`."""
        self._entering.result()

    def close(self) -> None:
        """Drop the maps."""
        self._entering.exception()
        for segment in self._segments:
            segment.close()
        self.map.close()
