"""Threads that wait for the few CPUs that they may run on, while other CPUs have nothing to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hpcd.analysis.database import Database
from hpcd.array_types import I64, Mask
from hpcd.measurement.summary import BoundThreads, Summary
from hpcd.wording import counted, number_ranges, percent

# A bound thread counts if it wants a CPU for this part of the time of the busiest bound thread.
_WANTS = 0.05
# A CPU that is idle for this part of the recording has room for a thread.
_IDLE = 0.5
# Longer lists of CPUs are numbers of these.
_MOST_LETTERS = 20


@dataclass(frozen=True, slots=True)
class CrowdedCpus:
    """CPUs ``cpus`` of a host, to which ``threads`` threads are bound: the threads waited
    ``waited`` seconds for a CPU. Meanwhile the CPUs ``idle`` of the host had nothing to do
    for ``idle_share`` of the recording, in the mean."""

    cpus: tuple[int, ...]
    threads: int
    waited: float
    idle: tuple[int, ...]
    idle_share: float

    @property
    def sentence(self) -> str:
        """The finding in words."""
        threads, verb = counted(self.threads, "thread"), "is" if self.threads == 1 else "are"
        text = f"{threads} {verb} bound to {_named(self.cpus)}"
        if not self.idle:
            return text
        others = _named(self.idle) if len(self.idle) == 1 else f"{len(self.idle):,} others"
        return f"{text}, {others} idled for {percent(self.idle_share, 0)}"


def crowded_cpus(db: Database, lines: Mask) -> CrowdedCpus | None:
    """Return the CPUs to which threads are bound that waited most for them, of the trace ``lines``
    ``bool[lines]``; None where bound threads did not wait for most of the time that all of these
    waited. O(threads). Raises :class:`hpcd.errors.FormatError`."""
    if "runnable_time" not in db.metrics.names:
        return None
    waits, ran = db.line_totals("runnable_time"), db.line_totals("cpu_time")
    sets = []
    for summary, bound, mine in _bound(db):
        mine = mine[lines[mine]]
        wanted = waits[mine] + ran[mine]
        counts = wanted >= _WANTS * wanted.max(initial=0.0)
        idle = [
            (cpu.number, cpu.idle_s / summary.duration_s)
            for cpu in summary.cpus
            if cpu.number not in bound.cpus and cpu.idle_s >= _IDLE * summary.duration_s > 0
        ]
        share = float(np.mean([part for _, part in idle])) if idle else 0.0
        sets.append(
            CrowdedCpus(
                bound.cpus, int(counts.sum()), float(waits[mine].sum()),
                tuple(number for number, _ in idle), min(share, 1.0),
            )
        )  # fmt: skip
    most = max(sets, key=lambda one: one.waited, default=None)
    waited = float(waits[lines].sum())
    return most if most and most.waited > 0.5 * waited else None


def cpu_notes(db: Database) -> Iterator[str]:
    """Sentences on the time of CPUs that is part of threads' time: it is known by CPU alone."""
    interrupts = stolen = 0.0
    for measurement in db.measurements:
        interrupts += sum(cpu.interrupts_s for cpu in measurement.summary.cpus)
        stolen += sum(cpu.stolen_s for cpu in measurement.summary.cpus)
    for seconds, who in (interrupts, "interrupts and softirqs"), (stolen, "the hypervisor"):
        if seconds > 0:
            yield (
                f"{who} had the machine's CPUs for {seconds:,.2f} s, known by CPU, not by thread:"
                " a part of it is in these rows, as time of who was interrupted"
            )


def _bound(db: Database) -> Iterator[tuple[Summary, BoundThreads, I64]]:
    """Yield each set of CPUs that threads of a measurement are bound to, and their trace lines."""
    for measurement in db.measurements:
        if not measurement.summary.bound:
            continue
        lines = dict(
            db.rows(
                "SELECT thread.measurement_line, thread.trace_line FROM thread"
                " JOIN process_row ON process_row.id = thread.process"
                " WHERE process_row.measurement = ?",
                measurement.id,
            )
        )
        for bound in measurement.summary.bound:
            mine = sorted({lines[line] for line in bound.lines if line in lines})
            yield measurement.summary, bound, np.array(mine, np.int64)


def _named(cpus: tuple[int, ...]) -> str:
    text = f"{'CPU' if len(cpus) == 1 else 'CPUs'} {number_ranges(cpus)}"
    return text if len(text) <= _MOST_LETTERS else counted(len(cpus), "CPU")
