"""Events that threads waited for on behalf of others, as event loops of libraries do.

A thread that waits for events which no recorded thread brings about (a message of a server, the end
of a transfer) may do so all the time. If it then wakes a thread that began to wait meanwhile, the
event is the answer to what this one asked for: until then it waited for the request, and from then
on for the answer. So what a run depends on leads back to who asked, and not to where an idle loop
began.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.roles.role import NameRole, have
from hpcd.analysis.waits.wait_edges import WaitEdges
from hpcd.model.codes import Waker
from hpcd.rows import join_rows, take_rows

# Who brings about an event that may be an answer.
_ANSWERS = (Waker.NOT_SEEN, Waker.THREAD, Waker.SOFTIRQ, Waker.INTERRUPT, Waker.UNKNOWN)


def with_requests(db: Database, edges: WaitEdges) -> WaitEdges:
    """Return ``edges`` with waits for answers divided: up to the request they were ended by who
    asked, the last of those that the thread then woke. O(n log n)."""
    events = have(db.roles, NameRole.EVENTS)[db.procedure_of_node]
    events[0] = False
    loops = (db.cct.innermost(events)[edges.node] > 0) & (edges.waker < 0)
    loops &= np.isin(edges.kind, _ANSWERS)
    asked, asker = np.full(len(edges), -1, np.int64), np.full(len(edges), -1, np.int64)
    by_waker = np.argsort(edges.waker, kind="stable")
    bounds = np.searchsorted(edges.waker[by_waker], np.arange(len(db.lines) + 1))
    for line in np.unique(edges.line[loops]).tolist():
        own, woken = edges.of(line), by_waker[bounds[line] : bounds[line + 1]]
        at = own.start + np.searchsorted(edges.end[own], edges.end[woken], "right") - 1
        woken, at = woken[at >= own.start], at[at >= own.start]
        begin = edges.begin[woken]
        meanwhile = loops[at] & (edges.begin[at] < begin) & (begin < edges.end[at])
        woken, at = woken[meanwhile], at[meanwhile]
        order = np.argsort(edges.begin[woken], kind="stable")  # the last one stays
        asked[at[order]], asker[at[order]] = edges.begin[woken[order]], edges.line[woken[order]]
    divided = np.flatnonzero(asked >= 0)
    requests = replace(
        take_rows(edges, divided), end=asked[divided], waker=asker[divided],
        kind=np.full(len(divided), Waker.THREAD, np.uint8),
        path=np.zeros(len(divided), np.uint32), other=np.zeros(len(divided), np.uint32),
    )  # fmt: skip
    begin = edges.begin.copy()
    begin[divided] = asked[divided]
    parts = join_rows([replace(edges, begin=begin), requests])
    return take_rows(parts, np.lexsort((parts.begin, parts.line)))
