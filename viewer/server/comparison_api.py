"""Comparisons as the page wants them: one tree over all sides, and what each context cost each.

What became of a context (:meth:`hpcd.analysis.parallel.comparison.Comparison.changes`) and what it
lost in
scaling (:mod:`hpcd.analysis.parallel.scaling`) follow from that, so the page works them out by
itself whenever a person moves a slider.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any

import numpy as np

from hpcd.analysis import Database
from hpcd.analysis.answers.compared_runs import call_points, compared_sides
from hpcd.analysis.answers.json_form import json_form
from hpcd.analysis.arrays.named_arrays import Arrays, json_bytes
from hpcd.analysis.parallel.comparison import Comparison, compare
from hpcd.analysis.parallel.comparison_sides import Side, choose_sides, whole_runs
from hpcd.analysis.parallel.run_times import run_time_sentence
from hpcd.analysis.parallel.tree_matching import owners
from hpcd.analysis.profile.costs import WORK
from hpcd.analysis.symbols.short_names import short_names
from hpcd.array_types import Mask
from hpcd.errors import NotFoundError, UsageError
from hpcd.viewer.marks import marks
from hpcd.viewer.palette import colours
from hpcd.viewer.server.query_params import QueryParameters

_MOST_SIDES = 8
# Records read for one answer: about ten seconds.
_MOST_RECORDS = 50_000_000
_MOST_CALLS = 5_000
_KEPT = 4  # comparisons: some tens of bytes for each context and side


@dataclass(frozen=True)
class ComparisonRequest:
    """The sides of a comparison: ``databases`` by name, or parts of the only one.

    ``parts`` are windows (begin and end, ns), ranks, process ids or iterations, as ``kind`` says;
    of iterations there may be none: then those of typical lengths are compared. ``phase`` is the
    procedure whose visits are the iterations. The rest is as in ``hpcd compare``.
    """

    databases: tuple[str, ...]
    kind: str
    parts: tuple[Any, ...]
    phase: str
    metric: str
    shares: bool
    within: str
    scopes: bool
    partial: bool


KINDS = ("window", "rank", "pid", "iteration")


def comparison_request(parameters: QueryParameters) -> ComparisonRequest:
    """Return the comparison that a request describes. Raises :class:`UsageError`."""
    given = [kind for kind in KINDS if parameters.has(kind)]
    if parameters.has("phase") and "iteration" not in given:
        given.append("iteration")
    if len(given) > 1:
        raise UsageError(f"{given[0]} and {given[1]} do not go together")
    kind = given[0] if given else ""
    databases = parameters.texts("db", _MOST_SIDES)
    if kind and len(databases) != 1:
        raise UsageError(f"{kind} takes one database")
    if kind == "window":
        parts: tuple[Any, ...] = parameters.spans(kind, _MOST_SIDES)
    elif kind == "iteration" and not any(parameters.texts(kind, _MOST_SIDES)):
        parts = ()
    else:
        parts = parameters.wholes(kind, 0, 1 << 31, _MOST_SIDES)
    return ComparisonRequest(
        databases, kind, parts, parameters.text("phase"), parameters.text("metric") or WORK,
        parameters.has("shares"), parameters.text("within"), parameters.has("scopes"),
        parameters.has("partial"),
    )  # fmt: skip


class Comparisons:
    """The comparisons of the databases that are open; the last few are kept.

    One is made at a time: each may take all of a database into view.
    """

    def __init__(self, databases: Mapping[str, Database]) -> None:
        self._databases = databases
        self._lock = Lock()
        self._made = lru_cache(_KEPT)(self._make)

    def aligned(self, request: ComparisonRequest) -> Arrays:
        """Return the aligned tree in columns, and its description, ``head`` (JSON).

        ``cost`` and ``variance`` ``float64[sides, n]``, exclusive; ``parent``, ``procedure`` and
        ``owner`` ``uint32[n]``: the innermost node of the program on the way to each. Contexts
        that cost no side anything are left out.
        """
        databases = self._of(request)
        with self._lock:
            comparison = self._made(request, databases)
        names_of = dict(zip(databases, request.databases, strict=True))
        matching = comparison.matching
        kept: Mask = np.any(matching.tree.inclusive(comparison.cost) > 0, axis=0)
        kept[0] = True
        tree, to = matching.tree.keep(kept)
        places, place_of = np.unique(matching.place_of[kept], return_inverse=True)
        selected = [comparison.places[number] for number in places.tolist()]
        names = [place.label for place in selected]
        rgb = colours(names).astype(np.uint32)
        sides = compared_sides(comparison, names_of)
        # Which part of a time within a run was seen is not known.
        seen = [
            f"{side.label} {side.seen}" for side in sides if side.seen and side.begin_ns is None
        ]
        head = {
            "metric": comparison.metric,
            "unit": comparison.unit,
            "heading": "; ".join(filter(None, [run_time_sentence(comparison), *seen])),
            "sides": json_form(sides),
            "procedures": names,
            "short": short_names(names),
            "modules": [place.module for place in selected],
            "marks": marks(names).tolist(),
            "colours": (rgb[:, 0] | rgb[:, 1] << 8 | rgb[:, 2] << 16).tolist(),
        }
        return {
            "head": json_bytes(head),
            "cost": comparison.cost[:, kept],
            "variance": comparison.variance[:, kept],
            "parent": tree.parent,
            "procedure": place_of.astype(np.uint32),
            "owner": to[owners(matching)[kept]],
        }

    def calls(self, request: ComparisonRequest) -> dict[str, object]:
        """Return callers and callees with numbers of visits and costs, the costliest first."""
        databases = self._of(request)
        with self._lock:
            comparison = self._made(request, databases)
            _affordable(comparison.sides)
            points, count = call_points(comparison, _MOST_CALLS)
        return {
            "of": count,
            "calls": json_form(points),
            "ranks": [side.ranks for side in comparison.sides],
        }

    def _of(self, request: ComparisonRequest) -> tuple[Database, ...]:
        if len(set(request.databases)) < len(request.databases):
            raise UsageError("a database is compared with another")
        try:
            return tuple(self._databases[name] for name in request.databases)
        except KeyError:
            raise NotFoundError("no such database, or it is still being written") from None

    def _make(self, request: ComparisonRequest, databases: tuple[Database, ...]) -> Comparison:
        return compare(
            _sides(databases, request),
            metric=request.metric,
            shares=request.shares,
            procedure=request.within or None,
            scopes=request.scopes,
            partial=request.partial,
        )


def _sides(databases: Sequence[Database], request: ComparisonRequest) -> list[Side]:
    if request.kind == "iteration":
        _affordable(whole_runs(databases))
    sides = choose_sides(
        databases, request.kind, request.parts,
        procedure=request.phase or None, inside=request.within or None,
    )  # fmt: skip
    if request.kind in ("window", "iteration"):
        _affordable(sides)
    return sides


def _affordable(sides: list[Side]) -> None:
    """Raises :class:`UsageError` where too many records would have to be read."""
    count = 0.0
    for side in sides:
        lines = side.database.lines
        records = lines.records[side.lines].astype(np.float64)
        if side.begin is not None and side.end is not None:
            life = np.maximum(lines.end[side.lines] - lines.start[side.lines], 1)
            records *= np.clip((side.end - side.begin) / life, 0, 1)
        count += float(records.sum())
    if count > _MOST_RECORDS:
        raise UsageError(
            f"this would read {count / 1e6:,.0f} million records: hpcd compare does it, "
            "or choose shorter parts"
        )
