"""The CPUs that threads wanted and got, and why they waited for one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.findings.phrase import Phrase
from hpcd.array_types import I64
from hpcd.wording import counted, rounded

# Other use of the CPUs that is mentioned beside the threads' own, of all CPUs; and what limits
# withheld, of the time waited.
_MENTIONED = 0.1
# The part of the waiting that remains without others where threads are too many by themselves.
_REMAINS = 0.125


@dataclass(frozen=True)
class CpuDemand:
    """CPU seconds of threads during ``span`` seconds on ``cpus`` CPUs.

    ``ran``: they had a CPU; ``waited``: they waited for one; ``taken``: others had the CPUs, other
    programs, hpcd or the hypervisor (None: not known); ``withheld``: limits of their control groups
    kept CPUs from them. ``cpus`` is 0 where it is not known.
    """

    ran: float
    waited: float
    span: float
    cpus: int
    taken: float | None
    withheld: float = 0.0

    @property
    def outside(self) -> float:
        """Seconds of waiting that others caused: they had the CPUs, no limit kept these from the
        threads, and no more threads wanted to run at a time than there are CPUs. Of threads that
        want to run only because others have the CPUs, as of a pool whose requests pile up, all."""
        alone = self.ran + self.waited <= self.span
        taken = self.taken if self.taken is not None else self.waited if alone else 0.0
        if taken > self.ran and self._remaining < _REMAINS * self.waited:
            return max(self.waited - self._remaining - self.withheld, 0.0)
        return max(min(self._unexplained - self.withheld, taken), 0.0)

    @property
    def _remaining(self) -> float:
        """Seconds of waiting if there were no others and the threads had the same to do, as many of
        them at a time."""
        many = (self.ran + self.waited) / (max(self.cpus, 1) * self.span)
        return max(many - 1, 0.0) * self.ran

    @property
    def _unexplained(self) -> float:
        """Seconds of waiting of no more threads at a time than there are CPUs."""
        return self.waited - max(self.ran + self.waited - self.cpus * self.span, 0.0)

    @property
    def own(self) -> bool:
        """Whether the threads caused most of their waiting themselves."""
        return self.outside < 0.5 * self.waited

    @property
    def enough(self) -> bool:
        """Whether the CPUs were idle for as long as threads waited for them: the scheduler had put
        these where others ran, as a thread on the CPU of the one that woke it."""
        wanted = self.ran + self.waited + (self.taken or 0.0)
        return wanted <= self.cpus * self.span and self.withheld <= _MENTIONED * self.waited

    @property
    def reason(self) -> tuple[Phrase, ...]:
        """The reason in words, with the signs before them; none where it is not known."""
        if not self.cpus:
            return ()
        cpus = counted(self.cpus, "CPU")
        limit = f" their control group's limit withheld {rounded(self.withheld / self.span)}"
        least = _MENTIONED * self.cpus * self.span
        if self._unexplained > least and self.withheld > 0.5 * self._unexplained:
            return (Phrase(f":{limit} of {cpus}"),)
        limits = (Phrase(f";{limit}", rank=2),) * (self.withheld > _MENTIONED * self.waited)
        wanted, got = rounded((self.ran + self.waited) / self.span), rounded(self.ran / self.span)
        if not self.own:
            if self.taken is None:
                return (Phrase(f": other programs had the CPUs, these got {got} of {cpus}"),)
            return (*self._others(":"), Phrase(f" of {cpus}"), *limits)
        words = f": {wanted} at a time want to run"
        few = (self.ran + self.waited) / self.span <= self.cpus
        words += f" and get {got} of {cpus}" if few else f" on {cpus}"
        if (self.taken or 0.0) <= least:
            return (Phrase(words), *limits)
        return (Phrase(words), *limits, *self._others(";", rank=2))

    def _others(self, sign: str, rank: int = 0) -> tuple[Phrase, ...]:
        used = rounded((self.taken or 0.0) / self.span)
        return (
            Phrase(f"{sign} other programs", rank=rank),
            Phrase(", hpcd among them,", rank=max(rank, 1)),
            Phrase(f" used {used}", rank=rank),
        )


def measure_demand(db: Database, lines: I64, waited: float) -> CpuDemand:
    """Measure the demand of the trace ``lines``, which ``waited`` seconds for a CPU."""
    start, end = db.lines.start[lines], db.lines.end[lines]
    span = float(end.max() - start.min()) / 1e9 if len(lines) else 0.0
    ran = float(db.line_totals("cpu_time")[lines].sum())
    ((cpus,),) = db.rows("SELECT sum(cpus) FROM host")
    return CpuDemand(
        ran, waited, span or 1.0, int(cpus or 0), _taken(db, span), _withheld(db, span)
    )


def _taken(db: Database, span: float) -> float | None:
    """CPU seconds that others had in ``span`` seconds; None if that was not recorded."""
    summaries = [measurement.summary for measurement in db.measurements]
    machines = [summary.machine for summary in summaries]
    # Of two recordings of one machine the time is the same.
    if len({measurement.host for measurement in db.measurements}) < len(machines) or not all(
        map(any, machines)
    ):
        return None
    taken = sum(
        max(machine.busy_s - summary.cpu.counted_s, 0.0) + machine.stolen_s
        for machine, summary in zip(machines, summaries, strict=True)
    )
    longest = float(np.max([summary.duration_s for summary in summaries]))
    return taken * min(span / longest, 1.0) if longest > 0 else None


def _withheld(db: Database, span: float) -> float:
    """CPU seconds that limits withheld in ``span`` seconds: recordings of one machine may count the
    same, of which the most is taken."""
    by_host: dict[str, float] = {}
    for measurement in db.measurements:
        summary = measurement.summary
        if summary.duration_s > 0:
            part = summary.cpu.withheld_s * min(span / summary.duration_s, 1.0)
            by_host[measurement.host] = max(by_host.get(measurement.host, 0.0), part)
    return sum(by_host.values())
