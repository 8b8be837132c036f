"""Findings about a recording, in sentences: the first lines of a report and of each view.

First what takes the threads' time without doing their work, the costliest first; then where the
work is done. Each has an amount, what it is a share of, and a place: a call path where there is
one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.calls.memory import measure_memory
from hpcd.analysis.database import Database
from hpcd.analysis.messages.database_calls import communication
from hpcd.analysis.messages.wait_states import by_path
from hpcd.analysis.parallel.imbalance import Imbalance, measure
from hpcd.analysis.parallel.ranks import find_ranks, find_threads, has_ranks
from hpcd.analysis.parallel.time_use import Place, TimeUse, Use
from hpcd.analysis.parallel.tree_matching import path_labels
from hpcd.analysis.profile.row_text import amount, run_name, shorten
from hpcd.analysis.profile.working_lines import working_lines
from hpcd.array_types import Mask
from hpcd.errors import UsageError
from hpcd.model.calls import Group, ValueKind
from hpcd.wording import counted

# Less is no news.
_SHARE = 0.05
_UNEVEN = 0.05
_NAME, _PATH = 60, 110
_NO_FILES = ("socket", "pipe", "epoll", "eventfd", "timerfd", "tty")
# A process is mentioned that takes this multiple of the mean of its program's processes, and this
# share of theirs.
_STANDS_OUT, _ALONE = 1.3, 0.2
# An imbalance explains waits for others of which it is this share.
_EXPLAINS = 0.6
# Who made others wait follows from the records, not from sums: of so many at most.
_MOST_RECORDS, _MOST_LINES, _MOST_CALLS = 4_000_000, 512, 1_000_000
# Processes that live so briefly, and so many of them, cost more to start than they do.
_BRIEF_NS, _MANY = 50_000_000, 20
# Of memory that a process held most, what is still held of the second half of its time.
_LEAK = 0.3
# What a compiler is told to compile.
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


@dataclass(frozen=True)
class Finding:
    """A finding, in a sentence (``text``).

    ``kind`` is hot, system, locks, communication, sleep, blocked, runnable, imbalance, children,
    processes, io, messages or memory. ``subject`` takes ``value`` ``unit``, which is ``share`` (0
    to 1) of ``whole``, at ``place``, a call path or empty; ``more`` is what else is to be said.
    ``procedure`` is the display name of the one it is about, or empty; ``line`` the trace line it
    is about, or None.
    """

    kind: str
    subject: str
    value: float
    unit: str
    share: float
    whole: str
    place: str = ""
    more: str = ""
    procedure: str = ""
    line: int | None = None

    @property
    def text(self) -> str:
        """The sentence."""
        share = f", {_percent(self.share)} of {self.whole}" if self.whole else ""
        place = f", {self.place}" if self.place else ""
        return f"{self.subject} {_amount(self.value, self.unit)}{share}{place}{self.more}."

    def as_json(self) -> dict[str, Any]:
        """Its fields for the page, amounts in ``unit``."""
        return {**vars(self), "text": self.text}


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
    lost = [*waits, *_runnable(db, use), *_brief_processes(db, use), *_file_calls(db, use),
            *_messages(db, use), *_memory(db, use)]  # fmt: skip
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
    work.sort(key=lambda finding: -finding.share)
    # Other programs are no cause that lies in this one.
    outside = [finding for finding in lost if finding.kind == "outside"]
    return [finding for finding in lost if finding.kind != "outside"] + work + outside


def _processes(db: Database) -> Iterator[Finding]:
    """Yield a finding on the program that used most of the CPU time, where there are several
    processes and no ranks."""
    lines = db.lines
    words, code = lines.texts("process")
    if has_ranks(db) or len(np.unique(lines.process)) < 2:
        return
    cost = sum_by(code, db.line_totals("cpu_time"), len(words))
    top, total = int(cost.argmax()), float(cost.sum())
    if total <= 0 or cost[top] < _SHARE * total:
        return
    count = len(np.unique(lines.process[code == top]))
    many = f" ({count:,} processes)" if count > 1 else ""
    row, line, used = _costliest(db, code == top)
    more = ""
    if count > 1 and used > max(_STANDS_OUT / count, _ALONE) * cost[top]:
        more = f", of which process {row.pid}{row.works_on} {_amount(used, 's')}"
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
        if top is None or top.seconds < _SHARE * total:
            continue
        paths = use.places(np.where(use.inside(top.words), seconds, 0.0))
        text = subject.format(shorten(top.words, _NAME))
        place, more = _most_of(paths, top.seconds)
        yield Finding(
            kind, text, top.seconds, "s", top.seconds / total, "the CPU time", place, more,
            use.name(top),
        )  # fmt: skip


def _most_of(paths: list[Place], seconds: float) -> tuple[str, str]:
    """Return the costliest of ``paths`` in words, and up to three more that matter with shares."""
    shares = [(place, place.seconds / seconds) for place in paths[:4] if place.words]
    if not shares:
        return "", ""
    if shares[0][1] >= 0.9:
        return f"in {shares[0][0].words}", ""
    told = [f"{_percent(share)} in {place.words}" for place, share in shares if share >= _SHARE]
    return told[0] if told else f"in {shares[0][0].words}", "".join(f"; {one}" for one in told[1:])


def _waiting(db: Database, use: TimeUse, sharing: Imbalance | None) -> Iterator[Finding]:
    """Yield what working threads wait for, on a CPU or off it."""
    ranked = has_ranks(db)
    for kind, (name, subject) in _WAITS.items():
        seconds = use.seconds(kind)
        total = float(seconds.sum())
        if total < _SHARE * use.total:
            continue
        if ranked:
            subject = subject.replace("Threads", "Ranks")
        paths = use.places(seconds)
        # A team's threads wait outside of the program's procedures.
        own = [place for place in paths if place.procedure]
        place, more = _most_of(own or paths, total)
        if kind in _BLAMED:
            more += _meanwhile(sharing, place)
        yield Finding(
            name, f"{subject}:", total, "s", total / use.total, _whole(ranked), place, more,
            use.name(own[0]) if own else "",
        )  # fmt: skip


def _whole(ranked: bool) -> str:
    return "the ranks' time" if ranked else "the threads' time"


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
    at_once = "; one at a time:" if labels[top] in place.split(" > ") else ";"
    return f"{at_once} {_percent(blame[top] / total)} of it while {who} worked in {labels[top]}"


def _imbalance(db: Database, use: TimeUse, sharing: Imbalance | None) -> Iterator[Finding]:
    """Ranks, or threads of one team, of which one works longer than the others."""
    if sharing is None:
        return
    ranks, work = sharing.ranks, sharing.inclusive
    mean, most, number = float(work.mean[0]), float(work.maximum[0]), int(work.most[0])
    loss = (most - mean) * len(ranks) / use.total
    if mean <= 0 or most / mean - 1 < _UNEVEN or loss < _SHARE:
        return
    own = np.where(sharing.own.most == number, sharing.own.imbalance, 0.0)
    node = int(own.argmax())
    several = int(np.count_nonzero(sharing.by_rank(node) > _SHARE * sharing.own.maximum[node]))
    # Threads that share neither barriers nor procedures need not do the same.
    if not has_ranks(db) and several < 2 and not any(map(_TEAM.match, db.procedures.name)):
        return
    names = [name for name in path_labels(sharing.matching, node) if name != "_start"]
    path = run_name(names, _PATH) if node and names else ""
    kind = ranks.kind
    at = int(np.flatnonzero(ranks.number == number)[0])
    yield Finding(
        "imbalance",
        f"{kind.capitalize()} {number} works {_amount(most, 's')}, {kind}s on average"
        f" {_amount(mean, 's')}: balance would save up to",
        most - mean, "s", loss, f"the {kind}s' time",
        f"{_amount(float(own[node]), 's')} in {path}" if path else "",
        line=int(ranks.line[np.flatnonzero(ranks.of_line == at)[0]]),
    )  # fmt: skip


def _runnable(db: Database, use: TimeUse) -> Iterator[Finding]:
    """Yield how long threads that could run waited for a CPU."""
    seconds = use.seconds(Use.RUNNABLE)
    total = float(seconds.sum())
    if total < _SHARE * use.lived:
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
    place, _ = _most_of(own, total)
    yield Finding(
        "outside" if demand.outside else "runnable", "Threads wait for a CPU", total, "s",
        total / (use.lived), _whole(has_ranks(db)), place, more,
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
    if len(life) < _MANY or total < _SHARE * span:
        return
    places = use.places(use.seconds(Use.CHILDREN))
    yield Finding(
        "children",
        f"{len(life):,} processes live {_amount(total / len(life), 's')} each, together",
        total, "s", total / span, "the time recorded",
        f"started by {places[0].words}" if places else "",
    )  # fmt: skip


# --- what was asked for ---


def _file_calls(db: Database, use: TimeUse) -> Iterator[Finding]:
    """Yield the time of recorded calls on files."""
    functions = db.calls.of_group(Group.IO)
    if not functions:
        return
    calls = db.calls.select(use.lines.tolist(), None, None, functions, _MOST_CALLS)
    seconds = calls["weight"] * calls["duration"] / 1e9
    for function in functions:
        objects = [n for n, value in enumerate(function.values) if value.kind is ValueKind.OBJECT]
        mine = calls["function"] == function.id
        if objects:
            number = calls["value"][:, objects[0]]
            other = [at for at, row in db.calls.objects.items() if row.kind in _NO_FILES]
            seconds[mine & np.isin(number, other)] = 0
        elif "path" not in [value.name for value in function.values]:
            seconds[mine] = 0
    total = float(seconds.sum())
    if total < _SHARE * use.total:
        return
    by_function = sum_by(calls["function"], seconds, max(f.id for f in functions) + 1)
    top = int(by_function.argmax())
    name = next(function.name for function in functions if function.id == top)
    count = int(calls["weight"][calls["function"] == top].sum())
    by_node = sum_by(calls["node"], seconds, len(db.cct))
    place, more = _most_of(use.places(by_node), total)
    yield Finding(
        "io", "Calls on files take", total, "s", total / use.lived, _whole(has_ranks(db)),
        f"{_percent(float(by_function[top]) / total)} of it {count:,} calls of {name}, {place}",
        more,
    )  # fmt: skip


def _messages(db: Database, use: TimeUse) -> Iterator[Finding]:
    """Yield the wait states of recorded calls of MPI."""
    count = len(db.calls) if db.calls.of_group(Group.MPI) else 0
    if not 0 < count <= _MOST_CALLS:
        return
    try:
        job = communication(db)
    except UsageError:  # no ranks
        return
    groups = by_path(job.operations, job.waits)
    total = sum(group.seconds for group in groups)
    if total < _SHARE * use.total:
        return
    top = groups[0]
    yield Finding(
        "messages", "Calls of MPI wait for other ranks", total, "s", total / use.total,
        "the ranks' time",
        f"{_percent(top.seconds / total)} of it for rank {top.delaying_rank} ({top.kind.label})"
        f" {_at(use, top.node)}",
    )  # fmt: skip


def _memory(db: Database, use: TimeUse) -> Iterator[Finding]:
    """Yield the memory that the process with the highest peak held, and what it went on to gain."""
    if not db.calls.of_group(Group.MEMORY) or len(db.calls) > _MOST_CALLS:
        return
    processes = measure_memory(db)
    if not processes or not processes[0].peak:
        return
    whole = processes[0]
    lines = np.flatnonzero(db.lines.process == whole.process)
    middle = int(db.lines.start[lines].min() + db.lines.end[lines].max()) // 2
    (later,) = measure_memory(db, [whole.process], middle)
    gained = np.minimum(later.paths.touched, later.paths.at_end)
    grown = int(gained.sum())
    subject = f"{whole.name} ({whole.pid}) held"
    if grown > _LEAK * whole.peak and whole.at_end >= 0.9 * whole.peak:
        top = int(gained.argmax())
        held = int(whole.paths.at_end[whole.paths.name.index(later.paths.name[top])])
        yield Finding(
            "memory", f"{subject} ever more memory, at its end", whole.at_end, "B",
            whole.at_end / whole.peak, "its peak",
            f"{_amount(held, 'B')} of it {_at(use, int(later.paths.node[top]))}",
        )  # fmt: skip
        return
    yield Finding(
        "memory", f"{subject} at most", whole.peak, "B", 0.0, "",
        f"{_amount(int(whole.paths.at_peak[0]), 'B')} of it {_at(use, int(whole.paths.node[0]))}",
    )  # fmt: skip


def _at(use: TimeUse, node: int) -> str:
    """Return the call path of a context, in words."""
    return _most_of(use.places(np.bincount([node], [1.0], use.nodes)), 1.0)[0]


def _amount(value: float, unit: str) -> str:
    if unit == "B":
        return f"{value / 1e6:,.1f} MB"
    return f"{value * 1e3:.2g} ms" if 0 < value < 0.01 else amount(value, unit)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
