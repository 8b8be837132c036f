"""Parts of a profile: some procedures, modules, ranks, or a window of time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePath

import numpy as np
import numpy.typing as npt

from hpcd.analysis.costs import costs_by_node, costs_in_window, event_weights
from hpcd.analysis.database import Database
from hpcd.errors import UsageError, did_you_mean
from hpcd.model.cct import CCT

F64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_KEYS = ("procedure", "module", "rank", "time")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_WINDOW = re.compile(r"(\d*\.?\d*)-(\d*\.?\d*)")


@dataclass(frozen=True)
class Filter:
    """What to count; of each kind one must fit, and nothing given fits all.

    ``procedures``: patterns; what has one on its call path, inlined ones included. ``modules``:
    patterns of paths or file names; code of these, not what it calls. ``ranks``: ranges, both ends
    included. ``windows``: of time, ns since the origin.
    """

    procedures: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    ranks: tuple[tuple[int, int], ...] = ()
    windows: tuple[tuple[int, int], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.procedures or self.modules or self.ranks or self.windows)

    @staticmethod
    def parse(texts: Sequence[str]) -> Filter:
        """``procedure=NAME``, ``module=NAME``, ``rank=0,2-5``, ``time=1.5-2`` (seconds).

        Names may have ``*`` and ``?``. Raises :class:`UsageError`.
        """
        found: dict[str, list[str]] = {key: [] for key in _KEYS}
        for text in texts:
            key, _, value = text.partition("=")
            if key not in found or not value:
                raise UsageError(f"--filter {text}: it is {'=, '.join(_KEYS)}=")
            found[key].append(value)
        return Filter(
            tuple(found["procedure"]),
            tuple(found["module"]),
            tuple(_ranks(part) for each in found["rank"] for part in each.split(",")),
            tuple(_window(each) for each in found["time"]),
        )

    def exclusive(self, db: Database) -> F64:
        """``float64[metrics, nodes]``: the exclusive costs that fit. Raises :class:`UsageError`."""
        count = len(db.metrics.names)
        if not (self.ranks or self.windows):
            costs = np.stack([db.metrics.exclusive(number) for number in range(count)])
        else:
            lines = np.flatnonzero(self._lines(db))
            costs = np.stack([self._costs(db, name, lines) for name in db.metrics.names])
        if self.procedures or self.modules:
            costs = costs * self._contexts(db)
        return costs

    def _lines(self, db: Database) -> Mask:
        if not self.ranks:
            return np.ones(len(db.lines), bool)
        rank = np.asarray(db.lines.rank)
        fits = np.zeros(len(rank), bool)
        for low, high in self.ranks:
            fits |= (rank >= low) & (rank <= high)
        if not bool(fits.any()):
            raise UsageError(f"{db.path}: has no such rank")
        return fits

    def _costs(self, db: Database, metric: str, lines: npt.NDArray[np.int64]) -> F64:
        if not self.windows:
            return costs_by_node(db, metric, lines)
        weights = event_weights(db, metric)
        total = np.zeros(len(db.cct))
        for low, high in _apart(self.windows):
            begin = np.full(len(lines), min(low, db.duration_ns + 1), np.int64)
            end = np.full(len(lines), min(high, db.duration_ns + 1), np.int64)
            total += costs_in_window(db, weights, lines, begin, end)
        return total

    def _contexts(self, db: Database) -> Mask:
        fits = np.ones(len(db.cct), bool)
        if self.procedures:
            fits &= below(db.cct, matching(db, self.procedures))
        if self.modules:
            paths = [module.path for module in db.modules]
            good = [False, *(_fits(self.modules, path, PurePath(path).name) for path in paths)]
            if not any(good):
                near = did_you_mean(self.modules[0], (PurePath(path).name for path in paths))
                raise UsageError(f"{db.path}: no module {' or '.join(self.modules)}{near}")
            module = np.array(good, bool)[db.procedures.module]
            fits &= module[db.procedure_of_node]
        return fits


def matching(db: Database, patterns: Sequence[str]) -> Mask:
    """``bool[nodes]``: contexts in a procedure, inlined ones too, that a pattern fits.

    A pattern fits a whole name, with or without its parameters. Raises :class:`UsageError` when no
    name fits.
    """
    scopes = db.scopes
    named = {
        name: _fits(patterns, name, bare(name)) for name in {*db.procedures.name, *scopes.name}
    }
    if not any(named.values()):
        near = did_you_mean(bare(patterns[0]).strip("*"), map(bare, named))
        raise UsageError(f"{db.path}: no procedure {' or '.join(patterns)}{near}")
    procedure = np.array([named[name] for name in db.procedures.name], bool)
    return inside_of(db, procedure, [bool(name) and named[name] for name in scopes.name])


def inside_of(db: Database, procedure: Mask, inlined: Sequence[bool]) -> Mask:
    """``bool[nodes]``: contexts in the code of procedures, or of procedures inlined elsewhere.

    ``procedure`` ``bool[procedures]``; ``inlined``: whether each scope is one of them. O(nodes +
    scopes · log depth).
    """
    inside = np.array(inlined, bool)
    # Parents have smaller numbers: what is true of one holds for all inside it.
    around = db.scopes.parent.astype(np.int64)
    while bool(around.any()):
        inside |= inside[around]
        around = around[around]
    found: Mask = procedure[db.procedure_of_node] | inside[db.scope_of_node]
    return found


def below(tree: CCT, mask: Mask) -> Mask:
    """``bool[nodes]``: ``mask``, and all nodes of ``tree`` below those. O(n · log depth)."""
    if bool(mask[0]):
        return np.ones(len(mask), bool)
    inside = mask.copy()
    around = tree.parent.astype(np.int64)
    while bool(around.any()):
        inside |= inside[around]
        around = around[around]
    return inside


def bare(name: str) -> str:
    """A C++ name without its parameters."""
    return name.partition("(")[0] or name


def _fits(patterns: Sequence[str], *names: str) -> bool:
    return any(name == each or fnmatchcase(name, each) for each in patterns for name in names)


def _ranks(text: str) -> tuple[int, int]:
    match = _RANGE.fullmatch(text)
    if match is None or int(match[2] or match[1]) < int(match[1]):
        raise UsageError(f"--filter rank={text}: ranks are numbers and ranges: 0,2-5")
    return int(match[1]), int(match[2] or match[1])


def _window(text: str) -> tuple[int, int]:
    match = _WINDOW.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        low = float(match[1]) if match[1] else 0.0
        high = float(match[2]) if match[2] else 1e9
    except ValueError:
        raise UsageError(f"--filter time={text}: a window is BEGIN-END in seconds") from None
    if not 0 <= low < high:
        raise UsageError(f"--filter time={text}: ends before it begins")
    return round(min(low, 1e9) * 1e9), round(min(high, 1e9) * 1e9)


def _apart(windows: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same time in windows that do not overlap."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(windows):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return found
