"""Scaling loss: what a program on more ranks costs beyond what scaling promises, by context.

After Tallent et al., SC 2009, sections 2.3 and 3.1. With ``T[c, p]`` the mean over ranks of what
context ``c`` costs in a run of ``p`` ranks, the loss of ``c`` from ``p`` to ``q`` ranks is::

    100 · (k · T[c, q] - T[c, p]) / (k · T[root, q])    percent of the run of q ranks

with ``k`` = 1 for weak scaling (the same work per rank) and ``q / p`` for strong scaling (the same
work in all). Losses may be negative: that context scales better than promised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.database import Database
from hpcd.analysis.database.seen_processes import seen_part
from hpcd.analysis.parallel.comparison_sides import require_whole
from hpcd.analysis.parallel.ranks import Ranks, find_ranks, has_ranks
from hpcd.analysis.parallel.tree_matching import MatchedFrame, Matching, match, owners
from hpcd.analysis.parallel.waiting import counted
from hpcd.analysis.profile.costs import costs_by_node, unit_of
from hpcd.analysis.profile.scope_nodes import CALLS_AND_LOOPS
from hpcd.analysis.profile.views import View, view_of_several
from hpcd.array_types import F64, I64
from hpcd.errors import UsageError
from hpcd.measurement.seen_part import SeenPart

WEAK, STRONG = "weak", "strong"


@dataclass(frozen=True)
class Run:
    """A run: its database, and its ranks."""

    database: Database
    ranks: Ranks

    @property
    def size(self) -> int:
        """The number of its ranks."""
        return self.ranks.size

    @cached_property
    def seen(self) -> SeenPart:
        """Which part of its ranks was seen."""
        return seen_part(self.database, self.database.lines.process[self.ranks.line])


@dataclass(frozen=True)
class Scaling:
    """Runs of one program on ever more ranks.

    ``cost`` ``float64[runs, n]`` is what each context of ``matching`` itself cost the mean rank, in
    ``unit`` of ``metric``. The first run is the one losses are relative to.
    """

    runs: list[Run]
    mode: str
    metric: str
    unit: str
    matching: Matching
    cost: F64

    @property
    def factor(self) -> F64:
        """``float64[runs]``: by how much a rank's work shrinks, against the first run."""
        sizes = np.array([run.size for run in self.runs], np.float64)
        return sizes / sizes[0] if self.mode == STRONG else np.ones(len(sizes))

    @property
    def places(self) -> list[MatchedFrame]:
        """The frames that the procedure numbers of views represent."""
        return self.matching.places

    def excess(self, cost: F64) -> F64:
        """``float64[runs - 1, n]``: excess work of all ranks of each run but the first.

        ``cost`` ``float64[runs, n]`` is per rank, as in a view's ``inclusive``.
        """
        factor = self.factor[1:, None]
        sizes = np.array([[run.size] for run in self.runs[1:]])
        with np.errstate(over="ignore", invalid="ignore"):  # odd databases have odd costs
            excess: F64 = (factor * cost[1:] - cost[0]) * sizes / factor
        return excess

    def loss(self, cost: F64) -> F64:
        """``float64[runs - 1, n]``: the same in percent of what the run cost."""
        sizes = np.array([[run.size] for run in self.runs[1:]])
        excess = self.excess(cost)
        with np.errstate(over="ignore", invalid="ignore"):
            whole = self.cost[1:].sum(axis=1)[:, None] * sizes
            loss: F64 = 100 * np.divide(excess, whole, out=np.zeros_like(excess), where=whole != 0)
        return loss

    def view(self, kind: str, *, share: float = 0.0, depth: int | None = None) -> View:
        """A view with a row of costs per run, per rank. Raises :class:`UsageError`.

        What cost no run ``share`` of its total may be left out.
        """
        return view_of_several(
            self.matching.tree, self.matching.place_of, self.cost, kind, share=share, depth=depth
        )

    def origins(self) -> tuple[I64, F64]:
        """Contexts of the program itself, with what libraries and the kernel did for them.

        Their nodes ``int64[m]``, those the last run lost most in first, and their ``cost``
        ``float64[runs, m]``: exclusive, but that frames of other modules count to the innermost
        frame of the program above them. Where no module is the program all user frames are.
        """
        owner = owners(self.matching)
        cost = sum_by(owner, self.cost, len(owner))
        nodes = np.unique(owner)
        loss = self.loss(cost)[-1, nodes]
        nodes = nodes[np.argsort(-loss, kind="stable")]
        return nodes, cost[:, nodes]


def measure(
    databases: Sequence[Database],
    mode: str,
    *,
    metric: str,
    sizes: Sequence[int] | None = None,
    job: str | None = None,
    scopes: bool = False,
    partial: bool = False,
) -> Scaling:
    """Compare runs on different numbers of ranks, fewest first.

    ``sizes`` are the numbers of ranks, per database, where they do not say it themselves; with
    ``scopes`` inlined calls and loops are contexts. Runs of which a recording saw only a part are
    compared if ``partial``. Raises :class:`UsageError` for runs that cannot be compared.
    """
    if len(databases) < 2:
        raise UsageError("scaling takes two databases at least")
    if sizes is not None and len(sizes) != len(databases):
        raise UsageError(f"--ranks takes {len(databases)} numbers, one per database")
    for db in databases:
        if sizes is None and not has_ranks(db):
            raise UsageError(f"{db.path}: no process has a rank; --ranks says how many there were")
    runs = [
        Run(db, find_ranks(db, job=job, size=None if sizes is None else sizes[number]))
        for number, db in enumerate(databases)
    ]
    runs.sort(key=lambda run: run.size)
    for one, other in pairwise(runs):
        if one.size == other.size:
            raise UsageError(
                f"{one.database.path} and {other.database.path} both have {one.size} ranks; "
                "hpcd compare compares them"
            )
    if not partial:
        require_whole(
            [(run.database, run.seen) for run in runs], metric, "record them whole (hpcd run)"
        )
    units = {unit_of(run.database, metric) for run in runs}
    if len(units) > 1:
        raise UsageError(f"{metric} has different units: {', '.join(sorted(units))}")
    matching = match(
        [run.database for run in runs],
        [run.ranks.executables for run in runs],
        scopes=CALLS_AND_LOOPS if scopes else (),
    )
    cost = [
        sum_by(
            matching.node_of[number],
            costs_by_node(run.database, metric, run.ranks.line),
            len(matching.tree),
        )
        / len(run.ranks)
        for number, run in enumerate(runs)
    ]
    kept = np.stack(cost) * counted(matching, metric)
    return Scaling(runs, mode, metric, units.pop(), matching, kept)
