"""Flame graphs: calling contexts by cost, the outermost on top; or from the innermost outwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.collections import PolyCollection

from hpcd.analysis.views import View as Tree
from hpcd.analysis.views import by_caller, view_over
from hpcd.errors import UsageError
from hpcd.viewer import palette
from hpcd.viewer.pictures.page import Drawn, Page, short
from hpcd.viewer.server.contexts import Trees
from hpcd.viewer.server.profile import SUMS, profile

F64 = npt.NDArray[np.float64]

_ROW = 18  # pixels
_NARROWEST = 0.7
_LETTER = 6.3  # about the width of one, in pixels
_BRIGHT = 130


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
    made = profile(db, page.lines, page.start, page.end)
    exact = made.kind == SUMS
    names = list(db.metrics.names) if exact else ["time"]
    metric = page.view.metric or next(
        (each for each in ("cpu_time", "time") if each in names), names[0]
    )
    if metric not in names:
        when = "" if exact else " in a part of the time"
        raise UsageError(f"no metric {metric}{when}; there are {', '.join(names)}")
    unit = db.metrics.units[names.index(metric)] if exact else "s"
    axes, width, height = page.axes("whole")
    trees = Trees(db)
    inverse = kind == "bottom-up"
    at = names.index(metric)
    tree = view_over(trees.by_name(kind), made.value)
    if inverse:
        tree = by_caller(
            tree, kind, metric=at, share=_NARROWEST / width, depth=max(1, height // _ROW)
        )
    cost = tree.exclusive[at] if inverse else tree.inclusive[at]
    total = float(tree.total[at])
    boxes = _boxes(tree, cost, total, width, height // _ROW)
    if not boxes:
        raise UsageError(f"nothing of {metric} was measured in what is to be drawn")
    rgb = palette.colours(trees.coloured_as(kind), page.view.colours)
    x, y, wide = np.array([(each.x, each.row * _ROW, each.width) for each in boxes]).T
    right, low = x + np.maximum(wide - 1, 0.5), y + _ROW - 1
    corners = ((x, y), (right, y), (right, low), (x, low))
    polygons: Any = np.stack([np.stack(each, 1) for each in corners], 1)
    entity = tree.procedure[[each.node for each in boxes]]
    axes.add_collection(PolyCollection(polygons, facecolors=rgb[entity] / 255, linewidths=0))
    labels = trees.labels(kind)
    for each, number in zip(boxes, entity.tolist(), strict=True):
        room = int((each.width - 8) / _LETTER)
        if room > 2:
            dark = float(rgb[number] @ (0.3, 0.59, 0.11)) < _BRIGHT
            axes.text(
                each.x + 4, each.row * _ROW + _ROW / 2, short(labels[number], room),
                color="white" if dark else "black", fontsize=8, va="center",
            )  # fmt: skip
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.axis("off")
    told = f"{total:,.2f} {unit}".strip() if unit == "s" else f"{total:,.0f} {unit}".strip()
    title = "inverted flame graph" if inverse else "flame graph"
    named = metric.replace("_", " ")
    how = {SUMS: "all their time"}.get(made.kind, "the time from " + _seconds(page))
    page.titles(f"{title} by {named}", f"{told} on {page.lines_told()}, {how}")
    return Drawn(
        str(page.output), page.view.kind, page.lines.tolist(), page.start, page.end, metric=metric
    )


def _seconds(page: Page) -> str:
    return f"{page.start / 1e9:.6g} to {page.end / 1e9:.6g} s"


def _boxes(tree: Tree, cost: F64, total: float, width: int, rows: int) -> list[Box]:
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
