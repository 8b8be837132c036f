"""The maps of the sampler's programs."""

from __future__ import annotations

from contextlib import ExitStack

from hpcd.bpf import maps
from hpcd.bpf.map_sizes import (
    CACHE_SET_BITS,
    CACHE_SET_BYTES,
    CLOCK_PARTS,
    CLOCK_PHASE_BYTES,
    COUNTERS_BYTES,
    LONG_WALK_BYTES,
    MAX_RULES,
    PROCESS_BYTES,
    RULE_BYTES,
    SETTINGS_BYTES,
    THREAD_BYTES,
    copier_bytes,
    saved_bytes,
    walk_bytes,
)

MAX_PROCESSES = 16384
MAX_THREADS = 131072


class SamplerMaps:
    """The programs' maps but for table memory and the rings; ``resources`` closes them."""

    def __init__(self, resources: ExitStack, caches: int) -> None:
        def create(name: str, kind: int, value_size: int, entries: int, flags: int = 0) -> maps.Map:
            created = maps.Map(name, kind, 4, value_size, entries, flags=flags)
            resources.callback(created.close)
            return created

        grown = maps.NO_PREALLOC
        self.rules = create("rules", maps.ARRAY, RULE_BYTES, MAX_RULES)
        self.processes = create("processes", maps.HASH, PROCESS_BYTES, MAX_PROCESSES, grown)
        self.threads = create("threads", maps.HASH, THREAD_BYTES, MAX_THREADS, grown)
        self.counters = create("counters", maps.PERCPU_ARRAY, COUNTERS_BYTES, 1)
        self.next_thread = create("next_thread", maps.PERCPU_ARRAY, 4, 1)
        contexts = caches // maps.possible_cpus()
        self.scratch = create("scratch", maps.PERCPU_ARRAY, walk_bytes(), contexts)
        self.stack_cache = create(
            "stack_cache", maps.ARRAY, CACHE_SET_BYTES, caches << CACHE_SET_BITS
        )
        self.settings = create("settings", maps.ARRAY, SETTINGS_BYTES, 1)
        parts = CLOCK_PARTS * maps.possible_cpus()
        self.clock_phases = create("clock_phases", maps.ARRAY, CLOCK_PHASE_BYTES, parts)
        self.long_walk = create("long_walk", maps.PERCPU_ARRAY, LONG_WALK_BYTES, 1)
        self.programs = create("programs", maps.PROG_ARRAY, 4, 2)
        self.switch_programs = create("switch_programs", maps.PROG_ARRAY, 4, 2)
        self.hit_programs = create("hit_programs", maps.PROG_ARRAY, 4, 2)
        self.copiers = create("copiers", maps.ARRAY, copier_bytes(), caches)
        self.saved = create("saved", maps.ARRAY, saved_bytes(), 1, maps.MMAPABLE)
        self.saved_programs = create("saved_programs", maps.PROG_ARRAY, 4, 1)

    def constants(self) -> dict[str, int]:
        """The maps' descriptors by the names the programs have for them."""
        return {f"FD_{name.upper()}": table.fd for name, table in vars(self).items()}
