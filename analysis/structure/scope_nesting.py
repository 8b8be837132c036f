"""Loops among procedures and inlined calls: the nesting of both.

Debug information knows the nesting of inlined calls, machine code the nesting of loops. A loop
belongs to the innermost (inlined) procedure that contains all of its code; deeper scopes of
its code are inside the loop.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hpcd.analysis.structure.code.loop_table import LoopTable
from hpcd.analysis.structure.dwarf.debug_scopes import ModuleLines
from hpcd.analysis.structure.dwarf.line_table import depths
from hpcd.analysis.structure.scope_forest import ScopeForest, with_statements
from hpcd.array_types import I32, I64, U64
from hpcd.model.scope import ScopeKind

# Plain integers: members of an enumeration are slow as dictionary keys.
_INLINED, _LOOP, _STATEMENT = int(ScopeKind.INLINED), int(ScopeKind.LOOP), int(ScopeKind.STATEMENT)


def with_loops(
    forest: ScopeForest, scope: I32, addresses: U64, lines: ModuleLines, loops: LoopTable
) -> tuple[ScopeForest, I32]:
    """``forest`` with loops in it, and the innermost scope there of each of ``addresses``.

    ``forest`` begins with the forest of ``lines``; ``scope`` is each address's without loops.
    Copies of one loop that a compiler made (unrolled, vectorised, peeled ones) are one loop when
    they are in the same scope and have the same file and line.
    """
    loop = loops.loop_of(addresses)
    inside = np.flatnonzero((loop >= 0) & (scope >= 0))
    if not len(inside):
        return forest, scope
    tree = _Tree(forest)
    builder = _Builder(forest, tree, _contexts(tree, lines, loops), lines, loops)
    # First the procedures and inlined procedures, then the statements in them.
    before = scope[inside]
    stated = forest.kind[before] == _STATEMENT
    instance = np.where(stated, forest.parent[before], before).astype(np.int64)
    pairs, which = np.unique(instance << 32 | loop[inside], return_inverse=True)
    placed = np.array([builder.place(pair >> 32, pair & 0xFFFFFFFF) for pair in pairs.tolist()])
    result = scope.copy()
    result[inside] = placed[which]
    # Statements become copies of theirs in the scopes that their addresses are in now.
    old, at = before[stated], inside[stated]
    larger, result[at] = with_statements(
        builder.forest(), result[at].astype(np.int64), forest.file[old], forest.line[old]
    )
    return larger, result


class _Tree:
    """The ancestor relation of scopes: the descendants of each are consecutive in preorder."""

    def __init__(self, forest: ScopeForest) -> None:
        self.parent = forest.parent
        self.depth = forest.depths()
        count = len(forest)
        self.size: I64 = np.ones(count, np.int64)
        levels = [np.flatnonzero(self.depth == level) for level in range(int(self.depth.max()) + 1)]
        for level in reversed(levels[1:]):
            np.add.at(self.size, self.parent[level], self.size[level])
        self.first: I64 = np.zeros(count, np.int64)
        # Trees are numbered consecutively.
        roots = levels[0]
        self.first[roots] = np.cumsum(self.size[roots]) - self.size[roots]
        for level in levels[1:]:
            above = self.parent[level]
            order = np.argsort(above, kind="stable")
            level, above = level[order], above[order]
            before = np.cumsum(self.size[level]) - self.size[level]
            begin = np.searchsorted(above, above, side="left")
            self.first[level] = self.first[above] + 1 + before - before[begin]
        self.by_first: I64 = np.empty(count, np.int64)
        self.by_first[self.first] = np.arange(count)

    def common(self, one: I64, other: I64) -> I64:
        """Return the innermost scope that both are in, -1 without one."""
        one, other = one.copy(), other.copy()
        while True:
            apart = np.flatnonzero((one != other) & (one >= 0) & (other >= 0))
            if not len(apart):
                break
            left, right = one[apart], other[apart]
            deeper = self.depth[left] >= self.depth[right]
            one[apart] = np.where(deeper, self.parent[left], left)
            other[apart] = np.where(deeper, right, self.parent[right])
        return np.where(one == other, one, -1)


def _contexts(tree: _Tree, lines: ModuleLines, loops: LoopTable) -> I64:
    """``int64[l]``: the innermost (inlined) procedure all of a loop is in, -1 unknown."""
    count = len(loops.parent)
    low = np.full(count, len(tree.parent), np.int64)
    high = np.full(count, -1, np.int64)
    blocks = np.flatnonzero(loops.loop >= 0)
    for addresses in (loops.start[blocks], loops.last[blocks]):
        statement = lines.scope_of(addresses)
        scoped = np.flatnonzero(statement >= 0)
        place = tree.first[tree.parent[statement[scoped]]]
        np.minimum.at(low, loops.loop[blocks[scoped]], place)
        np.maximum.at(high, loops.loop[blocks[scoped]], place)
    # The scopes first and last in preorder have all the others' common ancestor.
    depth = depths(loops.parent)
    for level in range(int(depth.max(initial=0)), 0, -1):
        inner = np.flatnonzero(depth == level)
        np.minimum.at(low, loops.parent[inner], low[inner])
        np.maximum.at(high, loops.parent[inner], high[inner])
    scopes = np.full(count, -1, np.int64)
    scoped = np.flatnonzero(high >= 0)
    scopes[scoped] = tree.common(tree.by_first[low[scoped]], tree.by_first[high[scoped]])
    return scopes


def _by_loop(
    lines: ModuleLines, loops: LoopTable, addresses: U64, loop: I32
) -> tuple[list[int], list[int]]:
    """The scopes of addresses in order of their loop, and where each loop's begin."""
    order = np.lexsort((addresses, loop))
    bounds = np.searchsorted(loop[order], np.arange(len(loops.parent) + 1))
    return lines.scope_of(addresses[order]).tolist(), bounds.tolist()


class _Builder:
    """Makes scopes inside loops, each once."""

    def __init__(
        self,
        forest: ScopeForest,
        tree: _Tree,
        contexts: I64,
        lines: ModuleLines,
        loops: LoopTable,
    ) -> None:
        self._forest = forest
        self._first: list[int] = tree.first.tolist()
        self._size: list[int] = tree.size.tolist()
        self._parent = forest.parent.tolist()
        self._context: list[int] = contexts.tolist()
        self._loop_parent = loops.parent.tolist()
        self._header = loops.header.tolist()
        # Candidates for a loop's place: its exits, else its blocks.
        self._exit, self._exits = _by_loop(lines, loops, loops.exit, loops.exit_of)
        self._block, self._blocks = _by_loop(lines, loops, loops.start, loops.loop)
        self._file, self._line = forest.file.tolist(), forest.line.tolist()
        # Instances inside loops by (instance, innermost loop), loops by (scope they are in, file,
        # line).
        self._known: dict[tuple[int, int], int] = {}
        self._places: dict[tuple[int, int, int, int], int] = {}
        self._spots: dict[int, tuple[int, int]] = {}
        # New scopes: parent, the scope copied or -1, kind, file, line, address.
        self._rows: list[tuple[int, int, int, int, int, int]] = []

    def place(self, instance: int, loop: int) -> int:
        """The scope of a (inlined) procedure's code in ``loop``, or of the loop itself."""
        todo: list[tuple[int, int]] = []
        while loop >= 0 and (instance, loop) not in self._known:
            todo.append((instance, loop))
            if self._is_around(instance, loop):
                loop = self._loop_parent[loop]
            else:
                instance = self._parent[instance]
        at = instance if loop < 0 else self._known[instance, loop]
        for instance, loop in reversed(todo):
            if self._is_around(instance, loop):
                file, line = self._spot(loop)
                # Without a line copies of a loop look the same as separate loops.
                key = (at, _LOOP, file, line) if line else (at, _LOOP, -2 - loop, 0)
                at = self._add(key, -1, self._header[loop])
            else:
                key = (at, _INLINED, -2 - instance, 0)
                at = self._add(key, instance, 0)
            self._known[instance, loop] = at
        return at

    def _is_around(self, instance: int, loop: int) -> bool:
        if self._parent[instance] < 0:
            return True
        context = self._context[loop]
        first = self._first[instance]
        return context >= 0 and 0 <= self._first[context] - first < self._size[instance]

    def _spot(self, loop: int) -> tuple[int, int]:
        """File and line of a loop's head: the first line of its own scope that may leave it.

        In the source, the condition of a loop comes before its body, unless it is at the end; in
        the code it may be anywhere.
        """
        spot = self._spots.get(loop)
        if spot is not None:
            return spot
        seen = [
            self._seen_from(scope, loop)
            for scope in self._exit[self._exits[loop] : self._exits[loop + 1]]
        ]
        seen = [view for view in seen if view[1]]
        if not seen:
            # Compilers give line 0 to code that they made from several lines.
            seen = [
                self._seen_from(scope, loop)
                for scope in self._block[self._blocks[loop] : self._blocks[loop + 1]]
            ]
            seen = [view for view in seen if view[1]]
        spot = min((view for view in seen if view[0] == seen[-1][0]), default=(-1, 0))
        self._spots[loop] = spot
        return spot

    def _seen_from(self, scope: int, loop: int) -> tuple[int, int]:
        """File and line of ``scope`` in the context of ``loop``, or of the call there."""
        context = self._context[loop]
        while scope >= 0 and self._parent[scope] != context:
            scope = self._parent[scope]
        if scope < 0 or context < 0 or not self._line[scope]:
            return -1, 0
        return self._file[scope], self._line[scope]

    def _add(self, key: tuple[int, int, int, int], copied: int, address: int) -> int:
        place = self._places.get(key)
        if place is not None:
            return place
        parent, kind, file, line = key
        if copied >= 0:
            file, line = self._file[copied], self._line[copied]
        number = len(self._parent) + len(self._rows)
        self._rows.append((parent, copied, kind, max(file, -1), line, address))
        self._places[key] = number
        return number

    def forest(self) -> ScopeForest:
        """Return the forest with the scopes that were added."""
        rows = np.array(self._rows, np.int64).reshape(-1, 6)
        forest = self._forest
        copied = rows[:, 1]
        name = np.where(copied >= 0, forest.name[copied], -1)
        return replace(
            forest,
            parent=np.concatenate([forest.parent, rows[:, 0]]).astype(np.int32),
            kind=np.concatenate([forest.kind, rows[:, 2]]).astype(np.uint8),
            name=np.concatenate([forest.name, name]).astype(np.int32),
            file=np.concatenate([forest.file, rows[:, 3]]).astype(np.int32),
            line=np.concatenate([forest.line, rows[:, 4]]).astype(np.uint32),
            address=np.concatenate([forest.address, rows[:, 5].astype(np.uint64)]),
        )
