"""Pictures of contexts' costs on each line: a histogram, a sorted curve, a map of lines by
procedures.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.ticker import EngFormatter, MaxNLocator

from hpcd.analysis.profile.filters import matching
from hpcd.array_types import Mask
from hpcd.viewer.pictures.picture import Drawn, Page, short
from hpcd.viewer.selected_costs import heat, over_lines
from hpcd.wording import harmless, percent, quantity

_PROCEDURES = 40
_ACCENT_LIGHT, _ACCENT_DARK = "#1f6feb", "#6aa5ff"
_MAX_LABELS = 40


def histogram(page: Page) -> Drawn:
    """The number of lines by cost."""
    axes, _, _ = page.axes("plot")
    metric, unit, statistics = _over(page)
    edges, counts = statistics["edges"], statistics["counts"]
    axes.stairs(counts, edges if len(edges) > len(counts) else [0, *edges], fill=True,
                color=_accent(page))  # fmt: skip
    axes.set_ylabel("lines")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(metric.replace("_", " "))
    axes.xaxis.set_major_formatter(EngFormatter(unit=harmless(unit)))
    return _done(page, "histogram", metric, "lines by cost", statistics)


def curve(page: Page) -> Drawn:
    """The cost of each line, from least to most."""
    axes, _, _ = page.axes("plot")
    metric, unit, statistics = _over(page)
    axes.plot(
        statistics["curve"]["place"], statistics["curve"]["value"], color=_accent(page), linewidth=2
    )
    axes.axhline(statistics["mean"], color=page.ink, linewidth=0.8)
    axes.annotate("mean", (0, statistics["mean"]), xytext=(4, 4), textcoords="offset points")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("lines, sorted by cost")
    axes.set_ylabel(metric.replace("_", " "))
    axes.yaxis.set_major_formatter(EngFormatter(unit=harmless(unit)))
    return _done(page, "curve", metric, "cost from least to most", statistics)


def heat_map(page: Page) -> Drawn:
    """Draw the exclusive costs of the costliest procedures on each line; darker is more."""
    db = page.db
    metric = page.view.metric or db.metrics.names[db.metrics.main]
    axes, _, height = page.axes("legend")
    # As many as there is room to name.
    room = int(page.view.height * 0.78 / 17)
    cells = heat(db, page.lines, metric, height, min(_PROCEDURES, room))
    ground = tuple(page.ground / 255)
    scale = LinearSegmentedColormap.from_list("cost", [ground, _accent(page)])
    most = float(cells.value.max(initial=0)) or 1.0
    # Small differences of small costs show.
    drawn = axes.imshow(
        cells.value, aspect="auto", interpolation="nearest", cmap=scale,
        norm=PowerNorm(0.5, 0, most),
    )  # fmt: skip
    names = [short(db.procedure_labels[procedure], 40) for procedure in cells.procedure.tolist()]
    axes.set_xticks(range(len(names)), [str(at + 1) for at in range(len(names))], fontsize=7)
    axes.tick_params(length=0)
    step = max(1, -(-len(cells.line) // _MAX_LABELS))
    shown = range(0, len(cells.line), step)
    labels = db.lines.labels([int(cells.line[at]) for at in shown])
    axes.set_yticks(list(shown), [short(label, 26) for label in labels])
    bar = page.figure.add_axes((0.775, 45 / page.view.height, 0.2, 14 / page.view.height))
    unit = db.metrics.units[db.metrics.number(metric)]
    page.figure.colorbar(
        drawn,
        cax=bar,
        orientation="horizontal",
        format=EngFormatter(unit=harmless(unit), places=1),
        ticks=[0, most],
    )
    listed = "\n".join(f"{at + 1:>2}  {name}" for at, name in enumerate(names))
    page.figure.text(0.76, page.from_top(95), listed, va="top", fontsize=8.5, linespacing=1.45)
    named = metric.replace("_", " ")
    page.titles(f"{named} of lines and procedures", page.lines_text(), "darker is more")
    return Drawn(
        str(page.output), "heat", cells.line.tolist(), 0, db.duration_ns, metric=metric
    )  # fmt: skip


def _over(page: Page) -> tuple[str, str, dict[str, Any]]:
    """The metric, its unit, and a procedure's or everything's cost over lines."""
    db, name = page.db, page.view.procedure
    metric = page.view.metric or db.metrics.names[db.metrics.main]
    inside: Mask = np.ones(len(db.cct), bool)
    if name:
        inside = db.cct.below(matching(db, [name]))
    unit = db.metrics.units[db.metrics.number(metric)]
    return metric, unit, over_lines(db, page.lines, metric, inside)


def _done(page: Page, view: str, metric: str, kind: str, statistics: dict[str, Any]) -> Drawn:
    db = page.db
    of = page.view.procedure or "the whole program"
    mean, most = statistics["mean"], statistics["max"]
    unit = db.metrics.units[db.metrics.number(metric)]
    what = (
        f"{page.lines_text()}, all their time: mean {quantity(mean, unit, most)},"
        f" most {quantity(most, unit)}, most / mean - 1 {percent(statistics['imbalance'])}"
    )
    page.titles(f"{metric.replace('_', ' ')} of {of}, {kind}", what)
    return Drawn(str(page.output), view, page.lines.tolist(), 0, db.duration_ns, metric=metric)


def _accent(page: Page) -> str:
    return _ACCENT_DARK if page.view.dark else _ACCENT_LIGHT
