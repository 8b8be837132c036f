"""The critical path in words: how much of it each call path takes, doing what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.waits.path_sentence import path_sentence
from hpcd.analysis.waits.path_steps import find_critical_path
from hpcd.analysis.waits.wait_chains import Cause, WaitGraph, WaitSteps
from hpcd.analysis.waits.wait_report import ActivityNames, cause_text, require_waits
from hpcd.array_types import I64

_DOING = {
    Cause.THREAD: "running",
    Cause.RUNNABLE: "waiting for a CPU",
    Cause.TIMER: "asleep until a timer",
    Cause.NOT_SEEN: "waiting, not seen for whom",
}


@dataclass(frozen=True, slots=True)
class PathPart:
    """Holds the part of a call path ``path`` (procedures, the outermost first) on a critical path:
    ``seconds`` in ``steps`` steps, in which its threads did ``kind``, in words ``text``, on
    ``threads`` trace lines, the most of it on that called ``thread``; ``name`` is who ended its
    waits and is no recorded thread, where that is known. The longest step is of ``line`` in the
    context ``node`` (0: not known) from ``begin`` to ``end``, ns since the origin."""

    kind: Cause
    text: str
    name: str
    path: tuple[str, ...]
    seconds: float
    steps: int
    threads: int
    thread: str
    line: int
    node: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class PathSteps:
    """Holds steps of a critical path in order of time: each from ``begin`` to ``end`` ``int64[n]``,
    ns since the origin, on ``line`` ``int64[n]``, of the part ``part`` ``int64[n]`` of the report.
    They are all ``of`` of the path, or those that pixels show."""

    begin: I64
    end: I64
    line: I64
    part: I64
    of: int


@dataclass(frozen=True, slots=True)
class PathReport:
    """A critical path of ``seconds`` from ``begin_s`` to ``end_s`` (since the origin), that ends on
    the trace line called ``thread``. It passes from thread to thread ``changes`` times, among
    ``threads``. ``kinds`` are its seconds by kind, ``words`` what these are called, ``parts`` its
    seconds by call path and kind, the longest first, ``lines`` labels of trace lines with their
    seconds, the most first; each of the three adds up to ``seconds``. ``sentence`` is
    :func:`~hpcd.analysis.waits.path_sentence.path_sentence`."""

    begin_s: float
    end_s: float
    seconds: float
    thread: str
    threads: int
    changes: int
    kinds: Mapping[str, float]
    words: Mapping[str, str]
    lines: Sequence[tuple[str, float]]
    parts: Sequence[PathPart]
    steps: PathSteps
    sentence: str


def doing_text(kind: Cause, name: str = "") -> str:
    """Return what a thread does on a critical path in words; ``name`` is that of a waker that is
    no recorded thread."""
    return _DOING.get(kind) or f"waiting for {cause_text(kind, name=name)}"


def path_report(
    db: Database,
    begin: int | None = None,
    end: int | None = None,
    line: int | None = None,
    columns: int | None = None,
    graph: WaitGraph | None = None,
) -> PathReport:
    """Return :func:`~hpcd.analysis.waits.path_steps.find_critical_path` by call path, with all of
    its steps, or of as many pixels as ``columns`` the steps that are in the middle of one. Raises
    :class:`UsageError`, :class:`FormatError`."""
    require_waits(db)
    critical = find_critical_path(db, begin, end, line, graph)
    names = ActivityNames(db)
    length = critical.end - critical.begin
    steps = np.stack([critical.node, critical.kind, critical.other, critical.line]).astype(np.int64)
    keys, place = np.unique(steps, axis=1, return_inverse=True)
    ns = np.zeros(keys.shape[1], np.int64)
    np.add.at(ns, place.ravel(), length)
    count = np.bincount(place.ravel(), minlength=len(ns))
    groups: dict[tuple[tuple[str, ...], int, int], list[int]] = {}
    for at, (node, kind, other, _) in enumerate(keys.T.tolist()):
        groups.setdefault((names.path(node) if node else (), kind, other), []).append(at)
    # The last of the steps of a key, by their length, stays.
    longest = np.zeros(len(ns), np.int64)
    by_length = np.argsort(length, kind="stable")
    longest[place.ravel()[by_length]] = by_length
    parts: list[tuple[PathPart, list[int]]] = []
    for (path, kind, other), members in groups.items():
        by_line: Counter[int] = Counter()
        for at in members:
            by_line[int(keys[3, at])] += int(ns[at])
        most = max(by_line, key=lambda of: (by_line[of], -of))
        step = max(longest[members].tolist(), key=lambda one: (int(length[one]), -one))
        part = PathPart(
            Cause(kind), doing_text(Cause(kind), names.other(other)), names.other(other), path,
            by_line.total() / 1e9, int(count[members].sum()), len(by_line), names.thread(most),
            int(critical.line[step]), int(critical.node[step]), int(critical.begin[step]),
            int(critical.end[step]),
        )  # fmt: skip
        parts.append((part, members))
    parts.sort(key=lambda one: (-one[0].seconds, one[0].path))
    part_of = np.zeros(len(ns), np.int64)
    for number, (_, members) in enumerate(parts):
        part_of[members] = number
    drawn = _seen(critical, columns)
    sums = np.bincount(critical.kind, length, len(Cause))
    return PathReport(
        int(critical.begin[0]) / 1e9,
        int(critical.end[-1]) / 1e9,
        int(length.sum()) / 1e9,
        names.thread(int(critical.line[-1])),
        len(np.unique(critical.line)),
        int(np.count_nonzero(np.diff(critical.line))),
        {kind.label: sums[kind] / 1e9 for kind in Cause if sums[kind]},
        {kind.label: doing_text(kind) for kind in Cause if sums[kind]},
        _by_line(names, critical.line.astype(np.int64), length),
        [part for part, _ in parts],
        PathSteps(
            critical.begin[drawn], critical.end[drawn], critical.line[drawn].astype(np.int64),
            part_of[place.ravel()[drawn]], len(length),
        ),
        path_sentence(db, critical, names),
    )  # fmt: skip


def _seen(critical: WaitSteps, columns: int | None) -> I64:
    """``int64[n]``: the steps that pixels show, or all."""
    if columns is None or len(critical.begin) <= columns:
        return np.arange(len(critical.begin))
    begin, end = int(critical.begin[0]), int(critical.end[-1])
    middle = begin + (np.arange(columns) + 0.5) * ((end - begin) / columns)
    return np.unique(np.searchsorted(critical.end[:-1], middle, "right"))


def _by_line(names: ActivityNames, line: I64, length: I64) -> list[tuple[str, float]]:
    """Lines by their parts of the path, the greatest first."""
    numbers, place = np.unique(line, return_inverse=True)
    ns = np.bincount(place, length)
    return [
        (names.thread(int(numbers[at])), float(ns[at]) / 1e9)
        for at in np.argsort(-ns, kind="stable").tolist()
    ]
