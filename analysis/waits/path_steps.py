"""The critical path through the threads of a run: what its length depended on.

It is followed backward from the end: while its thread runs or waits for a CPU, the path stays with
it; at the end of a wait it passes to the thread that ended it, and before a thread's begin to the
thread that created it (Yang and Miller, ICDCS 1988, with wake-ups beside messages). A wait that no
recorded thread ended is on the path itself, as what ended it: a device, a timer, a thread that is
not recorded. Steps follow one another without gaps, so that they add up to the path's length.
"""

from __future__ import annotations

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.profile.process_tree import parents, processes_by_start
from hpcd.analysis.waits.run_end import last_lines
from hpcd.analysis.waits.wait_chains import Cause, WaitGraph, WaitSteps, list_steps, path_graph
from hpcd.array_types import I64
from hpcd.errors import UsageError
from hpcd.kernels.library import CStructure, kernels

NO_LINE = -1


def find_critical_path(
    db: Database,
    begin: int | None = None,
    end: int | None = None,
    line: int | None = None,
    graph: WaitGraph | None = None,
) -> WaitSteps:
    """Return the path from ``begin`` to ``end`` (ns since the origin; None: of the recordings) that
    ends on ``line``, in order of time. Its steps add up to the window. ``graph`` is that of paths,
    if it has been read.

    Without a line it is the one that worked last: that ran last by ``end`` and did not wait for a
    message, of processes that are no launchers. Of several that run then it is the one that has run
    longest since it waited. Where it has ended by then, the path ends with it.

    O(n log n) in waits and records. Raises :class:`UsageError` if the window is empty,
    :class:`FormatError`.
    """
    lines = db.lines
    begin = int(lines.start.min()) if begin is None else begin
    end = int(lines.end.max()) if end is None else end
    if begin >= end:
        raise UsageError(f"{db.path}: a critical path needs a begin before its end")
    graph = path_graph(db) if graph is None else graph
    if line is None:
        line, stop = _last_worker(db, graph, end)
        if stop > begin and int(lines.end[line]) <= end:
            end = stop
    return follow(graph.structure, creators(db), line, begin, end)


def follow(graph: CStructure, creator: I64, line: int, begin: int, end: int) -> WaitSteps:
    """:func:`find_critical_path` in a graph of waits; ``creator`` ``int64[lines]`` are the lines
    that created each line, :data:`NO_LINE` if not known."""
    steps = list_steps(
        lambda steps: kernels.find_critical_path(graph, creator, line, begin, end, steps)
    )
    return WaitSteps(
        steps.begin[::-1],
        steps.end[::-1],
        steps.line[::-1],
        steps.node[::-1],
        steps.kind[::-1],
        steps.other[::-1],
    )


def _last_worker(db: Database, graph: WaitGraph, end: int) -> tuple[int, int]:
    """The line that worked last by ``end``, and when it ceased to."""
    pieces, waits, lines = graph.pieces, graph.waits, len(db.lines)
    ran = np.flatnonzero((pieces.kind == Cause.THREAD) & (pieces.begin < end))
    of_piece = np.repeat(np.arange(lines), np.diff(pieces.first))
    stop, since = np.full((2, lines), np.iinfo(np.int64).min)
    stop[of_piece[ran]] = np.minimum(pieces.end[ran], end)  # the last one stays
    before = np.flatnonzero(waits.begin < stop[graph.edges.line])
    since[graph.edges.line[before]] = waits.end[before]
    spins = before[(waits.end[before] >= stop[graph.edges.line[before]])]
    # Nothing is known to be ahead of a wait that lasted until then.
    stop[graph.edges.line[spins]] = since[graph.edges.line[spins]] = waits.begin[spins]
    last = last_lines(db, stop)
    line = int(last[np.lexsort((last, since[last], -stop[last]))[0]])
    return line, int(stop[line])


def creators(db: Database) -> I64:
    """``int64[lines]``: the line that created each line, as far as is known: of a thread its
    process's main thread, of that the main thread of the parent process; else :data:`NO_LINE`."""
    lines = db.lines
    process = lines.process.astype(np.int64)
    main = np.flatnonzero(np.asarray(lines.tid) == np.asarray(lines.pid))
    count = int(process.max()) + 1
    main_of = np.full(count + 1, NO_LINE, np.int64)
    main_of[process[main]] = main
    creator = main_of[process]
    creator[main] = main_of[parents(processes_by_start(db), count)[process[main]]]
    return creator
