"""Findings about a recording, in sentences: the first lines of a report and of each view.

First losses of a fifth of the threads' time and more, the costliest before the others; then the
smaller ones and where the work is done. Each has an amount, what it is a share of, and a place: a
call path where there is one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.database import Database
from hpcd.analysis.findings.finding import (
    LEAST_SHARE,
    Finding,
    amount_text,
    most_of,
    percent,
    whose_time,
)
from hpcd.analysis.findings.recorded_findings import file_calls, held_memory, message_waits
from hpcd.analysis.findings.time_use import TimeUse, Use
from hpcd.analysis.parallel.imbalance import Imbalance, measure
from hpcd.analysis.parallel.ranks import find_ranks, find_threads, has_ranks
from hpcd.analysis.parallel.tree_matching import path_labels
from hpcd.analysis.profile.row_text import CALLS, run_name, shorten
from hpcd.analysis.profile.working_lines import working_lines
from hpcd.array_types import Mask
from hpcd.wording import counted

# Work has to be done; a loss of this share comes first, even beside a larger share of work.
_LARGE = 0.2
_UNEVEN = 0.05
_NAME, _PATH = 60, 110
# A process is mentioned that takes this multiple of the mean of its program's processes, and this
# share of theirs.
_STANDS_OUT, _ALONE = 1.3, 0.2
# An imbalance explains waits for others of which it is this share.
_EXPLAINS = 0.6
# Which thread was waited for follows from the records, not from sums; of more it is not said.
_MOST_RECORDS, _MOST_LINES = 4_000_000, 512
# Processes that live at most this long, and at least as many, cost more to start than they do.
_BRIEF_NS, _MANY = 50_000_000, 20
# Source files on the command line of a compiler.
_SOURCE = re.compile(r"\.(c|cc|cpp|cxx|C|cu|m|mm|f|F|f90|F90|rs|go|java|hs|ml|swift)$")
_TEAM = re.compile(r"(GOMP|gomp|__kmp)\w*(barrier|parallel)|GOMP_parallel\w*|__kmpc_fork\w*")
_WAITS = {
    Use.LOCKS: ("locks", "Threads wait for locks"),
    Use.OTHERS: ("communication", "Threads wait for others"),
    Use.OPENMP: ("communication", "Threads wait for their team in OpenMP's run-time library"),
    Use.SLEEP: ("sleep", "Threads sleep"),
    Use.DEVICES: ("blocked", "Threads are blocked by the kernel"),
}
_BLAMED = (Use.LOCKS, Use.OTHERS, Use.OPENMP)


def scene(db: Database) -> str:
    """Describe the recording in a sentence."""
    lines = db.lines
    if not len(lines) or not db.duration_ns:
        return "No thread was recorded."
    processes = len(np.unique(lines.process))
    ranks = len(np.unique(lines.groups("rank")[0][lines.rank >= 0])) if has_ranks(db) else 0
    who = counted(ranks, "rank") if ranks else counted(processes, "process", "processes")
    text = f"{who} with {counted(len(lines), 'thread')} over {db.duration_ns / 1e9:.3g} s"
    if "cpu_time" in db.metrics.names:
        busy = float(db.metrics.exclusive("cpu_time").sum()) * 1e9 / db.duration_ns
        text += f", on average {busy:.2g} CPUs busy" if busy < 99.5 else f", {busy:,.0f} CPUs busy"
    idle = int(np.count_nonzero(~working_lines(db)))
    if idle:
        text += f"; {idle:,} of the threads hardly ran"
    return text + "."


def findings(db: Database) -> list[Finding]:
    """Return the findings: losses, the costliest first, then where the work is done.

    O(cells), and O(records) of recordings that are not large, for which thread was waited for.
    """
    if not len(db.lines) or "cpu_time" not in db.metrics.names:
        return []
    use = TimeUse(db)
    if use.total <= 0:
        return []
    sharing = _sharing(db)
    waits = list(_waiting(db, use, sharing))
    lost = [*waits, *_runnable(db, use), *_brief_processes(db, use), *file_calls(db, use),
            *message_waits(db, use), *held_memory(db, use)]  # fmt: skip
    lost.sort(key=lambda finding: -finding.share)
    for uneven in _imbalance(db, use, sharing):
        # Before the waits that it explains.
        before = [
            one.share <= uneven.share
            or (one.kind == "communication" and uneven.share > _EXPLAINS * one.share)
            for one in lost
        ]
        lost.insert(before.index(True) if any(before) else len(lost), uneven)
    work = [*_processes(db), *_work(use)]
    # What other programs cause cannot be mended in this one.
    outside = [finding for finding in lost if finding.kind == "outside"]
    lost = [finding for finding in lost if finding.kind != "outside"]
    large = [finding for finding in lost if finding.share >= _LARGE]
    rest = [*(finding for finding in lost if finding.share < _LARGE), *work]
    return large + sorted(rest, key=lambda finding: -finding.share) + outside


def _processes(db: Database) -> Iterator[Finding]:
    """Yield a finding on the program that used most of the CPU time, where there are several
    processes and no ranks."""
    lines = db.lines
    words, code = lines.texts("process")
    if has_ranks(db) or len(np.unique(lines.process)) < 2:
        return
    cost = sum_by(code, db.line_totals("cpu_time"), len(words))
    top, total = int(cost.argmax()), float(cost.sum())
    if total <= 0 or cost[top] < LEAST_SHARE * total:
        return
    count = len(np.unique(lines.process[code == top]))
    many = f" ({count:,} processes)" if count > 1 else ""
    row, line, used = _costliest(db, code == top)
    more = ""
    if count > 1 and used > max(_STANDS_OUT / count, _ALONE) * cost[top]:
        more = f", of which process {row.pid}{row.works_on} {amount_text(used, 's')}"
    yield Finding(
        "processes", f"{shorten(words[top], _NAME)}{many} used", float(cost[top]), "s",
        float(cost[top]) / total, "the CPU time", more=more, line=line if more else None,
    )  # fmt: skip


class _Costliest(NamedTuple):
    pid: int
    works_on: str


def _costliest(db: Database, chosen: Mask) -> tuple[_Costliest, int, float]:
    """Return the process of ``chosen`` lines that used most CPU time, its first line of these, and
    how much it used."""
    rows = np.where(chosen, db.lines.process, 0)
    used = np.bincount(rows[chosen], db.line_totals("cpu_time")[chosen])
    top = int(used.argmax())
    ((pid, command),) = db.rows("SELECT pid, command FROM process WHERE id = ?", top)
    try:
        words = [str(word) for word in json.loads(command or "[]")]
    except (ValueError, TypeError):
        words = []
    source = next((word for word in words[1:] if _SOURCE.search(word)), "")
    works_on = f" ({shorten(source.rpartition('/')[2], _NAME)})" if source else ""
    line = int(np.flatnonzero(chosen & (db.lines.process == top))[0])
    return _Costliest(int(pid), works_on), line, float(used[top])


def _work(use: TimeUse) -> Iterator[Finding]:
    """Yield the procedure in which most work is done, with its callers, and the one for which the
    kernel does most."""
    work, system = use.seconds(Use.WORK), use.seconds(Use.SYSTEM)
    total = float(sum(use.cpu(kind).sum() for kind in Use))
    for kind, subject, seconds in (
        ("hot", "Most work is done in {}:", work),
        ("system", "The kernel works for {}:", system),
    ):
        top = next(iter(use.procedures(seconds)), None)
        if top is None or top.seconds < LEAST_SHARE * total:
            continue
        place, more, name = "", "", top.words
        if name.startswith("["):
            # An address says nothing: [libfoo.so+0x1234].
            name = f"code of {name[1:-1].partition('+0x')[0]} that has no names"
        else:
            paths = use.places(np.where(use.inside(name), seconds, 0.0))
            place, more = most_of(paths, top.seconds)
        text = subject.format(shorten(name, _NAME))
        yield Finding(
            kind, text, top.seconds, "s", top.seconds / total, "the CPU time", place, more,
            use.name(top),
        )  # fmt: skip


def _waiting(db: Database, use: TimeUse, sharing: Imbalance | None) -> Iterator[Finding]:
    """Yield what working threads wait for, on a CPU or off it."""
    ranked = has_ranks(db)
    for kind, (name, subject) in _WAITS.items():
        seconds = use.seconds(kind)
        total = float(seconds.sum())
        if total < LEAST_SHARE * use.total:
            continue
        if ranked:
            subject = subject.replace("Threads", "Ranks")
        paths = use.places(seconds)
        # A team's threads wait outside of the program's procedures.
        own = [place for place in paths if place.procedure]
        place, more = most_of(own or paths, total)
        if kind in _BLAMED:
            more += _meanwhile(sharing, place)
        yield Finding(
            name, f"{subject}:", total, "s", total / use.total, whose_time(ranked), place, more,
            use.name(own[0]) if own else "",
        )  # fmt: skip


def _sharing(db: Database) -> Imbalance | None:
    """Measure how ranks, or threads, share the work; None where there are not several, or more
    than can be looked at."""
    ranked = has_ranks(db)
    ranks = find_ranks(db) if ranked else find_threads(db)
    records = int(db.metrics.exclusive("samples").sum())
    if len(ranks) < 2 or len(ranks.line) > _MOST_LINES or records > _MOST_RECORDS:
        return None
    return measure(db)


def _meanwhile(sharing: Imbalance | None, place: str) -> str:
    """Say what others did while threads waited for them at ``place``, if much of it was in one
    procedure."""
    if sharing is None or sharing.blame.sum() <= 0:
        return ""
    labels = [place.label for place in sharing.matching.places]
    blame = sum_by(sharing.matching.place_of, sharing.blame, len(labels))
    top, total = int(blame.argmax()), float(blame.sum())
    if blame[top] < 0.3 * total or not top or labels[top].startswith("["):
        return ""
    by_rank = sharing.blame_of_rank
    late = int(by_rank.argmax())
    who = "others"
    if by_rank[late] >= 0.6 * by_rank.sum():
        who = f"{sharing.ranks.kind} {sharing.ranks.number[late]}"
    at_once = "; one at a time:" if labels[top] in place.split(CALLS) else ";"
    return f"{at_once} {percent(blame[top] / total)} of it while {who} worked in {labels[top]}"


def _imbalance(db: Database, use: TimeUse, sharing: Imbalance | None) -> Iterator[Finding]:
    """Ranks, or threads of one team, of which one works longer than the others."""
    if sharing is None:
        return
    ranks, work = sharing.ranks, sharing.inclusive
    mean, most, number = float(work.mean[0]), float(work.maximum[0]), int(work.most[0])
    loss = (most - mean) * len(ranks) / use.total
    if mean <= 0 or most / mean - 1 < _UNEVEN:
        return
    own = np.where(sharing.own.most == number, sharing.own.imbalance, 0.0)
    node = int(own.argmax())
    several = int(np.count_nonzero(sharing.by_rank(node) > LEAST_SHARE * sharing.own.maximum[node]))
    # Threads that share neither barriers nor procedures need not do the same.
    team = several >= 2 or any(map(_TEAM.match, db.procedures.name))
    if not has_ranks(db) and (loss < LEAST_SHARE or not team):
        return
    names = [name for name in path_labels(sharing.matching, node) if name != "_start"]
    path = run_name(names, _PATH) if node and names else ""
    kind = ranks.kind
    at = int(np.flatnonzero(ranks.number == number)[0])
    yield Finding(
        "imbalance",
        f"{kind.capitalize()} {number} works {amount_text(most, 's')}, {kind}s on average"
        f" {amount_text(mean, 's')}: balance would save up to",
        most - mean, "s", loss, f"the {kind}s' time",
        f"{amount_text(float(own[node]), 's')} in {path}" if path else "",
        line=int(ranks.line[np.flatnonzero(ranks.of_line == at)[0]]),
    )  # fmt: skip


def _runnable(db: Database, use: TimeUse) -> Iterator[Finding]:
    """Yield how long threads that could run waited for a CPU."""
    seconds = use.seconds(Use.RUNNABLE)
    total = float(seconds.sum())
    if total < LEAST_SHARE * use.lived:
        return
    demand = use.demand
    cpus = counted(demand.cpus, "CPU")
    if demand.outside:
        more = f": other programs had the CPUs, these got {demand.got:.2g} of {cpus}"
    elif demand.got > 0.75 * demand.cpus:
        more = f": {demand.wanted:.2g} at a time want to run on {cpus}"
    else:
        more = (
            f": {demand.wanted:.2g} at a time want to run and get {demand.got:.2g} of {cpus};"
            " they are bound to few of these, or other programs use them"
        )
    own = [place for place in use.places(seconds) if place.procedure]
    place, _ = most_of(own, total)
    yield Finding(
        "outside" if demand.outside else "runnable", "Threads wait for a CPU", total, "s",
        total / use.lived, whose_time(has_ranks(db)), place, more,
    )  # fmt: skip


def _brief_processes(db: Database, use: TimeUse) -> Iterator[Finding]:
    """Yield a finding on many processes that live for a moment each."""
    lines = db.lines
    _, process = np.unique(lines.process, return_inverse=True)
    start = np.full(int(process.max()) + 1, np.iinfo(np.int64).max)
    end = np.zeros(len(start), np.int64)
    np.minimum.at(start, process, lines.start)
    np.maximum.at(end, process, lines.end)
    life = (end - start)[end - start < _BRIEF_NS] / 1e9
    total, span = float(life.sum()), db.duration_ns / 1e9
    if len(life) < _MANY or total < LEAST_SHARE * span:
        return
    places = use.places(use.seconds(Use.CHILDREN))
    yield Finding(
        "children",
        f"{len(life):,} processes live {amount_text(total / len(life), 's')} each, together",
        total, "s", total / span, "the time recorded",
        f"started by {places[0].words}" if places else "",
    )  # fmt: skip
