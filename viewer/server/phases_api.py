"""Phases that recorded calls mark, of the lines and time in view: their costs, where they lie."""

from __future__ import annotations

from functools import partial

import numpy as np

from hpcd.analysis import Database
from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.profile.marked_phases import MarkedPhases
from hpcd.analysis.profile.phase_costs import PhaseCosts, phase_costs, total_phases
from hpcd.analysis.profile.time_segments import TimeSegments
from hpcd.array_types import F64, I64, Mask
from hpcd.errors import UsageError
from hpcd.kept_answers import KeptAnswers
from hpcd.masks import marked
from hpcd.viewer.palette import colours

# Records read for one answer: some ten seconds.
_MOST_RECORDS = 20_000_000
_MOST_ROWS = 1000
# Bands in a picture: more are a blur.
_MOST_BANDS = 2000
_KEPT = 4  # answers


class PhaseViews:
    """The phases of one database. ``text`` is what marks them, as ``hpcd report --filter phase=``
    takes it; lines are ``int64[n]``, times ns since the origin. Methods raise :class:`UsageError`
    where no call marks such phases."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.marked = KeptAnswers(partial(MarkedPhases, db), _KEPT)
        """The phases."""
        self._costs = KeptAnswers(self._read, _KEPT)

    def costs(self, text: str, lines: I64, t0: int, t1: int) -> list[PhaseCosts]:
        """Return contexts' costs in the phases and in [t0, t1), of each line that has any. Refuses
        what would read very many records."""
        return self._costs(text, np.sort(lines).tobytes(), t0, t1)

    def profile(self, text: str, lines: I64, t0: int, t1: int) -> F64:
        """``float64[metrics, nodes]``: the same of all lines together."""
        total = np.zeros((len(self._db.metrics.names), len(self._db.cct)))
        for line in self.costs(text, lines, t0, t1):
            total += sum_by(line.node, line.cost, total.shape[1])
        return total

    def over_lines(self, text: str, lines: I64, metric: str, inside: Mask) -> F64:
        """``float64[lines of the database]``: what the contexts ``inside`` (``bool[nodes]``) cost
        on each of ``lines`` in the phases, whenever."""
        number = self._db.metrics.number(metric)
        total = np.zeros(len(self._db.lines))
        for line in self.costs(text, lines, 0, self._db.duration_ns):
            total[line.line] = float(line.cost[number][inside[line.node]].sum())
        return total

    def table(self, text: str, lines: I64, t0: int, t1: int) -> dict[str, object]:
        """Return the count, time and cost of each phase by thread."""
        phases, count = self.marked(text), len(self.marked(text))
        names = self._db.metrics.names
        costs = self.costs(text, lines, t0, t1)
        cost, seconds, threads = total_phases(costs, len(names), count)
        selected = marked(len(self._db.lines), lines)
        calls = phases.count(selected, TimeSegments.of_windows([(t0, t1)]))
        used = np.flatnonzero(threads)
        first = used[np.argsort(-seconds[used], kind="stable")][:_MOST_ROWS]
        return {
            "of": len(used),
            "name": [phases.name[at] for at in first.tolist()],
            "phase": [phases.alone[at] for at in first.tolist()],
            "calls": calls[first].tolist(),
            "threads": threads[first].tolist(),
            "seconds": seconds[first].tolist(),
            "costs": {name: row[first].tolist() for name, row in zip(names, cost, strict=True)},
            "notes": phases.notes,
        }

    def bands(self, text: str, lines: I64, t0: int, t1: int) -> dict[str, object]:
        """Return the phases of ``lines``, to be drawn over them; where there are too many, only
        how many there are."""
        phases = self.marked(text)
        window = TimeSegments.of_windows([(t0, t1)])
        mine = np.intersect1d(phases.lines, lines)
        parts, count = [], 0
        for line in mine.tolist():
            segments = phases.segments(line).within(window)
            count += len(segments)
            if count <= _MOST_BANDS:
                parts.append((line, segments))
        if count > _MOST_BANDS:
            return {"phases": count, "phase": None}
        red, green, blue = colours(phases.name).astype(np.int64).T
        colour = (red << 16 | green << 8 | blue).tolist()
        return {
            "phases": count,
            "phase": [
                {"line": line, "begin": begin, "end": end, "name": phases.name[group],
                 "colour": f"#{colour[group]:06x}"}
                for line, segments in parts
                for begin, end, group in zip(
                    segments.begin.tolist(), segments.end.tolist(), segments.group.tolist(),
                    strict=True,
                )
            ],
        }  # fmt: skip

    def _read(self, text: str, key: bytes, t0: int, t1: int) -> list[PhaseCosts]:
        phases = self.marked(text)
        lines = np.intersect1d(phases.lines, np.frombuffer(key, np.int64))
        duration = max(self._db.duration_ns, 1)
        share = max(min(t1, duration) - max(t0, 0), 0) / duration
        if int(self._db.lines.records[lines].sum()) * share > _MOST_RECORDS:
            raise UsageError(
                f"phases of more than {_MOST_RECORDS:,} records take too long here: choose fewer"
                " lines or less time (hpcd report --filter phase= takes any number)"
            )
        window = TimeSegments.of_windows([(t0, t1)])
        return list(
            phase_costs(
                self._db, lines.tolist(), lambda line: phases.segments(line).within(window),
                len(phases),
            )
        )  # fmt: skip
