"""Rules on what threads wait for: locks, others, devices, sleep, and a CPU."""

from __future__ import annotations

from collections.abc import Iterator

from hpcd.analysis.findings.context_use import FOR_OTHERS, Use
from hpcd.analysis.findings.facts import Facts
from hpcd.analysis.findings.finding import LEAST_SHARE, Finding, most_of
from hpcd.analysis.findings.phrase import Phrase
from hpcd.analysis.findings.rule import FindingRule
from hpcd.analysis.findings.work_sharing import meanwhile

_WAITS = {
    Use.LOCKS: ("locks", "Threads wait for locks"),
    Use.OTHERS: ("communication", "Threads wait for others"),
    Use.OPENMP: ("communication", "Threads wait in OpenMP"),
    Use.SLEEP: ("sleep", "Threads sleep"),
    Use.ANSWERS: ("network", "Threads wait for the network"),
    Use.DEVICES: ("blocked", "Threads are blocked by the kernel"),
    Use.STOPPED: ("blocked", "Threads are stopped by a signal or a debugger"),
}
# Of all the threads' time, that in which they had nothing to do among it: nobody would notice if
# less were saved.
_LEAST = 0.01
# Of fewer samples the error is a third or more.
_SAMPLES = 10
# A thread that had no CPU for a time is late by a part of that time, and its waiters wait longer;
# not so for a lock, which is waited for while another works with it.
_LATE = 0.02


def _waiting(facts: Facts) -> Iterator[Finding]:
    """Yield what working threads wait for, on a CPU or off it."""
    use = facts.use
    for kind, (name, subject) in _WAITS.items():
        seconds = use.seconds(kind)
        total = float(seconds.sum())
        least = LEAST_SHARE * max(use.own, use.own_lifetime)
        enough = use.with_cpu(kind)
        if kind in FOR_OTHERS and enough < total:  # polling of which others took the CPUs
            enough = max(enough, min(facts.waited_for_work, total))
        if kind != Use.LOCKS and kind in FOR_OTHERS:
            least = max(least, _LATE * use.without_cpu)
            enough -= use.late(kind)
        if enough < max(least, _SAMPLES * facts.period):
            continue
        if kind == Use.LOCKS and 2 * float(seconds[use.contexts.gil].sum()) > total:
            subject = "Threads wait for Python's lock (GIL)"
        if facts.ranked:
            subject = subject.replace("Threads", "Ranks")
        paths = use.places.ranked(seconds, calls=kind != Use.LOCKS)
        # A team's threads wait outside of the program's procedures.
        own = [place for place in paths if place.procedure]
        known = own if sum(place.seconds for place in own) > LEAST_SHARE * total else paths
        place, more = most_of(known, total)
        if kind in FOR_OTHERS:
            path = known[0].path if known else ()
            outside, words = meanwhile(facts, kind, total, path, sole=not more)
            name, more = "outside" if outside else name, (*more, *words)
            # Of two call paths that of who is waited for tells more.
            place = place._replace(rank=int(any(phrase.path for phrase in words)))
        yield Finding(
            name, f"{subject}:", total, "s", total / use.lived, facts.whose_time, place, more,
            use.places.name(own[0]) if own else "",
        )  # fmt: skip


def _runnable(facts: Facts) -> Iterator[Finding]:
    """Yield how long threads that could run waited for a CPU, and others for these."""
    use = facts.use
    for kind, doing in (
        (Use.RUNNABLE, "wait for a CPU"),
        (Use.STARVED, "wait for others without a CPU"),
    ):
        seconds = use.seconds(kind)
        total = float(seconds.sum())
        if total < max(LEAST_SHARE * use.lived, _LEAST * use.lifetime):
            continue
        places = use.places.ranked(seconds, calls=kind != Use.RUNNABLE)
        own = [place for place in places if place.procedure]
        place, _ = most_of(own, total)
        yield Finding(
            "runnable" if use.demand.own else "outside",
            f"{'Ranks' if facts.ranked else 'Threads'} {doing}", total, "s",
            total / use.lived, facts.whose_time, place._replace(rank=1),
            # The report's heading has the first part alone.
            _with_interferer(facts, total) if kind == Use.RUNNABLE else (),
            use.places.name(own[0]) if own else "",
        )  # fmt: skip


def _with_interferer(facts: Facts, waited: float) -> tuple[Phrase, ...]:
    """Return the reason of waiting for a CPU: that threads are bound to few while others were idle,
    or else the interferer of most of the ``waited`` seconds, if that has a name. The rest, behind
    these, is left out first."""
    who, reason, crowded = facts.use.interferer, facts.use.demand.reason, facts.use.crowded
    if crowded and crowded.idle:
        return (Phrase(f": {crowded.sentence}"),)
    if who is None or not who.name or who.seconds < 0.5 * waited:
        return reason
    further = (phrase._replace(rank=max(phrase.rank, 2)) for phrase in reason)
    return (Phrase(f", while {who.name} ran"), *further)


WAITING = FindingRule(
    "waiting", _waiting,
    "threads that work otherwise wait for 5 % of their time and of their lives, or more: without"
    " what other programs had the CPUs for",
    "hold a lock for less time or split it; give all the same to do; do other work meanwhile",
    "who is waited for sleeps, has nothing to do or no CPU itself, or is late as it had none;"
    " threads that hardly run; waits for others, but for locks, of less than 2 % of the time"
    " without a CPU; input of processes that serve others",
)  # fmt: skip
RUNNABLE = FindingRule(
    "no CPU", _runnable,
    "threads that could run have no CPU for 5 % of the threads' time, or others wait for these",
    "as many threads as CPUs; no binding of several to one; other CPUs than other programs have; a"
    " higher limit of the control group",
)  # fmt: skip
