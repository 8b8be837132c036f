"""One wait: who ended it, what it came down to, and when each of these did so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_whole
from hpcd.analysis.database import Database
from hpcd.analysis.waits.lazy_graph import LazyGraph
from hpcd.analysis.waits.wait_chains import Cause, WaitSteps, list_steps
from hpcd.analysis.waits.wait_report import OF_THREADS, ActivityNames, WaitCause, cause_text
from hpcd.kernels.library import kernels

# Largest causes of a wait in the answer: a lock may have been passed on 10^5 times meanwhile.
_MOST_CAUSES = 50


@dataclass(frozen=True, slots=True)
class PartCause(WaitCause):
    """A cause of a part of one wait: ``text`` in words, in the context ``node`` (0: not known).
    ``line`` may be one that waited, along the chain. The longest stretch of that part lasts from
    ``begin`` to ``end``, ns since the origin."""

    text: str
    node: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class SingleWait:
    """A wait of ``line``, whose label is ``thread``, from ``begin`` to ``end``, ns since the
    origin, at the call path ``path`` (procedures, the outermost first), the context ``node``. With
    ``in_vain`` its thread went straight back to wait, until ``until``. ``ended_by`` and ``roots``
    are as in :class:`~hpcd.analysis.waits.wait_report.WaitedPath`, the greatest 50 of each, of
    ``ended_by_of`` and ``roots_of``."""

    line: int
    thread: str
    begin: int
    end: int
    path: tuple[str, ...]
    node: int
    in_vain: bool
    until: int
    ended_by: Sequence[PartCause]
    ended_by_of: int
    roots: Sequence[PartCause]
    roots_of: int


class WaitFinder:
    """Finds single waits of a database, whose ``graph`` is read for the first."""

    def __init__(self, db: Database, graph: LazyGraph) -> None:
        self._db = db
        self._names = ActivityNames(db)
        self._graph = graph

    def find(self, lines: Sequence[int], time: int, within: int = 0) -> SingleWait | None:
        """Return the wait of one of ``lines`` that lasts at ``time`` (ns since the origin), or the
        nearest one that begins or ends ``within`` so many ns of it; None: they have none there.
        Raises :class:`FormatError`."""
        nearest: tuple[int, int, int] | None = None
        waits = self._graph.get().waits
        for line in lines:
            first, last = waits.first[line : line + 2].tolist()
            at = first + int(np.searchsorted(waits.end[first:last], time, "right"))
            for wait in range(max(at - 1, first), min(at + 1, last)):
                begin, end = int(waits.begin[wait]), int(waits.end[wait])
                far = max(begin - time, time - end, 0)
                if far <= within and (nearest is None or far < nearest[0]):
                    nearest = far, line, wait
        return nearest and self._explained(*nearest[1:])

    def _explained(self, line: int, wait: int) -> SingleWait:
        graph = self._graph.get()
        waits = graph.waits
        ended_by, roots = (
            list_steps(partial(kernels.list_wait_parts, graph.structure, line, wait, direct))
            for direct in (True, False)
        )
        node, ender = int(waits.node[wait]), int(waits.ender[wait])
        return SingleWait(
            line, self._names.thread(line), int(waits.begin[wait]), int(waits.end[wait]),
            self._names.path(node), node, ender != wait, int(waits.end[ender]),
            *self._causes(line, ended_by), *self._causes(line, roots),
        )  # fmt: skip

    def _causes(self, waiter: int, parts: WaitSteps) -> tuple[list[PartCause], int]:
        """The causes of parts, those alike as one, the greatest first; and how many there are."""
        keys = np.stack([parts.line, parts.node, parts.kind, parts.other]).astype(np.int64)
        alike, place = np.unique(keys, axis=1, return_inverse=True)
        place = place.ravel()
        length = parts.end - parts.begin
        ns = sum_whole(place, length, alike.shape[1])
        longest = np.zeros(len(ns), np.int64)
        by_length = np.argsort(length, kind="stable")
        longest[place[by_length]] = by_length  # the last one stays
        causes = []
        for at in np.argsort(-ns, kind="stable")[:_MOST_CAUSES].tolist():
            begin, end = int(parts.begin[longest[at]]), int(parts.end[longest[at]])
            causes.append(self._cause(waiter, alike[:, at].tolist(), int(ns[at]), begin, end))
        return causes, len(ns)

    def _cause(self, waiter: int, key: list[int], ns: int, begin: int, end: int) -> PartCause:
        line, node, kind = key[0], key[1], Cause(key[2])
        thread, name = self._names.thread(line), self._names.other(key[3])
        text = cause_text(kind, thread, name)
        if kind not in OF_THREADS and line == waiter:
            line, node, thread = -1, 0, ""
        elif kind not in OF_THREADS:
            text = f"{thread}, waiting: {text}"
        path = self._names.path(node) if node else ()
        return PartCause(kind, line, thread, name, path, ns / 1e9, text, node, begin, end)
