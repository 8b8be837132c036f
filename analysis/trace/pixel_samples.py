"""The Trace View's data: a picture of any size by sampling, in time independent of the trace's.

Tallent et al., ICS 2011, section 5.2: of the lines, ``height`` are chosen systematically; of the
interval, ``width`` virtual timestamps; each pixel shows the wait at its timestamp, or else the
sample closest to it, or to a moment inside the pixel where it covers many.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hpcd.analysis.trace.records import Trace
from hpcd.analysis.trace.trace_lines import LineColumns
from hpcd.array_types import I64, U16, U32
from hpcd.errors import UsageError
from hpcd.kernels.library import kernels


def choose_lines(
    lines: Sequence[int] | npt.NDArray[np.integer] | None, height: int, total: int
) -> I64:
    """At most ``height`` of ``lines`` (None: all ``total``), evenly spread.

    Of each of ``height`` equal parts the middle line. Raises :class:`UsageError` for a line that
    does not exist or a height below 1.
    """
    wanted = np.arange(total, dtype=np.int64) if lines is None else np.asarray(lines, np.int64)
    if height < 1:
        raise UsageError("a picture needs a height")
    count = len(wanted)
    if count and (int(wanted.min()) < 0 or int(wanted.max()) >= total):
        raise UsageError(f"there are {total} trace lines, numbered from 0")
    if count <= height:
        return wanted
    return wanted[(2 * np.arange(height) + 1) * count // (2 * height)]


def pixel_times(t0: int, t1: int, width: int) -> I64:
    """``int64[width]``: the virtual timestamps, at the middle of each pixel's interval."""
    half_steps = 2 * np.arange(width, dtype=np.float64) + 1
    return t0 + (half_steps * ((t1 - t0) / (2 * width))).astype(np.int64)


def sample_grid(
    trace: Trace,
    columns: LineColumns,
    lines: Sequence[int] | npt.NDArray[np.integer] | None,
    t0: int,
    t1: int,
    height: int,
    width: int,
) -> U32:
    """Pixels ``uint32[h, width]`` of the lines :func:`choose_lines` gives, ``h <= height``, as
    :mod:`hpcd.analysis.trace.states` describes them.

    ``lines`` None means all; times are ns since the origin. NO_NODE where a line did not exist,
    was not watched, or has no records. Raises :class:`UsageError` for an empty picture or
    interval, or a line that does not exist.
    """
    if width < 1 or t1 <= t0:
        raise UsageError("a picture needs a width and a time interval")
    selected = choose_lines(lines, height, len(columns.start))
    return _sample(trace, columns, selected, t0, t1, width, None)


def sample_rows(
    trace: Trace,
    columns: LineColumns,
    rows: Sequence[npt.NDArray[np.integer]],
    t0: int,
    t1: int,
    width: int,
) -> U32:
    """Return pixels ``uint32[len(rows), width]``; the lines of a row are alive in succession.

    As :func:`sample_grid`. O(lines + h · w · log t).
    """
    if width < 1 or t1 <= t0:
        raise UsageError("a picture needs a width and a time interval")
    row = np.repeat(np.arange(len(rows)), [len(lines) for lines in rows])
    lines = np.concatenate([np.zeros(0, np.int64), *rows]).astype(np.int64)
    seen = (columns.end[lines] >= t0) & (columns.start[lines] < t1)
    # As many rows as there are, whether or not any line of the last is seen.
    seen[np.cumsum([len(lines) for lines in rows], dtype=np.int64) - 1] = True
    return _sample(trace, columns, lines[seen], t0, t1, width, row[seen])


def _sample(
    trace: Trace, columns: LineColumns, lines: I64, t0: int, t1: int, width: int, row: I64 | None
) -> U32:
    times = pixel_times(t0, t1, width)
    first = np.searchsorted(times, columns.start[lines])
    last = np.searchsorted(times, columns.end[lines], side="right")
    return trace.sample(lines, times, (t1 - t0) / width, first, last, row)


def pixel_runs(pixels: npt.NDArray[np.unsignedinteger]) -> tuple[U32, U16]:
    """The runs of equal ``pixels`` ``[h, w]``, row after row: the pixel of each, and the column
    behind it; a row's last ends at ``w``."""
    rows, width = pixels.shape
    if not pixels.size:
        return np.zeros(0, np.uint32), np.zeros(0, np.uint16)
    pixels = np.ascontiguousarray(pixels, np.uint32)
    runs = kernels.count_runs(pixels, rows, width)
    # One more, that is written and not counted.
    shown, end = np.empty(runs + 1, np.uint32), np.empty(runs + 1, np.uint16)
    kernels.pixel_runs(pixels, rows, width, shown, end)
    return shown[:runs], end[:runs]
