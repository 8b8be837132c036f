"""Evidence of findings: the rule of each finding, and the facts that rules look at."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from hpcd.analysis.database import Database
from hpcd.analysis.findings.cpu_demand import CpuDemand
from hpcd.analysis.findings.facts import Fact, Facts
from hpcd.analysis.findings.finding import Finding
from hpcd.analysis.findings.findings import RULES, findings, has_facts
from hpcd.wording import rounded


@dataclass(frozen=True)
class Evidence:
    """The ``findings`` of a recording, and its ``facts``, the uses of the threads' time, of which
    ``counted`` seconds are those of ``whole``; ``demand`` is that for CPUs. Without CPU time there
    are none."""

    findings: list[Finding]
    facts: list[Fact]
    whole: str
    counted: float
    demand: CpuDemand | None

    def as_json(self) -> dict[str, object]:
        """All of it as an object; times in seconds."""
        return {
            "findings": [{**one.as_json(), "rule": _rule_texts(one.rule)} for one in self.findings],
            "facts": [
                {"name": one.name, "seconds": one.seconds, "of_all_threads": one.every}
                for one in self.facts
            ],
            "whole": self.whole,
            "counted": self.counted,
            "demand": asdict(self.demand) if self.demand else None,
        }

    def as_text(self) -> list[str]:
        """All of it in lines."""
        lines = []
        for one in self.findings:
            name, speaks, silent, helps = _rule_texts(one.rule).values()
            lines += [f"stands out: {one.text}", f"  rule: {name}; speaks where {speaks}"]
            lines += [f"  silent: {silent}"] * bool(silent) + [f"  helps: {helps}"]
        if self.demand is None:
            return lines
        lines.append(
            f"facts, in seconds of {self.whole}, of which {rounded(self.counted, 4)} count:"
        )
        lines += [
            f"{one.seconds:13,.3f}  {one.name} ({one.every:,.3f} of all threads)"
            for one in self.facts
        ]
        if self.demand.withheld:
            lines.append(
                f"{self.demand.withheld:13,.3f}  CPU time withheld by limits of control groups"
            )
        return lines


def gather_evidence(db: Database) -> Evidence:
    """Return the findings of ``db``, with what they follow from."""
    if not has_facts(db):
        return Evidence([], [], "", 0.0, None)
    facts = Facts(db)
    return Evidence(
        findings(db, facts), facts.named(), facts.whose_time, facts.use.lived, facts.use.demand
    )


def _rule_texts(name: str) -> dict[str, str]:
    rule = RULES[name]
    return {"name": name, "speaks": rule.speaks, "silent": rule.silent, "helps": rule.helps}
