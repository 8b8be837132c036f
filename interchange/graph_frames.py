"""Databases in Hatchet and Thicket (LLNL): :func:`graph_frame`, :func:`thicket`.

Nodes are those of ``hpcd export --format hatchet``: procedures, calls from several places of one
being one node, inlined calls nodes of their own. Each metric is a column, exclusive as
``cpu_time``, inclusive as ``cpu_time (inc)``; times in s. Contexts that cost nothing are left out.

Made for the PyPI packages llnl-hatchet and llnl-thicket; the older ``hatchet`` on PyPI is another
release of the same module. Both recurse where call paths are deep: beyond about 900 frames give a
``depth``.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.profile.filters import Filter
from hpcd.array_types import F64, I64, U32, Mask
from hpcd.errors import UsageError
from hpcd.interchange.context_table import Contexts, Detail
from hpcd.interchange.export_selection import Selection
from hpcd.interchange.libraries import library
from hpcd.interchange.text import utf8

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
    """A Hatchet ``GraphFrame`` of ``db``.

    Its data frame has a row for each node, summed over the trace lines; with ``by_line`` one for
    each node and line with costs at the node or below it, with the index levels ``node``, ``rank``
    (-1: none) and ``thread`` (the number of the trace line); ``drop_index_levels(numpy.sum)`` makes
    the first form of it. ``filters``, ``metrics``, ``depth``: those of ``hpcd export``. Raises
    :class:`UsageError` for an unknown metric or filter, :class:`PlatformError` without Hatchet.
    """
    hatchet = library("hatchet", "llnl-hatchet", "a GraphFrame")
    pandas = library("pandas", "pandas", "a GraphFrame")
    selection = Selection(db, Filter.parse(filters), metrics, depth)
    table = selection.contexts(Detail.PROCEDURE)
    total = selection.total_costs(table)
    shown: Mask = np.array(np.stack([table.tree.inclusive(row) for row in total]).any(axis=0))
    shown[0] = True
    graph, nodes = _graph(hatchet, table, shown)
    context, keys, exclusive, inclusive = (
        _rows_by_line(selection, table) if by_line else _rows(table, total, shown)
    )
    own = [utf8(name) for name in selection.names]
    names = [utf8(name) or "[unnamed]" for name in table.frames.name]
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
        default_metric=own[selection.main],
        metadata=_metadata(db),
    )


def thicket(
    databases: Sequence[Database],
    filters: Sequence[str] = (),
    metrics: Sequence[str] = (),
    depth: int | None = None,
) -> Thicket:
    """A Thicket of runs: a profile for each of ``databases``, numbered in their order.

    Its ``metadata`` has the database's name and path, hosts, number of ranks and the duration in s.
    Raises as :func:`graph_frame` does, and :class:`UsageError` without databases.
    """
    # It says on standard output what it lacks, and how far it is.
    with contextlib.redirect_stdout(io.StringIO()):
        module = library("thicket", "llnl-thicket", "a Thicket")
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


def _metadata(db: Database) -> dict[str, Any]:
    rank = db.lines.rank
    return {
        "database": db.path.resolve().name,
        "path": str(db.path.resolve()),
        "hosts": ",".join(sorted({row.host for row in db.measurements})),
        "ranks": len(np.unique(rank[rank >= 0])),
        "duration_s": db.duration_ns / 1e9,
    }


def _graph(hatchet: Any, table: Contexts, shown: Mask) -> tuple[Any, dict[int, Any]]:
    """The Hatchet graph of the contexts ``shown``, and the node of each."""
    from hatchet.frame import Frame
    from hatchet.graph import Graph
    from hatchet.node import Node

    names = [utf8(name) or "[unnamed]" for name in table.frames.name]
    frames = [Frame({"name": name, "type": "function"}) for name in names]
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


def _rows(table: Contexts, total: F64, shown: Mask) -> tuple[I64, dict[str, Any], F64, F64]:
    chosen = np.flatnonzero(shown)
    inclusive = np.stack([table.tree.inclusive(row) for row in total])
    return chosen, {}, total[:, chosen], inclusive[:, chosen]


def _rows_by_line(selection: Selection, table: Contexts) -> tuple[I64, dict[str, Any], F64, F64]:
    context: list[I64] = []
    rank: list[Any] = []
    thread: list[U32] = []
    own: list[F64] = []
    whole: list[F64] = []
    for line in selection.each_line():
        costs = selection.line_costs(line.number, table)
        exclusive = np.zeros((len(selection.metrics), len(table)))
        exclusive[:, costs.context] = costs.cost
        inclusive = np.stack([table.tree.inclusive(row) for row in exclusive])
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
