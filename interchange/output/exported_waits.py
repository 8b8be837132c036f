"""Waits that were recorded one by one, with their wakers, as formats of traces show them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hpcd.analysis.waits.wait_chains import Cause
from hpcd.analysis.waits.wait_report import ActivityNames, cause_text
from hpcd.interchange.output.export_selection import ExportSelection
from hpcd.masks import marked


@dataclass(frozen=True, slots=True)
class ExportedWait:
    """The wait ``number`` of the database, from ``begin`` to ``end``, ns since the origin. ``text``
    says who ended it; ``waker`` is the trace line that did, if it is exported, else -1, and
    ``path`` the context in which it did so, 0 if not known."""

    number: int
    begin: int
    end: int
    text: str
    waker: int
    path: int


class ExportedWaits:
    """The waits of the selected lines and call paths that are entirely within a window."""

    def __init__(self, selection: ExportSelection) -> None:
        self._selection = selection
        self._waits = selection.db.waits
        self._names = ActivityNames(selection.db)
        self._exported = marked(len(selection.db.lines), selection.lines)

    def of_line(self, line: int) -> Iterator[ExportedWait]:
        """Yield the waits of trace line ``line`` in order of time."""
        waits, names = self._waits, self._names
        first, last = waits.first[line : line + 2].tolist()
        begin, end = waits.begin[first:last], waits.end[first:last]
        kept = self._selection.select_calls(
            np.full(last - first, line), begin, end, waits.node[first:last].astype(np.int64)
        )
        number = first + np.flatnonzero(kept)
        columns = (number, waits.begin[number], waits.end[number], waits.kind[number],
                   waits.waker[number], waits.path[number], waits.other[number])  # fmt: skip
        for at, began, ended, kind, waker, path, other in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            cause = Cause.THREAD if waker >= 0 else Cause(kind)
            text = cause_text(cause, names.thread(waker), names.other(other))
            exported = waker if waker >= 0 and self._exported[waker] else -1
            yield ExportedWait(at, began, ended, text, exported, path)

    def label(self, line: int) -> str:
        """Return the label of a trace line."""
        return self._names.thread(line)
