"""Rules on what comes beside the work: brief processes, and recording itself."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.findings.context_use import Use
from hpcd.analysis.findings.facts import Facts
from hpcd.analysis.findings.finding import LEAST_SHARE, Finding
from hpcd.analysis.findings.phrase import NO_PHRASE, Phrase
from hpcd.analysis.findings.rule import FindingRule
from hpcd.array_types import Mask
from hpcd.wording import time_text

# How to record at less cost, by the programs that cost most of it.
_LESS = {
    "_on_call_": "recording without --io or --memory",
    "_on_page": "recording without --memory",
    "_on_probe": "probing fewer functions",
}
# Processes that live at most this long, and at least as many, cost more to start than they do.
_BRIEF_NS, _MANY = 50_000_000, 20
# Seconds of a process's own work, compared with which the cost of its start is small.
_WORTH = 0.005


def _recording(facts: Facts) -> Iterator[Finding]:
    """Yield how much of the threads' CPU time the recording took, and what would take less."""
    db, use = facts.db, facts.use
    taken = float(use.recording.sum())
    total = taken + use.cpu_time
    if not taken or taken < LEAST_SHARE * total:
        return
    of_procedure = sum_by(db.procedure_of_node, use.recording, len(db.procedures.name))
    less = "a lower --frequency or --no-blocked"
    for program, advice in _LESS.items():
        named = np.array([program in name for name in db.procedures.name])
        # What the programs call has no name of theirs: their own part tells.
        if of_procedure[named].sum() > 0.2 * taken:
            less = advice
    yield Finding(
        "recording", "Recording itself took", taken, "s", taken / total, "the CPU time",
        more=(Phrase(f": {less} costs less"),),
    )  # fmt: skip


def _brief_processes(facts: Facts) -> Iterator[Finding]:
    """Yield a finding on many processes that live for a moment each."""
    db, use = facts.db, facts.use
    lines = db.lines
    _, process = np.unique(lines.process, return_inverse=True)
    start = np.full(int(process.max()) + 1, np.iinfo(np.int64).max)
    end = np.zeros(len(start), np.int64)
    np.minimum.at(start, process, lines.start)
    np.maximum.at(end, process, lines.end)
    brief = np.flatnonzero(end - start < _BRIEF_NS)
    if len(brief) < _MANY:
        return
    # They may start one another, and run beside one another.
    start, end = (times[brief[np.argsort(start[brief])]] for times in (start, end))
    latest = np.maximum.accumulate(end)
    without = int(np.maximum(start[1:] - latest[:-1], 0).sum())
    total, span = (int(latest[-1] - start[0]) - without) / 1e9, db.duration_ns / 1e9
    worth = _own_work(facts, np.isin(process, brief)) > _WORTH * len(brief)
    if total < LEAST_SHARE * span or worth:
        return
    mean = float((end - start).mean()) / 1e9
    places = use.places.ranked(use.seconds(Use.CHILDREN), calls=False)
    yield Finding(
        "children",
        f"{len(brief):,} processes live {time_text(mean)} each, at least one for",
        total, "s", total / span, "the time recorded",
        places[0].phrase("started by ") if places and places[0].path else NO_PHRASE,
    )  # fmt: skip


def _own_work(facts: Facts, chosen: Mask) -> float:
    """CPU seconds of ``chosen`` ``bool[lines]`` in the program's own procedures and their callees,
    without the start and end of processes."""
    contexts = facts.use.contexts
    seconds = facts.db.metrics.of_lines("cpu_time", np.flatnonzero(chosen))
    return float(seconds[(contexts.own > 0) & ~contexts.aside].sum())


RECORDING = FindingRule(
    "recording", _recording, "programs that trace take 5 % of the CPU time or more",
    "record less, or less often",
)  # fmt: skip
BRIEF_PROCESSES = FindingRule(
    "brief processes", _brief_processes,
    "20 processes or more live for less than 50 ms, and all of them for 5 % of the time or more",
    "do it in one process, or in few that go on",
    "each does 5 ms of work in the program's own procedures, or more",
)  # fmt: skip
