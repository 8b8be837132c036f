"""TAU's profile files, one for each thread and metric (TAU Reference Guide, "Profile file format").

``profile.NODE.CONTEXT.THREAD`` in a folder ``MULTI__METRIC`` for each metric. A node is a rank of
the job, or a number above all ranks for a process without one; the context is always 0. Times
are in µs. Every procedure has an entry, and every call path one with ``=>`` between its procedures.
Calls count samples: hpcd does not count calls.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hpcd.analysis.database.metrics import RECORDS
from hpcd.analysis.profile.views import outermost
from hpcd.array_types import F64, I64, Mask
from hpcd.errors import UsageError
from hpcd.interchange.fitted_names import one_line
from hpcd.interchange.numbering import Numbering
from hpcd.interchange.output.context_table import ContextTable, Detail
from hpcd.interchange.output.export_selection import ExportSelection

_ARROW = " => "
_ROOT = ".TAU application"


def write(selection: ExportSelection, path: Path) -> None:
    """Write ``selection`` to the folder ``path``."""
    table = selection.contexts(Detail.NAME)
    profile = _ProfileWriter(selection, table)
    folders = [path / f"MULTI__{re.sub('[^A-Za-z0-9_]', '_', name)}" for name in selection.names]
    if len(set(folders)) < len(folders):
        raise UsageError("metrics have names that TAU cannot tell apart; choose with --metric")
    for folder in folders:
        folder.mkdir()
    for line, name in _files(selection):
        exclusive = selection.dense_line_costs(line, table)
        inclusive = table.inclusive(exclusive)
        for row, folder in enumerate(folders):
            profile.write(folder / name, row, exclusive, inclusive)


def _files(selection: ExportSelection) -> Iterator[tuple[int, str]]:
    """Yield each line's number and the name of its file."""
    lines, selected = selection.db.lines, selection.lines
    rank = lines.rank[selected]
    jobs = {lines.job[line] for line in selected[rank >= 0].tolist()}
    # Ranks of several jobs are numbered like processes without rank.
    ranked = len(jobs) == 1
    first = int(rank.max(initial=-1)) + 1 if ranked else 0
    unranked: Numbering[int] = Numbering(first=first)
    threads: Counter[int] = Counter()
    for line in selection.iterate_lines():
        node = line.rank if ranked else None
        if node is None:
            node = unranked[int(lines.process[line.number])]
        yield line.number, f"profile.{node}.0.{threads[node]}"
        threads[node] += 1


class _ProfileWriter:
    """Writes the profiles of threads, one at a time."""

    def __init__(self, selection: ExportSelection, table: ContextTable) -> None:
        self._selection = selection
        self._names = [self._escaped(name) for name in table.frames.name]
        self._names[0] = _ROOT
        self._table = table
        self._frame = table.frame.astype(np.int64)
        # The outermost call of a recursion counts.
        begin, end = table.tree.preorder()
        self._outermost = outermost(self._frame, begin, end)
        self._parent = table.parent.tolist()

    @staticmethod
    def _escaped(name: str) -> str:
        name = one_line(name, '"').replace("=>", "=\\x3e")
        # TAU writes a procedure's source file between these.
        return name.replace("[{", "[\\x7b").replace(" C ", " \\x43 ")

    def write(self, path: Path, row: int, exclusive: F64, inclusive: F64) -> None:
        """Write the profile of one thread: metric ``row`` of costs float64[metrics, contexts]."""
        selection = self._selection
        scale = 1e6 if selection.units[row] == "s" else 1.0
        calls = self._counts(exclusive)
        # Readers expect the same entries in the files of all metrics.
        shown: Mask = np.asarray(inclusive.any(axis=0))
        entries = [
            *self._procedures(exclusive[row] * scale, inclusive[row] * scale, calls, shown),
            *self._paths(exclusive[row] * scale, inclusive[row] * scale, calls, shown),
        ]
        name = one_line(selection.names[row], "<>&")
        with path.open("w", encoding="utf-8", newline="\n") as file:
            file.write(f"{len(entries)} templated_functions_MULTI_{name.upper()}\n")
            file.write(
                "# Name Calls Subrs Excl Incl ProfileCalls # <metadata><attribute><name>Metric Name"
                f"</name><value>{name.upper()}</value></attribute></metadata>\n"
            )
            file.writelines(entries)
            file.write("0 aggregates\n")

    def _counts(self, exclusive: F64) -> I64:
        """Return int64[contexts]: records, or 1 for a cost without such a metric."""
        names = self._selection.names
        if RECORDS in names:
            counts: I64 = np.rint(exclusive[names.index(RECORDS)]).astype(np.int64)
            return counts
        return np.asarray(exclusive.any(axis=0)).astype(np.int64)

    def _procedures(self, own: F64, whole: F64, calls: I64, shown: Mask) -> Iterator[str]:
        yield self._entry(_ROOT, calls[0], round(own[0]), round(whole[0]), "TAU_DEFAULT")
        count = len(self._table.frames)
        excl = np.bincount(self._frame, own, count)
        incl = np.bincount(self._frame, np.where(self._outermost, whole, 0.0), count)
        number = np.bincount(self._frame, calls, count)
        for frame in np.unique(self._frame[shown]).tolist():
            if frame:
                figures = number[frame], excl[frame], incl[frame]
                yield self._entry(self._names[frame], *figures, "TAU_DEFAULT")

    def _paths(self, own: F64, whole: F64, calls: I64, shown: Mask) -> Iterator[str]:
        for context in np.flatnonzero(shown).tolist():
            if not context:
                continue
            words, at = [], context
            while at:
                words.append(self._names[self._frame[at]])
                at = self._parent[at]
            path = _ARROW.join([_ROOT, *reversed(words)])
            yield self._entry(path, calls[context], own[context], whole[context], "TAU_CALLPATH")

    @staticmethod
    def _entry(name: str, calls: float, own: float, whole: float, group: str) -> str:
        return f'"{name}" {int(calls)} 0 {own:.16g} {whole:.16g} 0 GROUP="{group}"\n'
