"""Comparisons as the page wants them: one tree over all sides, and what each context cost each.

What became of a context (:meth:`hpcd.analysis.comparison.Comparison.changes`) and what it lost in
scaling (:mod:`hpcd.analysis.scaling`) follow from that, so the page works them out by itself
whenever a person moves a slider.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from hpcd.analysis import Database
from hpcd.analysis.comparison import (
    Comparison,
    Side,
    compare,
    instances,
    some_processes,
    some_ranks,
    whole_runs,
    windows,
)
from hpcd.analysis.costs import WORK
from hpcd.analysis.matching import owners
from hpcd.errors import NotFoundError, UsageError
from hpcd.viewer.marks import marks
from hpcd.viewer.palette import colours
from hpcd.viewer.server.asked import Asked

_MOST_SIDES = 8
# Records read for one answer: about ten seconds.
_MOST_RECORDS = 50_000_000
_MOST_CALLS = 5_000
_KEPT = 4  # comparisons: some tens of bytes for each context and side


@dataclass(frozen=True)
class Question:
    """What is compared: ``databases`` by name, or parts of the only one.

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


KINDS = ("window", "rank", "pid", "iteration")


def question(asked: Asked) -> Question:
    """The question a request asks. Raises :class:`UsageError`."""
    given = [kind for kind in KINDS if asked.has(kind)]
    if asked.has("phase") and "iteration" not in given:
        given.append("iteration")
    if len(given) > 1:
        raise UsageError(f"{given[0]} and {given[1]} do not go together")
    kind = given[0] if given else ""
    databases = asked.texts("db", _MOST_SIDES)
    if kind and len(databases) != 1:
        raise UsageError(f"{kind} takes one database")
    if kind == "window":
        parts: tuple[Any, ...] = asked.spans(kind, _MOST_SIDES)
    elif kind == "iteration" and not any(asked.texts(kind, _MOST_SIDES)):
        parts = ()
    else:
        parts = asked.wholes(kind, 0, 1 << 31, _MOST_SIDES)
    return Question(
        databases, kind, parts, asked.text("phase"), asked.text("metric") or WORK,
        asked.has("shares"), asked.text("within"), asked.has("scopes"),
    )  # fmt: skip


class Comparisons:
    """The comparisons of the databases that are open; the last few are kept.

    One is made at a time: each may take all of a database into view.
    """

    def __init__(self, databases: Mapping[str, Database]) -> None:
        self._databases = databases
        self._lock = Lock()
        self._made = lru_cache(_KEPT)(self._make)

    def aligned(self, asked: Question) -> tuple[dict[str, object], list[npt.NDArray[Any]]]:
        """What the aligned tree is about, and the tree in columns.

        ``cost`` and ``variance`` ``float64[sides, n]``, exclusive; ``parent``, ``place`` and
        ``owner`` ``uint32[n]``: the innermost node of the program on the way to each. Contexts
        that cost no side anything are left out.
        """
        databases = self._of(asked)
        with self._lock:
            comparison = self._made(asked, databases)
        names_of = dict(zip(databases, asked.databases, strict=True))
        matching = comparison.matching
        kept = np.zeros(len(matching.tree), bool)
        for each in comparison.cost:
            kept |= matching.tree.inclusive(each) > 0
        kept[0] = True
        number = np.cumsum(kept) - 1
        owner = owners(matching)
        places, place = np.unique(matching.place_of[kept], return_inverse=True)
        chosen = [comparison.places[each] for each in places.tolist()]
        names = [each.label for each in chosen]
        rgb = colours(names).astype(np.uint32)
        head = {
            "metric": comparison.metric,
            "unit": comparison.unit,
            "sides": [
                _side(side, names_of[side.database], float(lived))
                for side, lived in zip(comparison.sides, comparison.lived, strict=True)
            ],
            "procedures": names,
            "modules": [each.module for each in chosen],
            "marks": marks(names).tolist(),
            "colours": (rgb[:, 0] | rgb[:, 1] << 8 | rgb[:, 2] << 16).tolist(),
        }
        return head, [
            comparison.cost[:, kept],
            comparison.variance[:, kept],
            number[matching.tree.parent[kept]].astype(np.uint32),
            place.astype(np.uint32),
            number[owner[kept]].astype(np.uint32),
        ]

    def calls(self, asked: Question) -> dict[str, object]:
        """Who called what, how often and at what cost, the costliest first."""
        databases = self._of(asked)
        with self._lock:
            comparison = self._made(asked, databases)
            _affordable(comparison.sides)
            caller, called, visits, cost = comparison.call_points()
        names = [place.label for place in comparison.places]
        return {
            "of": len(called),
            "caller": [names[each] for each in caller[:_MOST_CALLS].tolist()],
            "name": [names[each] for each in called[:_MOST_CALLS].tolist()],
            "visits": visits[:, :_MOST_CALLS].tolist(),
            "cost": cost[:, :_MOST_CALLS].tolist(),
            "ranks": [side.ranks for side in comparison.sides],
        }

    def _of(self, asked: Question) -> tuple[Database, ...]:
        if len(set(asked.databases)) < len(asked.databases):
            raise UsageError("a database is compared with another")
        try:
            return tuple(self._databases[name] for name in asked.databases)
        except KeyError:
            raise NotFoundError("no such database, or it is still being written") from None

    def _make(self, asked: Question, databases: tuple[Database, ...]) -> Comparison:
        return compare(
            _sides(databases, asked),
            metric=asked.metric,
            shares=asked.shares,
            procedure=asked.within or None,
            scopes=asked.scopes,
        )


def _sides(databases: Sequence[Database], asked: Question) -> list[Side]:
    if not asked.kind:
        return whole_runs(databases)
    (db,) = databases
    if asked.kind == "rank":
        return some_ranks(db, asked.parts)
    if asked.kind == "pid":
        return some_processes(db, asked.parts)
    if asked.kind == "window":
        sides = windows(db, asked.parts)
        _affordable(sides)
        return sides
    _affordable(whole_runs([db]))
    sides = instances(db, asked.parts, procedure=asked.phase or None, inside=asked.within or None)
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


def _side(side: Side, name: str, lived: float) -> dict[str, object]:
    bounds = {}
    if side.begin is not None and side.end is not None:
        bounds = {"begin_ns": int(side.begin.min()), "end_ns": int(side.end.max())}
    own = str(side.database.path)
    return {
        "label": name if side.label == own else side.label.removeprefix(f"{own}: "),
        "database": name,
        "ranks": side.ranks,
        "size": side.size,
        "lived_s": lived,
        **bounds,
    }


def packed(head: dict[str, object], columns: list[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """u32 bytes of JSON, u32 n, u32 sides, u32 0, the JSON, then the columns."""
    text = json.dumps(head).encode()
    # Numbers of eight bytes must lie at multiples of eight.
    text += b" " * (-len(text) % 8)
    sides, n = columns[0].shape
    size = np.array([len(text), n, sides, 0], np.uint32)
    return [size, np.frombuffer(text, np.uint8), *columns]
