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
from hpcd.analysis.findings.context_use import Use
from hpcd.analysis.findings.finding import (
    LEAST_SHARE,
    Finding,
    most_of,
    whose_time,
)
from hpcd.analysis.findings.recorded_findings import file_calls, held_memory, message_waits
from hpcd.analysis.findings.time_use import TimeUse
from hpcd.analysis.findings.work_sharing import (
    meanwhile,
    measure_sharing,
    uneven_work,
)
from hpcd.analysis.parallel.imbalance import Imbalance
from hpcd.analysis.parallel.ranks import has_ranks
from hpcd.analysis.profile.nameless import without_address
from hpcd.analysis.profile.row_text import shorten
from hpcd.analysis.profile.working_lines import working_lines
from hpcd.array_types import Mask
from hpcd.wording import counted, rounded, time_text

# Work has to be done; a loss of this share comes first, even beside a larger share of work.
_LARGE = 0.2
_MOST = 0.5
# How to record at less cost, by the programs that cost most of it.
_LESS = {"_on_call_": "recording without --io or --memory", "_on_probe": "probing fewer functions"}
_NAME = 60
# A process is mentioned that takes this multiple of the mean of its program's processes, and this
# share of theirs.
_STANDS_OUT, _ALONE = 1.3, 0.2
# An imbalance explains waits for others of which it is this share.
_EXPLAINS = 0.6
# Waits that are at most this multiple of those by recorded messages are the same.
_COVERED = 1.5
# Processes that live at most this long, and at least as many, cost more to start than they do.
_BRIEF_NS, _MANY = 50_000_000, 20
# Source files on the command line of a compiler.
_SOURCE = re.compile(r"\.(c|cc|cpp|cxx|C|cu|m|mm|f|F|f90|F90|rs|go|java|hs|ml|swift)$")
_WAITS = {
    Use.LOCKS: ("locks", "Threads wait for locks"),
    Use.OTHERS: ("communication", "Threads wait for others"),
    Use.OPENMP: ("communication", "Threads wait for their team in OpenMP's run-time library"),
    Use.SLEEP: ("sleep", "Threads sleep"),
    Use.DEVICES: ("blocked", "Threads are blocked by the kernel"),
    Use.STOPPED: ("blocked", "Threads are stopped by a signal or a debugger"),
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
    text = f"{who} with {counted(len(lines), 'thread')} over {rounded(db.duration_ns / 1e9, 3)} s"
    if "cpu_time" in db.metrics.names:
        busy = float(db.metrics.exclusive("cpu_time").sum()) * 1e9 / db.duration_ns
        text += f", on average {rounded(busy)} CPUs busy"
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
    if use.lived <= 0:
        return []
    sharing = measure_sharing(db)
    messages = list(message_waits(db, use, sharing))
    waits = [wait for wait in _waiting(db, use, sharing) if not _same(wait, messages)]
    lost = [*_recording(db, use), *waits, *_runnable(db, use), *_brief_processes(db, use),
            *file_calls(db, use), *messages, *held_memory(db, use)]  # fmt: skip
    lost.sort(key=lambda finding: -finding.share)
    for uneven in uneven_work(db, use, sharing):
        # Before the waits that it explains.
        before = [
            one.share <= uneven.share
            or (one.kind in ("communication", "messages") and uneven.share > _EXPLAINS * one.share)
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


def _same(wait: Finding, messages: list[Finding]) -> bool:
    """Whether recorded ``messages`` explain most of a ``wait`` for others."""
    for_others = wait.kind in ("communication", "outside")
    return for_others and any(wait.share < _COVERED * message.share for message in messages)


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
        more = f", of which process {row.pid}{row.works_on} {time_text(used)}"
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
    total = use.cpu_time
    if not total:
        return
    for kind, seconds in (("hot", use.seconds(Use.WORK)), ("system", use.seconds(Use.SYSTEM))):
        top = next(iter(use.places.procedures(seconds)), None)
        library, spent = use.places.library(np.where(use.places.outside, seconds, 0.0))
        if spent > max(top.seconds if top else 0.0, LEAST_SHARE * total):
            subject = _subject(kind, shorten(library, _NAME), spent / total)
            yield Finding(kind, subject, spent, "s", spent / total, "the CPU time")
            continue
        if top is None or top.seconds < LEAST_SHARE * total:
            continue
        place, more, name = "", "", top.words
        if name.startswith("["):
            # An address says nothing: [libfoo.so+0x1234].
            module = without_address(name).strip("[]")
            code = "code made at run time" if module == "jit" else f"code of {module}"
            name = f"{code} that has no names"
        else:
            inside = np.where(use.places.inside(name), seconds, 0.0)
            paths = use.places.ranked(inside)
            place, more = most_of(paths, top.seconds)
            place = "" if paths and paths[0].words == name else place
            name = shorten(name, _NAME)
            # An interpreter, or a numerical library, works for a procedure that does little itself.
            library, spent = use.places.library(inside)
            if kind == "hot" and spent > 0.5 * top.seconds and library != use.places.module_of(top):
                name = f"{shorten(library, _NAME)} for {name}"
        share = top.seconds / total
        subject = _subject(kind, name, share)
        yield Finding(
            kind,
            subject,
            top.seconds,
            "s",
            share,
            "the CPU time",
            place,
            more,
            use.places.name(top),
        )


def _subject(kind: str, name: str, share: float) -> str:
    if kind == "system":
        return f"The kernel works for {name}:"
    return f"{'Most' if share >= _MOST else 'The largest part of the'} work is done in {name}:"


def _recording(db: Database, use: TimeUse) -> Iterator[Finding]:
    """Yield how much of the threads' CPU time the recording took, and what would take less."""
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
        more=f": {less} costs less",
    )  # fmt: skip


def _waiting(db: Database, use: TimeUse, sharing: Imbalance | None) -> Iterator[Finding]:
    """Yield what working threads wait for, on a CPU or off it."""
    ranked = has_ranks(db)
    for kind, (name, subject) in _WAITS.items():
        seconds = use.seconds(kind)
        total = float(seconds.sum())
        if total < LEAST_SHARE * use.lived:
            continue
        if ranked:
            subject = subject.replace("Threads", "Ranks")
        paths = use.places.ranked(seconds)
        # A team's threads wait outside of the program's procedures.
        own = [place for place in paths if place.procedure]
        known = own if sum(place.seconds for place in own) > LEAST_SHARE * total else paths
        place, more = most_of(known, total)
        if kind in _BLAMED:
            outside, words = meanwhile(sharing, use, total, place)
            name, more = "outside" if outside else name, more + words
        yield Finding(
            name, f"{subject}:", total, "s", total / use.lived, whose_time(ranked), place, more,
            use.places.name(own[0]) if own else "",
        )  # fmt: skip


def _runnable(db: Database, use: TimeUse) -> Iterator[Finding]:
    """Yield how long threads that could run waited for a CPU."""
    seconds = use.seconds(Use.RUNNABLE) + use.seconds(Use.STARVED)
    total = float(seconds.sum())
    if total < LEAST_SHARE * use.lived:
        return
    own = [place for place in use.places.ranked(seconds) if place.procedure]
    place, _ = most_of(own, total)
    why = use.demand.text
    yield Finding(
        "runnable" if use.demand.own else "outside", "Threads wait for a CPU", total, "s",
        total / use.lived, whose_time(has_ranks(db)), place, f": {why}" if why else "",
    )  # fmt: skip


def _brief_processes(db: Database, use: TimeUse) -> Iterator[Finding]:
    """Yield a finding on many processes that live for a moment each."""
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
    if total < LEAST_SHARE * span:
        return
    mean = float((end - start).mean()) / 1e9
    places = use.places.ranked(use.seconds(Use.CHILDREN))
    yield Finding(
        "children",
        f"{len(brief):,} processes live {time_text(mean)} each, one or more at a time for",
        total, "s", total / span, "the time recorded",
        f"started by {places[0].words}" if places else "",
    )  # fmt: skip
