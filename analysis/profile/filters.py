"""Parts of a profile: some procedures, modules, trace lines, or a window of time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import PurePath

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.database import Database
from hpcd.analysis.database.database import ModuleRow
from hpcd.analysis.profile.costs import costs_by_node, costs_in_window, event_weights
from hpcd.analysis.profile.marked_phases import MarkedPhases
from hpcd.analysis.profile.phase_costs import TimeOfLine, phase_costs
from hpcd.analysis.profile.python_modules import python_module
from hpcd.analysis.profile.time_segments import TimeSegments
from hpcd.array_types import F64, I64, Mask
from hpcd.errors import UsageError, did_you_mean
from hpcd.model.cct import nearest_chosen
from hpcd.model.identity import ModuleKind
from hpcd.user_names import user_name

# Whose names and numbers choose trace lines; the fields :meth:`Lines.texts` has them by.
_NAMED = {"comm": "process", "thread": "thread", "job": "job", "host": "host"}
_NUMBERED = ("rank", "pid", "tid")
_KEYS = ("procedure", "module", *_NAMED, "user", *_NUMBERED, "time", "phase")
_EXPECTED = (
    "procedure, module, comm, thread, user, job or host=NAME, rank, pid or tid=LIST,"
    " time=BEGIN-END, phase=FUNCTION"
)
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_WINDOW = re.compile(r"(\d*\.?\d*)-(\d*\.?\d*)")


@dataclass(frozen=True)
class Filter:
    """The choice of what to count; of each kind one must fit, and nothing given fits all.

    ``procedures``: patterns; what has one on its call path, inlined ones included. ``modules``:
    patterns of paths or file names; code of these, not what it calls. ``named``: (field, patterns)
    of trace lines: comm, thread, job, host, user. ``numbered``: (field, ranges) of trace lines,
    both ends included: rank, pid, tid. ``windows``: of time, ns since the origin. ``phases``: what
    marks them, as :func:`hpcd.analysis.profile.marked_phases.parse_phase_specs` takes it.
    """

    procedures: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    named: tuple[tuple[str, tuple[str, ...]], ...] = ()
    numbered: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = ()
    windows: tuple[tuple[int, int], ...] = ()
    phases: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self != Filter()

    @staticmethod
    def parse(texts: Sequence[str]) -> Filter:
        """``procedure=NAME``, ``comm=NAME``, ``rank=0,2-5``, ``time=1.5-2`` (seconds) and so on.

        Names may have ``*`` and ``?``. Raises :class:`UsageError`.
        """
        values: dict[str, list[str]] = {key: [] for key in _KEYS}
        for text in texts:
            key, _, value = text.partition("=")
            if key not in values:
                raise UsageError(f"unknown filter {key!r}; expected {_EXPECTED}")
            if not value:
                raise UsageError(f"filter {key} without a value; expected {_EXPECTED}")
            values[key].append(value)
        return Filter(
            tuple(values["procedure"]),
            tuple(values["module"]),
            tuple((key, tuple(values[key])) for key in (*_NAMED, "user") if values[key]),
            tuple((key, _ranges(key, values[key])) for key in _NUMBERED if values[key]),
            tuple(_window(text) for text in values["time"]),
            tuple(values["phase"]),
        )

    def exclusive(self, db: Database) -> F64:
        """``float64[metrics, nodes]``: the exclusive costs that fit. Raises :class:`UsageError`."""
        count = len(db.metrics.names)
        if self.phases:
            costs = self._in_phases(db, self.lines(db), by_line=False)
        elif not (self.named or self.numbered or self.windows):
            costs = np.stack([db.metrics.exclusive(number) for number in range(count)])
        else:
            lines = np.flatnonzero(self.lines(db))
            costs = np.stack([self._costs(db, name, lines) for name in db.metrics.names])
        if self.procedures or self.modules:
            costs = costs * self.contexts(db)
        return costs

    def lines(self, db: Database) -> Mask:
        """``bool[lines]``: the trace lines that fit. Raises :class:`UsageError` when none does, or
        no window of time begins before the recordings' end."""
        if self.windows and min(low for low, _ in self.windows) >= max(db.duration_ns, 1):
            raise UsageError(
                f"{db.path}: lasts {db.duration_ns / 1e9:.3f} s, --filter time= begins after that"
            )
        fits = np.ones(len(db.lines), bool)
        for key, ranges in self.numbered:
            number = np.asarray(
                {"rank": db.lines.rank, "pid": db.lines.pid, "tid": db.lines.tid}[key]
            )
            inside = np.zeros(len(number), bool)
            for low, high in ranges:
                inside |= (number >= low) & (number <= high)
            if not bool(inside.any()):
                raise UsageError(f"{db.path}: has no such {key}")
            fits &= inside
        for key, patterns in self.named:
            words, of_line = _user_names(db) if key == "user" else db.lines.texts(_NAMED[key])
            words = [word or nameless(key) for word in words]
            inside = np.array([_fits(patterns, word) for word in words], bool)[of_line]
            if not bool(inside.any()):
                near = did_you_mean(patterns[0], words)
                raise UsageError(f"{db.path}: no {key} {' or '.join(patterns)}{near}")
            fits &= inside
        if len(fits) and not bool(fits.any()):
            raise UsageError(f"{db.path}: no trace line fits all filters")
        return fits

    def costs_of_lines(self, db: Database, selected: Mask) -> F64:
        """``float64[metrics, lines]``: what fits of the cost of each line of ``selected``, a mask.

        O(cells); with windows of time O(records in them + chosen lines · nodes), with phases
        O(records of the lines that have any).
        """
        if self.phases:
            return self._in_phases(db, selected, by_line=True)
        contexts = self.contexts(db) if self.procedures or self.modules else None
        inside = np.ones(len(db.cct), bool) if contexts is None else contexts
        names = db.metrics.names
        if not self.windows:
            rows = [db.metrics.over_contexts(name, inside) for name in names]
            return np.stack(rows) * selected
        costs = np.zeros((len(names), len(db.lines)))
        for line in np.flatnonzero(selected).tolist():
            for number, name in enumerate(names):
                costs[number, line] = float(self._costs(db, name, np.array([line]))[inside].sum())
        return costs

    def time_in(self, db: Database, time: TimeOfLine) -> TimeOfLine:
        """Return ``time`` restricted to the chosen windows and phases, trace line by trace line.
        Raises :class:`UsageError`."""
        if not (self.windows or self.phases):
            return time
        windows = TimeSegments.of_windows(apart(self.windows)) if self.windows else None
        phases = MarkedPhases(db, ",".join(self.phases)) if self.phases else None

        def fitting(line: int) -> TimeSegments:
            segments = time(line)
            if windows is not None:
                segments = segments.within(windows)
            return segments if phases is None else segments.within(phases.segments(line))

        return fitting

    def _in_phases(self, db: Database, selected: Mask, *, by_line: bool) -> F64:
        """``float64[metrics, lines]`` or ``[metrics, nodes]``: what fits of ``selected`` lines."""
        phases = MarkedPhases(db, ",".join(self.phases))
        time = replace(self, phases=()).time_in(db, phases.segments)
        lines = [line for line in phases.lines.tolist() if selected[line]]
        inside = self.contexts(db)
        costs = np.zeros((len(db.metrics.names), len(db.lines) if by_line else len(db.cct)))
        for line in phase_costs(db, lines, time, len(phases)):
            kept = line.cost * inside[line.node]
            for row, cost in zip(costs, kept, strict=True):
                if by_line:
                    row[line.line] = cost.sum()
                else:
                    row += sum_by(line.node, cost, len(row))
        return costs

    def _costs(self, db: Database, metric: str, lines: I64) -> F64:
        if not self.windows:
            return costs_by_node(db, metric, lines)
        weights = event_weights(db, metric)
        total = np.zeros(len(db.cct))
        for low, high in apart(self.windows):
            begin, end = (np.full(len(lines), at, np.int64) for at in (low, high))
            total += costs_in_window(db, weights, lines, begin, end)
        return total

    def contexts(self, db: Database) -> Mask:
        """``bool[nodes]``: the contexts that fit, whatever the line and time. Raises
        :class:`UsageError` when no name fits."""
        fits = np.ones(len(db.cct), bool)
        if self.procedures:
            fits &= db.cct.below(matching(db, self.procedures))
        if self.modules:
            names = [_module_names(module) for module in db.modules]
            good = [_fits(self.modules, *name) for name in ((nameless("module"),), *names)]
            if not any(good):
                near = did_you_mean(self.modules[0], (name[-1] for name in names))
                raise UsageError(f"{db.path}: no module {' or '.join(self.modules)}{near}")
            module = np.array(good, bool)[db.procedures.module]
            fits &= module[db.procedure_of_node]
        return fits


def matching(db: Database, patterns: Sequence[str]) -> Mask:
    """``bool[nodes]``: contexts in a procedure, inlined ones too, that a pattern fits.

    A pattern fits a whole name, with or without its parameters, of a Python function also without
    its class, or with its file as ``app.py:step``. Raises :class:`UsageError` when no name fits.
    """
    scopes = db.scopes
    named = {
        name: _fits(patterns, name, bare(name)) for name in {*db.procedures.name, *scopes.name}
    }
    procedure = np.array([named[name] for name in db.procedures.name], bool)
    for number in np.flatnonzero(db.is_python).tolist():
        name, file = db.procedures.name[number], PurePath(db.procedures.file[number]).name
        own = name.rpartition(".")[2]
        procedure[number] |= _fits(patterns, own, f"{file}:{name}", f"{file}:{own}")
    if not (bool(procedure.any()) or any(named.values())):
        near = did_you_mean(bare(patterns[0]).strip("*"), map(bare, named))
        raise UsageError(f"{db.path}: no procedure {' or '.join(patterns)}{near}")
    return inside_of(db, procedure, [bool(name) and named[name] for name in scopes.name])


def _module_names(module: ModuleRow) -> tuple[str, ...]:
    """Return what patterns of modules may fit: path, file name, and what reports call it."""
    name = PurePath(module.path).name
    python = module.kind == ModuleKind.PYTHON
    return module.path, name, python_module(module.path) if python else name


def inside_of(db: Database, procedure: Mask, inlined: Sequence[bool]) -> Mask:
    """``bool[nodes]``: contexts in the code of procedures, or of procedures inlined elsewhere.

    ``procedure`` ``bool[procedures]``; ``inlined``: whether each scope is one of them. O(nodes +
    scopes · log depth).
    """
    inside = np.array(inlined, bool)
    inside = inside[nearest_chosen(db.scopes.parent, inside)]
    inside_any: Mask = procedure[db.procedure_of_node] | inside[db.scope_of_node]
    return inside_any


def bare(name: str) -> str:
    """A C++ name without its parameters."""
    return name.partition("(")[0] or name


def _fits(patterns: Sequence[str], *names: str) -> bool:
    return any(
        name == pattern or fnmatchcase(name, pattern) for pattern in patterns for name in names
    )


def nameless(key: str) -> str:
    """The name, in filters and groups, of lines and code that have no ``key``."""
    return "[unknown]" if key in ("comm", "module") else f"[no {key}]"


def users_of_lines(db: Database) -> tuple[list[int], I64]:
    """Different users (uids), and each line's, by number."""
    rows = db.rows("SELECT uid FROM process ORDER BY id")
    users, of_process = np.unique([int(row[0] or 0) for row in rows], return_inverse=True)
    return users.tolist(), of_process[db.lines.process]


def _user_names(db: Database) -> tuple[list[str], I64]:
    users, of_line = users_of_lines(db)
    return [user_name(uid) for uid in users], of_line


def _ranges(key: str, texts: Sequence[str]) -> tuple[tuple[int, int], ...]:
    ranges = []
    for text in texts:
        for part in text.split(","):
            match = _RANGE.fullmatch(part)
            if match is None or int(match[2] or match[1]) < int(match[1]):
                raise UsageError(f"--filter {key}={part}: {key}s are numbers and ranges: 0,2-5")
            ranges.append((int(match[1]), int(match[2] or match[1])))
    return tuple(ranges)


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


def apart(windows: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return this time as windows that do not overlap."""
    united: list[tuple[int, int]] = []
    for low, high in sorted(windows):
        if united and low <= united[-1][1]:
            united[-1] = (united[-1][0], max(united[-1][1], high))
        else:
            united.append((low, high))
    return united
