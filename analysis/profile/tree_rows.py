"""Some nodes of a tree in the order they are printed: as rows with tree lines or nested JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import numpy as np

from hpcd.array_types import F64, U32, Mask


class Forest:
    """The shown nodes of a tree, siblings by descending rank.

    ``parent`` ``uint32[n]``, node 0 the root; ``rank`` ``float64[n]``; ``shown`` ``bool[n]``. A
    node is shown if its parent is, down to ``depth`` levels.
    """

    def __init__(self, parent: U32, rank: F64, shown: Mask, *, depth: int | None = None) -> None:
        self.omitted = int(len(parent) - shown.sum()) - (0 if bool(shown[0]) else 1)
        """Nodes left out because they are not ``shown``."""
        nodes = np.flatnonzero(shown)
        nodes = nodes[nodes != 0]
        order = nodes[np.lexsort((nodes, -rank[nodes], parent[nodes]))]
        owners, starts = np.unique(parent[order], return_index=True)
        groups = np.split(order, starts[1:])
        self._children = dict(zip(owners.tolist(), groups, strict=True)) if len(order) else {}
        self._depth = depth

    def children(self, node: int, level: int) -> list[int]:
        """Return the shown children of ``node``, whose level is ``level`` (the root's is 0)."""
        if self._depth is not None and level >= self._depth:
            return []
        children = self._children.get(node)
        return [] if children is None else children.tolist()

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """(node, tree lines before its name) of each shown node but the root, depth first."""
        return ((node, before) for node, _, before in self.rows())

    def rows(self) -> Iterator[tuple[int, int, str]]:
        """Yield each node, its level and its tree lines.

        Nodes that are all their parents show stand in one column, each behind "└": long chains of
        calls do not run out of the page.
        """
        stack: list[tuple[int, int, str, str, str]] = []
        self._push(stack, 0, 0, "", "")
        while stack:
            node, level, before, below, chain = stack.pop()
            yield node, level, before
            self._push(stack, node, level, below, chain)

    def _push(
        self,
        stack: list[tuple[int, int, str, str, str]],
        node: int,
        level: int,
        below: str,
        chain: str,
    ) -> None:
        """Put the children of ``node`` on the stack, their tree lines to begin with ``below``, with
        ``chain`` that of an only one."""
        members = self.children(node, level)
        if len(members) == 1:
            turn = "└ " if node else ""
            stack.append((members[0], level + 1, chain + turn, chain + "  " * bool(node), chain))
            return
        for place, member in enumerate(reversed(members)):
            last = place == 0
            turn, on = ("└ ", "  ") if last else ("├ ", "│ ")
            stack.append((member, level + 1, below + turn, below + on, below + on))

    def json(
        self, head: dict[str, object], fields: Callable[[int], dict[str, object]]
    ) -> Iterator[str]:
        """Yield the pieces of one JSON object: ``head``, and as ``tree`` the root, each node with
        its ``fields`` and ``children``.

        Written without recursion, as call paths are deeper than a Python stack.
        """

        def opening(node: int) -> str:
            return json.dumps(fields(node))[:-1] + ', "children": ['

        yield json.dumps(head)[:-1] + ', "tree": ' + opening(0)
        open_nodes = [iter(self.children(0, 0))]
        first = True
        while open_nodes:
            node = next(open_nodes[-1], None)
            if node is None:
                open_nodes.pop()
                yield "]}"
                first = False
                continue
            yield ("" if first else ", ") + opening(node)
            open_nodes.append(iter(self.children(node, len(open_nodes))))
            first = True
        yield "}\n"
