"""Hatchet and Thicket (LLNL): Hatchet's literal form, :func:`graph_frame`, :func:`thicket`.

Nodes are procedures: calls from several places of a procedure are one node, inlined calls are
nodes of their own. Each metric is exclusive as ``cpu_time`` and inclusive as ``cpu_time (inc)``,
times in s. Contexts without costs are left out. The literal form, for
``GraphFrame.from_literal``, is a list of nodes with children as JSON, summed over the trace lines;
its main metric is there once more as ``time``, the metric that Hatchet then shows by default.

Made for the PyPI packages llnl-hatchet and llnl-thicket; the older ``hatchet`` on PyPI is another
release of the same module. Both recurse where call paths are deep: beyond about 900 frames give a
``depth``.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.profile.filters import Filter
from hpcd.array_types import F64, I64, U32, Mask
from hpcd.errors import UsageError
from hpcd.interchange.fitted_names import utf8
from hpcd.interchange.formats import import_library
from hpcd.interchange.output.context_table import ContextTable, Detail
from hpcd.interchange.output.export_selection import ExportSelection
from hpcd.interchange.output.json_text import as_json

if TYPE_CHECKING:
    from hatchet import GraphFrame
    from thicket import Thicket


def graph_frame(
    db: Database,
    filters: Sequence[str] = (),
    metrics: Sequence[str] = (),
    depth: int | None = None,
    *,
    by_line: bool = False,
) -> GraphFrame:
    """Return a Hatchet ``GraphFrame`` of ``db``.

    Its data frame has a row for each node, summed over the trace lines; with ``by_line`` one for
    each node and line with costs at the node or below it, with the index levels ``node``, ``rank``
    (-1: none) and ``thread`` (the number of the trace line); ``drop_index_levels(numpy.sum)`` makes
    the first form of it. ``filters``, ``metrics``, ``depth`` are as in ``hpcd export``. Raises
    :class:`UsageError` for an unknown metric or filter, :class:`PlatformError` without Hatchet.
    """
    hatchet = import_library("hatchet", "llnl-hatchet", "a GraphFrame")
    pandas = import_library("pandas", "pandas", "a GraphFrame")
    selection = ExportSelection(db, Filter.parse(filters), metrics, depth)
    table = selection.contexts(Detail.PROCEDURE)
    total = selection.total_costs(table)
    shown = _shown(table.inclusive(total))
    graph, nodes = _graph(hatchet, table, shown)
    context, keys, exclusive, inclusive = (
        _rows_by_line(selection, table) if by_line else _rows(table, total, shown)
    )
    own = [utf8(name) for name in selection.names]
    names = _names(table)
    frame = pandas.DataFrame(
        {
            "node": [nodes[number] for number in context.tolist()],
            **keys,
            **dict(zip(own, exclusive, strict=True)),
            **{f"{name} (inc)": row for name, row in zip(own, inclusive, strict=True)},
            "name": [names[number] for number in table.frame[context].tolist()],
        }
    ).set_index(["node", *keys])
    frame.sort_index(inplace=True)
    return hatchet.GraphFrame(
        graph,
        frame,
        own,
        [f"{name} (inc)" for name in own],
        default_metric=own[selection.main_row],
        metadata=_metadata(db),
    )


def thicket(
    databases: Sequence[Database],
    filters: Sequence[str] = (),
    metrics: Sequence[str] = (),
    depth: int | None = None,
) -> Thicket:
    """Return a Thicket of runs: a profile for each of ``databases``, numbered in their order.

    Its ``metadata`` has the database's name and path, hosts, number of ranks and the duration in s.
    Raises as :func:`graph_frame` does, and :class:`UsageError` without databases.
    """
    # The import prints missing libraries and its progress.
    with contextlib.redirect_stdout(io.StringIO()):
        module = import_library("thicket", "llnl-thicket", "a Thicket")
    if not databases:
        raise UsageError("a Thicket needs at least one database")
    runs = [
        module.Thicket.thicketize_graphframe(graph_frame(db, filters, metrics, depth), str(number))
        for number, db in enumerate(databases)
    ]
    if len(runs) == 1:
        return runs[0]
    with contextlib.redirect_stdout(io.StringIO()):
        return module.Thicket.concat_thickets(runs, disable_tqdm=True)


def _metadata(db: Database) -> dict[str, object]:
    rank = db.lines.rank
    return {
        "database": db.path.resolve().name,
        "path": str(db.path.resolve()),
        "hosts": ",".join(sorted({row.host for row in db.measurements})),
        "ranks": len(np.unique(rank[rank >= 0])),
        "duration_s": db.duration_ns / 1e9,
    }


def _names(table: ContextTable) -> list[str]:
    return [utf8(name) or "[unnamed]" for name in table.frames.name]


def _shown(inclusive: F64) -> Mask:
    """Return bool[contexts]: the root and contexts with a cost; others carry no information."""
    shown: Mask = np.array(inclusive.any(axis=0))
    shown[0] = True
    return shown


def _graph(hatchet: Any, table: ContextTable, shown: Mask) -> tuple[Any, dict[int, Any]]:
    """Return the Hatchet graph of the contexts ``shown``, and the node of each."""
    from hatchet.frame import Frame
    from hatchet.graph import Graph
    from hatchet.node import Node

    frames = [Frame({"name": name, "type": "function"}) for name in _names(table)]
    nodes: dict[int, Any] = {}
    parent, frame = table.parent.tolist(), table.frame.tolist()
    # Parents precede children.
    for number in np.flatnonzero(shown).tolist():
        above = nodes.get(parent[number]) if number else None
        nodes[number] = Node(frames[frame[number]], above)
        if above is not None:
            above.add_child(nodes[number])
    graph = Graph([nodes[0]])
    graph.enumerate_traverse()
    return graph, nodes


def _rows(table: ContextTable, total: F64, shown: Mask) -> tuple[I64, dict[str, object], F64, F64]:
    """Return the contexts ``shown``, no index levels, exclusive and inclusive costs."""
    context = np.flatnonzero(shown)
    return context, {}, total[:, context], table.inclusive(total)[:, context]


def _rows_by_line(
    selection: ExportSelection, table: ContextTable
) -> tuple[I64, dict[str, Any], F64, F64]:
    """Return the contexts of each line, their rank and thread, exclusive and inclusive costs."""
    context: list[I64] = []
    rank: list[Any] = []
    thread: list[U32] = []
    own: list[F64] = []
    whole: list[F64] = []
    for line in selection.iterate_lines():
        exclusive = selection.dense_line_costs(line.number, table)
        inclusive = table.inclusive(exclusive)
        used = np.flatnonzero(inclusive.any(axis=0))
        context.append(used)
        rank.append(np.full(len(used), -1 if line.rank is None else line.rank, np.int64))
        thread.append(np.full(len(used), line.number, np.uint32))
        own.append(exclusive[:, used])
        whole.append(inclusive[:, used])
    if not context:
        empty = np.zeros((len(selection.metrics), 0))
        return np.zeros(0, np.int64), {"rank": [], "thread": []}, empty, empty
    keys = {"rank": np.concatenate(rank), "thread": np.concatenate(thread)}
    return np.concatenate(context), keys, np.hstack(own), np.hstack(whole)


# --- the literal form ---

# The literal form cannot name another.
_DEFAULT_METRIC = "time"


def write(selection: ExportSelection, raw: BinaryIO, _: Path) -> None:
    """Write the literal form of ``selection`` to the file ``raw``."""
    table = selection.contexts(Detail.PROCEDURE)
    exclusive = selection.total_costs(table)
    inclusive = table.inclusive(exclusive)
    shown = _shown(inclusive)
    names = [as_json(name) for name in _names(table)]
    frame = table.frame.tolist()
    metrics = {name: row for row, name in enumerate(selection.names)}
    if selection.units[selection.main_row] == "s":
        metrics.setdefault(_DEFAULT_METRIC, selection.main_row)
    rows = list(metrics.values())
    own, whole = exclusive[rows].T.tolist(), inclusive[rows].T.tolist()
    keys = [utf8(key) for key in (*metrics, *(f"{name} (inc)" for name in metrics))]
    children = _children(table.parent.tolist(), shown.tolist())
    with io.TextIOWrapper(raw, "ascii", newline="\n") as file:
        file.write("[")
        # A walk of its own: call paths may be deeper than Python recurses.
        waiting = [iter([0])]
        first = [True]
        while waiting:
            node = next(waiting[-1], None)
            if node is None:
                waiting.pop()
                first.pop()
                file.write("]" if not waiting else "]}")
                continue
            costs = as_json(dict(zip(keys, own[node] + whole[node], strict=True)))
            name = names[frame[node]]
            file.write("\n" if first[-1] else ",\n")
            first[-1] = False
            file.write(
                f'{{"name":{name},"frame":{{"name":{name},"type":"function"}},'
                f'"metrics":{costs},"children":['
            )
            waiting.append(iter(children[node]))
            first.append(True)
        file.write("\n")


def _children(parent: list[int], shown: list[bool]) -> list[list[int]]:
    children: list[list[int]] = [[] for _ in parent]
    for node, above in enumerate(parent):
        if node and shown[node]:
            children[above].append(node)
    return children
