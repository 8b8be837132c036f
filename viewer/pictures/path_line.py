"""The critical path as a line along a picture's rows, with all else dimmed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from hpcd.analysis.waits.path_report import path_report
from hpcd.array_types import F64, I64
from hpcd.masks import positions
from hpcd.viewer.pictures.picture import Page
from hpcd.wording import percent

_COLOURS = {
    "thread": "#2c6fbb",
    "runnable": "#e3a008",
    "timer": "#8e6bb8",
    "interrupt": "#1b9e77",
    "softirq": "#1b9e77",
    "not-seen": "#9aa3af",
}
_OTHER = "#a0522d"
_DIMMED = 0.72
# With more changes of row the lines are faint, and dark where they are close together.
_FEW, _FAINT = 60, 0.3
# Of a row's height: where the line is, below the row's middle, and where rows begin and end.
_BELOW, _EDGE = 0.4, 0.5


def draw_path(page: Page, axes: Axes, rows: Sequence[I64], width: int) -> dict[str, str]:
    """Draw the critical path of the picture's time over ``rows`` (of each its trace lines), at rows
    0, 1, 2 and so on, as ``width`` columns show it; returns texts for the legend with their
    colours. Raises :class:`hpcd.errors.UsageError` where no waits were recorded."""
    if not page.view.critical_path:
        return {}
    report = path_report(page.db, page.start, page.end, columns=width)
    steps = report.steps
    row_of = np.repeat(np.arange(len(rows)), [len(lines) for lines in rows])
    place = positions(len(page.db.lines), np.concatenate(rows))[steps.line]
    row = np.where(place >= 0, row_of[place], -1)
    begin, end = steps.begin / 1e9, steps.end / 1e9
    _dim(page, axes, len(rows), row, begin, end)
    seen = np.flatnonzero(row >= 0)
    colours = [
        _COLOURS.get(report.parts[part].kind.label, _OTHER) for part in steps.part[seen].tolist()
    ]
    y = row[seen] + _BELOW
    along = np.stack([np.stack([begin[seen], y], 1), np.stack([end[seen], y], 1)], 1)
    changes = seen[1:][(np.diff(seen) == 1) & (np.diff(row[seen]) != 0)]
    across = np.stack(
        [np.stack([begin[changes], row[changes - 1] + _BELOW], 1),
         np.stack([begin[changes], row[changes] + _BELOW], 1)], 1,
    )  # fmt: skip
    ground = tuple((page.ground / 255).tolist())
    few = len(changes) <= _FEW
    for segments, wide, colour, alpha in (
        (across, 2.5 if few else 0.0, ground, 1.0),
        (across, 1.0, page.ink, 1.0 if few else _FAINT),
        (along, 4.5, ground, 1.0),
        (along, 2.5, colours, 1.0),
    ):
        drawn = LineCollection(
            list(segments), linewidths=wide, colors=colour, alpha=alpha, capstyle="butt"
        )
        axes.add_collection(drawn, autolim=False)
    shares = sorted(report.kinds.items(), key=lambda item: -item[1])
    return {
        f"{percent(seconds / report.seconds, 1):>7}  path: {report.words[kind]}":
        _COLOURS.get(kind, _OTHER)
        for kind, seconds in shares
    }  # fmt: skip


def _dim(page: Page, axes: Axes, count: int, row: I64, begin: F64, end: F64) -> None:
    """Dim ``count`` rows where no step is on them; each step is on ``row`` int64[n], -1: on none,
    from ``begin`` to ``end`` float64[n] s, in order of time."""
    for number in range(count):
        mine = row == number
        starts = np.append(page.start / 1e9, end[mine])
        lengths = np.append(begin[mine], page.end / 1e9) - starts
        axes.broken_barh(
            np.stack([starts, lengths], 1).tolist(), (number - _EDGE, 2 * _EDGE),
            facecolor=page.ground / 255, alpha=_DIMMED, linewidth=0,
        )  # fmt: skip
