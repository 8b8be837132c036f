"""What the sampler's programs cost, by the kernel's account of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from hpcd.bpf import libbpf

_SWITCH_PROGRAMS = ("on_switch", "on_wakeup", "walk_switch")


@dataclass(frozen=True, slots=True)
class Overhead:
    """What the programs cost so far: seconds of BPF run time and how often they ran.

    ``switches`` is the part spent on threads leaving CPUs and coming back, walks included,
    ``calls`` that of recorded calls.
    """

    seconds: float
    switches: float
    calls: float
    runs: int
    missed: int


def program_overhead(fds: Mapping[str, int], calls: Collection[str] = ()) -> Overhead:
    """The cost of the programs with these descriptors, by their names; ``calls`` are those of
    calls."""
    by_name = {name: libbpf.program_info(fd) for name, fd in fds.items()}
    infos = by_name.values()
    return Overhead(
        sum(info.run_ns for info in infos) / 1e9,
        sum(by_name[name].run_ns for name in _SWITCH_PROGRAMS if name in by_name) / 1e9,
        sum(by_name[name].run_ns for name in calls if name in by_name) / 1e9,
        sum(info.runs for info in infos),
        sum(info.recursion_misses for info in infos),
    )
