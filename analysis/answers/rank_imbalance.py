"""The load imbalance of ranks: ``hpcd imbalance``."""

from __future__ import annotations

from collections.abc import Iterator

from hpcd.analysis.answers.compared_runs import tree_json
from hpcd.analysis.answers.json_form import rows
from hpcd.analysis.parallel.imbalance import Imbalance, Spread
from hpcd.analysis.parallel.tree_matching import path_labels
from hpcd.analysis.profile.tree_rows import Forest
from hpcd.array_types import Array


def imbalance_json(imbalance: Imbalance, depth: int | None) -> Iterator[str]:
    """Yield the pieces of one JSON object: figures, then the tree of inclusive costs."""
    own, nodes, ranks = imbalance.own, imbalance.contexts(), imbalance.ranks
    spread, matching = imbalance.inclusive, imbalance.matching
    head = {
        "database": str(imbalance.database.path),
        "job": ranks.job,
        "kind": ranks.kind,
        "ranks": ranks.number,
        "seen": imbalance.seen.sentence(),
        "metric": imbalance.metric,
        "unit": imbalance.unit,
        "lived_s": imbalance.lived,
        "idle_s": imbalance.idle.sum(),
        "unblamed_s": imbalance.unblamed,
        "blame_of_rank_s": imbalance.blame_of_rank,
        "contexts": rows(
            {
                "path": [path_labels(matching, node) for node in nodes.tolist()],
                **{name: values[nodes] for name, values in _columns(own).items()},
                "max_by_mean": own.ratio[nodes],
                "blame_s": imbalance.blame[nodes],
                "idle_s": imbalance.idle[nodes],
                "by_rank": [imbalance.by_rank(node).tolist() for node in nodes.tolist()],
            }
        ),
    }
    forest = Forest(matching.tree.parent, spread.imbalance, spread.maximum > 0, depth=depth)
    return tree_json(head, forest, matching.places, matching.place_of, _columns(spread))


def _columns(spread: Spread) -> dict[str, Array]:
    return {
        "mean": spread.mean, "max": spread.maximum, "min": spread.minimum,
        "max_rank": spread.most, "min_rank": spread.least, "imbalance": spread.imbalance,
    }  # fmt: skip
