"""Pictures of a database without a browser: the Trace View and the Depth View as PNG or SVG."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, MaxNLocator

from hpcd.analysis import Database
from hpcd.errors import StorageError, UsageError
from hpcd.viewer import palette
from hpcd.viewer.grid import NO_PROCEDURE, best_depth, procedures_at, shares

U32 = npt.NDArray[np.uint32]

_DPI = 100
_LEGEND_ENTRIES = 14
_LABEL_WIDTH = 44
_MAX_LINE_LABELS = 40
_FORMATS = (".png", ".svg")


@dataclass(slots=True)
class View:
    """What to draw. ``depth`` 0 chooses one; times are ns since the database's origin."""

    width: int = 1600
    height: int = 900
    depth: int = 0
    start: int = 0
    end: int = 0
    lines: list[int] | None = None
    depth_line: int | None = None
    dark: bool = False


@dataclass(slots=True)
class Drawn:
    """What was drawn: its depth, its lines, and the share of pixels of each procedure."""

    path: str
    depth: int
    lines: list[int]
    start_ns: int
    end_ns: int
    shares: list[tuple[str, float]] = field(default_factory=list)


def draw(db: Database, output: Path, view: View) -> Drawn:
    """Draw ``view`` of ``db`` into ``output`` (.png or .svg), replacing it at once when done.

    Raises :class:`UsageError` for a view of nothing, :class:`StorageError` when it cannot write.
    """
    if output.suffix.lower() not in _FORMATS:
        raise UsageError(f"{output}: pictures are .png or .svg")
    start, end = view.start, view.end or db.duration_ns
    if not 0 <= start < end:
        raise UsageError("the picture's time range is empty")
    if view.width < 320 or view.height < 200:
        raise UsageError("a picture is at least 320 x 200 pixels")
    ink = "#d8d8d8" if view.dark else "#202020"
    ground = np.array(palette.BLANK_DARK if view.dark else palette.BLANK_LIGHT, np.uint8)
    style: Any = {
        "font.size": 9.5,
        "text.color": ink,
        "axes.labelcolor": ink,
        "axes.edgecolor": ink,
        "xtick.color": ink,
        "ytick.color": ink,
        "axes.facecolor": ground / 255,
        "figure.facecolor": ground / 255,
        "svg.hashsalt": "hpcd",
    }
    with mpl.rc_context(style):
        figure = Figure(figsize=(view.width / _DPI, view.height / _DPI), dpi=_DPI)
        axes = figure.add_axes((0.13, 0.09, 0.62, 0.80))
        if view.depth_line is None:
            drawn, picture = _trace_view(db, axes, view, start, end)
        else:
            drawn, picture = _depth_view(db, axes, view, start, end)
        drawn.path = str(output)
        first = 0 if view.depth_line is None else 1  # rows are lines, or depths from 1
        names = db.procedure_names
        table = palette.colours(names)
        colours = np.concatenate([table, ground[None]])
        picture = np.where(picture == NO_PROCEDURE, np.uint32(len(table)), picture)
        axes.imshow(
            colours[picture],
            aspect="auto",
            interpolation="nearest",
            extent=(start / 1e9, end / 1e9, first + len(picture) - 0.5, first - 0.5),
        )
        _axes(axes)
        _legend(figure, drawn, dict(zip(names, table / 255.0, strict=True)))
        _titles(figure, db, drawn, view)
        _write(figure, output)
    return drawn


def _trace_view(db: Database, axes: Axes, view: View, start: int, end: int) -> tuple[Drawn, U32]:
    lines = db.sample_lines(view.lines, view.height).tolist()
    if not lines:
        raise UsageError("no trace lines to draw")
    nodes = db.sample_grid(lines, start, end, len(lines), view.width)
    depth = view.depth or best_depth(db, nodes)
    picture = procedures_at(db, nodes, depth)
    step = max(1, -(-len(lines) // _MAX_LINE_LABELS))
    labelled = range(0, len(lines), step)
    axes.set_yticks(
        list(labelled),
        [_short(label, 26) for label in db.lines.labels([lines[i] for i in labelled])],
    )
    # A line of white between few lines makes them easier to tell apart.
    if len(lines) <= 64:
        for boundary in range(1, len(lines)):
            axes.axhline(boundary - 0.5, color=axes.get_facecolor(), linewidth=2)
    return Drawn("", depth, lines, start, end, _named(db, picture)), picture


def _depth_view(db: Database, axes: Axes, view: View, start: int, end: int) -> tuple[Drawn, U32]:
    line = view.depth_line or 0
    nodes = db.sample_grid([line], start, end, 1, view.width)
    deepest = int(db.cct.depth()[nodes[nodes != 0xFFFFFFFF]].max(initial=1))
    own_depth = np.zeros(nodes.shape, np.uint32)
    shown = nodes != 0xFFFFFFFF
    own_depth[shown] = db.cct.depth()[nodes[shown]]
    rows = [
        np.where(own_depth[0] >= depth, procedures_at(db, nodes, depth)[0], NO_PROCEDURE)
        for depth in range(1, deepest + 1)
    ]
    picture = np.stack(rows).astype(np.uint32)
    axes.set_ylabel("call path depth")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    return Drawn("", deepest, [line], start, end, _named(db, picture)), picture


def _named(db: Database, picture: U32) -> list[tuple[str, float]]:
    return [(db.procedure_names[number], share) for number, share in shares(picture)]


def _axes(axes: Axes) -> None:
    axes.xaxis.set_major_formatter(EngFormatter(unit="s"))
    axes.set_xlabel("time since the start of recording")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _legend(figure: Figure, drawn: Drawn, colour: dict[str, npt.NDArray[np.float64]]) -> None:
    shown = drawn.shares[:_LEGEND_ENTRIES]
    handles = [
        Line2D([], [], marker="s", markersize=9, linestyle="", color=tuple(colour[name]))
        for name, _ in shown
    ]
    labels = [f"{100 * share:5.1f} %  {_short(name, _LABEL_WIDTH)}" for name, share in shown]
    rest = sum(share for _, share in drawn.shares[_LEGEND_ENTRIES:])
    if rest:
        handles.append(Line2D([], [], linestyle=""))
        labels.append(f"{100 * rest:5.1f} %  {len(drawn.shares) - len(shown)} more procedures")
    figure.legend(
        handles,
        labels,
        loc="upper left",
        bbox_to_anchor=(0.755, 0.895),
        frameon=False,
        handletextpad=0.3,
        labelspacing=0.55,
        title="share of pixels",
        alignment="left",
    )


def _titles(figure: Figure, db: Database, drawn: Drawn, view: View) -> None:
    kind = "depth view" if view.depth_line is not None else f"call path depth {drawn.depth}"
    hosts = sorted({row.host for row in db.measurements})
    figure.text(
        0.13, 0.945, f"{db.path.name} on {', '.join(hosts[:3])}: {kind}", fontsize=13, weight="bold"
    )
    lines = f"{len(drawn.lines)} of {len(db.lines)} trace lines"
    if view.depth_line is not None:
        lines = f"trace line {db.lines[drawn.lines[0]].label}"
    figure.text(0.13, 0.912, f"{lines}, {len(db.trace):,} samples", fontsize=9.5)
    figure.text(0.13, 0.012, _quality(db), fontsize=8.5, alpha=0.75)


def _quality(db: Database) -> str:
    complete = truncated = dropped = 0
    for row in db.measurements:
        unwind = row.summary.get("unwind", {})
        complete += int(unwind.get("complete", 0))
        truncated += sum(unwind.get("truncated", {}).values())
        dropped += sum(row.summary.get("samples", {}).get("dropped", {}).values())
    whole = 100 * complete / max(1, complete + truncated)
    return (
        f"{whole:.2f} % of call paths reach the thread's start, {dropped:,} samples dropped; "
        "each pixel shows the sample closest in time"
    )


def _short(name: str, width: int) -> str:
    """``name`` shortened in the middle."""
    if len(name) <= width:
        return name
    half = (width - 1) // 2
    return f"{name[:half]}…{name[-half:]}"


def _write(figure: Figure, output: Path) -> None:
    part = None
    try:
        with tempfile.NamedTemporaryFile(
            dir=output.parent, prefix=f".{output.name}.", suffix=output.suffix, delete=False
        ) as file:
            part = Path(file.name)
        figure.savefig(part, metadata={"Date": None} if output.suffix == ".svg" else None)
        umask = os.umask(0)
        os.umask(umask)
        part.chmod(0o666 & ~umask)
        part.replace(output)
    except OSError as error:
        if part:
            part.unlink(missing_ok=True)
        raise StorageError(f"cannot write {output}: {error.strerror}") from None
