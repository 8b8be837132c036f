"""The critical path through the threads of a run: what its length depended on.

It is followed backward from the end: while its thread runs or waits for a CPU, the path stays with
it; at the end of a wait it passes to the thread that ended it, and before a thread's begin to the
thread that created it (Yang and Miller, ICDCS 1988, with wake-ups for messages). A wait that no
recorded thread ended is on the path itself, as what ended it: a device, a timer, a thread that is
not recorded. Steps follow one another without gaps, so that they add up to the path's length.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.profile.process_tree import parents, processes_by_start
from hpcd.analysis.waits.wait_chains import read_pieces, read_waits, user_nodes, wait_graph
from hpcd.array_types import I64, U8, U32
from hpcd.errors import UsageError
from hpcd.kernels.library import CStructure, kernels, structure

_LEAST_ROOM = 1 << 12
NO_LINE = -1


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """Steps in order of time: from ``begin`` to ``end`` ``int64[n]``, ns since the origin, the path
    was on ``line`` ``uint32[n]`` in the context ``node`` ``uint32[n]`` (0: not known), where the
    line did ``kind`` ``uint8[n]``, a :class:`~hpcd.analysis.waits.wait_chains.Cause`. Contexts are
    those of the user's code."""

    begin: I64
    end: I64
    line: U32
    node: U32
    kind: U8


def find_critical_path(
    db: Database, begin: int | None = None, end: int | None = None, line: int | None = None
) -> CriticalPath:
    """Return the path from ``begin`` to ``end`` (ns since the origin; None: of the recordings) that
    ends on ``line`` (None: the line that ended last). Its steps add up to the window.

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
    user = user_nodes(db)
    pieces = read_pieces(db, np.arange(len(lines)), user)
    graph = wait_graph(read_waits(db, user[db.waits.node], user), pieces)
    return follow(graph, creators(db), line, begin, end)


def follow(graph: CStructure, creator: I64, line: int, begin: int, end: int) -> CriticalPath:
    """:func:`find_critical_path` in a graph of waits; ``creator`` ``int64[lines]`` are the lines
    that created each line, :data:`NO_LINE` if not known."""
    room = _LEAST_ROOM
    while True:
        bounds = np.zeros((2, room), np.int64)
        line_and_node = np.zeros((2, room), np.uint32)
        kind = np.zeros(room, np.uint8)
        steps = structure(
            "path_steps", begin=bounds[0], end=bounds[1], line=line_and_node[0],
            node=line_and_node[1], kind=kind, room=room,
        )  # fmt: skip
        count = kernels.find_critical_path(graph, creator, line, begin, end, steps)
        if count <= room:
            columns = (*bounds, *line_and_node, kind)
            return CriticalPath(*(column[:count][::-1] for column in columns))
        room *= 4


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
