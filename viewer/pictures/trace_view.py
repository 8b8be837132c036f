"""Trace lines over time: the trace view, one line's depth view, the summary, the whole as a map."""

from __future__ import annotations

import numpy as np
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, PercentFormatter

from hpcd.analysis import Database
from hpcd.analysis.profile.shared_rows import lines_that_share
from hpcd.array_types import I64
from hpcd.masks import positions
from hpcd.model.cct import NO_NODE
from hpcd.viewer.depth_slice import NO_PROCEDURE, entities_shown, shares
from hpcd.viewer.picture_tree import ASLEEP, RUNNABLE, RUNNING, WAITING
from hpcd.viewer.pictures.path_line import draw_path
from hpcd.viewer.pictures.phase_bands import draw_bands
from hpcd.viewer.pictures.picture import Drawn, Page, short
from hpcd.viewer.pictures.thread_states import ThreadStates

# States of threads in the summary.
_FROM_BELOW = (RUNNING, RUNNABLE, WAITING, ASLEEP)
_MAX_LINE_LABELS = 40
_NEAREST = "each pixel shows the wait at its time, or the closest sample"


def trace(page: Page) -> Drawn:
    """Lines over time, coloured by the program's procedures or by those at one depth."""
    db, view = page.db, page.view
    axes, width, height = page.axes()
    may_share = np.full(len(page.lines), view.share)
    shared = lines_that_share(db, page.lines, may_share)
    members = np.concatenate([np.zeros(0, np.int64), *shared.values()])
    rows = page.lines[~np.isin(page.lines, members) | np.isin(page.lines, list(shared))]
    selected = db.sample_lines(rows, height).tolist()
    of_row = [shared.get(line, np.array([line])) for line in selected]
    states = ThreadStates(page)
    nodes = states.nodes(db.sample_rows(of_row, page.start, page.end, width))
    pixels, notes = states.painted(nodes, height)
    page.image(axes, pixels, -0.5, len(nodes) - 0.5)
    step = max(1, -(-len(selected) // _MAX_LINE_LABELS))
    labelled = range(0, len(selected), step)
    axes.set_yticks(
        list(labelled),
        [short(_row_label(db, of_row[i]), 26) for i in labelled],
    )
    path = draw_path(page, axes, of_row, width)
    bands, more = draw_bands(page, axes, of_row)
    page.over_time(axes)
    ranked = states.shares(nodes)
    page.legend(*states.legend(ranked), [*notes, *more], {**path, **bands})
    what = f"{page.lines_text(len(selected))}, {len(db.trace):,} samples"
    page.titles(states.title, what, _NEAREST)
    return Drawn(
        str(page.output), "trace", selected, page.start, page.end, view.depth,
        shares=states.named(ranked), states=states.seconds(page),
    )  # fmt: skip


def _row_label(db: Database, lines: I64) -> str:
    (label,) = db.lines.labels([int(lines[0])])
    return label if len(lines) == 1 else f"{label.partition(' · ')[0]} · {len(lines):,} threads"


def overview(page: Page) -> Drawn:
    """All lines and all time, what was chosen of them outlined."""
    db, view = page.db, page.view
    axes, width, height = page.axes()
    start, end, lines = page.start, page.end, page.lines
    page.start, page.end = 0, max(db.duration_ns, end)
    selected = db.sample_lines(None, height)
    nodes = db.sample_grid(selected, 0, page.end, len(selected), width)
    states = ThreadStates(page)
    nodes = states.nodes(nodes)
    pixels, notes = states.painted(nodes, height)
    page.image(axes, pixels, -0.5, len(nodes) - 0.5)
    # In rows of the picture, each of which shows several lines.
    scale = len(selected) / len(db.lines)
    top, bottom = scale * int(lines.min()) - 0.5, scale * (int(lines.max()) + 1) - 0.5
    axes.add_patch(
        Rectangle(
            (start / 1e9, top), (end - start) / 1e9, bottom - top, fill=False, linewidth=2,
            edgecolor="#d0021b", clip_on=False,
        )
    )  # fmt: skip
    axes.set_yticks([])
    page.over_time(axes)
    ranked = states.shares(nodes)
    page.legend(*states.legend(ranked), notes)
    page.titles("the whole recording", f"outlined: {page.lines_text()}", _NEAREST)
    return Drawn(
        str(page.output), "map", selected.tolist(), start, end, view.depth,
        shares=states.named(ranked),
    )  # fmt: skip


def depth(page: Page) -> Drawn:
    """One line's whole call path over time, the outermost frame on top."""
    db, line = page.db, page.view.line
    line = int(page.lines[0]) if line is None else line
    axes, width, height = page.axes()
    states = ThreadStates(page)
    picture = states.picture
    nodes = states.nodes(db.sample_grid([line], page.start, page.end, 1, width))[0]
    shown = nodes != NO_NODE
    own = np.zeros(width, np.uint32)
    own[shown] = picture.depth[picture.stands[nodes[shown]]]
    deepest = int(own.max(initial=1))
    rows = [
        np.where(own >= level, entities_shown(picture.at(level), nodes), NO_PROCEDURE)
        for level in range(1, deepest + 1)
    ]
    entity = np.stack(rows).astype(np.uint32)
    state = states.state(nodes)
    # Pale where it does not run, whatever for.
    still = np.broadcast_to(np.where(state == RUNNING, RUNNING, RUNNABLE), entity.shape)
    tall = np.arange(height) * deepest // height
    page.image(axes, states.bodies(entity, still.astype(np.uint8))[tall], 0.5, deepest + 0.5)
    axes.set_ylabel("call path depth")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    page.over_time(axes)
    ranked = shares(entity)
    notes = ["pale: not running"] if bool((state[shown] != RUNNING).any()) else []
    page.legend(*states.legend(ranked), notes)
    what = f"trace line {db.lines[line].label}"
    page.titles("depth view", what, _NEAREST)
    return Drawn(
        str(page.output), "depth", [line], page.start, page.end, deepest,
        shares=states.named(ranked),
    )  # fmt: skip


def summary(page: Page) -> Drawn:
    """The number of lines in each procedure at each moment: a stacked histogram."""
    db, view = page.db, page.view
    axes, width, height = page.axes()
    selected = db.sample_lines(page.lines, 2 * height).tolist()
    states = ThreadStates(page)
    nodes = db.sample_grid(selected, page.start, page.end, len(selected), width)
    nodes = states.nodes(nodes)
    entity, state = entities_shown(states.shown, nodes), states.state(nodes)
    ranked = states.shares(nodes)
    order = np.array([number for number, _ in ranked], np.int64)
    # The most frequent lies at the bottom, where its amount can be read: of those that run, then of
    # those that could, then of those that wait.
    rank = positions(len(states.picture.names), order)
    shown = entity != NO_PROCEDURE
    column = np.broadcast_to(np.arange(width), entity.shape)[shown]
    place = positions(len(_FROM_BELOW), list(_FROM_BELOW), 0)
    band = place[state[shown]] * len(order) + rank[entity[shown]]
    bands = len(_FROM_BELOW) * len(order)
    count = np.bincount(band * width + column, minlength=bands * width)
    edges = np.cumsum(count.reshape(bands, width), axis=0) / len(selected)
    # Which band each pixel is in: as many edges as lie below it.
    middle = (np.arange(height) + 0.5) / height
    which = np.stack([np.searchsorted(edges[:, x], middle) for x in range(width)], axis=1)[::-1]
    stacked = np.append(np.tile(order, len(_FROM_BELOW)), NO_PROCEDURE).astype(np.uint32)[which]
    of_band = np.append(np.repeat(_FROM_BELOW, len(order)), RUNNING).astype(np.uint8)[which]
    page.image(axes, states.bodies(stacked, of_band), 1.0, 0.0)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylabel("of the lines")
    page.over_time(axes)
    page.legend(*states.legend(ranked), states.notes(state[shown]))
    page.titles(f"summary, {states.title}", page.lines_text(), _NEAREST)
    return Drawn(
        str(page.output), "summary", selected, page.start, page.end, view.depth,
        shares=states.named(ranked), states=states.seconds(page),
    )  # fmt: skip
