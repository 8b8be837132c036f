"""Findings about a recording, in sentences: the first lines of a report and of each view.

First losses of a fifth of the threads' time and more, the costliest before the others; then the
smaller ones, waits for a CPU while others were idle, and where the work is done. Each has an
amount, what it is a share of, and a place: a call path where there is one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.findings.context_use import Use
from hpcd.analysis.findings.facts import Facts
from hpcd.analysis.findings.finding import Finding
from hpcd.analysis.findings.openmp_findings import REGIONS
from hpcd.analysis.findings.overheads import BRIEF_PROCESSES, RECORDING
from hpcd.analysis.findings.recorded_findings import FILES, MEMORY, MESSAGES
from hpcd.analysis.findings.rule import FindingRule
from hpcd.analysis.findings.wait_rules import RUNNABLE, WAITING
from hpcd.analysis.findings.work import PROCESSES, WORK
from hpcd.analysis.findings.work_sharing import UNEVEN_WORK
from hpcd.analysis.parallel.ranks import has_ranks
from hpcd.analysis.profile.working_lines import working_lines
from hpcd.wording import counted, rounded

LOSSES = (RECORDING, WAITING, RUNNABLE, BRIEF_PROCESSES, FILES, MESSAGES, REGIONS, MEMORY)
RULES = {rule.name: rule for rule in (*LOSSES, UNEVEN_WORK, PROCESSES, WORK)}
"""All rules, by name. Of equal amounts the first rule's comes first."""

# Work has to be done; a loss of this share comes first, even beside a larger share of work.
_LARGE = 0.2
# An imbalance explains waits for others of which it is this share.
_EXPLAINS = 0.6
# Waits that are at most this multiple of those by recorded messages or regions are the same.
_COVERED = 1.5
_MOSTLY = 0.8


def scene(db: Database) -> str:
    """Describe the recording in a sentence."""
    lines = db.lines
    if not len(lines) or not db.duration_ns:
        return "No thread was recorded."
    processes = len(np.unique(lines.process))
    ranks = len(np.unique(lines.groups("rank")[0][lines.rank >= 0])) if has_ranks(db) else 0
    who = counted(ranks, "rank") if ranks else counted(processes, "process", "processes")
    text = f"{who} with {counted(len(lines), 'thread')} over {rounded(db.duration_ns / 1e9, 3)} s"
    if "cpu_time" in db.metrics.names:
        busy = float(db.metrics.exclusive("cpu_time").sum()) * 1e9 / db.duration_ns
        text += f", on average {rounded(busy)} CPUs busy"
    idle = int(np.count_nonzero(~working_lines(db)))
    if idle:
        text += f"; {idle:,} of the threads hardly ran"
    return text + "."


def findings(db: Database, facts: Facts | None = None) -> list[Finding]:
    """Return the findings: losses, the costliest first, then where the work is done. ``facts`` are
    those of ``db``, where they are at hand.

    O(cells), and O(records) of recordings that are not large, for which thread was waited for.
    """
    if not has_facts(db):
        return []
    facts = facts or Facts(db)
    if facts.use.lived <= 0:
        return []
    lost = [finding for rule in LOSSES for finding in _found(rule, facts)]
    recorded = [finding for finding in lost if finding.rule in (MESSAGES.name, REGIONS.name)]
    lost = [one for one in lost if one.rule != WAITING.name or not _same(one, recorded, facts)]
    lost.sort(key=lambda finding: -finding.share)
    for uneven in _found(UNEVEN_WORK, facts):
        # Before the waits that it explains.
        before = [
            one.share <= uneven.share
            or (one.kind in ("communication", "messages") and uneven.share > _EXPLAINS * one.share)
            for one in lost
        ]
        lost.insert(before.index(True) if any(before) else len(lost), uneven)
    work = [*_found(PROCESSES, facts), *_found(WORK, facts)]
    # What recording and other programs cause cannot be mended in this one.
    outside = [finding for finding in lost if finding.kind in ("recording", "outside")]
    lost = [finding for finding in lost if finding not in outside]
    # Of the time that was the threads' own, so that their losses come first also beside others.
    scale = facts.use.lived / facts.use.own if facts.use.own > 0 else 1.0

    def share(finding: Finding) -> float:
        return finding.share * (scale if finding.whole == facts.whose_time else 1.0)

    large = [one for one in lost if share(one) >= _LARGE and not _beside_idle_cpus(one, facts)]
    rest = [*(finding for finding in lost if finding not in large), *work]
    return large + sorted(rest, key=lambda finding: -share(finding)) + outside


def has_facts(db: Database) -> bool:
    """Whether ``db`` has threads whose CPU time is known."""
    return bool(len(db.lines)) and "cpu_time" in db.metrics.names


def _found(rule: FindingRule, facts: Facts) -> list[Finding]:
    return [replace(finding, rule=rule.name) for finding in rule.find(facts)]


def _same(wait: Finding, recorded: list[Finding], facts: Facts) -> bool:
    """Whether ``recorded`` messages or regions explain most of a ``wait`` for others: that in calls
    of MPI, of which these have the part that is waiting, or most of its time."""
    if wait.kind not in ("communication", "outside"):
        return False
    if any(one.rule == MESSAGES.name for one in recorded) and _in_messages(facts):
        return True
    return any(wait.share < _COVERED * one.share for one in recorded)


def _beside_idle_cpus(finding: Finding, facts: Facts) -> bool:
    """Whether ``finding`` is on threads that wait for a CPU, not bound to it, while others are
    idle. Where a thread wakes another and then waits for its answer, both on one CPU, a second one
    would not save what each waits for the other to leave it."""
    crowded = facts.use.crowded
    bound = crowded is not None and crowded.idle
    return finding.rule == RUNNABLE.name and facts.use.demand.enough and not bound


def _in_messages(facts: Facts) -> bool:
    """Whether most of the ranks' time for others is in calls of MPI."""
    seconds = facts.use.seconds(Use.OTHERS)
    inside = float(seconds[facts.use.contexts.messages].sum())
    return inside > _MOSTLY * float(seconds.sum())
