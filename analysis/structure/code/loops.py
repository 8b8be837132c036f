"""Loops in the machine code of a module."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hpcd.analysis.structure.code.control_flow import Graph, graph_of, may_loop
from hpcd.analysis.structure.code.function_bounds import FunctionBounds
from hpcd.analysis.structure.code.instruction_sets import branches_of, tables_of
from hpcd.analysis.structure.code.loop_detection import Nest, find_loops
from hpcd.analysis.structure.code.loop_table import LoopTable
from hpcd.analysis.structure.code.noreturn import Endings
from hpcd.analysis.structure.code.section_image import Image

# Generated parsers reach a million instructions in one function; a larger range is no function.
_MAX_FUNCTION = 16 << 20
# Steps of the search a block may take, and of the smallest functions: real ones take about three.
_STEPS_PER_BLOCK, _STEPS, _MAX_STEPS = 400, 20_000, 20_000_000
# Loops inside loops: far more than programs have.
_MAX_NESTING = 128


def loops_of(image: Image, functions: FunctionBounds, endings: Endings) -> LoopTable:
    """The loops of ``functions``. O(code), 0.2 s a megabyte of x86-64.

    Bytes that are no code make no loops, or meaningless ones.
    """
    rows = _Rows()
    for start, end in zip(functions.start.tolist(), functions.end.tolist(), strict=True):
        graph = None
        if end - start <= _MAX_FUNCTION:
            branches = list(branches_of(image, start, end))
            if may_loop(branches, start):
                tables = tables_of(image, start, end)
                graph = graph_of(start, end, branches, tables, endings.never_returns)
        rows.add(start, end, graph)
    return rows.table()


class _Rows:
    """The columns of a table as they grow."""

    def __init__(self) -> None:
        self._start: list[int] = []
        self._last: list[int] = []
        self._loop: list[int] = []
        self._parent: list[int] = []
        self._header: list[int] = []
        self._irreducible: list[bool] = []
        self._exit: list[int] = []
        self._exit_of: list[int] = []

    def add(self, start: int, end: int, graph: Graph | None) -> None:
        """Add the function from ``start`` up to ``end``; ``graph`` is None without loops."""
        if graph is not None:
            try:
                self._add_graph(end, graph)
                return
            except RecursionError:
                pass
        self._start.append(start)
        self._last.append(end - 1)
        self._loop.append(-1)

    def _add_graph(self, end: int, graph: Graph) -> None:
        blocks = len(graph.start)
        budget = min(_STEPS_PER_BLOCK * blocks + _STEPS, _MAX_STEPS)
        nest = find_loops(graph.successors, budget)
        number: dict[int, int] = {}
        # A loop's parent is numbered before it: by depth, then address.
        depth: dict[int, int] = {}
        for header in nest.latches:
            depth[header] = _depth(header, nest.header, depth)
        if max(depth.values(), default=0) > _MAX_NESTING:
            raise RecursionError("loops are nested too deeply")
        for header in sorted(nest.latches, key=lambda header: (depth[header], header)):
            number[header] = len(self._parent)
            self._parent.append(number.get(nest.header[header], -1))
            self._header.append(graph.start[header])
            self._irreducible.append(header in nest.irreducible)
        self._add_exits(graph, nest, number)
        before = None
        for block in range(blocks):
            loop = number.get(nest.innermost(block), -1)
            # Code outside loops is of no interest in detail.
            if loop == before == -1:
                self._last[-1] = graph.last[block]
                continue
            self._start.append(graph.start[block])
            self._last.append(graph.last[block])
            self._loop.append(loop)
            before = loop

    def _add_exits(self, graph: Graph, nest: Nest, number: dict[int, int]) -> None:
        inner = [nest.innermost(block) for block in range(len(graph.start))]
        without = set(nest.latches)
        for block, header in enumerate(inner):
            if header < 0:
                continue
            targets = graph.successors[block]
            # One way on is no decision.
            if len(targets) < 2:
                continue
            for target in targets:
                if inner[target] == header:
                    continue
                around = set(_outwards(inner[target], nest.header))
                for left in _outwards(header, nest.header):
                    if left in around:
                        break
                    without.discard(left)
                    self._exit.append(graph.last[block])
                    self._exit_of.append(number[left])
        for header in without:
            self._exit.append(graph.last[max(nest.latches[header])])
            self._exit_of.append(number[header])

    def table(self) -> LoopTable:
        return LoopTable(
            np.array(self._start, np.uint64),
            np.array(self._last, np.uint64),
            np.array(self._loop, np.int32),
            np.array(self._parent, np.int32),
            np.array(self._header, np.uint64),
            np.array(self._irreducible, np.bool_),
            np.array(self._exit, np.uint64),
            np.array(self._exit_of, np.int32),
        )


def _depth(header: int, around: list[int], depths: dict[int, int]) -> int:
    """Return the number of loops around the loop of ``header``."""
    path = []
    while header >= 0 and header not in depths:
        path.append(header)
        header = around[header]
    depth = depths.get(header, -1)
    for loop in reversed(path):
        depth += 1
        depths[loop] = depth
    return depth


def _outwards(header: int, around: list[int]) -> Iterator[int]:
    """``header`` and the headers of the loops around its loop."""
    while header >= 0:
        yield header
        header = around[header]
