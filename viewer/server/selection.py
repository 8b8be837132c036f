"""Which trace lines a view shows, and in what order: filtered, sorted, grouped.

A view's rows are places in an order of lines; the order is made once and kept, so that zooming
through a million sorted lines costs no more than through the database's own order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock

import numpy as np

from hpcd.analysis import Database
from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.trace.trace_lines import NO_RANK
from hpcd.array_types import F64, I64
from hpcd.errors import UsageError
from hpcd.viewer import patterns

FIELDS = ("label", "process", "thread", "job", "host")
SORTS = ("rank", "start", "label")
GROUPS = ("", "job", "rank", "process")
_KEPT = 8  # orders: 8 MB each for a million lines
_LABELS = 50_000  # resolved at a time


@dataclass(frozen=True)
class Choice:
    """The lines a user chose. ``sort`` is one of :data:`SORTS` or a metric, costliest first.

    ``filter`` is a regular expression that one of :data:`FIELDS` must match somewhere, or
    ``field:expression`` for one of them; empty for all lines.
    """

    filter: str = ""
    sort: str = "rank"
    group: str = ""


class Selection:
    """The orders of one database's lines."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._lock = Lock()
        self._made: Callable[[Choice], I64] = lru_cache(_KEPT)(self._make)

    def order(self, choice: Choice) -> I64:
        """``int64[n]``: the lines of ``choice``, in order. Raises :class:`UsageError`."""
        with self._lock:  # a second request waits instead of making the same order
            return self._made(choice)

    def groups(self, lines: Sequence[int], group: str) -> list[str]:
        """Names of the groups of ``lines``."""
        if not group:
            return [""] * len(lines)
        rows = self._db.lines.rows(lines)
        if group == "job":
            return [row.job or "no job" for row in rows]
        if group == "rank":
            return [f"{row.process} {row.pid}" if row.rank is None else
                    f"{row.job} rank {row.rank}".strip() for row in rows]  # fmt: skip
        return [f"{row.process} {row.pid} on {row.host}" for row in rows]

    def _make(self, choice: Choice) -> I64:
        if choice.group not in GROUPS:
            raise UsageError(f"lines are grouped by {', '.join(GROUPS[1:])}")
        lines = self._matching(choice.filter)
        key, add = self._key(choice.sort)
        mine = key[lines]
        if not choice.group:
            return lines[np.argsort(mine, kind="stable")]
        _, group = np.unique(self._group(choice.group)[lines], return_inverse=True)
        count = int(group.max(initial=-1)) + 1
        if add:
            whole = sum_by(group, mine, count)
        else:
            whole = np.full(count, np.inf)
            np.minimum.at(whole, group, mine)
        return lines[np.lexsort((mine, group, whole[group]))]

    def _matching(self, text: str) -> I64:
        if not text:
            return np.arange(len(self._db.lines), dtype=np.int64)
        field, colon, rest = text.partition(":")
        fields = (field,) if colon and field in FIELDS else FIELDS
        expression = patterns.compile_pattern(rest if len(fields) == 1 else text, "the filter")
        lines = self._db.lines
        keep = np.zeros(len(lines), bool)
        for name in fields:
            if name == "label":
                continue
            words, code = lines.texts(name)
            keep |= np.array([expression.search(word) is not None for word in words], bool)[code]
        if "label" in fields:
            # Labels are long lists of what all differs: made where they are needed, and not kept.
            unknown = np.flatnonzero(~keep)
            for at in range(0, len(unknown), _LABELS):
                some = unknown[at : at + _LABELS]
                labels = lines.labels(some.tolist())
                keep[some] = [expression.search(label) is not None for label in labels]
        return np.flatnonzero(keep)

    def _key(self, sort: str) -> tuple[F64, bool]:
        """What lines are sorted by, least first; whether a group's is the sum of its lines'."""
        lines = self._db.lines
        if sort == "rank":
            return np.arange(len(lines), dtype=np.float64), False
        if sort == "start":
            return lines.start.astype(np.float64), False
        if sort == "label":
            names = [_natural(name) for name in lines.label]
            position = np.empty(len(names))
            position[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
            return position, False
        if sort in self._db.metrics.names:
            return -self._db.metrics.over_lines(sort, 0), True
        choices = (*SORTS, *self._db.metrics.names)
        raise UsageError(f"lines are sorted by {', '.join(choices)}")

    def _group(self, group: str) -> I64:
        lines = self._db.lines
        if group == "process":
            return lines.process.astype(np.int64)
        job = lines.texts("job")[1].astype(np.int64)
        if group == "job":
            return job
        ranked = lines.rank != NO_RANK
        most = int(lines.rank.max(initial=0)) + 1
        below = (int(job.max(initial=0)) + 1) * most
        return np.where(ranked, job * most + lines.rank, below + lines.process.astype(np.int64))


def _natural(text: str) -> list[tuple[int, str]]:
    """Sorts ``rank 10`` after ``rank 2``."""
    return [
        (int(part[:18]), "") if part.isdigit() and part.isascii() else (-1, part.lower())
        for part in re.split(r"([0-9]+)", text)
    ]
