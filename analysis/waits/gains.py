"""Gains: by how much sooner a run would end if parts of the program were faster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.parallel.program_code import program_contexts
from hpcd.analysis.profile.filters import Filter
from hpcd.analysis.roles.role import NameRole, have
from hpcd.analysis.waits.balance import balance
from hpcd.analysis.waits.replay import read_replay
from hpcd.analysis.waits.wait_report import ActivityNames, require_waits
from hpcd.array_types import F64, Mask
from hpcd.errors import UsageError

DEFAULT_SHARE = 0.2
"""The share by which procedures are faster if none is given."""
# A procedure with less of its time in its own code, or libraries called there, only calls others.
_LEAST_OWN = 0.1


@dataclass(frozen=True, slots=True)
class Gain:
    """The run ends ``seconds`` sooner, with a standard error of ``error``, if ``procedures``, with
    all that they call, take less time on CPUs by the ``shares`` (0 to 1). They have ``on_path``
    seconds of what the run's length depends on. The thread that then ends last is ``thread``.

    With ``balanced`` meetings none is faster: before each of these collective operations all ranks
    have the mean of their work; ``on_path`` is all work on the path."""

    procedures: tuple[str, ...]
    shares: tuple[float, ...]
    seconds: float
    error: float
    on_path: float
    thread: str
    balanced: int = 0


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A run of ``seconds`` that ends with ``thread``; its replay without a change takes
    ``replayed``, of which ``running`` on CPUs. ``gains`` are the greatest first."""

    seconds: float
    replayed: float
    running: float
    thread: str
    gains: Sequence[Gain]


def what_if(
    db: Database,
    faster: Sequence[tuple[str, float]] = (),
    *,
    lines: Mask | None = None,
    last: int | None = None,
    limit: int | None = None,
) -> WhatIf:
    """Replay ``db``'s run with procedures faster on ``lines`` ``bool[lines]`` (None: on all).

    ``faster`` are names and shares: each alone and, of several, all together. Without any, the
    ``limit`` procedures of the program that gain most, and on all lines perfect balance. ``last``
    is the line whose end is looked at (None: that of the run). Raises :class:`UsageError` where no
    waits were recorded, or nothing on CPUs, or no name fits, :class:`FormatError`.
    """
    require_waits(db)
    run = _Run(db, np.ones(len(db.lines), bool) if lines is None else lines, last)
    chosen = [((name,), (share,)) for name, share in faster]
    if len(faster) > 1:
        names, shares = zip(*faster, strict=True)
        chosen.append((names, shares))
    gains = [
        run.gain(names, [Filter(procedures=(name,)).contexts(db) for name in names], shares)
        for names, shares in chosen
    ]
    if not chosen:
        gains = run.best(limit)
        if lines is None:
            gains += run.balanced()
    gains.sort(key=lambda gain: -gain.seconds)
    return WhatIf(run.seconds, run.replayed, run.running, run.thread, gains)


class _Run:
    """A run, replayed with parts of it shortened."""

    def __init__(self, db: Database, lines: Mask, last: int | None) -> None:
        self._db, self._lines = db, lines
        self._replay, self._samples, ends = read_replay(db)
        self._last = ends if last is None else np.array([last])
        self._names = ActivityNames(db)
        begin = int(db.lines.start.min())
        stop = self._replay.stop[self._last]
        end, line = self._end(np.zeros(len(self._samples.total)))
        self.seconds = (int(stop.max()) - begin) / 1e9
        if self.seconds <= 0:
            raise UsageError(f"{db.path}: the thread that ends last was never on a CPU")
        self.replayed = (end - begin) / 1e9
        self.thread = self._names.thread(line)
        path = self._replay.on_path(line)
        self._on_path = self._samples.by_node(path, len(db.cct))
        self.running = float(self._on_path.sum()) / 1e9
        self._before = end

    def _end(self, saved: F64) -> tuple[float, int]:
        """The ns at which the run ends, and the line that does so last."""
        ends = self._replay.ends(saved, self._lines)[self._last]
        at = int(np.argmax(ends))
        return float(ends[at]), int(self._last[at])

    def gain(self, names: Sequence[str], inside: Sequence[Mask], shares: Sequence[float]) -> Gain:
        """The gain from some procedures, which contexts are ``inside`` of."""
        left = np.ones(len(self._db.cct))
        for contexts, share in zip(inside, shares, strict=True):
            left[contexts] *= 1 - share
        weight = 1 - left
        end, line = self._end(self._samples.mean(weight))
        path = self._replay.on_path(line)
        error = float(np.sqrt((path**2 * self._samples.variance(weight)).sum()))
        return Gain(
            tuple(names),
            tuple(shares),
            (self._before - end) / 1e9,
            error / 1e9,
            float(self._on_path[left < 1].sum()) / 1e9,
            self._names.thread(line),
        )

    def balanced(self) -> list[Gain]:
        """The gain of perfect balance; none without ranks that meet."""
        saved, meetings = balance(self._replay.runs, self._replay.needs)
        if not meetings:
            return []
        ends = self._replay.by_run().ends(saved, self._lines)[self._last]
        at = int(np.argmax(ends))
        gained = (self._before - float(ends[at])) / 1e9
        thread = self._names.thread(int(self._last[at]))
        return [Gain((), (), gained, 0.0, self.running, thread, meetings)]

    def best(self, limit: int | None) -> list[Gain]:
        """The gains of the ``limit`` procedures of the program that gain most."""
        gains: list[Gain] = []
        for name, inside, most in self._candidates():
            if limit is not None and len(gains) >= limit:
                gains.sort(key=lambda gain: -gain.seconds)
                # Work that gets shorter on the path makes the run shorter by that at most.
                if gains[limit - 1].seconds >= most * DEFAULT_SHARE / 1e9:
                    break
            gains.append(self.gain([name], [inside], [DEFAULT_SHARE]))
        return sorted(gains, key=lambda gain: -gain.seconds)[:limit]

    def _candidates(self) -> Iterator[tuple[str, Mask, float]]:
        """Procedures of the program, their contexts, and their ns of what the run's length depends
        on, the most first; not those that only call others."""
        db = self._db
        names, name_of = np.unique(np.array(db.procedure_names), return_inverse=True)
        of_node = name_of[db.procedure_of_node]
        own = program_contexts(db) & ~db.procedures.kernel[db.procedure_of_node]
        own &= ~have(db.roles, NameRole.ENTRY)[db.procedure_of_node]
        own[0] = False
        innermost = db.cct.innermost(own)
        itself = np.bincount(of_node[innermost], self._on_path * (innermost > 0), len(names))
        # The nodes that matter are few.
        kept = db.cct.reached(np.flatnonzero(self._on_path))
        kept[0] = True
        cct, place = db.cct.keep(kept)
        ns = np.bincount(place, self._on_path, len(cct))
        procedures: list[tuple[float, int]] = []
        for name in np.flatnonzero(itself).tolist():
            everything = float(ns[cct.below(of_node[kept] == name)].sum())
            if itself[name] >= _LEAST_OWN * everything:
                procedures.append((everything, name))
        procedures.sort(reverse=True)
        for most, name in procedures:
            yield str(names[name]), db.cct.below(of_node == name), most
