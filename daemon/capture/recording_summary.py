"""Counters of a summary: samples and call paths."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from hpcd.bpf.layouts import DROPS
from hpcd.daemon.capture.session_parts import Parts
from hpcd.measurement.summary import DeferredPathCounts, SampleCounts, UnwindCounts

# Samples come as if at random: so many standard errors are chance. Of the interrupts of a virtual
# machine that does not run for a time the first is late, and the CPU time was another's.
_ERRORS, _LATE = 4, 0.03


def count_samples(parts: Parts, counters: np.void, expected: int) -> SampleCounts:
    """Count the samples, of which ``expected`` (0: not known) were to come."""
    taken, late, walking = (int(counters[name]) for name in ("taken", "late", "walking"))
    return SampleCounts(
        expected=expected,
        taken=taken,
        unexplained=unexplained(taken, expected, late + walking),
        late=late,
        walking=walking,
        recorded=parts.collector.recorded,
        dropped=dropped(parts, counters),
    )


def dropped(parts: Parts, counters: np.void) -> dict[str, int]:
    """Samples that were lost, by reason."""
    lost = {
        name: int(number)
        for name, number in zip(DROPS, counters["dropped"], strict=False)
        if number
    }
    for name, number in parts.collector.dropped.items():
        lost[name] = lost.get(name, 0) + number
    if parts.writer.dropped_storage:
        lost["storage"] = parts.writer.dropped_storage
    return lost


def count_paths(parts: Parts, counters: np.void) -> UnwindCounts:
    """Count the call paths by how they ended, and list what could not be analysed."""
    modules, cct = parts.modules, parts.stacks.cct
    endings = cct.endings()
    incomplete = {ending: counts for ending, counts in endings.items() if not ending.whole}
    return UnwindCounts(
        paths=int(cct.samples.sum()),
        complete=sum(sum(counts.values()) for ending, counts in endings.items() if ending.whole),
        truncated={ending.label: sum(counts.values()) for ending, counts in incomplete.items()},
        modules={
            ending.label: {modules.name(number): count for number, count in counts.items()}
            for ending, counts in incomplete.items()
        },
        failures=modules.failures,
        deferred=DeferredPathCounts(
            int(counters["copied"]),
            int(counters["not_copied"]),
            **asdict(parts.deferred.counts),
        ),
    )


def unexplained(taken: int, expected: int, left_out: int = 0) -> int:
    """How many more samples (fewer: below 0) there are than chance, late interrupts and the firings
    that were ``left_out`` account for: the time before these may count as the targets' or not.

    Samples that were dropped are among those taken, and the rates to keep a budget are expected.
    """
    chance = _LATE * expected + _ERRORS * expected**0.5
    if not expected or expected - left_out - chance <= taken <= expected + chance:
        return 0
    return taken - expected + (left_out if taken < expected else 0)
