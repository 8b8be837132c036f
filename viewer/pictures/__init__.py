"""Pictures of a database without a browser: what the viewer's panes show, as PNG or SVG."""

from __future__ import annotations

from pathlib import Path

from hpcd.analysis import Database
from hpcd.errors import UsageError
from hpcd.viewer.pictures import flame, lines, over
from hpcd.viewer.pictures.page import Drawn, Page, View

VIEWS = {
    "trace": lines.trace,
    "depth": lines.depth,
    "summary": lines.summary,
    "map": lines.overview,
    "flame": flame.flame,
    "inverted": flame.inverted,
    "histogram": over.histogram,
    "curve": over.curve,
    "heat": over.heat_map,
}

__all__ = ["VIEWS", "Drawn", "View", "draw"]


def draw(db: Database, output: Path, view: View) -> Drawn:
    """Draw ``view`` of ``db`` into ``output`` (.png or .svg), replacing it at once when done.

    Raises :class:`UsageError` for a view of nothing, :class:`StorageError` when it cannot write.
    """
    if view.kind not in VIEWS:
        raise UsageError(f"no view {view.kind}; there are {', '.join(VIEWS)}")
    if view.line is not None and not 0 <= view.line < len(db.lines):
        raise UsageError(f"there are {len(db.lines)} trace lines, numbered from 0")
    page = Page(db, output, view)
    with page.style():
        drawn = VIEWS[view.kind](page)
        page.write()
    return drawn
