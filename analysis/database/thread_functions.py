"""Names for threads that have none of their own: their place in a team of OpenMP, or the function
of the program's own that they run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.database.metrics import Metrics
from hpcd.analysis.roles.role import NameRole, have
from hpcd.analysis.symbols.short_names import short_names
from hpcd.analysis.trace.trace_lines import LineColumns
from hpcd.array_types import I64, U32, Mask
from hpcd.model.cct import CCT

# Code that begins a thread, or serves the function that it runs.
_SERVES = (
    NameRole.ENTRY | NameRole.STUB | NameRole.C_LIBRARY | NameRole.SUPPORT | NameRole.OPENMP
    | NameRole.HEADER | NameRole.PYTHON
)  # fmt: skip
_TIMES = ("cpu_time", "blocked_time")


class ThreadFunctions:
    """The threads of a database. ``tree`` is its tree, ``roles`` ``int64[procedures]`` and
    ``own`` ``bool[procedures]`` say what its procedures do, and which have names and are not the
    kernel's."""

    def __init__(
        self, tree: CCT, procedure: U32, names: list[str], roles: I64, own: Mask,
        metrics: Metrics, columns: LineColumns,
    ) -> None:  # fmt: skip
        """``procedure`` ``uint32[nodes]`` into ``names``."""
        self._tree, self._procedure, self._names = tree, procedure, names
        self._roles, self._own = roles, own & ~have(roles, _SERVES)
        self._metrics, self._columns = metrics, columns
        self._times = [metrics.number(name) for name in _TIMES if name in metrics.names]

    def of(self, lines: Sequence[int]) -> dict[int, str]:
        """Return a name for each of ``lines`` whose function is known; threads of one process have
        different names.

        O(cells) once where a team of OpenMP is, O(cells of ``lines``) otherwise.
        """
        names = {}
        for line in lines:
            place, size = int(self._team[0][line]), int(self._team[1][line])
            if place:
                names[line] = f"OpenMP thread {place} of {size}"
            elif name := self._function(line):
                names[line] = f"{name} {self._columns.tid[line]}"
        return names

    def _function(self, line: int) -> str:
        """The function of the program's own that a thread is in for most of its time."""
        cells = [self._metrics.by_line(number, line) for number in self._times]
        nodes = np.concatenate([np.zeros(0, np.uint32), *(node for node, _ in cells)])
        costs = np.concatenate([np.zeros(0), *(cost for _, cost in cells)])
        spent = sum_by(self._outermost[nodes].astype(np.int64), costs, len(self._names))
        spent[0] = 0.0
        top = int(spent.argmax())
        return short_names([self._names[top]])[0] if spent[top] > 0 else ""

    @cached_property
    def _outermost(self) -> U32:
        """``uint32[nodes]``: the outermost own procedure on each node's path, 0 where none is."""
        own = self._own[self._procedure]
        own[0] = False
        innermost = self._tree.innermost(own)
        above = innermost[self._tree.parent]
        outermost = self._procedure[self._tree.innermost(own & (above == 0))].copy()
        outermost[innermost == 0] = 0
        return outermost

    @cached_property
    def _team(self) -> tuple[I64, I64]:
        """``int64[lines]``: the place of each worker of an OpenMP team among the threads of its
        process, by their begins, where the first is the one that calls, and how many these are; 0
        of other threads."""
        columns, tree = self._columns, self._tree
        place, size = np.zeros((2, len(columns.start)), np.int64)
        begins = have(self._roles, NameRole.ENTRY)[self._procedure]
        begun = have(self._roles, NameRole.OPENMP)[self._procedure] & begins[tree.parent]
        if not bool(begun.any()):
            return place, size
        inside = tree.innermost(begun) > 0
        seconds = sum(self._metrics.over_contexts(number, inside) for number in self._times)
        workers = np.flatnonzero((seconds > 0) & (columns.tid != columns.pid))
        workers = workers[np.lexsort((columns.start[workers], columns.process[workers]))]
        process = columns.process[workers]
        first = np.searchsorted(process, process)
        place[workers] = np.arange(len(workers)) - first + 2
        size[workers] = np.searchsorted(process, process, side="right") - first + 1
        return place, size
