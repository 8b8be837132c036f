"""Several runs, or parts of one, compared: ``hpcd compare`` and the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hpcd.analysis.answers.json_form import json_form, rows
from hpcd.analysis.database import Database
from hpcd.analysis.parallel.comparison import Comparison, CostChange
from hpcd.analysis.parallel.run_times import run_time_sentence, run_times
from hpcd.analysis.parallel.tree_matching import MatchedFrame, path_labels
from hpcd.analysis.profile.tree_rows import Forest
from hpcd.array_types import I8


@dataclass(frozen=True)
class ComparedSide:
    """A side: ``cost`` is that of a rank, in the comparison's unit; ``size`` the ranks of the whole
    run, 0 where unknown; ``lived_s`` how long a rank was in what is compared, in seconds, 0 where
    unknown; ``seen`` the part of its processes that was recorded, a sentence or empty; ``begin_ns``
    and ``end_ns`` the bounds of a part, ns of the trace."""

    label: str
    database: str
    ranks: int
    size: int
    cost: float
    lived_s: float
    seen: str
    begin_ns: int | None
    end_ns: int | None


def compared_sides(
    comparison: Comparison, names: Mapping[Database, str] | None = None
) -> list[ComparedSide]:
    """Return the sides; their databases are called by ``names``, or else their paths."""
    sides = []
    for side, cost, lived in zip(
        comparison.sides, comparison.total.tolist(), comparison.lived.tolist(), strict=True
    ):
        own = str(side.database.path)
        name = own if names is None else names[side.database]
        label = side.label
        if names is not None:
            label = name if label == own else label.removeprefix(f"{own}: ")
        begin = None if side.begin is None else int(side.begin.min())
        end = None if side.end is None else int(side.end.max())
        sides.append(
            ComparedSide(
                label, name, side.ranks, side.size, cost, lived, side.seen.sentence(), begin, end
            )
        )
    return sides


@dataclass(frozen=True)
class CallPoint:
    """Calls of a procedure by another: ``visits`` and ``cost`` of a rank on each side, and what
    became of the visits from each side to the next."""

    caller: str
    name: str
    visits: list[float]
    cost: list[float]
    change: list[str]


def call_points(comparison: Comparison, most: int | None = None) -> tuple[list[CallPoint], int]:
    """Return the costliest ``most`` of the calls by caller and callee, and how many there are.

    Reads the trace.
    """
    callers, called, visits, cost = comparison.call_points()
    places, change = comparison.places, comparison.changes_of_visits(visits)
    points = [
        CallPoint(
            places[callers[at]].label, places[called[at]].label, visits[:, at].tolist(),
            cost[:, at].tolist(), _names(change[:, at]),
        )
        for at in range(len(called[:most]))
    ]  # fmt: skip
    return points, len(called)


def comparison_json(comparison: Comparison, kind: str, depth: int | None) -> Iterator[str]:
    """Yield the pieces of one JSON object: figures, then the tree of the view ``kind``."""
    count = len(comparison.sides)
    view = comparison.view(kind, depth=depth)
    costs = view.inclusive if kind == "top-down" else view.exclusive
    changes = comparison.changes(costs[:count], costs[count : 2 * count])
    nodes, cost, region_changes = comparison.regions()
    head = {
        "metric": comparison.metric,
        "unit": comparison.unit,
        "sensitivity": comparison.sensitivity,
        "hotspot": comparison.hotspot,
        "run_time": run_time_sentence(comparison),
        "run_times_s": [seconds or None for seconds in run_times(comparison)[0].tolist()],
        "sides": compared_sides(comparison),
        "steps": [step._asdict() for step in comparison.steps()],
        "regions": rows(
            {
                "path": [path_labels(comparison.matching, node) for node in nodes.tolist()],
                "cost": cost.T,
                "change": map(_names, region_changes.T),
            }
        ),
        "frequency": call_points(comparison)[0],
        "view": kind,
    }
    columns = {
        "inclusive": view.inclusive[:count],
        "exclusive": view.exclusive[:count],
        "change": np.array([change.name.lower() for change in CostChange])[changes],
    }
    everything = view.inclusive[:count].max(axis=0) > 0
    forest = Forest(view.parent, costs[:count].max(axis=0), everything, depth=depth)
    return tree_json(head, forest, comparison.places, view.procedure, columns)


def tree_json(
    head: Mapping[str, Any], forest: Forest, places: Sequence[MatchedFrame],
    place_of: npt.NDArray[np.integer], columns: Mapping[str, Any],
) -> Iterator[str]:  # fmt: skip
    """Yield the pieces of one JSON object: ``head``, then the tree of ``forest``, whose nodes have
    the entries of ``columns`` ``[..., nodes]``, which may be in groups."""

    def entries(column: Any, node: int) -> Any:
        if isinstance(column, Mapping):
            return {name: entries(part, node) for name, part in column.items()}
        return json_form(column[..., node])

    def fields(node: int) -> dict[str, object]:
        return {**places[int(place_of[node])].as_json(), **entries(columns, node)}

    return forest.json(json_form(head), fields)


def _names(changes: I8) -> list[str]:
    return [CostChange(change).name.lower() for change in changes.tolist()]
