"""The CPUs that threads wanted and got, and why they waited for one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpcd.analysis.database import Database
from hpcd.array_types import I64
from hpcd.wording import counted, rounded

# Other use of the CPUs that is mentioned beside the threads' own, of all CPUs.
_MENTIONED = 0.1


@dataclass(frozen=True)
class CpuDemand:
    """CPU seconds of threads during ``span`` seconds on ``cpus`` CPUs.

    ``ran``: they had a CPU; ``waited``: they waited for one; ``taken``: others had the CPUs, other
    programs, hpcd or the hypervisor (None: not known). ``cpus`` is 0 where it is not known.
    """

    ran: float
    waited: float
    span: float
    cpus: int
    taken: float | None

    @property
    def outside(self) -> float:
        """Seconds of waiting that others caused: they had the CPUs, and no more threads wanted to
        run at a time than there are CPUs."""
        beyond = max(self.ran + self.waited - self.cpus * self.span, 0.0)
        alone = self.ran + self.waited <= self.span
        taken = self.taken if self.taken is not None else self.waited if alone else 0.0
        return max(min(self.waited - beyond, taken), 0.0)

    @property
    def own(self) -> bool:
        """Whether the threads caused most of their waiting themselves."""
        return self.outside < 0.5 * self.waited

    @property
    def text(self) -> str:
        """The reason in words; empty where it is not known."""
        if not self.cpus:
            return ""
        cpus = counted(self.cpus, "CPU")
        wanted, got = ((self.ran + self.waited) / self.span, self.ran / self.span)
        if not self.own:
            if self.taken is None:
                return f"other programs had the CPUs, these got {rounded(got)} of {cpus}"
            return f"{self._others()} of {cpus}"
        text = f"{rounded(wanted)} at a time want to run on {cpus}"
        if wanted <= self.cpus:
            text += f" and get {rounded(got)}: they are bound to few of these, limited in CPU time,"
            text += " or want to run at the same moments"
            if self.taken is None:
                text += ", or other programs use them"
        if self.taken and self.taken > _MENTIONED * self.cpus * self.span:
            text += f"; {self._others()}"
        return text

    def _others(self) -> str:
        return f"other programs, hpcd among them, used {rounded((self.taken or 0.0) / self.span)}"


def measure_demand(db: Database, lines: I64, waited: float) -> CpuDemand:
    """Measure the demand of the trace ``lines``, which ``waited`` seconds for a CPU."""
    start, end = db.lines.start[lines], db.lines.end[lines]
    span = float(end.max() - start.min()) / 1e9 if len(lines) else 0.0
    ran = float(db.line_totals("cpu_time")[lines].sum())
    ((cpus,),) = db.rows("SELECT sum(cpus) FROM host")
    return CpuDemand(ran, waited, span or 1.0, int(cpus or 0), _taken(db, span))


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
