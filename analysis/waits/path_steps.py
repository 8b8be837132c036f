"""The critical path through the threads of a run: what its length depended on.

It is followed backward from the end: while its thread runs or waits for a CPU, the path stays with
it; at the end of a wait it passes to the thread that ended it, and before a thread's begin to the
thread that created it (Yang and Miller, ICDCS 1988, with wake-ups for messages). A wait that no
recorded thread ended is on the path itself, as what ended it: a device, a timer, a thread that is
not recorded. Steps follow one another without gaps, so that they add up to the path's length.
"""

from __future__ import annotations

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.profile.process_tree import parents, processes_by_start
from hpcd.analysis.waits.wait_chains import WaitSteps, list_steps, read_graph
from hpcd.array_types import I64
from hpcd.errors import UsageError
from hpcd.kernels.library import CStructure, kernels

NO_LINE = -1


def find_critical_path(
    db: Database,
    begin: int | None = None,
    end: int | None = None,
    line: int | None = None,
    graph: CStructure | None = None,
) -> WaitSteps:
    """Return the path from ``begin`` to ``end`` (ns since the origin; None: of the recordings) that
    ends on ``line`` (None: the line that ended last), in order of time. Its steps add up to the
    window. ``graph`` is that of all waits, if it has been read.

    O(n log n) in waits and records. Raises :class:`UsageError` if the window is empty,
    :class:`FormatError`.
    """
    lines = db.lines
    begin = int(lines.start.min()) if begin is None else begin
    end = int(lines.end.max()) if end is None else end
    if begin >= end:
        raise UsageError(f"{db.path}: a critical path needs a begin before its end")
    if line is None:
        line = int(np.argmax(lines.end))
    if graph is None:
        _, graph = read_graph(db, np.arange(len(lines)))
    return follow(graph, creators(db), line, begin, end)


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
