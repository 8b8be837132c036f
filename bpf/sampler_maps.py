"""The maps of the sampler's programs, table memory among them."""

from __future__ import annotations

import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

from hpcd.bpf.kernel import maps
from hpcd.bpf.map_sizes import (
    BLOCK_BYTES,
    BLOCK_WORDS,
    CACHE_SET_BITS,
    CACHE_SET_BYTES,
    CLOCK_PARTS,
    CLOCK_PHASE_BYTES,
    COUNTERS_BYTES,
    EVENT_PACE,
    KERNEL_PART_BYTES,
    KNOWN_RULES_BYTES,
    LONG_WALK_BYTES,
    MAX_EVENTS,
    MAX_RULES,
    MAX_SEGMENTS,
    MOST_KERNEL_PARTS,
    PROCESS,
    RULE_BYTES,
    SEGMENT_BLOCKS,
    SETTINGS,
    THREAD,
    copier_bytes,
    saved_bytes,
    walk_bytes,
)
from hpcd.errors import PlatformError

if TYPE_CHECKING:  # with numpy, which is imported while the programs load
    from hpcd.array_types import U32

MAX_PROCESSES = 16384
MAX_THREADS = 131072


class SamplerMaps(maps.MapSet):
    """The programs' maps but for table memory and the rings, with ``caches`` stack caches."""

    def __init__(self, caches: int) -> None:
        super().__init__()
        cpus = maps.possible_cpus()
        self.rules = self.create("rules", maps.ARRAY, RULE_BYTES, MAX_RULES)
        self.processes = self.create("processes", maps.HASH, PROCESS.size, MAX_PROCESSES)
        self.threads = self.create("threads", maps.HASH, THREAD.size, MAX_THREADS)
        self.counters = self.create("counters", maps.PERCPU_ARRAY, COUNTERS_BYTES, 1)
        self.create("next_thread", maps.PERCPU_ARRAY, 4, 1)
        self.create("scratch", maps.PERCPU_ARRAY, walk_bytes(), caches // cpus)
        self.create("stack_cache", maps.ARRAY, CACHE_SET_BYTES, caches << CACHE_SET_BITS)
        self.create("known", maps.ARRAY, KNOWN_RULES_BYTES, caches)
        self.create("kernel_parts", maps.PERCPU_ARRAY, KERNEL_PART_BYTES, MOST_KERNEL_PARTS)
        self.settings = self.create("settings", maps.ARRAY, SETTINGS.size, 1)
        self.create("clock_phases", maps.ARRAY, CLOCK_PHASE_BYTES, CLOCK_PARTS * cpus)
        self.paces = self.create("paces", maps.PERCPU_ARRAY, EVENT_PACE.size, MAX_EVENTS)
        self.create("long_walk", maps.PERCPU_ARRAY, LONG_WALK_BYTES, 1)
        self.programs = self.create("programs", maps.PROG_ARRAY, 4, 2)
        self.switch_programs = self.create("switch_programs", maps.PROG_ARRAY, 4, 2)
        self.hit_programs = self.create("hit_programs", maps.PROG_ARRAY, 4, 2)
        self.create("copiers", maps.ARRAY, copier_bytes(), caches)
        self.saved = self.create("saved", maps.ARRAY, saved_bytes(), 1, flags=maps.MMAPABLE)
        self.saved_programs = self.create("saved_programs", maps.PROG_ARRAY, 4, 1)


class KernelMemory:
    """Table memory in the kernel (:mod:`hpcd.bpf.table_memory` says what is stored there).

    An array of maps; inner ones are made as they are needed. Each is entered at once, but the
    kernel then waits until no program sees what was there before (maybe_wait_bpf_programs() of
    kernel/bpf/syscall.c), some 10 ms: a thread waits for the first one while programs are loaded.
    """

    def __init__(self) -> None:
        with ExitStack() as resources:
            first = self._segment(0)
            resources.callback(first.close)
            self.map = maps.Map("memory", maps.ARRAY_OF_MAPS, 4, 4, MAX_SEGMENTS, inner=first.fd)
            resources.callback(self.map.close)
            self._segments: list[maps.Map] = [first]
            beside = ThreadPoolExecutor(1, "table memory")
            self._entering = beside.submit(self._publish, 0)
            beside.shutdown(wait=False)
            resources.pop_all()

    @staticmethod
    def _segment(number: int) -> maps.Map:
        return maps.Map(f"segment{number}", maps.ARRAY, 4, BLOCK_BYTES, SEGMENT_BLOCKS)

    def _publish(self, number: int) -> None:
        self.map.update(struct.pack("<I", number), struct.pack("<I", self._segments[number].fd))

    def write(self, block: int, words: U32) -> None:
        """Store whole blocks, making segments as needed."""
        count = len(words) // BLOCK_WORDS
        done = 0
        while done < count:
            segment, first = divmod(block + done, SEGMENT_BLOCKS)
            while segment >= len(self._segments):
                if segment >= MAX_SEGMENTS:
                    raise PlatformError("unwind tables exceed 4 GiB")
                self._segments.append(self._segment(len(self._segments)))
                self._publish(len(self._segments) - 1)
            part = min(count - done, SEGMENT_BLOCKS - first)
            some = words[done * BLOCK_WORDS : (done + part) * BLOCK_WORDS]
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
