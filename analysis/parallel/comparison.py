"""Comparison of several executions, or of several parts of one, by calling context.

After Spooner and Kerbyson, ICCS 2003, section 4: call graphs are aligned, each is compared with the
one before it, and every context is in common, in only one of them, or in both but different beyond
a sensitivity. Only contexts above a hotspot threshold are judged, and only differences above it
count: small contexts always differ by many percent.

Costs are sampled. So besides the sensitivity a difference must exceed three standard deviations of
what sampling alone makes of equal costs: a cost made of samples worth ``q`` has the variance
``cost · q``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.database import Database
from hpcd.analysis.parallel.comparison_sides import Side, require_whole
from hpcd.analysis.parallel.tree_matching import MatchedFrame, Matching, match, owners, within
from hpcd.analysis.parallel.waiting import counted
from hpcd.analysis.profile.costs import (
    TIME,
    costs_by_node,
    costs_in_window,
    event_weights,
    has_time,
    metric_parts,
    unit_of,
)
from hpcd.analysis.profile.scope_nodes import CALLS_AND_LOOPS
from hpcd.analysis.profile.views import View, outermost, view_of_several
from hpcd.analysis.profile.visits import count_visits
from hpcd.array_types import F64, I8, I64, U32, Mask
from hpcd.errors import UsageError

SENSITIVITY = 0.05
HOTSPOT = 0.01
_DEVIATIONS = 3


class CostChange(IntEnum):
    """The change of a context's cost from one side to the next."""

    ABSENT = 0
    """It is in neither."""
    SAME = 1
    """It is in both, and differs by no more than the sensitivity."""
    MORE = 2
    LESS = 3
    NEW = 4
    """It is in the later one only."""
    GONE = 5
    """It is in the earlier one only."""
    MINOR = 6
    """It is below the hotspot threshold in both: not judged."""


class StepCounts(NamedTuple):
    """Numbers of contexts from one side to the next; shares are of a side's cost."""

    common: int
    gone: int
    new: int
    gone_share: float
    new_share: float
    different: int


@dataclass(frozen=True)
class Comparison:
    """Sides and what each context of ``matching`` cost them.

    ``cost`` ``float64[sides, n]`` is exclusive, per rank, in ``unit`` of ``metric``; ``variance``
    ``float64[sides, n]`` what is uncertain of it; ``looked_at`` ``bool[n]`` contexts that count.
    ``lived`` ``float64[sides]`` is how long a rank was in them in seconds, waiting included; 0
    where that was not measured; ``lived_variance`` ``float64[sides]`` what is uncertain of it.
    ``procedure`` is what alone was compared, with its callees; None: everything.
    """

    sides: list[Side]
    metric: str
    unit: str
    matching: Matching
    cost: F64
    variance: F64
    looked_at: Mask
    lived: F64
    lived_variance: F64
    sensitivity: float = SENSITIVITY
    hotspot: float = HOTSPOT
    procedure: str | None = None

    @property
    def total(self) -> F64:
        """``float64[sides]``: cost of everything."""
        total: F64 = self.cost.sum(axis=1)
        return total

    @cached_property
    def visits(self) -> F64:
        """``float64[sides, n]``: how often each context was entered, per rank.

        Reads the trace (see :mod:`hpcd.analysis.profile.visits`).
        """
        databases = list(dict.fromkeys(side.database for side in self.sides))
        rows = []
        for side in self.sides:
            to = self.matching.node_of[databases.index(side.database)]
            records = (
                side.database.records(line, *_bounds(side, at))
                for at, line in enumerate(side.lines.tolist())
            )
            # What a thread does after a wait is no record of its own.
            sequences = (to[some.node[some.value > 0]] for some in records)
            rows.append(count_visits(self.matching.tree, sequences) / side.ranks)
        return np.stack(rows) * self.looked_at

    @property
    def places(self) -> list[MatchedFrame]:
        """The frames that the procedure numbers of views represent."""
        return self.matching.places

    def changes(self, cost: F64, variance: F64) -> I8:
        """:class:`CostChange` of costs from each side to the next: ``int8[sides - 1, n]``."""
        result = np.full((len(cost) - 1, cost.shape[1]), CostChange.SAME, np.int8)
        share = np.divide(
            cost, self.total[:, None], out=np.zeros_like(cost), where=self.total[:, None] > 0
        )
        for row in range(len(result)):
            before, after = cost[row], cost[row + 1]
            step = after - before
            size = np.abs(step)
            beyond = size > _DEVIATIONS * np.sqrt(variance[row] + variance[row + 1])
            beyond &= size > self.sensitivity * before
            beyond &= size >= self.hotspot * self.total[row : row + 2].max()
            result[row, beyond & (step > 0)] = CostChange.MORE
            result[row, beyond & (step < 0)] = CostChange.LESS
            result[row, beyond & (before <= 0)] = CostChange.NEW
            result[row, beyond & (after <= 0)] = CostChange.GONE
            hot = np.maximum(share[row], share[row + 1]) >= self.hotspot
            result[row, ~hot] = CostChange.MINOR
            result[row, (before <= 0) & (after <= 0)] = CostChange.ABSENT
        return result

    def steps(self) -> list[StepCounts]:
        """Count contexts in common, in only one, and different, from each side to the next."""
        tree = self.matching.tree
        inclusive, variance = tree.inclusive(self.cost), tree.inclusive(self.variance)
        steps = []
        for number, change in enumerate(self.changes(inclusive, variance)):
            before, after = inclusive[number] > 0, inclusive[number + 1] > 0
            differs = (change == CostChange.MORE) | (change == CostChange.LESS)
            gone_share, new_share = (
                float(self.cost[side][~other].sum() / (self.total[side] or 1))
                for side, other in ((number, after), (number + 1, before))
            )
            steps.append(
                StepCounts(
                    common=int((before & after).sum()) - 1,
                    gone=int((before & ~after).sum()),
                    new=int((after & ~before).sum()),
                    gone_share=gone_share,
                    new_share=new_share,
                    different=int(differs[1:].sum()),
                )
            )
        return steps

    def changes_of_visits(self, visits: F64) -> I8:
        """:class:`CostChange` of numbers of visits: ``int8[sides - 1, m]``.

        Whether a short visit is seen is chance: they have the variance of counts.
        """
        ranks = np.array([[side.ranks] for side in self.sides], np.float64)
        result = np.full((len(visits) - 1, visits.shape[1]), CostChange.SAME, np.int8)
        for row in range(len(result)):
            before, after = visits[row], visits[row + 1]
            step = after - before
            deviation = np.sqrt(before / ranks[row] + after / ranks[row + 1])
            beyond = np.abs(step) > np.maximum(self.sensitivity * before, _DEVIATIONS * deviation)
            result[row, beyond] = np.where(step > 0, CostChange.MORE, CostChange.LESS)[beyond]
            result[row, beyond & (before <= 0)] = CostChange.NEW
            result[row, beyond & (after <= 0)] = CostChange.GONE
        return result

    def view(self, kind: str, *, depth: int | None = None) -> View:
        """A view with rows of costs, then of variances, per side. Raises :class:`UsageError`."""
        return view_of_several(
            self.matching.tree, self.matching.place_of, self.cost, kind,
            more=[self.variance], share=self.hotspot, depth=depth,
        )  # fmt: skip

    def regions(self) -> tuple[I64, F64, I8]:
        """The program's own contexts that differ somewhere, by how much, the most first.

        Their nodes ``int64[m]``, costs ``float64[sides, m]`` (exclusive, but that frames of other
        modules count to the innermost frame of the program above them) and changes
        ``int8[sides - 1, m]``.
        """
        owner = owners(self.matching)
        cost, variance = (sum_by(owner, row, len(owner)) for row in (self.cost, self.variance))
        changes = self.changes(cost, variance)
        size = np.abs(np.diff(cost, axis=0)).max(axis=0)
        nodes = np.flatnonzero(is_difference(changes).any(axis=0))
        nodes = nodes[np.argsort(-size[nodes], kind="stable")]
        return nodes, cost[:, nodes], changes[:, nodes]

    def call_points(self) -> tuple[U32, U32, F64, F64]:
        """Contexts grouped by who called what: the frequency view, the costliest first.

        Places of callers and of what they call ``uint32[m]``, visits and inclusive costs
        ``float64[sides, m]``. Of nested calls of one kind the outermost counts.
        """
        tree = self.matching.tree
        place = self.matching.place_of.astype(np.int64)
        caller = place[tree.parent]
        _, group = np.unique(caller << np.int64(32) | place, return_inverse=True)
        begin, end = tree.preorder()
        order = np.lexsort((begin, group))
        order = order[order != 0]
        order = order[outermost(group[order], begin[order], end[order])]
        count = int(group.max(initial=0)) + 1
        visits, cost = (
            sum_by(group[order], rows[:, order], count)
            for rows in (self.visits, tree.inclusive(self.cost))
        )
        some = np.zeros(count, np.int64)
        some[group[order]] = order
        shown = np.flatnonzero((cost.any(axis=0) | visits.any(axis=0)) & (some > 0))
        shown = shown[np.argsort(-cost[:, shown].max(axis=0), kind="stable")]
        at = some[shown]
        return (
            caller[at].astype(np.uint32), place[at].astype(np.uint32),
            visits[:, shown], cost[:, shown],
        )  # fmt: skip


def is_difference(changes: I8) -> Mask:
    """Return the mask of changes that are more, less, new or gone."""
    differs: Mask = (changes >= CostChange.MORE) & (changes <= CostChange.GONE)
    return differs


def compare(
    sides: Sequence[Side],
    *,
    metric: str,
    sensitivity: float = SENSITIVITY,
    hotspot: float = HOTSPOT,
    shares: bool = False,
    procedure: str | None = None,
    scopes: bool = False,
    partial: bool = False,
) -> Comparison:
    """Compare each of ``sides`` with the side before it.

    With ``shares`` costs are percent of their side's whole, for runs at different speeds; with
    ``procedure`` only what it and what it called took counts; with ``scopes`` inlined calls and
    loops are contexts. Totals of recordings that saw only a part of their processes are compared
    if ``partial``. Raises :class:`UsageError`.
    """
    if len(sides) < 2:
        raise UsageError("a comparison takes two at least")
    if not (shares or partial):
        whole = [(side.database, side.seen) for side in sides if side.begin is None]
        require_whole(whole, metric, "use --shares, --iteration N or --phase PROCEDURE")
    databases = list(dict.fromkeys(side.database for side in sides))
    units = {unit_of(db, metric) for db in databases}
    if len(units) > 1:
        raise UsageError(f"{metric} has different units: {', '.join(sorted(units))}")
    programs = {side.database: side.executables for side in sides}
    matching = match(
        databases, [programs[db] for db in databases], scopes=CALLS_AND_LOOPS if scopes else ()
    )
    unit = units.pop()
    looked_at = np.ones(len(matching.tree), bool)
    if procedure is not None:
        looked_at = within(matching, procedure)
    kept = looked_at & counted(matching, metric)
    cost, variance = (
        columns * kept for columns in _costs_by_rank(sides, metric, matching, databases)
    )
    if shares:
        whole = cost.sum(axis=1, keepdims=True)
        scale = np.divide(100, whole, out=np.zeros_like(whole), where=whole > 0)
        cost, variance, unit = cost * scale, variance * scale**2, "%"
    lived = np.array([_lived(side, matching, databases, looked_at) for side in sides])
    return Comparison(
        list(sides),
        metric,
        unit,
        matching,
        cost,
        variance,
        looked_at,
        lived[:, 0],
        lived[:, 1],
        sensitivity,
        hotspot,
        procedure,
    )


def _costs_by_rank(
    sides: Sequence[Side], metric: str, matching: Matching, databases: list[Database]
) -> tuple[F64, F64]:
    """Return the cost of a rank of each side in each node of the common tree, and its variance,
    ``float64[sides, nodes]``."""
    costs, variances = [], []
    count = len(matching.tree)
    for side in sides:
        to = matching.node_of[databases.index(side.database)]
        cost, variance = _costs(side, metric)
        costs.append(sum_by(to, cost, count) / side.ranks)
        variances.append(sum_by(to, variance, count) / side.ranks**2)
    return np.stack(costs), np.stack(variances)


def _lived(
    side: Side, matching: Matching, databases: list[Database], looked_at: Mask
) -> tuple[float, float]:
    """Return the seconds for which a rank was in what is compared, and their variance."""
    if not has_time(side.database):
        return 0.0, 0.0
    cost, variance = _costs(side, TIME)
    inside = looked_at[matching.node_of[databases.index(side.database)]]
    return float(cost[inside].sum()) / side.ranks, float(variance[inside].sum()) / side.ranks**2


def _bounds(side: Side, at: int) -> tuple[int | None, int | None]:
    if side.begin is None or side.end is None:
        return None, None
    return int(side.begin[at]), int(side.end[at])


def _costs(side: Side, metric: str) -> tuple[F64, F64]:
    """Exclusive costs of a side by context of its database, and their variance."""
    db = side.database
    cost, variance = np.zeros(len(db.cct)), np.zeros(len(db.cct))
    for number in metric_parts(db, metric):
        name = db.metrics.names[number]
        weights = event_weights(db, name)
        if side.begin is None or side.end is None:
            part = costs_by_node(db, name, side.lines)
        else:
            part = costs_in_window(db, weights, side.lines, side.begin, side.end)
        cost += part
        variance += part * weights.quantum
    return cost, variance
