"""Which trace lines a view shows, and in what order: filtered, folded, sorted, grouped.

A view's rows are places in an order of lines; the order is made once and kept, so that zooming
through a million sorted lines costs no more than through the database's own order. Folded, all
lines of launchers and helper threads share one row, the last: that of the busiest of them. Threads
that lived briefly, one after another, share rows too, in which each is drawn at its time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from hpcd.analysis import Database
from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.profile.launchers import launcher_lines, own_lines
from hpcd.analysis.profile.process_tree import parents, processes_by_start, tree_order
from hpcd.analysis.profile.shared_rows import lines_that_share
from hpcd.analysis.trace.trace_lines import NO_RANK
from hpcd.array_types import F64, I64, U32, Mask
from hpcd.errors import FormatError, UsageError
from hpcd.kept_answers import KeptAnswers
from hpcd.masks import marked, positions
from hpcd.user_names import user_name
from hpcd.viewer import patterns

FIELDS = ("label", "process", "thread", "job", "host")
SORTS = ("rank", "start", "tree", "label")
GROUPS = ("", "job", "rank", "process", "host", "user")
_KEPT = 8  # orders: 8 MB each for a million lines
_LABELS = 50_000  # resolved at a time
_PARTNERS = 3  # numbers that say whose
_NAMED = 2  # launchers that a label names
_THREAD = " · "  # between a process and its thread, as in labels of lines


@dataclass(frozen=True)
class Choice:
    """The lines a user chose. ``sort`` is one of :data:`SORTS` or a metric, costliest first;
    ``tree`` has processes below those that started them.

    ``filter`` is a regular expression that one of :data:`FIELDS` must match somewhere, or
    ``field:expression`` for one of them; empty for all lines. ``fold`` gives the lines that are not
    the program's own (:func:`hpcd.analysis.profile.launchers.own_lines`) one row, unless they are
    ``unfolded`` or the filter leaves nothing else; and has those that lived briefly share rows
    (:mod:`hpcd.analysis.profile.shared_rows`). Where ``rows`` names lines, the rows are these, in
    this order, whatever the filter; each has what it has in the whole choice. ``moved`` are rows
    moved by hand, one after another: the line of a row, and of the one that it goes directly below,
    its own where it goes to the top. ``partners``, where it is not empty, are a line and a begin
    and an end, ns: only the lines of its row are chosen, and those that woke one of these or were
    woken by one in this time, as far as waits were recorded.
    """

    filter: str = ""
    sort: str = "rank"
    group: str = ""
    fold: bool = False
    unfolded: bool = False
    rows: tuple[int, ...] = ()
    moved: tuple[int, ...] = ()
    partners: tuple[int, ...] = ()


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
        self._order = KeptAnswers(self._make, _KEPT)

    def order(self, choice: Choice) -> I64:
        """``int64[n]``: the lines of ``choice``, in order, of folded ones the one that has the row.

        Raises :class:`UsageError`.
        """
        return self._order(choice).rows

    def line_count(self, choice: Choice) -> int:
        """Return the number of lines that the rows of ``choice`` show."""
        return len(self.with_folded(self.order(choice), choice))

    def with_folded(self, lines: I64, choice: Choice) -> I64:
        """``int64[k]``: all lines that the rows of ``lines`` show."""
        row_of = self._order(choice).row_of
        if row_of is None:
            return lines
        shown = marked(len(row_of) + 1, lines)
        represented = shown[row_of]
        represented[lines] = True  # rows of their own, where lines are named
        return np.flatnonzero(represented)

    def with_shared(self, lines: I64, choice: Choice) -> I64:
        """``int64[k]``: ``lines``, and the lines that share rows with them."""
        shared = self._order(choice).shared
        if not shared:
            return lines
        return np.concatenate([shared.get(line, np.array([line])) for line in lines.tolist()])

    def drawn_in(self, lines: I64, choice: Choice) -> I64:
        """``int64[n]``: the line in whose row each of ``lines`` is drawn; -1: folded into one."""
        order = self._order(choice)
        row = np.full(len(self._db.lines), -1, np.int64)
        row[order.rows] = order.rows
        for head, members in order.shared.items():
            row[members] = head
        return row[lines]

    def places(self, lines: I64, choice: Choice) -> I64:
        """``int64[n]``: the places of the rows in which each of ``lines`` is drawn; -1: in none."""
        place = positions(len(self._db.lines) + 1, self.order(choice))
        return place[self.drawn_in(lines, choice)]

    def folded(self, lines: Sequence[int], choice: Choice) -> list[int]:
        """Return the number of lines in each row of ``lines`` that are not the program's own; 1
        also for one that has its row for itself, 0 for others."""
        if not choice.fold:
            return [0] * len(lines)
        selected = np.asarray(lines, np.int64)
        order = self._order(choice)
        counts = self._helps(self._chosen(choice), choice)[selected].astype(np.int64)
        if order.row_of is not None:
            many = np.bincount(order.row_of[order.row_of >= 0], minlength=len(order.row_of))
            counts = np.where(counts > 0, np.maximum(many[selected], 1), 0)
        folded: list[int] = counts.tolist()
        return folded

    def sample(self, lines: I64, choice: Choice, t0: int, t1: int, width: int) -> U32:
        """Pixels ``uint32[len(lines), width]`` of the rows of ``lines`` over [t0, t1)."""
        shared = self._order(choice).shared
        if not any(line in shared for line in lines.tolist()):
            return self._db.sample_grid(lines, t0, t1, len(lines), width)
        rows = [shared.get(line, np.array([line])) for line in lines.tolist()]
        return self._db.sample_rows(rows, t0, t1, width)

    def labels(self, lines: Sequence[int], choice: Choice) -> list[str]:
        """Return the labels of the rows of ``lines``, as an axis has them."""
        labels = self._db.lines.labels(lines)
        order = self._order(choice)
        for at, count in enumerate(self.folded(lines, choice)):
            if count > 1:
                labels[at] = f"{count:,} helpers{self._launchers(lines[at], order)}"
            elif lines[at] in order.shared:
                own = labels[at].partition(_THREAD)[0]
                labels[at] = f"{own}{_THREAD}{len(order.shared[lines[at]]):,} threads"
        return labels

    def _launchers(self, head: int, order: Order) -> str:
        """The programs of launchers among the lines that are folded into the row of ``head``."""
        assert order.row_of is not None
        lines = np.flatnonzero((order.row_of == head) & launcher_lines(self._db))
        words, code = self._db.lines.texts("process")
        names = sorted({words[number] for number in np.unique(code[lines]).tolist()})
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return f": {', '.join(names[:_NAMED])}{more}" if names else ""

    @cached_property
    def _own(self) -> Mask:
        return own_lines(self._db)

    def _helps(self, lines: I64, choice: Choice) -> Mask:
        """``bool[lines of the database]``: which of ``lines`` are not the program's own; none where
        the filter leaves nothing else: who requests helper threads alone wants to see them."""
        helps = np.zeros(len(self._own), bool)
        if not choice.filter or bool(self._own[lines].any()):
            helps[lines] = ~self._own[lines]
        return helps

    def groups(self, lines: Sequence[int], group: str) -> list[str]:
        """Names of the groups of ``lines``."""
        if not group:
            return [""] * len(lines)
        rows = self._db.lines.rows(lines)
        if group == "job":
            return [row.job or "no job" for row in rows]
        if group == "host":
            return [row.host for row in rows]
        if group == "user":
            return [_user_name(uid) for uid in self._users[self._db.lines.process[lines]].tolist()]
        if group == "rank":
            return [f"{row.process} {row.pid}" if row.rank is None else
                    f"{row.job} rank {row.rank}".strip() for row in rows]  # fmt: skip
        return [f"{row.process} {row.pid} on {row.host}" for row in rows]

    def _make(self, choice: Choice) -> Order:
        if choice.group not in GROUPS:
            raise UsageError(f"lines are grouped by {', '.join(GROUPS[1:])}")
        if choice.rows:
            if max(choice.rows) >= len(self._db.lines):
                raise UsageError("no such trace line")
            whole = self._order(replace(choice, rows=()))
            return replace(whole, rows=np.array(choice.rows, np.int64))
        lines = self._chosen(choice)
        row_of: I64 | None = None
        shared: dict[int, I64] = {}
        helps = self._helps(lines, choice) if choice.fold else np.zeros(len(self._own), bool)
        if choice.fold:
            row_of, shared = self._share(lines, self._fold(lines, helps, choice))
        if row_of is not None:
            lines = lines[row_of[lines] == lines]
        rows = self._sorted(lines, choice)
        if choice.fold and not choice.unfolded:
            rows = np.concatenate([rows[~helps[rows]], rows[helps[rows]]])
        return Order(_moved(rows, choice.moved), row_of, shared)

    def _share(self, lines: I64, row_of: I64 | None) -> tuple[I64 | None, dict[int, I64]]:
        """``row_of`` and ``shared`` of an :class:`Order`, with brief threads in rows they share."""
        alone = np.ones(len(lines), bool) if row_of is None else row_of[lines] == lines
        alone &= self._own[lines]
        shared = lines_that_share(self._db, lines, alone)
        if shared and row_of is None:
            row_of = np.full(len(self._db.lines), -1, np.int64)
            row_of[lines] = lines
        for head, members in shared.items():
            assert row_of is not None
            row_of[members] = head
        return row_of, shared

    def _fold(self, lines: I64, helps: Mask, choice: Choice) -> I64 | None:
        """``row_of`` of an :class:`Order`; None where nothing is folded. O(lines)."""
        folded = lines[helps[lines]]
        if choice.unfolded or len(folded) < 2:
            return None
        row_of = np.full(len(self._db.lines), -1, np.int64)
        row_of[lines] = lines
        busy = self._db.line_totals("cpu_time")[folded]
        row_of[folded] = folded[int(np.argmax(busy))]
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

    def _chosen(self, choice: Choice) -> I64:
        lines = self._matching(choice.filter)
        return np.intersect1d(lines, self._partners(choice)) if choice.partners else lines

    def _partners(self, choice: Choice) -> I64:
        """``int64[n]``: the lines that interact with the row of one. O(waits)."""
        waits = self._db.waits
        if len(choice.partners) != _PARTNERS or choice.partners[0] >= len(self._db.lines):
            raise UsageError("partners are those of a trace line, from a time to another, ns")
        line, begin, end = choice.partners
        order = self._order(replace(choice, partners=(), rows=(), moved=()))
        own = marked(len(self._db.lines), order.shared.get(line, np.array([line])))
        if order.row_of is not None:
            own |= order.row_of == line
        waiter = np.repeat(np.arange(len(own)), np.diff(waits.first))
        seen = (waits.waker >= 0) & (waits.end >= begin) & (waits.end < end)
        waiter, waker = waiter[seen], waits.waker[seen]
        own[np.concatenate([waiter[own[waker]], waker[own[waiter]]])] = True
        return np.flatnonzero(own)

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
        if sort == "tree":
            count = int(lines.process.max(initial=0)) + 1
            place = tree_order(parents(processes_by_start(self._db), count))
            return place[lines.process].astype(np.float64), False
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
        if group == "user":
            return self._users[lines.process]
        if group == "host":
            return lines.texts("host")[1].astype(np.int64)
        job = lines.texts("job")[1].astype(np.int64)
        if group == "job":
            return job
        ranked = lines.rank != NO_RANK
        most = int(lines.rank.max(initial=0)) + 1
        below = (int(job.max(initial=0)) + 1) * most
        return np.where(ranked, job * most + lines.rank, below + lines.process.astype(np.int64))

    @cached_property
    def _users(self) -> I64:
        """``int64[processes]``: the number of each process's user, -1 where it is not known."""
        rows = self._db.rows("SELECT CAST(coalesce(uid, -1) AS INTEGER) FROM process ORDER BY id")
        if len(self._db.lines) and len(rows) <= int(self._db.lines.process.max()):
            raise FormatError("a trace line's process does not exist")
        return np.array([uid for (uid,) in rows], np.int64)


def _moved(rows: I64, moved: tuple[int, ...]) -> I64:
    """``rows`` with some moved by hand; those that are not there, or go nowhere, stay.

    O(rows + moves²): rows between those that are named stay together."""
    if not moved:
        return rows
    last = int(rows.max(initial=-1))
    named = np.flatnonzero(np.isin(rows, [line for line in moved if line <= last]))
    pieces = np.split(rows, np.union1d(named, named + 1))
    by_first = {int(piece[0]): piece for piece in pieces if len(piece)}
    order = list(by_first)
    for line, above in zip(moved[::2], moved[1::2], strict=False):
        if line in by_first and above in by_first:
            order.remove(line)
            order.insert(0 if above == line else order.index(above) + 1, line)
    return np.concatenate([rows[:0], *(by_first[line] for line in order)])


def _user_name(uid: int) -> str:
    """A user's name here, which may be another one's where it was recorded, and number."""
    if uid < 0:
        return "unknown user"
    name = user_name(uid)
    return f"user {uid}" if name == str(uid) else f"{name} ({uid})"


def _natural(text: str) -> list[tuple[int, str]]:
    """Sorts ``rank 10`` after ``rank 2``."""
    return [
        (int(part[:18]), "") if part.isdigit() and part.isascii() else (-1, part.lower())
        for part in re.split(r"([0-9]+)", text)
    ]
