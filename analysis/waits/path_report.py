"""The critical path in words: how much of it each call path takes, doing what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.waits.path_steps import find_critical_path
from hpcd.analysis.waits.wait_chains import Cause
from hpcd.analysis.waits.wait_report import ActivityNames
from hpcd.array_types import I64


@dataclass(frozen=True, slots=True)
class PathPart:
    """Holds the part of a call path ``path`` (procedures, the outermost first) on a critical path:
    ``seconds`` in ``steps`` steps, in which its threads did ``kind``, on ``threads`` trace lines,
    the most of it on that called ``thread``; ``name`` is who ended its waits and is no recorded
    thread, where that is known."""

    kind: Cause
    name: str
    path: tuple[str, ...]
    seconds: float
    steps: int
    threads: int
    thread: str


@dataclass(frozen=True, slots=True)
class PathReport:
    """A critical path of ``seconds`` from ``begin_s`` to ``end_s`` (since the origin), that ends on
    the trace line called ``thread``. It passes from thread to thread ``changes`` times, among
    ``threads``. ``kinds`` are its seconds by kind, ``parts`` by call path and kind, the longest
    first, ``lines`` labels of trace lines with their seconds, the most first; each of the three
    adds up to ``seconds``."""

    begin_s: float
    end_s: float
    seconds: float
    thread: str
    threads: int
    changes: int
    kinds: Mapping[str, float]
    lines: Sequence[tuple[str, float]]
    parts: Sequence[PathPart]


def path_report(
    db: Database, begin: int | None = None, end: int | None = None, line: int | None = None
) -> PathReport:
    """Return :func:`~hpcd.analysis.waits.path_steps.find_critical_path` by call path. Raises
    :class:`UsageError`, :class:`FormatError`."""
    critical = find_critical_path(db, begin, end, line)
    names = ActivityNames(db)
    length = critical.end - critical.begin
    steps = np.stack([critical.node, critical.kind, critical.other, critical.line]).astype(np.int64)
    keys, place = np.unique(steps, axis=1, return_inverse=True)
    ns = np.zeros(keys.shape[1], np.int64)
    np.add.at(ns, place.ravel(), length)
    count = np.bincount(place.ravel(), minlength=len(ns))
    groups: dict[tuple[tuple[str, ...], int, int], dict[int, int]] = {}
    taken: dict[tuple[tuple[str, ...], int, int], int] = {}
    for at, (node, kind, other, of) in enumerate(keys.T.tolist()):
        group = (names.path(node) if node else (), kind, other)
        by_line = groups.setdefault(group, {})
        by_line[of] = by_line.get(of, 0) + int(ns[at])
        taken[group] = taken.get(group, 0) + int(count[at])
    parts = []
    for (path, kind, other), by_line in groups.items():
        most = max(by_line, key=lambda of: (by_line[of], -of))
        seconds = sum(by_line.values()) / 1e9
        parts.append(
            PathPart(
                Cause(kind),
                names.other(other),
                path,
                seconds,
                taken[path, kind, other],
                len(by_line),
                names.thread(most),
            )
        )
    sums = np.bincount(critical.kind, length, len(Cause))
    return PathReport(
        int(critical.begin[0]) / 1e9,
        int(critical.end[-1]) / 1e9,
        int(length.sum()) / 1e9,
        names.thread(int(critical.line[-1])),
        len(np.unique(critical.line)),
        int(np.count_nonzero(np.diff(critical.line))),
        {kind.label: sums[kind] / 1e9 for kind in Cause if sums[kind]},
        _by_line(names, critical.line.astype(np.int64), length),
        sorted(parts, key=lambda part: (-part.seconds, part.path)),
    )


def _by_line(names: ActivityNames, line: I64, length: I64) -> list[tuple[str, float]]:
    """Lines by their parts of the path, the greatest first."""
    numbers, place = np.unique(line, return_inverse=True)
    ns = np.bincount(place, length)
    return [
        (names.thread(int(numbers[at])), float(ns[at]) / 1e9)
        for at in np.argsort(-ns, kind="stable").tolist()
    ]
