"""Scaling losses between runs: ``hpcd scaling``."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hpcd.analysis.answers.compared_runs import tree_json
from hpcd.analysis.parallel.scaling import Scaling
from hpcd.analysis.parallel.tree_matching import path_labels
from hpcd.analysis.profile.tree_rows import Forest
from hpcd.analysis.profile.views import View
from hpcd.array_types import F64
from hpcd.model.cct import CCT


class ScalingLosses:
    """A view of losses, and which of its rows are shown."""

    def __init__(self, scaling: Scaling, view: View, percent: float, depth: int | None) -> None:
        self.scaling = scaling
        self.view = view
        runs = len(scaling.runs)
        # The last row of a view's costs is what it was cut by.
        self.own, self.whole = view.exclusive[:runs], view.inclusive[:runs]
        self.own_loss, self.whole_loss = scaling.loss(self.own), scaling.loss(self.whole)
        by = self.whole_loss if view.kind == "top-down" else self.own_loss
        shown = np.max(np.abs(by), axis=0) >= percent
        if view.kind == "top-down":
            # What leads to a loss is shown with it.
            tree = CCT(view.parent, view.procedure.astype(np.uint64))
            shown = tree.inclusive(shown.astype(np.float64)) > 0
        shown[0] = True
        self.forest = Forest(view.parent, by[-1], shown, depth=depth)
        self.omitted = self.forest.omitted + view.omitted
        self.percent = percent

    def origins(self) -> Iterator[tuple[int, F64, F64]]:
        """(node of the matched tree, its losses, its costs) of the program's own contexts."""
        nodes, cost = self.scaling.origins()
        loss = self.scaling.loss(cost)
        for number, node in enumerate(nodes.tolist()):
            if (np.abs(loss[:, number]) >= self.percent).any():
                yield node, loss[:, number], cost[:, number]

    def json(self) -> Iterator[str]:
        """Yield the pieces of one JSON object: figures, then the tree of the view."""
        scaling, excess = self.scaling, self.scaling.excess
        head = {
            "mode": scaling.mode,
            "metric": scaling.metric,
            "unit": scaling.unit,
            "runs": [
                {
                    "database": str(run.database.path),
                    "job": run.ranks.job,
                    "ranks": run.size,
                    "ranks_recorded": len(run.ranks),
                    "cost_per_rank": self.whole[number, 0],
                    "seen": run.seen.sentence(),
                }
                for number, run in enumerate(scaling.runs)
            ],
            "loss": self.whole_loss[:, 0],
            "excess": excess(self.whole[:, :1])[:, 0],
            "contexts": [
                {
                    "path": path_labels(scaling.matching, node),
                    "loss": loss,
                    "excess": excess(cost[:, None])[:, 0],
                    "cost": cost,
                }
                for node, loss, cost in self.origins()
            ],
            "view": self.view.kind,
        }
        columns = {
            kind: {"loss": loss, "excess": excess(cost), "cost": cost}
            for kind, loss, cost in (
                ("inclusive", self.whole_loss, self.whole),
                ("exclusive", self.own_loss, self.own),
            )
        }
        return tree_json(head, self.forest, scaling.places, self.view.procedure, columns)
