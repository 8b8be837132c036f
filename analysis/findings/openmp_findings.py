"""Findings on recorded regions of OpenMP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from hpcd.analysis.calls.openmp_regions import openmp_report, records_regions
from hpcd.analysis.findings.facts import Facts
from hpcd.analysis.findings.finding import LEAST_SHARE, Finding
from hpcd.analysis.findings.phrase import Phrase
from hpcd.analysis.findings.rule import FindingRule
from hpcd.wording import percent

_MOST_CALLS = 1_000_000


def _imbalance(facts: Facts) -> Iterator[Finding]:
    """Yield how long threads of regions wait for others, and the region with most of it."""
    db = facts.db
    if not records_regions(db) or len(db.calls) > _MOST_CALLS:
        return
    regions = openmp_report(db).regions
    total = sum(region.imbalance_s for region in regions)
    if total < LEAST_SHARE * facts.use.lived:
        return
    worst = max(regions, key=lambda region: region.imbalance_s)
    place = worst.place
    line = f" ({PurePath(place.file).name}:{place.line})" if place.line else ""
    share = percent(worst.imbalance_s / total, 0)
    yield Finding(
        "imbalance", "OpenMP threads wait for the last", total, "s", total / facts.use.lived,
        facts.whose_time, Phrase(f"{share} in ", (place.procedure,)), (Phrase(line),),
        procedure=place.procedure,
    )  # fmt: skip


REGIONS = FindingRule(
    "regions", _imbalance,
    "threads of recorded OpenMP regions wait at barriers and ends for 5 % of the threads' time",
    "a dynamic schedule, or smaller chunks; fewer barriers (nowait); hpcd openmp has all regions",
)  # fmt: skip
