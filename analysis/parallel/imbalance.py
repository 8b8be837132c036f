"""Load imbalance: how unevenly ranks share the work of contexts, and which ranks others await."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.database import Database
from hpcd.analysis.database.seen_processes import seen_part
from hpcd.analysis.parallel.ranks import Ranks, find_ranks, find_threads, has_ranks
from hpcd.analysis.parallel.tree_matching import Matching, match, owners
from hpcd.analysis.parallel.waiting import (
    Blame,
    StretchReader,
    counted,
    share_blame,
    startup_nodes,
    waiting_nodes,
    waits_alone,
)
from hpcd.analysis.profile.costs import WORK, costs_by_node, unit_of
from hpcd.analysis.profile.scope_nodes import CALLS_AND_LOOPS
from hpcd.array_types import F64, I64
from hpcd.measurement.seen_part import SeenPart
from hpcd.model.scope import ScopeKind


@dataclass(frozen=True)
class Spread:
    """Costs of contexts over ranks, each ``float64[n]`` or, for ranks, ``int64[n]``.

    A rank without a context has it at cost 0. ``most`` and ``least`` are ranks.
    """

    mean: F64
    maximum: F64
    minimum: F64
    most: I64
    least: I64

    @property
    def ratio(self) -> F64:
        """``float64[n]``: maximum by mean, 1 where there is no cost."""
        return np.divide(self.maximum, self.mean, out=np.ones(len(self.mean)), where=self.mean > 0)

    @property
    def imbalance(self) -> F64:
        """``float64[n]``: maximum less mean, what perfect balance would save."""
        saved: F64 = self.maximum - self.mean
        return saved


@dataclass(frozen=True)
class Imbalance:
    """The shares of work of ranks. Nodes are nodes of ``matching``.

    ``inclusive`` is the spread of every context; ``own`` that of the program's own contexts, where
    frames of other modules count to ``owner`` ``int64[n]``, the innermost frame of the program
    above them. ``whole_by_rank`` ``float64[ranks]`` is what all contexts cost each rank.
    """

    database: Database
    ranks: Ranks
    metric: str
    unit: str
    matching: Matching
    inclusive: Spread
    own: Spread
    whole_by_rank: F64
    own_by_rank: F64
    own_nodes: I64
    owner: I64

    @property
    def lived(self) -> float:
        """Seconds for which the ranks' lines were recorded, added up."""
        lines = self.database.lines
        return float((lines.end - lines.start)[self.ranks.line].sum()) / 1e9

    @property
    def seen(self) -> SeenPart:
        """Which part of its ranks was seen."""
        return seen_part(self.database, self.database.lines.process[self.ranks.line])

    @cached_property
    def _blame(self) -> Blame:
        """Read the records, which only these answers need, for who waited and what for."""
        matching, lines = self.matching, self.ranks.line
        alone = waits_alone(matching, self.ranks.kind == "rank")
        activity = StretchReader(self.database, matching.node_of[0], waiting_nodes(matching), alone)
        begins = startup_nodes(matching)
        return share_blame(
            lambda at: activity.stretches(int(lines[at])).without(begins),
            len(lines),
            len(matching.tree),
        )

    @cached_property
    def blame(self) -> F64:
        """``float64[n]``: seconds for which a context was waited for, counted as ``own``."""
        return sum_by(self.owner, self._blame.seconds, len(self.matching.tree))

    @cached_property
    def idle(self) -> F64:
        """``float64[n]``: seconds that ranks waited in a context, counted as ``own``."""
        return sum_by(self.owner, self._blame.idle, len(self.matching.tree))

    def blamed_callee(self, node: int) -> str:
        """Return the procedure of a library that the program's own context ``node`` called for half
        of the time that it was waited for, as it slept there, by its display name; empty: none."""
        tree, places = self.matching.tree, self.matching.places
        within = np.where(self.owner == node, self._blame.seconds - self._blame.ready, 0.0)
        called = np.flatnonzero((tree.parent == node) & (self.owner == node))
        called = called[called != node]
        inside = tree.inclusive(within)[called]
        if not len(called) or inside.max() < 0.5 * within.sum():
            return ""
        place = places[self.matching.place_of[called[inside.argmax()]]]
        return "" if place.kernel or not within.sum() else place.label

    @property
    def blame_of_rank(self) -> F64:
        """``float64[ranks]``: seconds for which each rank was waited for."""
        return sum_by(self.ranks.of_line, self._blame.by_line, len(self.ranks))

    @cached_property
    def blame_while_ready(self) -> F64:
        """``float64[n]``: seconds of :attr:`blame` while the blamed rank waited for a CPU."""
        return sum_by(self.owner, self._blame.ready, len(self.matching.tree))

    @property
    def unblamed(self) -> float:
        """Seconds waited while no rank was at work."""
        return self._blame.unblamed

    @property
    def alone(self) -> float:
        """The share of the time with ranks at work in which one was, and all others waited."""
        return self._blame.alone

    def contexts(self) -> I64:
        """``int64[m]``: the program's own contexts, most imbalance or blame first."""
        weight = np.maximum(self.own.imbalance, self.blame / max(len(self.ranks), 1))
        nodes = np.flatnonzero((weight > 0) | (self.idle > 0))
        order: I64 = nodes[np.argsort(-weight[nodes], kind="stable")]
        return order

    def by_rank(self, node: int) -> F64:
        """``float64[ranks]``: what the program's own context ``node`` cost each rank."""
        at = int(np.searchsorted(self.own_nodes, node))
        if at == len(self.own_nodes) or self.own_nodes[at] != node:
            return np.zeros(len(self.ranks))
        cost: F64 = self.own_by_rank[:, at]
        return cost


def measure(
    db: Database,
    *,
    metric: str = WORK,
    job: str | None = None,
    share: float = 0.001,
    scopes: bool = False,
) -> Imbalance:
    """The imbalance of a database's ranks in ``metric``; without ranks, of a program's threads.

    Costs by rank are kept for contexts of at least ``share`` of the whole; inlined
    calls are contexts, with ``scopes`` loops, too. Raises :class:`UsageError`.
    """
    threads = job is None and not has_ranks(db)
    ranks = find_threads(db) if threads else find_ranks(db, job=job)
    matching = match(
        [db],
        [ranks.executables],
        scopes=CALLS_AND_LOOPS if scopes else (ScopeKind.INLINED,),
        regions=True,
    )
    node_of = matching.node_of[0]
    owner = owners(matching)
    count = len(matching.tree)
    known = counted(matching, metric)

    def rank_cost(at: int) -> F64:
        cost = costs_by_node(db, metric, ranks.line[ranks.of_line == at])
        return sum_by(node_of, cost, count) * known

    spread, own_spread = _Tally(count), _Tally(count)
    begin, end = matching.tree.preorder()
    order = np.argsort(begin)
    whole_by_rank = np.zeros(len(ranks))
    for at in range(len(ranks)):
        cost = rank_cost(at)
        whole_by_rank[at] = cost.sum()
        # A subtree is a range of the depth-first order.
        running = np.concatenate(([0.0], np.cumsum(cost[order])))
        spread.add(int(ranks.number[at]), running[end] - running[begin])
        own_spread.add(int(ranks.number[at]), sum_by(owner, cost, count))
    own = own_spread.result()
    whole = float(spread.result().mean[0])
    own_nodes = np.flatnonzero(own.maximum >= max(share * whole, 1e-300))
    kept = [sum_by(owner, rank_cost(at), count)[own_nodes] for at in range(len(ranks))]
    return Imbalance(
        database=db,
        ranks=ranks,
        metric=metric,
        unit=unit_of(db, metric),
        matching=matching,
        inclusive=spread.result(),
        own=own,
        whole_by_rank=whole_by_rank,
        own_by_rank=np.stack(kept),
        own_nodes=own_nodes,
        owner=owner,
    )


class _Tally:
    """Means and extremes, rank by rank: memory does not grow with the ranks."""

    def __init__(self, count: int) -> None:
        self._sum = np.zeros(count)
        self._max, self._min = np.full(count, -np.inf), np.full(count, np.inf)
        self._most, self._least = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self._ranks = 0

    def add(self, rank: int, cost: F64) -> None:
        """Another rank's costs; of equal ones the first counts."""
        self._ranks += 1
        self._sum += cost
        more, less = cost > self._max, cost < self._min
        self._max[more], self._most[more] = cost[more], rank
        self._min[less], self._least[less] = cost[less], rank

    def result(self) -> Spread:
        return Spread(
            self._sum / max(self._ranks, 1), self._max, self._min, self._most, self._least
        )
