"""Phases and iterations of a program, found in its trace.

A program that iterates calls the same procedures from one context again and again: seen at the
depth below that context, its trace repeats a pattern. The context is looked for from the outside
in, and in it a callee that returns regularly: iterations begin where it is entered.

A phase may also be named: each visit of a procedure is an instance of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.database import Database
from hpcd.analysis.parallel.ranks import Ranks
from hpcd.analysis.parallel.regularity import (
    GOOD,
    LEAST,
    LEAST_SHARE,
    Callee,
    choose,
    clocks_of,
    common_order,
    iterations_of,
    runs_of,
    score_of,
    spread_of,
)
from hpcd.analysis.parallel.tree_matching import Matching, innermost, match, within
from hpcd.analysis.parallel.waiting import Stretches, StretchReader, waiting_nodes
from hpcd.analysis.profile.costs import event_weights
from hpcd.array_types import I64, Mask
from hpcd.errors import UsageError
from hpcd.masks import marked
from hpcd.model.cct import CCT

# Share of a line's time that a callee must take to mark iterations.
_LEAST_COST = 0.005
# Phases below this share of the time are left out.
_LEAST = 0.01
# Lines that are looked at for a pattern: on the slowest rank waits between calls are short.
_REFERENCES = 8


@dataclass(frozen=True)
class Instances:
    """Stretches of time of one kind on all lines: ``begin``, ``end`` ``int64[count, lines]``, ns.

    ``length`` ``int64[count]`` is how long they took, the mean over lines, without waiting for a
    CPU.
    """

    begin: I64
    end: I64
    length: I64

    def __len__(self) -> int:
        return len(self.begin)


@dataclass(frozen=True)
class Pattern:
    """Iterations of one context.

    ``node`` is the context that iterates, ``path`` are the names on the way to it; ``anchor`` is
    the callee that begins an iteration, ``calls`` the most common order of callees and ``alike``
    how many iterations have it. ``period_s`` is the median length without waiting for a CPU,
    ``spread`` the median difference from one iteration to the next by it (so they may grow and
    shrink slowly), ``share`` of the reference line's time all take together.
    """

    node: int
    path: list[str]
    depth: int
    anchor: str
    calls: list[str]
    alike: int
    period_s: float
    spread: float
    share: float
    instances: Instances


@dataclass(frozen=True)
class Phase:
    """A stretch of the program: a callee of the context that iterates, or its iterations."""

    name: str
    begin_s: float
    end_s: float


class PhaseTimeline:
    """The lines of a program's ranks, by what they were doing when."""

    def __init__(self, db: Database, ranks: Ranks) -> None:
        self.db, self.ranks = db, ranks
        self.matching: Matching = match([db], [ranks.executables])
        tree = self.matching.tree
        activity = StretchReader(db, self.matching.node_of[0], waiting_nodes(self.matching))
        truncated = np.array([p.name.startswith("[truncated") for p in self.matching.places])
        cut = truncated[self.matching.place_of]
        cut[0] = False
        lost = innermost(tree, cut) > 0
        # A path that could not be followed says nothing of where the program was.
        self._activity, self._lost = activity, lost
        # Whether a shorter callee is seen is chance.
        period = event_weights(db, "cpu_time").quantum if "cpu_time" in db.metrics.names else 0
        self._shortest_ns = 2e9 * period
        # A few lines are looked at again and again; all of them may not fit into memory.
        self._stretches = lru_cache(_REFERENCES)(self._read)

    def _read(self, number: int) -> Stretches:
        return self._activity.stretches(int(self.ranks.line[number])).without(self._lost)

    def _each(self) -> Iterator[Stretches]:
        for number in range(len(self.ranks.line)):
            yield self._stretches(number) if number < _REFERENCES else self._read(number)

    @property
    def label(self) -> str:
        """The name of the first line, whose phases :meth:`phases` tells."""
        return self.db.lines.label[int(self.ranks.line[0])] if len(self.ranks.line) else ""

    def phase(self, procedure: str) -> Instances:
        """The visits of ``procedure``. Raises :class:`UsageError` when there is none."""
        inside = within(self.matching, procedure)
        runs = [runs_of(inside[line.node], line) for line in self._each()]
        return self._instances(procedure, runs)

    def patterns(self, inside: str | None = None) -> list[Pattern]:
        """Return the repeating patterns, outermost first; one per context.

        Given ``inside``, only in contexts of that procedure and below. Raises :class:`UsageError`
        when there is no such procedure.
        """
        part = None if inside is None else within(self.matching, inside)
        marks: dict[int, list[Callee]] = {}
        for reference in range(min(len(self.ranks.line), _REFERENCES)):
            for mark in self._candidates(reference, part):
                marks.setdefault(mark.context, []).append(mark)
        patterns = {}
        for node, several in marks.items():
            # Of lines that show it well the one that shows most iterations.
            best = max(mark.score for mark in several)
            good = [mark for mark in several if mark.score >= GOOD * best]
            mark = max(good, key=lambda callee: (callee.visits, callee.score))
            pattern = self._pattern(mark.reference, node, mark.node)
            if pattern is not None:
                patterns[node] = pattern
        return [
            patterns[node]
            for node in sorted(patterns, key=lambda node: (patterns[node].depth, node))
        ]

    def iterations(self, inside: str | None = None) -> Pattern:
        """The outermost pattern worth the name. Raises :class:`UsageError` when there is none."""
        patterns = self.patterns(inside)
        if not patterns:
            raise UsageError(f"{self.db.path}: nothing repeats; --phase names a procedure")
        quality = [pattern.share * (1 - pattern.spread) for pattern in patterns]
        best = max(quality)
        return next(
            pattern
            for pattern, value in zip(patterns, quality, strict=True)
            if value >= GOOD * best
        )

    def phases(self, pattern: Pattern | None) -> list[Phase]:
        """Return the phases of the first line, one callee of the iterating context after another.

        Iterations are one phase; short phases are left out.
        """
        line = self._stretches(0)
        tree = self.matching.tree
        node = self._spine(line) if pattern is None else pattern.node
        child = innermost(tree, tree.parent == node)
        child[tree.parent == np.arange(len(tree))] = 0
        token = child[line.node]
        names = [place.label for place in self.matching.places]
        least = _LEAST * float(line.end[-1] - line.begin[0]) if len(line.begin) else 0
        phases = []
        first, last = (None, None)
        if pattern is not None:
            first, last = int(pattern.instances.begin[0, 0]), int(pattern.instances.end[-1, 0])
            # The last iteration is taken to be as long as most are: what none before has called
            # comes after it.
            final = int(pattern.instances.begin[-1, 0])
            usual = np.unique(token[(line.begin >= first) & (line.begin < final)])
            after = line.begin[(line.begin >= final) & ~np.isin(token, np.append(usual, 0))]
            last = min(last, int(after.min(initial=last)))
            phases.append(Phase(f"{len(pattern.instances)} iterations", first / 1e9, last / 1e9))
        change = np.flatnonzero(np.diff(token, prepend=-1))
        for low, high in pairwise([*change.tolist(), len(token)]):
            begin, end = int(line.begin[low]), int(line.end[high - 1])
            if first is not None and last is not None:
                if begin < first:
                    end = min(end, first)
                else:
                    begin = max(begin, last)
            if token[low] and end - begin >= max(least, 1):
                name = names[int(tree.frame[token[low]])]
                phases.append(Phase(name, begin / 1e9, end / 1e9))
        return sorted(phases, key=lambda phase: phase.begin_s)

    # --- how patterns are found ---

    def _candidates(self, reference: int, part: Mask | None) -> list[Callee]:
        """The callee of each context of interest that marks its iterations, on one line."""
        line = self._stretches(reference)
        if not len(line.begin):
            return []
        tree, places = self.matching.tree, self.matching.places
        length = (line.end - line.begin).astype(np.float64)
        clocks = clocks_of(line)
        own = sum_by(line.node, length, len(tree))
        whole = tree.inclusive(own)
        waiting = tree.inclusive(sum_by(line.node, length * line.idle, len(tree)))
        looked_at = float(own.sum() if part is None else own[part].sum())
        program = np.array([place.program for place in places])
        if not bool(program.any()):
            program = np.array([not place.kernel for place in places])
        kernel = np.array([place.kernel for place in places])[self.matching.place_of]
        eligible = program[self.matching.place_of] & (whole >= LEAST_SHARE * looked_at)
        if part is not None:
            eligible &= part
        eligible[0] = False
        result = []
        for node in np.flatnonzero(eligible).tolist():
            children = (tree.parent == node) & ~kernel & (whole >= _LEAST_COST * looked_at)
            children[0] = False
            token = innermost(tree, children)[line.node]
            inside = _below(tree, node)[line.node]
            callees = []
            for child in np.unique(token[token > 0]).tolist():
                runs = runs_of(token == child, line)
                if len(runs) < LEAST or np.median(np.diff(runs)) < self._shortest_ns:
                    continue
                visit, begin, end = iterations_of(runs, runs_of(inside, line))
                if 2 * np.count_nonzero(np.diff(visit) == 0) < len(visit):
                    # It is its caller that repeats: most visits call it once.
                    continue
                score = score_of(begin, end, clocks, looked_at)
                if score > 0:
                    callees.append(
                        Callee(node, child, reference, score, len(runs), int(begin[0]),
                                float(whole[child]), float(waiting[child]))
                    )  # fmt: skip
            if callees:
                result.append(choose(callees))
        return result

    def _pattern(self, reference: int, node: int, child: int) -> Pattern | None:
        tree = self.matching.tree
        labels = [place.label for place in self.matching.places]
        below, inside = _below(tree, child), _below(tree, node)
        windows = []
        for line in self._each():
            _, begin, end = iterations_of(
                runs_of(below[line.node], line), runs_of(inside[line.node], line)
            )
            windows.append(np.stack([begin, end], axis=1))
        line = self._stretches(reference)
        mine = windows[reference]
        lengths = [clock.between(mine[:, 0], mine[:, 1]) for clock in clocks_of(line)]
        median = float(np.median(lengths[0]))
        name = labels[int(tree.frame[child])]
        token = innermost(tree, tree.parent == node)[line.node]
        calls, alike = common_order(token, line, mine)
        path = [labels[int(tree.frame[at])] for at in tree.path(node)]
        lived = float((line.end - line.begin).sum())
        return Pattern(
            node=node,
            path=path,
            depth=len(path),
            anchor=name,
            calls=[labels[int(tree.frame[call])] for call in calls],
            alike=alike,
            period_s=median / 1e9,
            spread=min(spread_of(length) for length in lengths),
            share=float((mine[:, 1] - mine[:, 0]).sum()) / (lived or 1.0),
            instances=self._instances(name, windows, reference),
        )

    def _instances(
        self, name: str, windows: Sequence[I64], reference: int | None = None
    ) -> Instances:
        """One window per line: its own where it has as many as the reference, else that one's."""
        counts = [len(window) for window in windows]
        if reference is None:
            reference = int(np.argmax(counts))
        selected = windows[reference]
        if not len(selected):
            raise UsageError(f"{self.db.path}: no rank was seen in {name}")
        columns = [window if len(window) == len(selected) else selected for window in windows]
        both = np.stack(columns, axis=1)
        begin, end = both[:, :, 0], both[:, :, 1]
        length = np.zeros(len(both))
        for number, line in enumerate(self._each()):
            length += clocks_of(line)[0].between(begin[:, number], end[:, number])
        return Instances(begin, end, (length / len(columns)).astype(np.int64))

    def _spine(self, line: Stretches) -> int:
        """The innermost context nearly all time is spent below."""
        tree = self.matching.tree
        length = (line.end - line.begin).astype(np.float64)
        whole = tree.inclusive(sum_by(line.node, length, len(tree)))
        return int(np.flatnonzero(whole >= 0.8 * whole[0])[-1]) if len(length) else 0


def _below(tree: CCT, node: int) -> Mask:
    selected = marked(len(tree), node)
    below: Mask = innermost(tree, selected) == node
    return below
