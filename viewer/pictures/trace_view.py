"""Trace lines over time: the trace view, one line's depth view, the summary, the whole as a map."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, PercentFormatter

from hpcd.analysis import Database
from hpcd.analysis.profile.filters import below
from hpcd.analysis.profile.shared_rows import lines_that_share
from hpcd.array_types import I64, U8, U32, Mask
from hpcd.model.cct import NO_NODE
from hpcd.viewer.depth_slice import (
    NO_PROCEDURE,
    best_depth,
    procedures_at,
    shares,
    without_preemption,
)
from hpcd.viewer.marks import BLOCKED, COMMUNICATION, SLEEPING, marks
from hpcd.viewer.pictures.phase_bands import draw_bands
from hpcd.viewer.pictures.picture import Drawn, Page, short

_Pixel = TypeVar("_Pixel", np.uint8, np.bool_)
_MAX_LINE_LABELS = 40
_FEW_LINES = 64
_NEAREST = "each pixel shows the sample closest in time"
_STRIPED, _DOTTED = "striped: not running", "dotted: communicates"


def trace(page: Page) -> Drawn:
    """Lines over time, coloured by the procedure at one depth."""
    db, view = page.db, page.view
    axes, width, height = page.axes()
    may_share = np.full(len(page.lines), view.share)
    shared = lines_that_share(db, page.lines, may_share)
    members = np.concatenate([np.zeros(0, np.int64), *shared.values()])
    rows = page.lines[~np.isin(page.lines, members) | np.isin(page.lines, list(shared))]
    chosen = db.sample_lines(rows, height).tolist()
    of_row = [shared.get(line, np.array([line])) for line in chosen]
    nodes = db.sample_rows(of_row, page.start, page.end, width)
    depth = view.depth or best_depth(db, nodes, chosen)
    picture = procedures_at(db, without_preemption(db, nodes), depth)
    notes = _painted(page, axes, nodes, picture, height)
    step = max(1, -(-len(chosen) // _MAX_LINE_LABELS))
    labelled = range(0, len(chosen), step)
    axes.set_yticks(
        list(labelled),
        [short(_row_label(db, of_row[i]), 26) for i in labelled],
    )
    # A line of the ground between few lines makes them easier to tell apart.
    if len(chosen) <= _FEW_LINES:
        for boundary in range(1, len(chosen)):
            axes.axhline(boundary - 0.5, color=axes.get_facecolor(), linewidth=2)
    bands, more = draw_bands(page, axes, of_row)
    page.over_time(axes)
    named_shares = _named(db, picture)
    page.legend(named_shares, [*notes, *more], bands)
    what = f"{page.lines_text(len(chosen))}, {len(db.trace):,} samples"
    page.titles(f"call path depth {depth}", what, _NEAREST)
    return Drawn(
        str(page.output), "trace", chosen, page.start, page.end, depth, shares=named_shares
    )


def _row_label(db: Database, lines: I64) -> str:
    """Return the label of a row of ``lines``."""
    (label,) = db.lines.labels([int(lines[0])])
    return label if len(lines) == 1 else f"{label.partition(' · ')[0]} · {len(lines):,} threads"


def overview(page: Page) -> Drawn:
    """All lines and all time, what was chosen of them outlined."""
    db, view = page.db, page.view
    axes, width, height = page.axes()
    start, end, lines = page.start, page.end, page.lines
    page.start, page.end = 0, max(db.duration_ns, end)
    chosen = db.sample_lines(None, height)
    nodes = db.sample_grid(chosen, 0, page.end, len(chosen), width)
    depth = view.depth or best_depth(db, nodes, chosen)
    picture = procedures_at(db, without_preemption(db, nodes), depth)
    notes = _painted(page, axes, nodes, picture, height)
    # In rows of the picture, of which each stands for several lines.
    scale = len(chosen) / len(db.lines)
    top, bottom = scale * int(lines.min()) - 0.5, scale * (int(lines.max()) + 1) - 0.5
    axes.add_patch(
        Rectangle(
            (start / 1e9, top), (end - start) / 1e9, bottom - top, fill=False, linewidth=2,
            edgecolor="#d0021b", clip_on=False,
        )
    )  # fmt: skip
    axes.set_yticks([])
    page.over_time(axes)
    named_shares = _named(db, picture)
    page.legend(named_shares, notes)
    page.titles("the whole recording", f"outlined: {page.lines_text()}", _NEAREST)
    return Drawn(str(page.output), "map", chosen.tolist(), start, end, depth, shares=named_shares)


def depth(page: Page) -> Drawn:
    """One line's whole call path over time, the outermost frame on top."""
    db, line = page.db, page.view.line
    line = int(page.lines[0]) if line is None else line
    axes, width, height = page.axes()
    nodes = db.sample_grid([line], page.start, page.end, 1, width)
    shown = nodes[0] != NO_NODE
    own = np.zeros(width, np.uint32)
    own[shown] = db.cct.depth()[nodes[0, shown]]
    deepest = int(own.max(initial=1))
    rows = [
        np.where(own >= level, procedures_at(db, nodes, level)[0], NO_PROCEDURE)
        for level in range(1, deepest + 1)
    ]
    picture = np.stack(rows).astype(np.uint32)
    waits = np.zeros(width, bool)
    waits[shown] = (_node_marks(db) == BLOCKED)[nodes[0, shown]]
    striped = _tall((picture != NO_PROCEDURE) & waits, height)
    pixels = _striped(page, _tall(_colours(page, picture), height), striped)
    page.image(axes, pixels, 0.5, deepest + 0.5)
    axes.set_ylabel("call path depth")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    page.over_time(axes)
    named_shares = _named(db, picture)
    page.legend(named_shares, [_STRIPED] if bool(waits.any()) else [])
    what = f"trace line {db.lines[line].label}"
    page.titles("depth view", what, _NEAREST)
    return Drawn(
        str(page.output), "depth", [line], page.start, page.end, deepest, shares=named_shares
    )


def summary(page: Page) -> Drawn:
    """The number of lines in each procedure at each moment: a stacked histogram."""
    db, view = page.db, page.view
    axes, width, height = page.axes()
    chosen = db.sample_lines(page.lines, 2 * height).tolist()
    nodes = db.sample_grid(chosen, page.start, page.end, len(chosen), width)
    level = view.depth or best_depth(db, nodes, chosen)
    picture = procedures_at(db, without_preemption(db, nodes), level)
    ranked = shares(picture)
    order = np.array([number for number, _ in ranked], np.int64)
    # The most frequent lies at the bottom, where its amount can be read.
    rank = np.full(len(db.procedure_names), -1, np.int64)
    rank[order] = np.arange(len(order))
    shown = picture != NO_PROCEDURE
    column = np.broadcast_to(np.arange(width), picture.shape)[shown]
    # Of each procedure first the threads that run, then those that wait.
    waits = (_node_marks(db) == BLOCKED)[nodes[shown]]
    band = 2 * rank[picture[shown]] + waits
    count = np.bincount(band * width + column, minlength=2 * len(order) * width)
    edges = np.cumsum(count.reshape(2 * len(order), width), axis=0) / len(chosen)
    # Which band each pixel is in: as many edges as lie below it.
    middle = (np.arange(height) + 0.5) / height
    which = np.stack([np.searchsorted(edges[:, x], middle) for x in range(width)], axis=1)[::-1]
    stacked = np.append(order, NO_PROCEDURE).astype(np.uint32)[which // 2]
    striped = (which % 2 == 1) & (stacked != NO_PROCEDURE)
    page.image(axes, _striped(page, _colours(page, stacked), striped), 1.0, 0.0)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylabel("of the lines")
    page.over_time(axes)
    named_shares = [(db.procedure_names[number], share) for number, share in ranked]
    page.legend(named_shares, [_STRIPED] if bool(waits.any()) else [])
    page.titles(f"summary at call path depth {level}", page.lines_text(), _NEAREST)
    return Drawn(
        str(page.output), "summary", chosen, page.start, page.end, level, shares=named_shares
    )


def _named(db: Database, picture: U32) -> list[tuple[str, float]]:
    return [(db.procedure_names[number], share) for number, share in shares(picture)]


def _colours(page: Page, picture: U32) -> U8:
    """``uint8[h, w, 3]``; the ground where there is no procedure."""
    table = np.concatenate([page.colours, page.ground[None]])
    return table[np.where(picture == NO_PROCEDURE, np.uint32(len(page.colours)), picture)]


def _tall(pixels: npt.NDArray[_Pixel], height: int) -> npt.NDArray[_Pixel]:
    """Rows repeated so that there are ``height``."""
    rows: npt.NDArray[_Pixel] = pixels[np.arange(height) * len(pixels) // height]
    return rows


def _node_marks(db: Database) -> U8:
    """``uint8[nodes]``: BLOCKED where a thread waits, COMMUNICATION inside such calls, 0 else."""
    own = marks(db.procedure_names)[db.procedure_of_node]
    mark = np.where(below(db.cct, own == COMMUNICATION), COMMUNICATION, 0).astype(np.uint8)
    mark[(own == BLOCKED) | below(db.cct, own == SLEEPING)] = BLOCKED
    return mark


def _striped(page: Page, pixels: U8, where: Mask) -> U8:
    """A copy of ``pixels`` ``uint8[h, w, 3]``, with stripes of waiting ``where`` ``bool[h, w]``."""
    y, x = np.arange(len(where))[:, None], np.arange(where.shape[1])[None]
    stripe = where & ((x + y) & 7 < 3)
    pixels = pixels.copy()
    pixels[stripe] = (pixels[stripe].astype(np.uint16) + page.ground) // 2
    return pixels


def _painted(page: Page, axes: Axes, nodes: U32, picture: U32, height: int) -> list[str]:
    """Draw a picture of lines with marks for waiting and communication; what of these is on it."""
    mark = _node_marks(page.db)
    shown = nodes != NO_NODE
    of_pixel = np.zeros(nodes.shape, np.uint8)
    of_pixel[shown] = mark[nodes[shown]]
    pixels, tall = _tall(_colours(page, picture), height), _tall(of_pixel, height)
    y, x = np.arange(height)[:, None], np.arange(tall.shape[1])[None]
    dot = (tall == COMMUNICATION) & (x & 3 == 0) & ((y + (x >> 2 & 1) * 2) & 3 == 0)
    pixels = _striped(page, pixels, tall == BLOCKED)
    pixels[dot] //= 2
    page.image(axes, pixels, -0.5, len(nodes) - 0.5)
    kinds = ((BLOCKED, _STRIPED), (COMMUNICATION, _DOTTED))
    return [text for kind, text in kinds if bool((of_pixel == kind).any())]
