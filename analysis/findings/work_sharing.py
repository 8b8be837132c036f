"""Findings on how ranks, or threads, share the work, and what others did while they waited."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import takewhile
from operator import itemgetter

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.database import Database
from hpcd.analysis.findings.context_use import FOR_OTHERS, Use
from hpcd.analysis.findings.facts import Facts
from hpcd.analysis.findings.finding import LEAST_SHARE, Finding
from hpcd.analysis.findings.phrase import NO_PHRASE, Phrase
from hpcd.analysis.findings.places import Place, names_in_words, without_runs
from hpcd.analysis.findings.rule import FindingRule
from hpcd.analysis.parallel.imbalance import Imbalance
from hpcd.analysis.parallel.tree_matching import path_labels
from hpcd.analysis.profile.nameless import named_path, without_address
from hpcd.analysis.roles.role import NameRole, have
from hpcd.analysis.roles.role_table import role_table
from hpcd.array_types import F64, I64, Mask
from hpcd.wording import percent, time_text

_UNEVEN = 0.05
# A thread or rank that causes this part of the others' waits is named alone.
_MOSTLY = 0.6
_SAME = 0.8
# The share of a wait that a named procedure has at least, its callees included: a helper has less.
_NEARLY = 0.9
# What a rank does when others may wait for it, and how much more than the mean is much.
_BUSY, _MORE = (Use.WORK, Use.SYSTEM, Use.SLEEP, Use.DEVICES), 0.2
# A process's first thread that works for less of the mean hands out the work.
_TAKES_PART = 0.5
# Where a program begins: tells nothing of what it does.
_BEGINS = ("_start", "<module>")
# Threads that work one at a time for this share of the time take turns, and do not lack a CPU.
_TURNS = 0.9
_HANDED = (Use.OTHERS, Use.STARVED, Use.EVENTS)
# A sum of samples has the standard error of their number's square root.
_ERRORS = 3
# What ends the names of a library's threads that do the same, and their thread ids.
_NUMBER = re.compile(r"([ #_/-]*\d+)+$")
# As "rank 1234": takes no room from the call path.
_SHORT = 9


def meanwhile(
    facts: Facts, kind: Use, seconds: float, path: tuple[str, ...], *, sole: bool = False
) -> tuple[bool, tuple[Phrase, ...]]:
    """Return whether other programs caused ``seconds`` of waiting for others, most of it in the
    call ``path``, with ``sole`` the only one that is said, or all but a small part, and words on
    what those others did meanwhile: where much of it was in one procedure, and how much of it was
    without a CPU."""
    busy, by_line, where = facts.use.culprits(kind)
    if busy.sum() >= _SAME * seconds:
        return False, _blame(facts, kind, path, sole, busy / seconds, by_line, where)
    if kind == Use.LOCKS and facts.use.roots.known:
        return False, ()  # at work meanwhile is not who holds it
    sharing, use = facts.sharing, facts.use
    # Blame is known for all waits together: it describes waits of a kind that are most of them.
    if sharing is None or float(use.seconds(kind).sum()) < _SAME * _waited(facts):
        return False, ()
    whole = float(sharing.blame.sum()) + sharing.unblamed
    if not whole:
        return False, ()
    ready = 0.0 if use.demand.own else float(sharing.blame_while_ready.sum()) / whole
    no_cpu = Phrase(f"; {percent(ready, 0)} with others without a CPU", rank=1)
    words = (no_cpu,) if ready >= LEAST_SHARE else ()
    # A thread that had a CPU too late still works while the others wait, but no more than they.
    starved = ready > 0.5 and use.demand.outside + ready * seconds > 0.5 * use.lived
    starved &= not (_one_does_more(facts, sharing) or _take_turns(sharing))
    if starved or (1 - ready) * whole < LEAST_SHARE * use.own:
        return True, words
    polled = sum(float(use.seconds(kind).sum()) - use.with_cpu(kind) for kind in FOR_OTHERS)
    node, blamed = _costliest_part(sharing, polled)
    label = without_address(sharing.matching.places[sharing.matching.place_of[node]].label)
    if not node or label.startswith(("[truncated", "[address")):
        return False, words
    by_rank = sharing.blame_of_rank
    late = int(by_rank.argmax())
    who = ""
    if by_rank[late] >= _MOSTLY * by_rank.sum():
        who = f"{sharing.ranks.kind} {sharing.ranks.number[late]}"
    region = bool(have(role_table().of_labels([label]), NameRole.REGION)[0])
    callee = sharing.blamed_callee(node)
    label, *called = names_in_words([label, *[callee] * bool(callee)])
    if label in path and called:
        return False, (*_beside(blamed / whole, who, (label,), called[0]), *words)
    if label in path and (region or 2 * sharing.blame[node] < blamed):
        return False, words  # they wait for work in several places
    names = () if label in path else _without_common(_path(sharing, node), path)
    return False, (*_beside(blamed / whole, who, names), *words)


def _path(sharing: Imbalance, node: int) -> tuple[str, ...]:
    """Return the names of a context's callers and its own, in words, from the region of OpenMP that
    it is in, or the program's begin."""
    names = [
        name for name in named_path(path_labels(sharing.matching, node)) if name not in _BEGINS
    ]
    regions = np.flatnonzero(have(role_table().of_labels(names), NameRole.REGION))
    return without_runs(names_in_words(names[int(regions[-1]) if len(regions) else 0 :]))


def _common(names: tuple[str, ...], path: tuple[str, ...]) -> int:
    """Return how many names two call paths begin with together."""
    same = (one == other for one, other in zip(names, path, strict=False))
    return sum(1 for _ in takewhile(bool, same))


def _without_common(names: tuple[str, ...], path: tuple[str, ...]) -> tuple[str, ...]:
    """Return ``names`` without the callers that ``path`` begins with: the sentence has them."""
    return names[_common(names[:-1], path) :]


def _one_does_more(facts: Facts, sharing: Imbalance) -> bool:
    """Whether a rank, or thread, works, sleeps and is blocked for much longer than their mean."""
    ranks = sharing.ranks
    busy = facts.use.by_thread[ranks.line][:, _BUSY].sum(1)
    by_rank = sum_by(ranks.of_line, busy, len(ranks))
    return bool(by_rank.max() > (1 + _MORE) * by_rank.mean())


def _take_turns(sharing: Imbalance) -> bool:
    """Whether ranks, or threads, work one at a time, and none of them for most of it."""
    by_rank = sharing.blame_of_rank
    return sharing.alone >= _TURNS and bool(by_rank.max() < _MOSTLY * by_rank.sum())


def _waited(facts: Facts) -> float:
    """Seconds that threads waited for others, those in which they had nothing to do among them."""
    use = facts.use
    waited = sum(float(use.seconds(kind).sum()) for kind in (Use.LOCKS, Use.OTHERS, Use.OPENMP))
    return waited + float(use.seconds(Use.EVENTS)[use.contexts.arrivals].sum())


def _beside(share: float, who: str, names: tuple[str, ...], callee: str = "") -> tuple[Phrase, ...]:
    """Return in words that others, ``who`` alone if that is not empty, were in the call path
    ``names`` for a ``share`` of a wait: in none but that of who waits if it is empty."""
    much = percent(min(share, 1.0), 0)
    if not names and not callee:
        return (Phrase(f"; {much} one at a time"),)
    short = 0 < len(who) <= _SHORT
    beside = Phrase(f"; {much} with {who if short else 'others'} in ", names, callee)
    return (beside,) if short or not who else (beside, Phrase(f" ({who})", rank=2))


def _blame(
    facts: Facts, kind: Use, path: tuple[str, ...], sole: bool, share: F64, line: I64, node: I64
) -> tuple[Phrase, ...]:
    """Return who was busy meanwhile and where, in words: ``share`` of the waits each."""
    db = facts.db
    places = facts.use.places.ranked(sum_by(node, share, len(db.cct)))
    top = innermost_of_most(places, path)
    if not top.path and kind != Use.LOCKS:
        return _helpers(db, share, line)
    if not top.path or top.seconds < 0.5:
        return ()
    common = _common(top.path, path)
    if path == top.path and kind == Use.OTHERS:
        return ()  # they wait for each other there
    of_line = sum_by(line, share, len(db.lines))
    alone = of_line.max() >= _MOSTLY * share.sum()
    who = _thread(db, int(of_line.argmax()))
    # The callers that both have are said already.
    callee = top.callee if common < len(top.path) else ""
    if kind != Use.LOCKS:
        return _beside(top.seconds, who if alone else "", top.names[common:], callee)
    much = percent(min(top.seconds, 1.0), 0)
    if path == top.path and sole:
        held = Phrase(f"; held {much} there")
    else:
        names = top.names[common:] or ((), top.names[-1:])[not callee]
        held = Phrase(f"; held {much} in ", names, callee)
    return (held, Phrase(f" ({who})", rank=2)) if alone else (held,)


def innermost_of_most(places: list[Place], path: tuple[str, ...]) -> Place:
    """Return the innermost place on the costliest path that has nearly all of the time, callees
    included, and is not on the call ``path`` of the waiting thread; without such a place the
    costliest of ``places``, without places an empty one."""
    top = places[0] if places else Place((), "", 0.0, 0)
    total = sum(place.seconds for place in places)
    common = _common(top.path, path)
    for size in range(len(top.path), common, -1):
        inside = sum(one.seconds for one in places if one.path[:size] == top.path[:size])
        if inside >= _NEARLY * total:
            whole = size == len(top.path)
            callee = top.callee if whole else ""
            return Place(top.names[:size], callee, inside, top.procedure)
    return top


def _helpers(db: Database, share: F64, line: I64) -> tuple[Phrase, ...]:
    """Return which threads of a library, such as a garbage collector's, were busy meanwhile: those
    whose names differ in numbers alone are one."""
    of_name = defaultdict[str, float](float)
    for at, part in enumerate(sum_by(line, share, len(db.lines)).tolist()):
        if part > 0:
            of_name[_NUMBER.sub("", _thread(db, at))] += part
    name, much = max(of_name.items(), key=itemgetter(1), default=("", 0.0))
    if not name or name == "thread" or much < 0.5:
        return ()
    return (Phrase(f"; {percent(min(much, 1.0), 0)} with {name}", rank=1),)


def _thread(db: Database, line: int) -> str:
    """Return what a thread is called among those of its process."""
    label, _, thread = db.lines.labels([line])[0].rpartition(" · ")
    several = np.count_nonzero(db.lines.process == db.lines.process[line]) > 1
    if not label and several and db.lines.rank[line] < 0:
        return "the main thread"
    return f"thread {thread}" if thread.isdigit() else thread


def _costliest_part(sharing: Imbalance, polled: float) -> tuple[int, float]:
    """Return the innermost context in which, with all it calls, threads were for half of the time
    or more that others waited for those that had a CPU, and for how long (s). 0: there is none.
    ``polled`` seconds of waits had no CPU to poll on: in these all may have waited."""
    tree = sharing.matching.tree
    blame = sharing.blame - sharing.blame_while_ready
    blamed = tree.inclusive(blame)
    most = np.flatnonzero(blamed >= 0.5 * (blame.sum() + max(sharing.unblamed - polled, 0.0)))
    # Nodes are numbered by levels, and the nodes with half of the whole are one path.
    node = int(most.max(initial=0))
    return node, float(blamed[node])


def _idle_beside(facts: Facts, sharing: Imbalance, node: int, most: int, team: bool) -> Mask:
    """``bool[ranks]``: the threads of a ``team``, or those that share the context ``node``, if they
    have, where waits were recorded, nothing to do for the greater part of what the one of index
    ``most`` works longer; else none.

    Where whoever is free takes the next task, a thread that had a CPU for longer works for longer,
    and none waits for it but the one that gave the tasks, a process's first, which does less.
    """
    db, ranks = facts.db, sharing.ranks
    shares: Mask = sharing.by_rank(node) > LEAST_SHARE * sharing.own.maximum[node]
    if team:
        shares[:] = True
    used = facts.use.by_thread[ranks.line]
    if not db.metrics.knows_waits or np.count_nonzero(shares) < 2:
        polled = sum_by(ranks.of_line, used[:, FOR_OTHERS].sum(1), len(ranks))
        return (shares | (polled > 0)) & (np.count_nonzero(shares) >= 2)
    start, end = db.lines.start[ranks.line], db.lines.end[ranks.line]
    busy = used[:, _BUSY].sum(1)
    idle = (end[ranks.of_line == most].max() - start) / 1e9 - busy - used[:, Use.RUNNABLE]
    busy, idle = (sum_by(ranks.of_line, seconds, len(ranks)) for seconds in (busy, idle))
    first = ranks.of_line[start.argmin()]
    shares[first] &= team or busy[first] >= _TAKES_PART * busy[shares].mean()
    less = np.maximum(busy[most] - busy[shares], 0)
    return shares & bool(np.minimum(less, idle[shares]).sum() > 0.5 * less.sum())


def _uneven_work(facts: Facts) -> Iterator[Finding]:
    """Yield a finding on ranks, or threads of one team, of which one works longer than the rest."""
    db, use, sharing = facts.db, facts.use, facts.sharing
    if sharing is None:
        return
    ranks, work = sharing.ranks, sharing.inclusive
    mean, most, number = float(work.mean[0]), float(work.maximum[0]), int(work.most[0])
    own = np.where(sharing.own.most == number, sharing.own.imbalance, 0.0)
    node = int(own.argmax())
    at = int(np.flatnonzero(ranks.number == number)[0])
    # Threads that share neither barriers nor procedures need not do the same.
    team = _idle_beside(facts, sharing, node, at, bool(have(db.roles, NameRole.TEAM).any()))
    # Which thread of a run-time system's pool takes a task is chance.
    team &= not bool((have(db.roles, NameRole.EVENTS) & ~db.procedures.kernel).any())
    if not facts.ranked:
        if not team.any():
            return
        mean = float(sharing.whole_by_rank[team].mean())
    loss = (most - mean) * (len(ranks) if facts.ranked else np.count_nonzero(team)) / use.lived
    if mean <= 0 or most / mean - 1 < _UNEVEN or loss < LEAST_SHARE * use.own / use.lived:
        return
    lines = ranks.line[ranks.of_line == at]
    if most - mean < LEAST_SHARE * use.longest(lines):
        return
    # A thread of a pool waits for the work that others hand out, late where these lack a CPU.
    if use.by_thread[lines][:, _HANDED].sum() > most:
        return
    # Of sampled time a difference within the error says nothing.
    if most - mean < _ERRORS * (most * facts.period) ** 0.5:
        return
    path = _path(sharing, node) if node else ()
    if not path and not facts.ranked:
        return  # in a library: which of its threads takes a task is its affair
    kind = ranks.kind
    yield Finding(
        "imbalance",
        f"{kind.capitalize()} {number} works {time_text(most)} (mean {time_text(mean, most)}):"
        " balance saves",
        most - mean, "s", loss, f"the {kind}s' time", Phrase("in ", path) if path else NO_PHRASE,
        line=int(lines[0]),
    )  # fmt: skip


UNEVEN_WORK = FindingRule(
    "uneven work",
    _uneven_work,
    "ranks, or threads of a team, would take 5 % less time if all worked for as long, and the one"
    " that works most would live 5 % less",
    "divide the work evenly, or in more parts than there are threads",
    "threads that live one after another, or share no procedure, or of which none waits meanwhile;"
    " those of a run-time system's pool, as Go's, or of which the busiest waits for longer",
)
