"""Findings on what is recorded besides samples: calls on files, messages, memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.calls.memory import measure_memory, recorded_pages
from hpcd.analysis.calls.process_heap import measure_heap
from hpcd.analysis.database import Database
from hpcd.analysis.findings.context_use import Use
from hpcd.analysis.findings.facts import Facts
from hpcd.analysis.findings.finding import (
    LEAST_SHARE,
    Finding,
    most_of,
)
from hpcd.analysis.findings.phrase import Phrase
from hpcd.analysis.findings.rule import FindingRule
from hpcd.analysis.findings.time_use import TimeUse
from hpcd.analysis.findings.work_sharing import meanwhile
from hpcd.analysis.messages.database_calls import communication
from hpcd.analysis.messages.wait_states import WaitKind, by_path
from hpcd.analysis.profile.row_text import shorten
from hpcd.array_types import I64
from hpcd.errors import UsageError
from hpcd.model.calls import Group, ValueKind
from hpcd.wording import bytes_text, percent, time_text

_MOST_CALLS = 1_000_000
_NAME = 24
# The waiting part of calls of MPI, above which the rest is not mentioned.
_MOST_WAITS = 0.7
_NO_FILES = ("socket", "pipe", "epoll", "eventfd", "timerfd", "tty")
# Of memory that a process held most, what is still held of the second half of its time.
_LEAK = 0.3


def _file_calls(facts: Facts) -> Iterator[Finding]:
    """Yield the time of recorded calls on files."""
    db, use = facts.db, facts.use
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
    if total < LEAST_SHARE * use.lived:
        return
    by_function = sum_by(calls["function"], seconds, max(f.id for f in functions) + 1)
    top = int(by_function.argmax())
    name = next(function.name for function in functions if function.id == top)
    count = int(calls["weight"][calls["function"] == top].sum())
    by_node = sum_by(calls["node"], seconds, len(db.cct))
    place, more = most_of(use.places.ranked(by_node), total)
    share = percent(float(by_function[top]) / total, 0)
    words = f"{share} of it {count:,} calls of {name}" + f", {place.words}" * bool(place.path)
    yield Finding(
        "io", "Calls on files take", total, "s", total / use.lived, facts.whose_time,
        place._replace(words=words), more,
    )  # fmt: skip


def _message_waits(facts: Facts) -> Iterator[Finding]:
    """Yield the wait states of recorded calls of MPI, and what ranks did meanwhile."""
    db, use = facts.db, facts.use
    count = len(db.calls) if db.calls.of_group(Group.MPI) else 0
    if count > _MOST_CALLS:
        yield _too_many("messages", "hpcd messages")
    if not 0 < count <= _MOST_CALLS:
        return
    try:
        job = communication(db)
    except UsageError:  # no ranks
        return
    by_call: Counter[tuple[WaitKind, int]] = Counter()
    for group in by_path(job.recorded, job.waits)[0]:
        by_call[group.kind, group.node] += group.seconds  # type: ignore[assignment]
    recorded = float(sum(by_call.values()))
    # The whole that shares are of has the time of threads that count, and of each use once.
    for_others = float(use.seconds(Use.OTHERS).sum())
    total = min(recorded, for_others)
    if total < LEAST_SHARE * use.own:
        return
    ((kind, node), seconds), *_ = by_call.most_common(1)
    place = use.places.path(node)
    outside, words = meanwhile(facts, Use.OTHERS, total, place.path)
    share = percent(seconds / recorded, 0)
    # Of two call paths the awaited one is more useful.
    rank = int(any(phrase.path for phrase in words))
    yield Finding(
        "outside" if outside else "messages", "Calls of MPI wait for other ranks", total, "s",
        total / use.lived, "the ranks' time",
        place.phrase(f"{share} in " + "MPI" * (not place.path), rank),
        (Phrase(f" ({kind.label})", rank=1), *words, *_in_calls(for_others, total)),
    )  # fmt: skip


def _in_calls(seconds: float, waited: float) -> tuple[Phrase, ...]:
    """Return how long calls of MPI took in all, if that is much more than they waited: they copied
    messages, too."""
    words = f"; the calls take {time_text(seconds)}"
    return (Phrase(words, rank=2),) if waited < _MOST_WAITS * seconds else ()


def _held_memory(facts: Facts) -> Iterator[Finding]:
    """Yield the memory that the process with the highest peak held, and what it went on to gain: of
    the heap, if that was recorded, else of pages."""
    db, use = facts.db, facts.use
    if len(db.calls) > _MOST_CALLS and (db.calls.of_group(Group.HEAP) or recorded_pages(db)):
        yield _too_many("memory", "hpcd memory")
        return
    if db.calls.of_group(Group.HEAP):
        measure, held_so = _of_heap, "allocated and held"
    elif recorded_pages(db):
        measure, held_so = _of_pages, "held"
    else:
        return
    whole = measure(db, None, None)
    if whole is None or not whole.peak:
        return
    lines = np.flatnonzero(db.lines.process == whole.process)
    middle = int(db.lines.start[lines].min() + db.lines.end[lines].max()) // 2
    later = measure(db, whole.process, middle)
    assert later is not None
    gained = np.minimum(later.gained, later.at_end)
    grown, held = int(gained.sum()), int(whole.at_end.sum())
    if grown > _LEAK * whole.peak and held >= 0.9 * whole.peak:
        top = int(gained.argmax())
        most = int(whole.at_end[whole.path.index(later.path[top])])
        yield Finding(
            "memory", f"{whole.name} {held_so} ever more memory, at its end", held, "B",
            held / whole.peak, "its peak",
            _place(use, most, int(later.node[top]), later.path[top]),
        )  # fmt: skip
        return
    top = int(whole.at_peak.argmax())
    yield Finding(
        "memory", f"{whole.name} {held_so} at most", whole.peak, "B", 0.0, "",
        _place(use, int(whole.at_peak[top]), int(whole.node[top]), whole.path[top]),
    )  # fmt: skip


def _too_many(kind: str, verb: str) -> Finding:
    """Return that there are more recorded calls than are added up for a sentence."""
    more = Phrase(f" of {kind} were recorded: {verb} adds them up")
    return Finding(kind, "More than", _MOST_CALLS, "calls", 0.0, "", more=(more,))


class _Held(NamedTuple):
    """The memory of a process: its row, name, peak, and bytes by call path (``path``, ``node``)."""

    process: int
    name: str
    peak: int
    path: list[str]
    node: I64
    gained: I64
    at_peak: I64
    at_end: I64


def _of_pages(db: Database, process: int | None, since: int | None) -> _Held | None:
    measured = measure_memory(db, None if process is None else [process], since)
    if not measured:
        return None
    one, paths = measured[0], measured[0].paths
    return _Held(
        one.process, f"{shorten(one.name, _NAME)} ({one.pid})", one.peak, paths.name, paths.node,
        paths.touched, paths.at_peak, paths.at_end,
    )  # fmt: skip


def _of_heap(db: Database, process: int | None, since: int | None) -> _Held | None:
    measured = measure_heap(db, None if process is None else [process], since)
    if not measured:
        return None
    one = measured[0]
    return _Held(
        one.process, f"{shorten(one.name, _NAME)} ({one.pid})", one.at_peak.total[0], one.path,
        one.node, one.allocated.bytes, one.at_peak.bytes, one.at_end.bytes,
    )  # fmt: skip


def _place(use: TimeUse, size: int, node: int, path: str) -> Phrase:
    """Return where ``size`` bytes are; without any procedure of the program as memory is listed."""
    place = use.places.path(node)
    words = f"{bytes_text(size)} of it "
    return place.phrase(f"{words}in ") if place.path else Phrase(words, (path.strip("[]"),))


FILES = FindingRule(
    "files", _file_calls, "recorded calls on files take 5 % of the threads' time or more",
    "fewer and larger calls; do not wait for each to reach the disk",
)  # fmt: skip
MESSAGES = FindingRule(
    "messages", _message_waits,
    "ranks wait in recorded calls of MPI for 5 % of the ranks' time or more",
    "give ranks the same to do; send earlier; do other work meanwhile",
)  # fmt: skip
MEMORY = FindingRule(
    "memory", _held_memory, "memory was recorded",
    "free what is not needed any more; allocate once what is needed again",
)  # fmt: skip
