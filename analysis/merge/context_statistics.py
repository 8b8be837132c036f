"""Statistics of every context over all trace lines, computed once by the merge."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hpcd.analysis.arrays.column_files import open_column, open_value
from hpcd.analysis.trace.compiled import kernels
from hpcd.array_types import F64, I64, U32
from hpcd.errors import FormatError
from hpcd.model.cct import CCT

# Entries of the table of contexts and lines made at a time: 64 MB.
_TABLE_ENTRIES = 8 << 20
# With fewer, numpy is done in the time that loading numba takes.
_WORTH_ENTRIES = 32 << 20


@dataclass(frozen=True, slots=True)
class ContextStatistics:
    """Of every context over all lines: arrays of ``n`` nodes.

    ``lines`` ``int64`` on how many lines it cost anything; ``mean``, ``least``, ``most``,
    ``stddev`` ``float64``; ``least_line``, ``most_line`` ``int64`` where.
    """

    lines: I64
    mean: F64
    least: F64
    most: F64
    stddev: F64
    least_line: I64
    most_line: I64


@dataclass(frozen=True, slots=True)
class StatisticsTask:
    """What :func:`context_statistics` is given."""

    folder: Path
    cct: CCT
    metric: int
    inclusive: F64


def statistics_of(task: StatisticsTask) -> ContextStatistics:
    """:func:`context_statistics` in a worker."""
    return context_statistics(task.folder, task.cct, task.metric, task.inclusive)


def context_statistics(folder: Path, cct: CCT, metric: int, inclusive: F64) -> ContextStatistics:
    """Statistics of metric number ``metric`` from the columns by line in ``folder``.

    ``inclusive`` ``float64[nodes]`` are its sums over all lines. O(nodes · lines), a few
    nanoseconds each, in bounded memory. Raises :class:`FormatError`.
    """
    line_start = open_column(folder / "line_start.npy", np.int64)
    cells = int(line_start[-1])
    node = open_column(folder / "line_node.npy", np.uint32, cells)
    value = open_value(folder / f"line_value-{metric}.npy", cells)
    nodes, lines = len(cct), len(line_start) - 1
    if int(node.max(initial=0)) >= nodes:
        raise FormatError(f"{folder}: damaged (cells of nodes that do not exist)")
    mean = inclusive / max(lines, 1)
    compiled = kernels() if nodes * lines > _WORTH_ENTRIES else None
    if compiled is not None:
        return _sparse(compiled, cct, line_start, node, value, mean)
    count, squares = np.zeros(nodes, np.int64), np.zeros(nodes)
    least, most = np.full(nodes, np.inf), np.full(nodes, -np.inf)
    least_line, most_line = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
    levels = list(_levels(cct))
    step = max(_TABLE_ENTRIES // nodes, 1)
    for first in range(0, lines, step):
        last = min(first + step, lines)
        span = slice(int(line_start[first]), int(line_start[last]))
        line = np.repeat(np.arange(last - first), np.diff(line_start[first : last + 1]))
        table = np.zeros((nodes, last - first))
        table[node[span], line] = value[span]
        for begin, end, parents, starts in levels:
            table[parents] += np.add.reduceat(table[begin:end], starts, axis=0)
        count += np.count_nonzero(table, axis=1)
        low, high = table.argmin(axis=1), table.argmax(axis=1)
        lows, highs = table[np.arange(nodes), low], table[np.arange(nodes), high]
        least_line = np.where(lows < least, first + low, least_line)
        most_line = np.where(highs > most, first + high, most_line)
        least, most = np.minimum(least, lows), np.maximum(most, highs)
        table -= mean[:, None]
        squares += np.einsum("ij,ij->i", table, table)
    if not lines:
        least, most = np.zeros(nodes), np.zeros(nodes)
    return ContextStatistics(
        count, mean, least, most, np.sqrt(squares / max(lines, 1)), least_line, most_line
    )


def _sparse(
    compiled: Any, cct: CCT, line_start: I64, node: U32, value: npt.NDArray[Any], mean: F64
) -> ContextStatistics:
    """The same from the values that are not 0 alone: O(nodes that these reach, line by line)."""
    lines = len(line_start) - 1
    count, squares, least, most, least_line, most_line, whole = compiled.inclusive_extremes(
        cct.parent, line_start, node, value, mean
    )
    # On all other lines a node's value is 0; the first of them is the one after those without.
    somewhere = count < lines
    squares += (lines - count) * mean**2
    low, high = somewhere & (least >= 0), somewhere & (most <= 0)
    least_line, most_line = np.where(low, whole, least_line), np.where(high, whole, most_line)
    return ContextStatistics(
        count, mean, np.where(low, 0.0, least), np.where(high, 0.0, most),
        np.sqrt(squares / lines), least_line, most_line,
    )  # fmt: skip


def _levels(cct: CCT) -> Iterator[tuple[int, int, npt.NDArray[np.uint32], I64]]:
    """Per level, deepest first: its range of nodes, their distinct parents, where each's begin."""
    depth = cct.depth()
    bounds = np.searchsorted(depth, np.arange(int(depth.max(initial=0)) + 2)).tolist()
    for level in range(len(bounds) - 2, 0, -1):
        begin, end = bounds[level], bounds[level + 1]
        parents, starts = np.unique(cct.parent[begin:end], return_index=True)
        yield begin, end, parents, starts
