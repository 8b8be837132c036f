"""Flame graphs: calling contexts by cost, the outermost on top; or from the innermost outwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.collections import PolyCollection

from hpcd.analysis.profile.views import View as Tree
from hpcd.analysis.profile.views import by_caller, view_over
from hpcd.analysis.symbols.short_names import short_names
from hpcd.array_types import F64
from hpcd.errors import UsageError
from hpcd.viewer.contexts import Trees
from hpcd.viewer.palette import is_dark
from hpcd.viewer.picture_colours import view_colours
from hpcd.viewer.picture_tree import PictureTree
from hpcd.viewer.pictures.picture import Drawn, Page, short
from hpcd.viewer.selected_costs import SUMS, profile
from hpcd.wording import quantity

_ROW = 18  # pixels
_NARROWEST = 0.7
_LETTER = 6.3  # about the width of one, in pixels


@dataclass(frozen=True)
class Box:
    """A node of the tree at ``x`` (pixels) in a ``row``, ``width`` wide."""

    node: int
    row: int
    x: float
    width: float


def flame(page: Page) -> Drawn:
    """Callers above what they call, inlined calls and loops between them."""
    return _drawn(page, "top-down")


def inverted(page: Page) -> Drawn:
    """Procedures by what they cost themselves, their callers below them."""
    return _drawn(page, "bottom-up")


def _drawn(page: Page, kind: str) -> Drawn:
    db = page.db
    selected = profile(db, page.lines, page.start, page.end)
    exact = selected.kind == SUMS
    names = list(db.metrics.names) if exact else ["time"]
    metric = page.view.metric or names[db.metrics.main if exact else 0]
    if metric not in names:
        when = "" if exact else " in a part of the time"
        raise UsageError(f"no metric {metric}{when}; there are {', '.join(names)}")
    unit = db.metrics.units[names.index(metric)] if exact else "s"
    axes, width, height = page.axes("whole")
    trees = Trees(db)
    inverse = kind == "bottom-up"
    at = names.index(metric)
    tree = view_over(trees.by_name(kind), selected.value)
    if inverse:
        tree = by_caller(
            tree, kind, metric=at, share=_NARROWEST / width, depth=max(1, height // _ROW)
        )
    cost = tree.exclusive[at] if inverse else tree.inclusive[at]
    total = float(tree.total[at])
    boxes = boxes_of(tree, cost, total, width, height // _ROW)
    if not boxes:
        raise UsageError(f"nothing of {metric} was measured in what is to be drawn")
    rgb = view_colours(PictureTree(db), trees.coloured_as(kind), page.view.colours)
    x, y, wide = np.array([(box.x, box.row * _ROW, box.width) for box in boxes]).T
    right, low = x + np.maximum(wide - 1, 0.5), y + _ROW - 1
    corners = ((x, y), (right, y), (right, low), (x, low))
    polygons: Any = np.stack([np.stack(corner, 1) for corner in corners], 1)
    entity = tree.procedure[[box.node for box in boxes]]
    axes.add_collection(PolyCollection(polygons, facecolors=rgb[entity] / 255, linewidths=0))
    labels = short_names(trees.labels(kind))
    for box, number in zip(boxes, entity.tolist(), strict=True):
        room = int((box.width - 8) / _LETTER)
        if room > 2:
            dark = is_dark(rgb[number])
            axes.text(
                box.x + 4, box.row * _ROW + _ROW / 2, short(labels[number], room),
                color="white" if dark else "black", fontsize=8, va="center",
            )  # fmt: skip
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.axis("off")
    title = "inverted flame graph" if inverse else "flame graph"
    named = metric.replace("_", " ")
    how = f"the time from {page.start / 1e9:.6g} to {page.end / 1e9:.6g} s"
    how = "all their time" if exact else how
    page.titles(f"{title} by {named}", f"{quantity(total, unit)} on {page.lines_text()}, {how}")
    return Drawn(
        str(page.output), page.view.kind, page.lines.tolist(), page.start, page.end, metric=metric
    )


def boxes_of(tree: Tree, cost: F64, total: float, width: int, rows: int) -> list[Box]:
    """Nodes wide enough to be seen, the costliest child first."""
    if total <= 0:
        return []
    parent = tree.parent[1:]
    order = np.lexsort((-cost[1:], parent)) + 1
    first = np.searchsorted(parent[order - 1], np.arange(len(tree) + 1)).tolist()
    order = order.tolist()
    boxes = []
    pending = [(0, 0, 0.0)]
    while pending:
        node, row, x = pending.pop()
        if row >= rows:
            continue
        for child in order[first[node] : first[node + 1]]:
            wide = float(cost[child]) / total * width
            if not wide >= _NARROWEST:
                break
            boxes.append(Box(child, row, x, wide))
            pending.append((child, row + 1, x))
            x += wide
    return boxes
