"""A comparison as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hpcd.analysis.parallel.comparison import Comparison, CostChange
from hpcd.analysis.parallel.run_times import run_time_sentence, run_times
from hpcd.analysis.parallel.tree_matching import path_labels
from hpcd.analysis.profile.tree_rows import Forest, json_document
from hpcd.array_types import I8


def as_json(comparison: Comparison, kind: str, depth: int | None) -> Iterator[str]:
    """Yield the pieces of one JSON object: figures, then the tree of the view ``kind``."""
    sides = len(comparison.sides)
    view = comparison.view(kind, depth=depth)
    rows = view.inclusive if kind == "top-down" else view.exclusive
    tree_changes = comparison.changes(rows[:sides], rows[sides : 2 * sides])

    def fields(node: int) -> dict[str, Any]:
        place = comparison.places[int(view.procedure[node])]
        return {
            "name": place.label,
            "module": place.module,
            "file": place.file,
            "line": place.line,
            "inclusive": view.inclusive[:sides, node].tolist(),
            "exclusive": view.exclusive[:sides, node].tolist(),
            "change": _names(tree_changes[:, node]),
        }

    everything = view.inclusive[:sides].max(axis=0) > 0
    forest = Forest(view.parent, rows[:sides].max(axis=0), everything, depth=depth)
    return json_document({**_figures(comparison), "view": kind}, forest.json(fields))


def _names(changes: I8) -> list[str]:
    return [CostChange(change).name.lower() for change in changes.tolist()]


def _figures(comparison: Comparison) -> dict[str, Any]:
    nodes, cost, changes = comparison.regions()
    callers, called, visits, point_cost = comparison.call_points()
    visit_changes = comparison.changes_of_visits(visits)
    return {
        "metric": comparison.metric,
        "unit": comparison.unit,
        "sensitivity": comparison.sensitivity,
        "hotspot": comparison.hotspot,
        "run_time": run_time_sentence(comparison),
        "run_times_s": [seconds or None for seconds in run_times(comparison)[0].tolist()],
        "sides": [
            {
                "label": side.label,
                "database": str(side.database.path),
                "ranks": side.ranks,
                "cost": float(comparison.total[number]),
                "lived_s": float(comparison.lived[number]),
                "seen": side.seen.sentence(),
            }
            for number, side in enumerate(comparison.sides)
        ],
        "steps": [step._asdict() for step in comparison.steps()],
        "regions": [
            {
                "path": path_labels(comparison.matching, node),
                "cost": cost[:, number].tolist(),
                "change": _names(changes[:, number]),
            }
            for number, node in enumerate(nodes.tolist())
        ],
        "frequency": [
            {
                "caller": comparison.places[int(callers[at])].label,
                "name": comparison.places[int(called[at])].label,
                "visits": visits[:, at].tolist(),
                "cost": point_cost[:, at].tolist(),
                "change": _names(visit_changes[:, at]),
            }
            for at in range(len(called))
        ],
    }
