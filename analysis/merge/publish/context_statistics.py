"""Statistics of every context over all trace lines, computed once by the merge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hpcd.analysis.arrays.cell_store import CellStore, open_store, order_by_line
from hpcd.analysis.arrays.column_files import open_column, save_column
from hpcd.analysis.arrays.sparse_sums import Cells
from hpcd.analysis.merge.unite.canonical_tree import load_canonical
from hpcd.array_types import F64, I64, U64
from hpcd.kernels.library import kernels, structure
from hpcd.model.cct import CCT

# Fewest cells of a task, except the last: 40 bytes each.
_TASK_CELLS = 1 << 20


@dataclass(frozen=True, slots=True)
class ContextStatistics:
    """Statistics of every context over all lines: arrays of ``n`` nodes.

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
class ExtremesTask:
    """Chunks ``first`` to ``last`` - 1 of the ``cells`` in ``folder``, and the tree and the means
    ``float64[metrics, nodes]`` they are compared with, each in a file."""

    folder: Path
    tree: Path
    mean: Path
    cells: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Extremes:
    """Inclusive values of some lines. Arrays of the ``k`` nodes that have any which is not 0:

    ``node``, on how many ``lines``, the sum of ``squares`` of these values' distances to the mean,
    the ``least`` and ``most`` of them, ``least_line`` and ``most_line`` where, and ``none`` the
    first line without, ``NO_LINE`` where there is none. ``first`` is the first of all lines, which
    is without the other nodes.
    """

    first: int
    node: I64
    lines: I64
    squares: F64
    least: F64
    most: F64
    least_line: I64
    most_line: I64
    none: I64


NO_LINE = (1 << 63) - 1


def united_statistics(
    folder: Path, tree: Path, inclusives: Sequence[F64], cells: int,
    run: Callable[[list[ExtremesTask]], Iterable[tuple[int, list[Extremes]]]],
) -> list[ContextStatistics]:  # fmt: skip
    """Statistics of each metric from the ``cells`` in ``folder``, a task for some chunks at a time.

    ``inclusives`` are ``float64[nodes]`` sums over all lines; ``tree`` is the file of the canonical
    tree; ``run`` runs :func:`line_extremes` on tasks. Raises :class:`FormatError`.
    """
    lines = len(open_column(folder / "line.npy", np.uint32))
    nodes = len(inclusives[0])
    store = CellStore(folder, lines, cells, nodes)
    means = [inclusive / max(lines, 1) for inclusive in inclusives]
    mean = tree.with_name("means.npy")
    save_column(mean, np.concatenate(means))
    tasks: list[ExtremesTask] = []
    first, held = 0, 0
    for chunk in range(len(store)):
        held += store.cells(chunk)
        # Work proportional to the tree is done once for many cells.
        if held >= max(_TASK_CELLS, nodes) or chunk + 1 == len(store):
            tasks.append(ExtremesTask(folder, tree, mean, cells, first, chunk + 1))
            first, held = chunk + 1, 0
    answers = dict(run(tasks))
    return [
        _united([answers[task][metric] for task in range(len(tasks))], lines, means[metric])
        for metric in range(len(inclusives))
    ]


def _united(parts: Sequence[Extremes], lines: int, mean: F64) -> ContextStatistics:
    """Return the statistics over all lines from the extremes of some lines at a time."""
    nodes = len(mean)
    count, squares = np.zeros(nodes, np.int64), np.zeros(nodes)
    least, most = np.full(nodes, np.inf), np.full(nodes, -np.inf)
    least_line, most_line = np.full(nodes, NO_LINE), np.full(nodes, NO_LINE)
    none = np.full(nodes, NO_LINE)
    for part in parts:
        at = part.node
        count[at] += part.lines
        squares[at] += part.squares
        for sign, extreme, line, own, own_line in (
            (1, least, least_line, part.least, part.least_line),
            (-1, most, most_line, part.most, part.most_line),
        ):
            before, where = extreme[at], line[at]
            better = (sign * own < sign * before) | ((own == before) & (own_line < where))
            extreme[at] = np.where(better, own, before)
            line[at] = np.where(better, own_line, where)
        known = np.minimum(none[at], part.none)
        np.minimum(none, part.first, out=none)
        none[at] = known
    # On all other lines a node's value is 0.
    somewhere = count < lines
    squares += (lines - count) * mean**2
    low, high = somewhere & (least >= 0), somewhere & (most <= 0)
    zero = np.zeros(nodes)
    if not lines:
        least, most = zero, zero
    least_line = np.where(low, none, least_line)
    most_line = np.where(high, none, most_line)
    return ContextStatistics(
        count, mean, np.where(low, 0.0, least), np.where(high, 0.0, most),
        np.sqrt(squares / max(lines, 1)), least_line, most_line,
    )  # fmt: skip


def line_extremes(task: ExtremesTask) -> list[Extremes]:
    """Return, metric by metric, the extremes of some lines that :func:`united_statistics` asks for.
    Raises :class:`FormatError`."""
    line = open_column(task.folder / "line.npy", np.uint32)
    cct = load_canonical(task.tree)
    store = open_store(task.folder, len(line), task.cells, len(cct))
    means = open_column(task.mean, np.float64).reshape(-1, len(cct))
    scale = open_column(task.folder / "scale.npy", np.float64).reshape(len(means), -1)
    bounds = store.line_start[task.first : task.last + 1]
    mine = line[int(bounds[0]) : int(bounds[-1])].astype(np.int64)
    # Lines as the database has them: of equal values the first line's counts.
    order = np.argsort(mine)
    whole, start = _lines_together(store, task.first, task.last, len(cct))
    begin, end = start[:-1][order], start[1:][order]
    answers = []
    for metric, mean in enumerate(means):
        amount = whole.value if metric else whole.records
        weight = scale[metric] if metric else np.ones(scale.shape[1])
        node_extremes = extremes(cct, begin, end, whole, amount, weight, mean)
        answers.append(_of_lines(node_extremes, mine[order]))
    return answers


def _lines_together(store: CellStore, first: int, last: int, nodes: int) -> tuple[Cells, I64]:
    """Return the sums of some chunks sorted by line and node, and the start of each line's sums,
    with their total at the end."""
    sizes = [store.cells(chunk) for chunk in range(first, last)]
    starts: list[I64] = []
    at, total = 0, sum(sizes)
    # The starts give the line of each sum, so the line column takes no memory.
    whole = Cells(
        np.broadcast_to(np.uint32(0), total), np.empty(total, np.uint32),
        np.empty(total, np.uint16), np.empty(total, np.uint64), np.empty(total, np.uint64),
    )  # fmt: skip
    for chunk, size in zip(range(first, last), sizes, strict=True):
        cells, lines = store.chunk(chunk), store.lines(chunk)
        order, start = order_by_line(cells, lines, nodes)
        for name in ("node", "event", "records", "value"):
            out = getattr(whole, name)[at : at + size]
            getattr(cells, name).take(order, out=out, mode="clip")
        starts.append(start[:-1] + at)
        at += size
    return whole, np.concatenate([*starts, [total]])


def _of_lines(node_extremes: tuple[Any, ...], lines: I64) -> Extremes:
    """Return the extremes of the nodes that have any, with the database's ``lines``."""
    count, squares, least, most, least_line, most_line, whole = node_extremes
    node = np.flatnonzero(count)
    none = np.append(lines, NO_LINE)[whole[node]]
    return Extremes(
        int(lines[0]) if len(lines) else NO_LINE, node, count[node], squares[node], least[node],
        most[node], lines[least_line[node]], lines[most_line[node]], none,
    )  # fmt: skip


def extremes(
    cct: CCT, begin: I64, end: I64, cells: Cells, amount: U64, scale: F64, mean: F64
) -> tuple[Any, ...]:
    """Extremes of inclusive values over some lines, arrays of ``n`` nodes: the number of lines on
    which a node's is not 0, the sum of squares of their distances to ``mean``, the least and the
    most of them, their lines, and the number of lines before the first without.

    Values of line ``i`` are ``cells[begin[i]:end[i]]``, by node; ``amount`` ``uint64[k]`` is
    multiplied by ``scale`` ``float64[events]`` of the cell's event. O(nodes that the values reach,
    line by line). Raises :class:`IndexError` for nodes or events that do not exist.
    """
    nodes = len(cct)
    values = structure(
        "line_values", begin=np.ascontiguousarray(begin), end=np.ascontiguousarray(end),
        lines=len(begin), node=cells.node, event=cells.event, amount=amount, n=len(cells),
        scale=np.ascontiguousarray(scale), events=len(scale),
    )  # fmt: skip
    columns = {
        "count": np.zeros(nodes, np.int64), "squares": np.zeros(nodes),
        "least": np.full(nodes, np.inf), "most": np.full(nodes, -np.inf),
        "least_line": np.zeros(nodes, np.int64), "most_line": np.zeros(nodes, np.int64),
        "whole": np.zeros(nodes, np.int64),
    }  # fmt: skip
    if not kernels.inclusive_extremes(
        np.ascontiguousarray(cct.parent), nodes, values, np.ascontiguousarray(mean),
        np.empty(kernels.extremes_bytes(nodes), np.uint8), np.empty(nodes, np.int64),
        structure("extremes", **columns),
    ):  # fmt: skip
        raise IndexError("values of nodes or events that do not exist")
    return tuple(columns.values())
