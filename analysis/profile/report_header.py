"""The header of a report: facts about a database, as text or JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.database.metrics import RECORDS
from hpcd.analysis.database.seen_processes import seen_part
from hpcd.analysis.profile.costs import sampling_errors
from hpcd.analysis.profile.working_lines import working_lines
from hpcd.analysis.symbols.frame_names import marker_name
from hpcd.measurement.seen_part import SeenPart
from hpcd.model import frame
from hpcd.model.codes import UnwindStatus
from hpcd.model.unwind_status import UNWIND_LABELS, is_whole, was_walked
from hpcd.wording import counted, percent

# Of the CPU time: what the hypervisor took, for a line of its own.
_STOLEN_SHARE = 0.02
_ENDINGS = {status.value: status for status in UnwindStatus}


@dataclass(slots=True)
class HeaderFacts:
    """HeaderFacts of a report's header. Counts are over all measurements."""

    database: str
    measurements: list[str]
    hosts: list[str]
    lines: int
    processes: int
    duration_s: float
    contexts: int
    expected: int | None
    taken: int | None
    recorded: int
    unexplained: int = 0
    uncounted: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    complete: int = 0
    truncated: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)
    sampled: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Sums of other metrics that are sampled, and the standard error of each at most."""
    damage: int = 0
    unclosed: int = 0
    stolen_s: float = 0.0
    idle_lines: int = 0
    seen: SeenPart = field(default_factory=SeenPart)
    findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        """The header as an object."""
        return {
            "database": self.database,
            "measurements": self.measurements,
            "hosts": self.hosts,
            "lines": self.lines,
            "idle_lines": self.idle_lines,
            "processes": self.processes,
            "duration_s": self.duration_s,
            "contexts": self.contexts,
            "samples": {
                "expected": self.expected,
                "unexplained": self.unexplained,
                "uncounted": self.uncounted,
                "taken": self.taken,
                "recorded": self.recorded,
                "dropped": dict(self.dropped),
                "error_of_a_tenth": self.share_error(0.1),
            },
            "seconds": self.seconds,
            "sampled": {
                metric: {"sum": total, "error_at_most": error}
                for metric, (total, error) in self.sampled.items()
            },
            "stolen_s": round(self.stolen_s, 2),
            "seen": {**self.seen._asdict(), "sentence": self.seen.sentence()},
            "unwind": {"complete": self.complete, "truncated": dict(self.truncated)},
            "damage": self.damage,
            "unclosed": self.unclosed,
            "findings": self.findings,
            "notes": self.notes,
        }

    def share_error(self, share: float) -> float | None:
        """One standard error of ``share`` (0 to 1) of the CPU time, by the number of samples; None
        where none were taken. That of a long steady thread is less: the clock is nearly even."""
        taken = (self.taken or 0) - sum(self.dropped.values())
        if taken <= 0 or "cpu_time" not in self.seconds:
            return None
        return float((share * (1 - share) / taken) ** 0.5)

    def as_text(self) -> list[str]:
        """The header as lines."""
        hosts = self.hosts[0] if len(self.hosts) == 1 else f"{len(self.hosts)} hosts"
        idle = f" ({self.idle_lines:,} hardly ran)" if self.idle_lines else ""
        lines = [
            f"{self.database}: {counted(len(self.measurements), 'measurement')} on {hosts}, "
            f"{counted(self.processes, 'process', 'processes')}, "
            f"{counted(self.lines, 'trace line')}{idle}, {self.duration_s:.1f} s, "
            f"{counted(self.contexts, 'calling context')}"
        ]
        if part := self.seen.sentence():
            lines.append(f"part of a run: {part}")
        samples = f"samples: {self.recorded:,} recorded"
        if self.taken is not None:
            samples = f"samples: {self.taken:,} taken"
            if self.expected:
                samples += f" ({self.expected:,} expected)"
            if self.unexplained:
                word = "more" if self.unexplained > 0 else "fewer"
                samples += f", {abs(self.unexplained):,} {word} for no known cause"
            if self.uncounted:
                word = "more" if self.uncounted > 0 else "fewer"
                samples += (
                    f", {abs(self.uncounted):,} {word} expected than by the scheduler's count"
                )
            samples += f", {sum(self.dropped.values()):,} dropped" + _causes(self.dropped)
            samples += f"; {self.recorded:,} records"
        error = self.share_error(0.1)
        if error is not None:
            samples += f"; a CPU share of 10 % has a standard error of {100 * error:.2g} points"
        lines.append(samples)
        lines += [
            f"{metric}: {total:,.0f}, standard error at most {error:,.0f}"
            for metric, (total, error) in self.sampled.items()
        ]
        if "blocked_time" in self.seconds:
            lines.append(
                "threads: "
                + ", ".join(
                    f"{self.seconds.get(metric, 0.0):,.1f} s {words}"
                    for metric, words in (
                        ("cpu_time", "on CPUs"),
                        ("blocked_time", "blocked"),
                        ("runnable_time", "waiting for a CPU"),
                    )
                )
            )
        if self.stolen_s >= _STOLEN_SHARE * self.seconds.get("cpu_time", 0.0) > 0:
            lines.append(
                f"stolen: a hypervisor took {self.stolen_s:,.1f} s of the machine's CPU time; "
                "the times above are without it"
            )
        paths = self.complete + sum(self.truncated.values())
        if paths:
            lines.append(
                f"call paths: {self.complete:,} complete ({percent(self.complete / paths, 2)}), "
                f"{sum(self.truncated.values()):,} truncated" + _causes(self.truncated)
            )
        if self.unclosed:
            lines.append(f"{counted(self.unclosed, 'measurement')} ended without being closed")
        if self.damage:
            lines.append(f"damaged parts were left out in {self.damage} places: see hpcd check")
        lines += [f"stands out: {finding}" for finding in self.findings]
        return lines + [f"note: {note}" for note in self.notes]


def gather_facts(db: Database) -> HeaderFacts:
    """The header of a report on ``db``."""
    facts = HeaderFacts(
        database=str(db.path),
        measurements=[row.name for row in db.measurements],
        hosts=sorted({row.host for row in db.measurements}),
        lines=len(db.lines),
        processes=len(np.unique(db.lines.process)),
        duration_s=round(db.duration_ns / 1e9, 3),
        contexts=len(db.cct) - 1,
        idle_lines=int(np.count_nonzero(~working_lines(db))),
        expected=0,
        taken=0,
        recorded=db.metrics.record_count,
        seconds={
            name: float(db.metrics.exclusive(name).sum())
            for name, unit in zip(db.metrics.names, db.metrics.units, strict=True)
            if unit == "s"
        },
        sampled={
            name: (float(db.metrics.exclusive(name).sum()), error)
            for name, error in sampling_errors(db).items()
        },
        seen=seen_part(db),
    )
    for row in db.measurements:
        samples = row.summary.samples
        # A recorder that was killed left counters older than its records, or none.
        facts.expected = _plus(facts.expected, samples.expected)
        facts.taken = _plus(facts.taken, samples.taken)
        facts.unexplained += samples.unexplained
        facts.uncounted += samples.uncounted
        facts.stolen_s += row.summary.machine.stolen_s
        facts.dropped.update(samples.dropped)
        facts.damage += len(row.damage)
        facts.unclosed += not row.closed
    marked = np.flatnonzero(frame.is_marker(db.cct.frame))
    inclusive = db.metrics.inclusive(RECORDS)
    facts.complete = facts.recorded
    for node in marked[inclusive[marked] > 0].tolist():
        code, number = int(db.cct.frame[node]) & 0xFF, int(inclusive[node])
        ending = _ENDINGS.get(code)
        if ending is not None and is_whole(ending):
            continue
        facts.complete -= number
        if ending is None or was_walked(ending):
            facts.truncated[marker_name(code) if ending is None else UNWIND_LABELS[ending]] += (
                number
            )
    if any(row.origin for row in db.measurements):
        # Other tools do not say where a call path had to end.
        facts.complete = 0
        facts.truncated.clear()
    return facts


def _plus(total: int | None, more: int | None) -> int | None:
    return None if total is None or more is None else total + more


def _causes(counts: Counter[str]) -> str:
    causes = [f"{cause} {number:,}" for cause, number in counts.most_common() if number]
    return f" ({', '.join(causes)})" if causes else ""
