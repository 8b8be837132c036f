"""The communication matrix as a picture: who sent how much to whom."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from hpcd.analysis.messages.traffic import Matrix
from hpcd.array_types import F64, I64
from hpcd.viewer.pictures.figure_file import require_format, write_figure
from hpcd.wording import bytes_text

_SIDE, _DPI = 7.0, 150
# A cell of the picture is a rank up to here; beyond, as many ranks as it takes.
_MOST_CELLS = 1024


def draw_matrix(matrix: Matrix, ranks: I64, output: Path, title: str) -> None:
    """Draw bytes from rank (rows) to rank (columns), darker is more.

    Of more than 1,024 ranks neighbours share a cell. Raises :class:`UsageError` for a format that
    is none, :class:`StorageError`.
    """
    require_format(output)
    size = int(ranks.max(initial=0)) + 1
    step = -(-size // _MOST_CELLS)
    cells = binned(matrix, size, step)
    with mpl.rc_context({"svg.hashsalt": "hpcd", "text.parse_math": False}):
        figure = Figure(figsize=(_SIDE, _SIDE * 0.86), dpi=_DPI)
        axes = figure.add_axes((0.1, 0.1, 0.72, 0.8))
        shown = np.ma.masked_equal(cells, 0)
        least = float(cells[cells > 0].min(initial=np.inf))
        most = float(cells.max(initial=0))
        scale = LogNorm(least, most) if 0 < least < most else None
        edge = len(cells) * step - 0.5
        drawn = axes.imshow(
            shown, interpolation="nearest", cmap="viridis_r", norm=scale,
            extent=(-0.5, edge, edge, -0.5),
        )  # fmt: skip
        axes.set_xlabel("to rank")
        axes.set_ylabel("from rank")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(integer=True))
        if most:
            bar = figure.add_axes((0.85, 0.1, 0.03, 0.8))
            figure.colorbar(drawn, cax=bar, format=EngFormatter(unit="B"))
        messages, volume = matrix.messages.sum(), bytes_text(float(matrix.bytes.sum()))
        axes.set_title(f"{title}: {messages:,.0f} messages, {volume}", loc="left", fontsize=10)
        write_figure(figure, output)


def binned(matrix: Matrix, size: int, step: int) -> F64:
    """``float64[c, c]``: bytes between groups of ``step`` ranks."""
    count = -(-size // step)
    cells = np.zeros((count, count))
    np.add.at(cells, (matrix.source // step, matrix.target // step), matrix.bytes)
    return cells
