"""Rules on where work is done: the procedure and the program that take most CPU time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.database import Database
from hpcd.analysis.findings.context_use import Use
from hpcd.analysis.findings.facts import Facts
from hpcd.analysis.findings.finding import LEAST_SHARE, Finding, most_of
from hpcd.analysis.findings.phrase import NO_PHRASE, Phrase
from hpcd.analysis.findings.places import names_in_words
from hpcd.analysis.findings.rule import FindingRule
from hpcd.analysis.profile.row_text import shorten
from hpcd.analysis.trace.process_titles import command_words, full_name, process_title
from hpcd.array_types import Mask
from hpcd.wording import percent, time_text

_MOST = 0.5
# The longest words before and after a name leave this room for the name in a sentence.
_NAME = 44
# A process is mentioned that takes this multiple of the mean of its program's processes, and this
# share of theirs.
_STANDS_OUT, _ALONE = 1.3, 0.2
# A program with this share of the CPU time in fewer processes is the recorded one, and so is a
# program with almost all of it, in any number of processes: no news.
_THE_PROGRAM, _FEW, _ALL = 0.6, 4, 0.95


def _processes(facts: Facts) -> Iterator[Finding]:
    """Yield a finding on the program that used most of the CPU time, where there are several
    processes and no ranks."""
    db, lines = facts.db, facts.db.lines
    programs, code = lines.texts("process")
    if facts.ranked or len(np.unique(lines.process)) < 2:
        return
    cost = sum_by(code, db.line_totals("cpu_time"), len(programs))
    top, total = int(cost.argmax()), float(cost.sum())
    if total <= 0 or cost[top] < LEAST_SHARE * total:
        return
    count = len(np.unique(lines.process[code == top]))
    row, line, used = _costliest(db, code == top)
    stands_out = count > 1 and used > max(_STANDS_OUT / count, _ALONE) * cost[top]
    alone = count >= _FEW and stands_out and used < _ALL * cost[top]
    if cost[top] > (_THE_PROGRAM if count < _FEW else _ALL) * total and not alone:
        return
    many = f" ({count:,} processes)" if count > 1 else ""
    more: tuple[Phrase, ...] = ()
    if stands_out:
        more = (
            Phrase(f", of which process {row.pid}", rank=1), Phrase(row.works_on, rank=2),
            Phrase(f" {time_text(used)}", rank=1),
        )  # fmt: skip
    yield Finding(
        "processes", f"{shorten(row.name, _NAME)}{many} used", float(cost[top]), "s",
        float(cost[top]) / total, "the CPU time", more=more, line=line,
    )  # fmt: skip


class _Costliest(NamedTuple):
    pid: int
    name: str
    works_on: str


def _costliest(db: Database, chosen: Mask) -> tuple[_Costliest, int, float]:
    """Return the process of ``chosen`` lines that used most CPU time, its first line of these, and
    how much it used."""
    rows = np.where(chosen, db.lines.process, 0)
    used = np.bincount(rows[chosen], db.line_totals("cpu_time")[chosen])
    top = int(used.argmax())
    ((pid, name, program, command),) = db.rows(
        "SELECT pid, name, exe, command FROM process WHERE id = ?", top
    )
    words = command_words(command)
    name = full_name(str(name or ""), str(program or ""), words)
    title = process_title(name, str(program or ""), words)
    own = title.removeprefix(name).lstrip(": ")
    works_on = f" ({shorten(own, _NAME)})" if own else ""
    line = int(np.flatnonzero(chosen & (db.lines.process == top))[0])
    return _Costliest(int(pid), name, works_on), line, float(used[top])


def _work(facts: Facts) -> Iterator[Finding]:
    """Yield the procedure in which most work is done, with its callers, and the one for which the
    kernel does most."""
    use, total = facts.use, facts.use.cpu_time
    if not total:
        return
    for kind, seconds in (("hot", use.seconds(Use.WORK)), ("system", use.seconds(Use.SYSTEM))):
        place, more = NO_PHRASE, tuple[Phrase, ...]()
        top = next(iter(use.places.procedures(seconds)), None)
        library, spent = use.places.library(np.where(use.places.outside, seconds, 0.0))
        if spent > max(top.seconds if top else 0.0, LEAST_SHARE * total):
            what = library
            collected = float(seconds[use.contexts.collects].sum())
            if collected > 0.5 * spent:
                what, spent = f"the garbage collector of {library}", collected
            elif library in use.places.own_files:
                # Go's run-time system is in the program's file, and so may be C code.
                nameless = float(seconds[use.places.outside & use.places.nameless].sum())
                has_none = nameless > 0.5 * spent
                what = (
                    f"code of {library} that has no names"
                    if has_none
                    else f"the run-time system of {library}"
                )
            subject = _subject(kind, shorten(what, _NAME), spent / total)
            if kind == "hot" and top and top.seconds >= LEAST_SHARE * total:
                own = Phrase("; of the program's own most in ", tuple(names_in_words(top.names)))
                more = (own, Phrase(f", {percent(top.seconds / total, 0)}", rank=1))
            yield Finding(kind, subject, spent, "s", spent / total, "the CPU time", more=more)
            continue
        if top is None or top.seconds < LEAST_SHARE * total:
            continue
        name, module = top.names[0], use.places.module_of(top)
        inside = np.where(use.places.inside(name), seconds, 0.0)
        # An interpreter, or a numerical library, works for a procedure that does little itself.
        library, spent = use.places.library(inside)
        works_for = kind == "hot" and spent > 0.5 * top.seconds and library != module
        if name.startswith("[") and works_for:
            name = f"{library} for {module}"
        elif name.startswith("["):
            # An address says nothing: [libfoo.so+0x1234].
            module = name.strip("[]")
            code = "code made at run time" if module == "jit" else f"code of {module}"
            name = f"{code} that has no names"
        else:
            paths = use.places.ranked(inside)
            (short,) = names_in_words([name])
            place, more = _callers(*most_of(paths, top.seconds), short)
            name = shorten(short, _NAME)
            if works_for:
                left = max(_NAME - len(name), _NAME // 2)
                name = shorten(name, max(_NAME - len(library), _NAME // 2))
                name = f"{shorten(library, left)} for {name}"
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


def _callers(
    place: Phrase, more: tuple[Phrase, ...], name: str
) -> tuple[Phrase, tuple[Phrase, ...]]:
    """Return the places of the procedure called ``name``, which is said already: if there are two,
    its callers; it alone is none."""
    if place.path == (name,):
        place = NO_PHRASE
    phrases = [one._replace(said=one.names[-1:] == (name,)) for one in (place, *more)]
    if more and all(len(one.names) > 1 and one.said and not one.callee for one in phrases):
        phrases = [
            Phrase(one.words.replace(" in ", " from "), one.names[:-1], rank=one.rank // 2)
            for one in phrases
        ]
    return phrases[0], tuple(phrases[1:])


def _subject(kind: str, name: str, share: float) -> str:
    if kind == "system":
        return f"The kernel works for {name}:"
    return f"{'Most' if share >= _MOST else 'The largest part of the'} work is done in {name}:"


PROCESSES = FindingRule(
    "programs",
    _processes,
    "several processes run, and a program's take 5 % of the CPU time or more",
    "divide what the longest process does, or begin with it",
    "there are ranks, or fewer than 4 processes take most, or one program's almost all",
)
WORK = FindingRule(
    "work",
    _work,
    "a procedure takes 5 % of the CPU time or more, with the libraries and system calls it calls",
    "look at its lines: hpcd annotate",
)
