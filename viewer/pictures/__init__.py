"""Pictures of a database without a browser: what the viewer's panes show, as PNG or SVG."""

from __future__ import annotations

from pathlib import Path

from hpcd.analysis import Database
from hpcd.errors import UsageError
from hpcd.startup.isolation import in_root_directory

# While it is imported, matplotlib reads a matplotlibrc of the current directory, which may be
# another user's and never end (a named pipe); the user's own is read as ever.
with in_root_directory():
    import matplotlib as matplotlib

# isort: split
from hpcd.viewer.pictures import cost_over_lines, flame_graph, trace_view
from hpcd.viewer.pictures.picture import Drawn, Page, PictureView

VIEWS = {
    "trace": trace_view.trace,
    "depth": trace_view.depth,
    "summary": trace_view.summary,
    "map": trace_view.overview,
    "flame": flame_graph.flame,
    "inverted": flame_graph.inverted,
    "histogram": cost_over_lines.histogram,
    "curve": cost_over_lines.curve,
    "heat": cost_over_lines.heat_map,
}

__all__ = ["VIEWS", "Drawn", "PictureView", "draw"]


def draw(db: Database, output: Path, view: PictureView) -> Drawn:
    """Draw ``view`` of ``db`` into ``output`` (.png or .svg), which is written when all is drawn.

    Raises :class:`UsageError` for a view of nothing, :class:`StorageError` when it cannot write.
    """
    if view.kind not in VIEWS:
        raise UsageError(f"no view {view.kind}; there are {', '.join(VIEWS)}")
    if view.line is not None and not 0 <= view.line < len(db.lines):
        raise UsageError(f"there are {len(db.lines)} trace lines, numbered from 0")
    if view.phases and view.kind != "trace":
        raise UsageError("phases are drawn over the lines of the trace view only")
    if view.critical_path and view.kind != "trace":
        raise UsageError("a critical path is drawn over the lines of the trace view only")
    page = Page(db, output, view)
    with page.style():
        drawn = VIEWS[view.kind](page)
        page.write()
    return drawn
