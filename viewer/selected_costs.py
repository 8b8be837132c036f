"""Costs of a selection of lines and time: by context, by line, and by both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpcd.analysis import Database
from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.profile.launchers import own_lines
from hpcd.analysis.profile.phase_costs import PhaseCosts
from hpcd.analysis.profile.state_times import times_by_state
from hpcd.array_types import F64, I64, U32, Mask
from hpcd.masks import positions

SUMS, TIMES, SAMPLED = 0, 1, 2
"""How a profile was made: metrics added up, time of records added up, or time by sampling."""

_CURVE = 1000
_BINS = 60


@dataclass(frozen=True)
class SelectedCosts:
    """``value`` ``float64[metrics, nodes]``, exclusive; ``pixels`` it was estimated from, or 0.

    ``kind`` :data:`SUMS` has all metrics; the others have seconds of the lines' time by
    :class:`hpcd.analysis.trace.states.State`, or in all.
    """

    kind: int
    pixels: int
    value: F64


def profile(db: Database, lines: I64, t0: int, t1: int, *, times: bool = False) -> SelectedCosts:
    """Return the costs of ``lines`` from ``t0`` to ``t1``, exact if that takes a moment.

    Whole lines have their metrics' sums, unless ``times`` requests time by state.
    """
    if not times and t0 <= 0 and t1 >= db.duration_ns:
        values = [db.metrics.of_lines(metric, lines) for metric in range(len(db.metrics.names))]
        return SelectedCosts(SUMS, 0, np.stack(values))
    times_of = times_by_state(db, lines, t0, t1)
    value = times_of.seconds if times else times_of.seconds.sum(axis=0)[None]
    return SelectedCosts(SAMPLED if times_of.pixels else TIMES, times_of.pixels, value)


def over_lines(
    db: Database, lines: I64, metric: str, inside: Mask, cost: F64 | None = None
) -> dict[str, object]:
    """Return the cost of the contexts ``inside`` on each of ``lines``; ``cost`` ``float64[lines of
    the database]`` says what counts of it (None: all).

    Statistics, a histogram, and the sorted curve. Of many lines the curve has some at equal
    distances; its first and last are always there. Lines that are not the program's own, launchers
    and helper threads (:func:`hpcd.analysis.profile.launchers.own_lines`), count in the sum alone:
    ``helpers`` is how many there are. What they and ranks have in common is no statistic of the
    program. Where there is nothing else, they are what it is about.
    """
    if cost is None:
        cost = db.metrics.over_contexts(metric, inside)
    total = float(cost[lines].sum())
    helps = ~own_lines(db)[lines]
    if helps.all():
        helps = np.zeros(len(lines), bool)
    lines = lines[~helps]
    value = cost[lines]
    order = np.argsort(value, kind="stable")
    picked = np.unique(np.linspace(0, len(order) - 1, min(len(order), _CURVE)).astype(np.int64))
    low, high = (float(value.min()), float(value.max())) if len(value) else (0.0, 0.0)
    # All alike, but for rounding, is one bar.
    differ = high - low > 1e-6 * abs(high)
    edges = np.linspace(low, high, _BINS + 1) if differ else np.array([low, high])
    counts = np.histogram(value, edges)[0] if differ else np.array([len(value)])
    mean = float(value.mean()) if len(value) else 0.0
    stddev = float(value.std()) if len(value) else 0.0
    return {
        "lines": len(lines),
        "helpers": int(np.count_nonzero(helps)),
        "with_cost": int(np.count_nonzero(value)),
        "sum": total,
        "mean": mean,
        "stddev": stddev,
        "cv": stddev / mean if mean else 0.0,
        "min": low,
        "median": float(np.median(value)) if len(value) else 0.0,
        "max": high,
        "imbalance": high / mean - 1 if mean else 0.0,
        "edges": edges.tolist(),
        "counts": counts.tolist(),
        "curve": {
            "place": picked.tolist(),
            "value": value[order[picked]].tolist(),
            "line": lines[order[picked]].tolist(),
            "label": db.lines.labels(lines[order[picked]].tolist()),
            "row": order[picked].tolist(),
        },
    }


@dataclass(frozen=True)
class Heat:
    """``value`` ``float32[lines, procedures]``, exclusive: of ``line`` and ``procedure``."""

    line: U32
    procedure: U32
    value: npt.NDArray[np.float32]


def heat(
    db: Database, lines: I64, metric: str, height: int, width: int,
    within: list[PhaseCosts] | None = None,
) -> Heat:  # fmt: skip
    """Return costs of the ``width`` costliest procedures on at most ``height`` of ``lines``;
    ``within`` some phases (None: all their time).
    """
    number = db.metrics.number(metric)
    names = db.procedure_labels
    # Procedures of one name are one, as everywhere in the viewer.
    first: dict[str, int] = {}
    same = np.array([first.setdefault(name, number) for number, name in enumerate(names)])
    procedure = same[db.procedure_of_node]
    selected = db.sample_lines(lines, height)
    if within is None:
        total = sum_by(procedure, db.metrics.of_lines(number, lines), len(names))
    else:
        by_line = {one.line: (one.node, one.cost[number]) for one in within}
        total = np.zeros(len(names))
        for nodes, costs in by_line.values():
            total += sum_by(procedure[nodes], costs, len(names))
    columns = np.argsort(-total, kind="stable")[:width]
    columns = columns[total[columns] > 0]
    column_of = positions(len(names), columns)
    value = np.zeros((len(selected), len(columns)), np.float32)
    for row, line in enumerate(selected.tolist()):
        if within is None:
            node, cost = db.metrics.by_line(number, line)
            column = column_of[procedure[node]]
        elif line in by_line:
            column, cost = column_of[procedure[by_line[line][0]]], by_line[line][1]
        else:
            continue
        shown = column >= 0
        value[row] = sum_by(column[shown], cost[shown], len(columns))
    return Heat(selected.astype(np.uint32), columns.astype(np.uint32), value)
