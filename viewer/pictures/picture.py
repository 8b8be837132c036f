"""One picture: its size, colours, title, legend and file; what is on it is its neighbours' job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter

from hpcd.analysis import Database
from hpcd.analysis.profile.row_text import shorten
from hpcd.array_types import I64, U8
from hpcd.errors import UsageError
from hpcd.viewer import palette
from hpcd.viewer.pictures.figure_file import require_format, write_figure
from hpcd.wording import harmless, percent

RGB = U8

_DPI = 100
_LARGEST = 32768  # pixels: more than any screen or printer shows takes minutes and GB
_LEGEND_ENTRIES = 14
_LABEL_WIDTH = 38
# Left and width as shares of the page's width; pixels below for the axis and a note, where there
# is an axis.
_WITH_LEGEND = (0.13, 0.62, 81)
_WHOLE = (0.02, 0.96, 54)
_PLOT = (0.08, 0.88, 81)
# Pixels from the top: titles, and what is below them; from the bottom the note. So they never
# overlap, however low the picture is.
_TITLE, _SUBTITLE, _CONTENT, _NOTE = 50, 79, 99, 11


@dataclass(slots=True)
class PictureView:
    """Options of a picture: ``kind`` is one of :data:`hpcd.viewer.pictures.VIEWS`.

    ``depth`` 0: colours are by procedure. Times are ns since the database's origin, ``end`` 0 its
    end. ``lines`` None are all; with ``share`` those of threads that lived briefly, one after
    another, share rows of the trace view. ``line``: the depth view's, None the first. ``metric``
    empty is the one that tells most; ``procedure``: whose cost over lines, everything if empty.
    ``phases``: those to draw over the rows of the trace view, as ``hpcd report --by phase=`` takes
    them; ``critical_path``: whether that of the picture's time is drawn over them. ``states``:
    whether :attr:`Drawn.states` is wanted; it takes reading the lines' records.
    """

    kind: str = "trace"
    width: int = 1600
    height: int = 900
    depth: int = 0
    start: int = 0
    end: int = 0
    lines: Sequence[int] | None = None
    share: bool = False
    line: int | None = None
    metric: str = ""
    procedure: str = ""
    phases: str = ""
    critical_path: bool = False
    states: bool = False
    colours: Sequence[palette.ColourPattern] = ()
    dark: bool = False


@dataclass(slots=True)
class Drawn:
    """Contents of a picture: the lines in it and their time, and for pictures over time the depth,
    the share of pixels of each procedure and, if the view wants them, the seconds of its lines by
    state; for others the metric.
    """

    path: str
    view: str
    lines: list[int]
    start_ns: int
    end_ns: int
    depth: int = 0
    metric: str = ""
    shares: list[tuple[str, float]] = field(default_factory=list)
    states: dict[str, float] = field(default_factory=dict)


class Page:
    """A picture being drawn. Raises :class:`UsageError` for a size or time that is none."""

    def __init__(self, db: Database, output: Path, view: PictureView) -> None:
        require_format(output)
        self.start, self.end = view.start, view.end or db.duration_ns
        if not 0 <= self.start < self.end:
            raise UsageError("the picture's time range is empty")
        if not (320 <= view.width <= _LARGEST and 200 <= view.height <= _LARGEST):
            raise UsageError(f"a picture has from 320 x 200 to {_LARGEST} x {_LARGEST} pixels")
        self.db, self.output, self.view = db, output, view
        # Selected by people, or all of them.
        self.lines: I64 = np.asarray(
            range(len(db.lines)) if view.lines is None else view.lines, np.int64
        )
        if not len(self.lines):
            raise UsageError("no trace lines to draw")
        self.ink = "#d8d8d8" if view.dark else "#202020"
        self.ground: RGB = np.array(
            palette.BLANK_DARK if view.dark else palette.BLANK_LIGHT, np.uint8
        )

    def style(self) -> AbstractContextManager[None]:
        """Colours and sizes; the figure is created within."""
        ink = self.ink
        style: Any = {
            "font.size": 9.5,
            "text.color": ink,
            "axes.labelcolor": ink,
            "axes.edgecolor": ink,
            "xtick.color": ink,
            "ytick.color": ink,
            "axes.facecolor": self.ground / 255,
            "figure.facecolor": self.ground / 255,
            "svg.hashsalt": "hpcd",
            # Names may have dollar signs.
            "text.parse_math": False,
        }
        context: AbstractContextManager[None] = mpl.rc_context(style)
        return context

    def axes(self, kind: str = "legend") -> tuple[Axes, int, int]:
        """Axes ``legend`` beside which there is room for one, ``plot``, or ``whole`` without ticks;
        and their size in pixels, which is whole numbers of them."""
        view = self.view
        self.figure = Figure(figsize=(view.width / _DPI, view.height / _DPI), dpi=_DPI)
        start, share, bottom = {"legend": _WITH_LEGEND, "plot": _PLOT, "whole": _WHOLE}[kind]
        left, width = round(start * view.width), round(share * view.width)
        height = view.height - bottom - _CONTENT
        axes = self.figure.add_axes(
            (left / view.width, bottom / view.height, width / view.width, height / view.height)
        )
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        return axes, width, height

    def from_top(self, pixels: float) -> float:
        """Return the share of the page's height that is below ``pixels`` from its top."""
        return 1 - pixels / self.view.height

    def over_time(self, axes: Axes) -> None:
        """Name the axis of time."""
        axes.xaxis.set_major_formatter(EngFormatter(unit="s"))
        axes.set_xlabel("time since the start of recording")
        axes.tick_params(axis="y", length=0)

    def image(self, axes: Axes, pixels: RGB, top: float, bottom: float) -> None:
        """``uint8[h, w, 3]`` over the picture's time, from ``top`` to ``bottom``."""
        axes.imshow(
            pixels,
            aspect="auto",
            interpolation="nearest",
            extent=(self.start / 1e9, self.end / 1e9, bottom, top),
        )

    def legend(
        self,
        shares: Sequence[tuple[str, float]],
        chips: Mapping[str, RGB],
        notes: Sequence[str] = (),
        bands: Mapping[str, str] | None = None,
    ) -> None:
        """Procedures with their share of the pixels, in the colours of ``chips``, then what marks
        mean, then ``bands``: texts of what else is drawn over the rows, and their colours."""
        shown = shares[:_LEGEND_ENTRIES]
        handles = [
            Line2D([], [], marker="s", markersize=9, linestyle="",
                   color=tuple(chips[name] / 255))
            for name, _ in shown
        ]  # fmt: skip
        labels = [f"{percent(share, 1):>7}  {short(name, _LABEL_WIDTH)}" for name, share in shown]
        rest = sum(share for _, share in shares[_LEGEND_ENTRIES:])
        if rest:
            notes = [f"{percent(rest, 1):>7}  {len(shares) - len(shown)} more procedures", *notes]
        handles += [Line2D([], [], linestyle="")] * len(notes)
        named = bands or {}
        handles += [
            Line2D([], [], marker="s", markersize=5, linestyle="", color=colour)
            for colour in named.values()
        ]
        texts = [short(name, _LABEL_WIDTH + 7) for name in named]
        self.figure.legend(
            handles,
            [*labels, *notes, *texts],
            loc="upper left",
            bbox_to_anchor=(0.755, self.from_top(_CONTENT - 4)),
            frameon=False,
            handletextpad=0.3,
            labelspacing=0.55,
            title="share of pixels",
            alignment="left",
        )

    def titles(self, kind: str, what: str, note: str = "") -> None:
        """Whose picture it is, of what, and how far to trust it."""
        db = self.db
        hosts = sorted({row.host for row in db.measurements})
        left = 0.13 if note else 0.02
        title = f"{db.path.name} on {', '.join(hosts[:3])}: {kind}"
        self.figure.text(left, self.from_top(_TITLE), title, fontsize=13, weight="bold")
        self.figure.text(left, self.from_top(_SUBTITLE), what, fontsize=9.5)
        quality = f"{_quality(db)}; {note}" if note else _quality(db)
        self.figure.text(left, _NOTE / self.view.height, quality, fontsize=8.5, alpha=0.75)

    def lines_text(self, drawn: int | None = None) -> str:
        """Which lines, in words; of more than there are pixels only ``drawn``."""
        total = len(self.db.lines)
        text = f"{len(self.lines) if drawn is None else drawn:,} of {total:,} trace lines"
        left = total - len(self.lines)
        if self.view.lines is not None and left:
            text += f" ({left:,} left out)"
        return text

    def write(self) -> None:
        """Save it. Raises :class:`StorageError`."""
        write_figure(self.figure, self.output)


def short(name: str, width: int) -> str:
    """``name`` shortened in the middle, control characters as escapes."""
    return shorten(harmless(name), width)


def _quality(db: Database) -> str:
    complete = truncated = dropped = 0
    for row in db.measurements:
        complete += row.summary.unwind.complete
        truncated += sum(row.summary.unwind.truncated.values())
        dropped += sum(row.summary.samples.dropped.values())
    lost = f"{dropped:,} samples dropped"
    if not complete + truncated:  # another tool's recording
        return lost
    whole = complete / (complete + truncated)
    return f"{percent(whole, 2)} of call paths reach the thread's start, {lost}"
