"""Which trace lines a view shows, and in what order: filtered, folded, sorted, grouped.

A view's rows are places in an order of lines; the order is made once and kept, so that zooming
through a million sorted lines costs no more than through the database's own order. Folded, the
lines of a process that did nothing share one row: that of the busiest of them. Threads that lived
briefly, one after another, share rows too, in which each is drawn at its time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from threading import Lock

import numpy as np

from hpcd.analysis import Database
from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.profile.shared_rows import lines_that_share
from hpcd.analysis.profile.working_lines import working_lines
from hpcd.analysis.trace.trace_lines import NO_RANK
from hpcd.array_types import F64, I64, U32, Mask
from hpcd.errors import UsageError
from hpcd.viewer import patterns

FIELDS = ("label", "process", "thread", "job", "host")
SORTS = ("rank", "start", "label")
GROUPS = ("", "job", "rank", "process")
_KEPT = 8  # orders: 8 MB each for a million lines
_LABELS = 50_000  # resolved at a time
_THREAD = " · "  # between a process and its thread, as in labels of lines


@dataclass(frozen=True)
class Choice:
    """The lines a user chose. ``sort`` is one of :data:`SORTS` or a metric, costliest first.

    ``filter`` is a regular expression that one of :data:`FIELDS` must match somewhere, or
    ``field:expression`` for one of them; empty for all lines. ``fold`` gives the lines of a
    process that did nothing (:mod:`hpcd.analysis.profile.working_lines`) one row, unless it is one
    of ``unfolded``, or the filter leaves nothing else of it; and so has it those that lived
    briefly share rows (:mod:`hpcd.analysis.profile.shared_rows`).
    """

    filter: str = ""
    sort: str = "rank"
    group: str = ""
    fold: bool = False
    unfolded: tuple[int, ...] = ()


@dataclass(frozen=True)
class Order:
    """``rows`` ``int64[n]``: the line of each row; ``row_of`` ``int64[lines]``: of each line of the
    database the line whose row stands for it, -1 where it was not chosen; None where each stands
    for itself. ``shared`` are the lines, in order of time, of each row in which all are drawn."""

    rows: I64
    row_of: I64 | None = None
    shared: dict[int, I64] = field(default_factory=dict)


class LineSelection:
    """The orders of one database's lines."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._lock = Lock()
        self._made: Callable[[Choice], Order] = lru_cache(_KEPT)(self._make)

    def order(self, choice: Choice) -> I64:
        """``int64[n]``: the lines of ``choice``, in order, of folded ones the one that has the row.

        Raises :class:`UsageError`.
        """
        return self._order(choice).rows

    def with_folded(self, lines: I64, choice: Choice) -> I64:
        """``int64[k]``: all lines that the rows of ``lines`` stand for."""
        row_of = self._order(choice).row_of
        if row_of is None:
            return lines
        shown = np.zeros(len(row_of) + 1, bool)
        shown[lines] = True
        return np.flatnonzero(shown[row_of])

    def with_shared(self, lines: I64, choice: Choice) -> I64:
        """``int64[k]``: ``lines``, and those that share rows with them."""
        shared = self._order(choice).shared
        if not shared:
            return lines
        return np.concatenate([shared.get(line, np.array([line])) for line in lines.tolist()])

    def folded(self, lines: Sequence[int], choice: Choice) -> list[int]:
        """Return the number of lines in each row of ``lines``; 1 also for a line that would be
        folded if its process were not unfolded, 0 for others."""
        if not choice.fold:
            return [0] * len(lines)
        chosen = np.asarray(lines, np.int64)
        row_of = self._order(choice).row_of
        open_again = ~self._working[chosen] & np.isin(
            self._db.lines.process[chosen], choice.unfolded
        )
        counts = open_again.astype(np.int64)
        if row_of is not None:
            many = np.bincount(row_of[row_of >= 0], minlength=len(row_of))[chosen]
            counts = np.where(many > 1, many, counts)
        shared = self._order(choice).shared
        return [
            0 if line in shared else int(count)
            for line, count in zip(chosen.tolist(), counts, strict=True)
        ]

    def sample(self, lines: I64, choice: Choice, t0: int, t1: int, width: int) -> U32:
        """Nodes ``uint32[len(lines), width]`` of the rows of ``lines`` over [t0, t1)."""
        shared = self._order(choice).shared
        if not any(line in shared for line in lines.tolist()):
            return self._db.sample_grid(lines, t0, t1, len(lines), width)
        rows = [shared.get(line, np.array([line])) for line in lines.tolist()]
        return self._db.sample_rows(rows, t0, t1, width)

    def labels(self, lines: Sequence[int], choice: Choice) -> list[str]:
        """Return the labels of the rows of ``lines``, as an axis has them."""
        labels = self._db.lines.labels(lines)
        working, shared = self._process_works, self._order(choice).shared
        for at, count in enumerate(self.folded(lines, choice)):
            if count > 1:
                own = labels[at].partition(_THREAD)[0]
                kind = "helpers" if working[self._db.lines.process[lines[at]]] else "idle"
                labels[at] = f"{own}{_THREAD}{count:,} {kind}"
            elif lines[at] in shared:
                own = labels[at].partition(_THREAD)[0]
                labels[at] = f"{own}{_THREAD}{len(shared[lines[at]]):,} threads"
        return labels

    def _order(self, choice: Choice) -> Order:
        with self._lock:  # a second request waits instead of making the same order
            return self._made(choice)

    @cached_property
    def _working(self) -> Mask:
        return working_lines(self._db)

    @cached_property
    def _process_works(self) -> Mask:
        """``bool[processes]``: whether any of its lines did."""
        lines = self._db.lines
        works = np.zeros(int(lines.process.max(initial=0)) + 1, bool)
        works[lines.process[self._working]] = True
        return works

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

    def _make(self, choice: Choice) -> Order:
        if choice.group not in GROUPS:
            raise UsageError(f"lines are grouped by {', '.join(GROUPS[1:])}")
        lines = self._matching(choice.filter)
        row_of = self._fold(lines, choice) if choice.fold else None
        shared: dict[int, I64] = {}
        if choice.fold:
            row_of, shared = self._share(lines, row_of, choice)
        if row_of is not None:
            lines = lines[row_of[lines] == lines]
        return Order(self._sorted(lines, choice), row_of, shared)

    def _share(
        self, lines: I64, row_of: I64 | None, choice: Choice
    ) -> tuple[I64 | None, dict[int, I64]]:
        """``row_of`` and ``shared`` of an :class:`Order`, with brief threads in rows they share."""
        process = self._db.lines.process[lines].astype(np.int64)
        alone = np.ones(len(lines), bool) if row_of is None else row_of[lines] == lines
        alone &= self._working[lines] & ~np.isin(process, choice.unfolded)
        shared = lines_that_share(self._db, lines, alone)
        if shared and row_of is None:
            row_of = np.full(len(self._db.lines), -1, np.int64)
            row_of[lines] = lines
        for head, members in shared.items():
            assert row_of is not None
            row_of[members] = head
        return row_of, shared

    def _fold(self, lines: I64, choice: Choice) -> I64 | None:
        """``row_of`` of an :class:`Order`; None where nothing is folded. O(lines)."""
        process = self._db.lines.process[lines].astype(np.int64)
        idle = ~self._working[lines] & ~np.isin(process, choice.unfolded)
        if choice.filter:
            # Who requests helper threads alone wants to see them.
            idle &= np.isin(process, process[self._working[lines]])
        count = np.bincount(process[idle], minlength=int(process.max(initial=0)) + 1)
        idle &= count[process] > 1
        if not bool(idle.any()):
            return None
        row_of = np.full(len(self._db.lines), -1, np.int64)
        row_of[lines] = lines
        folded, owner = lines[idle], process[idle]
        busy = self._db.line_totals("cpu_time")[folded]
        order = np.lexsort((-folded, busy, owner))
        last = np.append(owner[order][1:] != owner[order][:-1], True)
        shown = np.zeros(len(count), np.int64)
        shown[owner[order[last]]] = folded[order[last]]
        row_of[folded] = shown[owner]
        return row_of

    def _sorted(self, lines: I64, choice: Choice) -> I64:
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
        """Return the sort keys of lines, least first; and whether a group's is the sum of its
        lines'.
        """
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
