"""The sides of a comparison: runs, ranks, processes, windows of time, iterations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.database.metrics import RECORDS
from hpcd.analysis.database.seen_processes import seen_part
from hpcd.analysis.parallel.phases import PhaseTimeline
from hpcd.analysis.parallel.ranks import Ranks, find_ranks, has_ranks
from hpcd.analysis.profile.costs import WORK
from hpcd.array_types import I64
from hpcd.errors import UsageError
from hpcd.measurement.seen_part import SeenPart

_OF_CPU_TIME = (WORK, RECORDS, "cpu_time")


@dataclass(frozen=True)
class Side:
    """A side of a comparison: a run, or a part of a run.

    ``lines`` ``int64[k]`` are its trace lines; costs are divided by ``ranks``. ``begin`` and
    ``end`` ``int64[k]`` bound it on each line (ns), or are None for all of it. ``size`` is how
    many ranks a whole run had, recorded or not; 0 where that is not known.
    """

    label: str
    database: Database
    lines: I64
    ranks: int
    executables: tuple[str, ...] = ()
    begin: I64 | None = None
    end: I64 | None = None
    size: int = 0

    @cached_property
    def seen(self) -> SeenPart:
        """The part of its processes that was seen."""
        return seen_part(self.database, self.database.lines.process[self.lines])

    @property
    def elapsed_s(self) -> float:
        """Seconds from its begin to its end; 0 where the recording saw only a part of that."""
        if self.begin is not None and self.end is not None:
            return float((self.end - self.begin).mean()) / 1e9
        if not len(self.lines) or not self.seen.whole_run:
            return 0.0
        lines = self.database.lines
        return float(lines.end[self.lines].max() - lines.start[self.lines].min()) / 1e9


def require_whole(parts: Sequence[tuple[Database, SeenPart]], metric: str, remedy: str) -> None:
    """Raise :class:`UsageError`, with ``remedy``, unless ``parts`` of different recordings are
    whole, by what ``metric`` measures."""
    if len({db for db, _ in parts}) < 2:
        return
    for db, part in parts:
        if not (part.whole if metric in _OF_CPU_TIME else part.whole_run):
            raise UsageError(
                f"{db.path} {part.sentence()}: totals over different parts cannot be compared; "
                f"{remedy}, or --partial to go on"
            )


def whole_runs(databases: Sequence[Database], job: str | None = None) -> list[Side]:
    """Return one side per database. Raises :class:`UsageError`."""
    all_ranks = [ranks_or_all(db, job) for db in databases]
    alike = all(ranked for _, ranked in all_ranks)
    return [
        Side(
            str(db.path),
            db,
            ranks.line,
            len(ranks) if alike else 1,
            ranks.executables,
            size=ranks.size if ranked else 0,
        )
        for db, (ranks, ranked) in zip(databases, all_ranks, strict=True)
    ]


def ranks_or_all(db: Database, job: str | None) -> tuple[Ranks, bool]:
    """Return the ranks of a database and True; if it has none, all its processes and False."""
    if job is not None or has_ranks(db):
        return find_ranks(db, job=job), True
    return find_ranks(db, size=1), False


def some_ranks(db: Database, numbers: Sequence[int], job: str | None = None) -> list[Side]:
    """Return one side per rank of ``numbers``. Raises :class:`UsageError` for ranks that do not
    exist."""
    ranks = find_ranks(db, job=job)
    sides = []
    for number in numbers:
        (at,) = np.nonzero(ranks.number == number)
        if not len(at):
            raise UsageError(f"{db.path}: no rank {number}")
        lines = ranks.line[ranks.of_line == at[0]]
        sides.append(Side(f"rank {number}", db, lines, 1, ranks.executables))
    return sides


def some_processes(db: Database, pids: Sequence[int]) -> list[Side]:
    """Return one side per process id, with all its threads. Raises :class:`UsageError` for unknown
    ids."""
    programs = dict(db.rows("SELECT id, exe FROM process"))
    sides = []
    for pid in pids:
        lines = np.flatnonzero(db.lines.pid == pid)
        if not len(lines):
            raise UsageError(f"{db.path}: no process {pid}")
        exe = str(programs.get(int(db.lines.process[lines[0]])) or "")
        sides.append(Side(f"process {pid}", db, lines, 1, (exe,) if exe else ()))
    return sides


def windows(db: Database, spans: Sequence[tuple[int, int]], job: str | None = None) -> list[Side]:
    """One side per span of time ``(begin, end)`` in ns."""
    ranks, ranked = ranks_or_all(db, job)
    count = len(ranks) if ranked else 1
    return [
        Side(
            f"{low / 1e9:.3f} to {high / 1e9:.3f} s",
            db,
            ranks.line,
            count,
            ranks.executables,
            np.full(len(ranks.line), low, np.int64),
            np.full(len(ranks.line), high, np.int64),
        )
        for low, high in spans
    ]


def instances(
    db: Database,
    numbers: Sequence[int],
    *,
    procedure: str | None,
    inside: str | None,
    job: str | None,
) -> list[Side]:
    """One side per iteration of ``numbers``, from 1; without: shortest, median and longest.

    With ``procedure`` its visits are the iterations, otherwise they are found in the trace, if
    given below the procedure ``inside``. Raises :class:`UsageError` when there are none of them.
    """
    ranks, ranked = ranks_or_all(db, job)
    timeline = PhaseTimeline(db, ranks)
    if procedure is None:
        pattern = timeline.iterations(inside)
        name, stretches = "iteration", pattern.instances
    else:
        name, stretches = procedure, timeline.phase(procedure)
    if not numbers:
        order = np.argsort(stretches.length, kind="stable")
        selected = [order[0], order[len(order) // 2], order[-1]]
        numbers = list(dict.fromkeys(int(index) + 1 for index in selected))
    sides = []
    for number in numbers:
        if not 1 <= number <= len(stretches):
            raise UsageError(f"{db.path}: no {name} {number}; there are {len(stretches)}")
        sides.append(
            Side(
                f"{db.path}: {name} {number}",
                db,
                ranks.line,
                len(ranks) if ranked else 1,
                ranks.executables,
                stretches.begin[number - 1],
                stretches.end[number - 1],
            )
        )
    return sides


def choose_sides(
    databases: Sequence[Database],
    kind: str,
    parts: Sequence[Any],
    *,
    procedure: str | None,
    inside: str | None,
    job: str | None = None,
) -> list[Side]:
    """Return the sides of a comparison: whole runs where ``kind`` is empty, else ``parts`` of one
    database by ``rank``, ``pid``, ``window`` (begin and end, ns) or ``iteration``, as
    :func:`instances` takes them; of several runs then the iteration of median length each, unless
    some are named. Raises :class:`UsageError`."""
    if not kind:
        return whole_runs(databases, job)
    first = databases[0]
    if kind == "rank":
        return some_ranks(first, parts, job)
    if kind == "pid":
        return some_processes(first, parts)
    if kind == "window":
        return windows(first, parts, job)
    sides = []
    for db in databases:
        iterations = instances(db, parts, procedure=procedure, inside=inside, job=job)
        single = [iterations[len(iterations) // 2]]
        sides += iterations if parts or len(databases) == 1 else single
    return sides
