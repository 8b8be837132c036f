"""The sampler: its maps, its programs, and the CPUs it is attached to."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpcd.bpf.kernel.libbpf import program_functions, program_info
from hpcd.bpf.rings.copy_reader import CopyReader
from hpcd.bpf.rings.ring import Ring
from hpcd.bpf.sampler_programs import SamplerPrograms
from hpcd.bpf.saved_walk import SavedWalker
from hpcd.bpf.wire import Call, Counters, Sample

_SWITCH_PROGRAMS = ("on_switch", "on_waking", "walk_switch")


@dataclass(frozen=True, slots=True)
class Overhead:
    """The cost of the programs so far, in seconds of BPF run time.

    ``switches`` is the part spent on threads leaving CPUs and coming back, walks included,
    ``calls`` that of recorded calls. Walking copies of stacks is not counted: the process that asks
    for it pays. ``skipped`` is the number of events, of whatever process, that the kernel ran no
    program for since the CPU was running it already (``recursion_misses``, 5.12): on preemptible
    kernels a program can be interrupted by a thread with the same event.
    """

    seconds: float
    switches: float
    calls: float
    skipped: int


class Sampler:
    """Samples threads of the processes it is given, or of all, until closed.

    Raises :class:`hpcd.errors.PlatformError`.
    """

    def __init__(self, programs: SamplerPrograms) -> None:
        """Takes ``programs`` over: they are closed with it, or when this fails."""
        self.programs = programs
        self.calls = programs.calls
        self.targets = programs.targets
        """The processes and threads that the programs record."""
        with ExitStack() as resources:
            resources.callback(programs.close)
            rings = []
            for ring_map in programs.rings.values():
                rings.append(Ring(ring_map.name, ring_map.entries, ring_map))
                resources.callback(rings[-1].close)
            self.samples, self.events, copies = rings
            self._copies = CopyReader(copies)
            resources.callback(self._copies.close)
            self._resources = resources.pop_all()

    def saved_walker(self) -> SavedWalker:
        """Return what walks the stacks that were copied, once what walks stacks is loaded.

        Raises what :class:`SavedWalker` does, and the error by which loading has failed.
        """
        if self.programs.walker_error:
            raise self.programs.walker_error
        program = self.programs.fds["walk_saved"]
        return SavedWalker(program, self.programs.maps.saved, self.programs.maps.saved_programs)

    def set_rules(self, first: int, rules: npt.NDArray[np.void]) -> None:
        """Store unwind rules from index ``first`` (RULE_DTYPE rows)."""
        self.programs.maps.rules.update_range(first, rules)

    # --- results ---

    def take_samples(self) -> npt.NDArray[np.void]:
        """All samples waiting (:class:`hpcd.bpf.wire.Sample`). Take these before the events."""
        if self.programs.walker_error:
            raise self.programs.walker_error
        return self.samples.take_fixed(Sample.dtype())

    def take_calls(self) -> npt.NDArray[np.void]:
        """All calls waiting (:class:`hpcd.bpf.wire.Call`). Take these before the events."""
        return self.calls.take() if self.calls else np.empty(0, Call.dtype())

    def probe_programs(self) -> dict[str, int]:
        """Descriptors of the programs at probes, for :class:`hpcd.bpf.calls.uprobes.Uprobes`."""
        from hpcd.bpf.calls.uprobes import PROBE_PROGRAMS

        fds = self.programs.fds
        return {name: fds[name] for name in PROBE_PROGRAMS if name in fds}

    def take_events(self) -> list[bytes]:
        """All events waiting: stacks, threads, and what became of them."""
        return self.events.take_any()

    def take_copies(self) -> list[bytes]:
        """All copied stacks waiting (:class:`hpcd.bpf.wire.StackCopy`). Take these after the
        events."""
        return self._copies.take()

    def read_copies_ahead(self) -> None:
        """Begin to take copied stacks out of their ring before it is full, by a thread."""
        self._copies.start()

    @property
    def filling(self) -> bool:
        """Whether a ring is an eighth full: time to empty it."""
        rings: list[Ring | CopyReader] = [self.samples, self.events, self._copies]
        if self.calls:
            rings.append(self.calls.ring)
        return any(8 * ring.pending > ring.size for ring in rings)

    @property
    def urgent_descriptor(self) -> int:
        """A descriptor that is readable when a process may have become a target."""
        return self.events.urgent_descriptor

    @property
    def full_descriptor(self) -> int:
        """A descriptor that is readable when the ring of samples is an eighth full. When that of
        events is, :attr:`urgent_descriptor` is."""
        return self.samples.urgent_descriptor

    def counters(self) -> npt.NDArray[np.void]:
        """One :class:`hpcd.bpf.wire.Counters` summed over the CPUs."""
        by_cpu = self.programs.maps.counters.lookup_percpu(0, Counters.dtype())
        words = by_cpu.view(np.uint64).reshape(len(by_cpu), -1)
        total: npt.NDArray[np.uint64] = words.sum(axis=0)
        return total.view(Counters.dtype())

    def program_functions(self) -> list[tuple[int, int, str]]:
        """Return the programs' machine code: :func:`hpcd.bpf.kernel.libbpf.program_functions`."""
        fds = self.programs.fds.values()
        return [function for fd in fds for function in program_functions(fd)]

    def overhead(self) -> Overhead:
        """Cost of the sampling program, the walk included, and of the lifecycle ones."""
        fds = {name: fd for name, fd in self.programs.fds.items() if name != "walk_saved"}
        programs = {name: program_info(fd) for name, fd in fds.items()}
        run_ns = {name: program.run_time_ns for name, program in programs.items()}
        calls = self.calls.NAMES if self.calls else ()
        return Overhead(
            sum(run_ns.values()) / 1e9,
            sum(run_ns.get(name, 0) for name in _SWITCH_PROGRAMS) / 1e9,
            sum(run_ns.get(name, 0) for name in calls) / 1e9,
            sum(program.recursion_misses for program in programs.values()),
        )

    def close(self) -> None:
        """Stop, unload and free everything; calling again does nothing."""
        self._resources.close()
