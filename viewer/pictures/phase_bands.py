"""Phases that recorded calls mark, as bands at the head of a picture's rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from hpcd.analysis.profile.marked_phases import MarkedPhases
from hpcd.analysis.profile.time_segments import TimeSegments
from hpcd.array_types import I64
from hpcd.viewer import palette
from hpcd.viewer.pictures.picture import Page

_MOST_BANDS = 2000
_MOST_NAMED = 6
# Of a row's height.
_HEIGHT, _GAP = 0.14, 0.03


def draw_bands(page: Page, axes: Axes, rows: Sequence[I64]) -> tuple[dict[str, str], list[str]]:
    """Draw the phases of the picture's view over ``rows`` (of each its trace lines), at rows 0, 1,
    2 and so on; returns texts for the legend with their colours, and notes.

    Too many to be told apart are not drawn, which a note says. Raises
    :class:`hpcd.errors.UsageError` where no call marks any.
    """
    if not page.view.phases:
        return {}, []
    phases = MarkedPhases(page.db, page.view.phases)
    window = TimeSegments.of_windows([(page.start, page.end)])
    parts = [
        (row, phases.segments(int(line)).within(window))
        for row, lines in enumerate(rows)
        for line in lines
    ]
    count = sum(len(segments) for _, segments in parts)
    if count > _MOST_BANDS:
        return {}, [f"{count:,} phases: too many to be drawn"]
    colours = palette.colours(phases.name) / 255
    time: I64 = np.zeros(len(phases), np.int64)
    for row, segments in parts:
        time += segments.lengths(len(phases))
        spans = np.stack([segments.begin, segments.end - segments.begin], 1) / 1e9
        whole = (page.start / 1e9, (page.end - page.start) / 1e9)
        if not len(segments):
            continue
        # On the ground's colour they are seen over any procedure's.
        axes.broken_barh([whole], (row - 0.5, _HEIGHT + _GAP), facecolor=page.ground / 255)
        axes.broken_barh(
            [(begin, length) for begin, length in spans.tolist()],
            (row - 0.5, _HEIGHT), facecolors=colours[segments.group],
        )  # fmt: skip
    order = np.argsort(-time, kind="stable")
    named = order[time[order] > 0]
    left = len(named) - _MOST_NAMED
    hexadecimal = palette.colours(phases.name).tolist()
    shown = {
        f"phase  {phases.name[group]}": "#{:02x}{:02x}{:02x}".format(*hexadecimal[group])
        for group in named[:_MOST_NAMED].tolist()
    }
    return shown, [f"{left:,} more phases"] if left > 0 else []
