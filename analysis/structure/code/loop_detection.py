"""Loop nests of a control-flow graph.

One depth-first search finds for each block the innermost loop around it: T. Wei, J. Mao, W. Zou,
Y. Chen, A New Algorithm for Identifying Loops in Decompilation, SAS 2007. In reducible control
flow its loops equal the loops that dominators give; a loop with several entries, as jumps into
it make, is found as well, and marked. Back edges to one header make one loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

NO_LOOP = -1


class Nest(NamedTuple):
    """Loops by their header blocks.

    ``header[b]``: the header of the innermost loop around block ``b``, or -1; a header's own entry
    is the header around its loop. ``latches`` has the headers and the blocks that jump back
    to each; ``irreducible`` the headers whose loops have several entries.
    """

    header: list[int]
    latches: dict[int, list[int]]
    irreducible: set[int]

    def innermost(self, block: int) -> int:
        """The header of the innermost loop ``block`` is in, -1 for none."""
        return block if block in self.latches else self.header[block]


def _nest(header: list[int], place: list[int], block: int, around: int) -> int:
    """Note in ``header`` that the loop of ``around`` is around ``block``; the steps it took.

    The headers around ``block`` are ordered by their ``place`` on the path, the innermost first.
    """
    steps = 0
    inner, outer = block, around
    if inner == outer:
        return 0
    while header[inner] != NO_LOOP:
        steps += 1
        current = header[inner]
        if current == outer:
            return steps
        if place[current] < place[outer]:
            header[inner] = outer
            inner, outer = outer, current
        else:
            inner = current
    header[inner] = outer
    return steps


def find_loops(successors: Sequence[Sequence[int]], budget: int | None = None) -> Nest:
    """The loop nest of a graph whose block 0 is the entry.

    Blocks that no path from there reaches are roots of their own; their edges into known blocks
    are ignored. Raises :class:`RecursionError` when it takes more than ``budget``
    steps (None: any number): nests that are irreducible through and through take quadratic time.
    """
    count = len(successors)
    header = [NO_LOOP] * count
    # Place on the path from the root to the block at hand, 0 when not on it.
    place = [0] * count
    root_of = [NO_LOOP] * count
    latches: dict[int, list[int]] = {}
    irreducible: set[int] = set()
    steps = 0

    for root in range(count):
        if root_of[root] != NO_LOOP:
            continue
        root_of[root] = root
        place[root] = 1
        path = [root]
        pending = [iter(successors[root])]
        while path:
            block = path[-1]
            for target in pending[-1]:
                steps += 1
                if root_of[target] == NO_LOOP:
                    root_of[target] = root
                    path.append(target)
                    place[target] = len(path)
                    pending.append(iter(successors[target]))
                    break
                if place[target]:
                    latches.setdefault(target, []).append(block)
                    steps += _nest(header, place, block, target)
                elif root_of[target] == root and header[target] != NO_LOOP:
                    # Whose loop is closed already was entered past its header.
                    around = header[target]
                    while around != NO_LOOP and not place[around]:
                        irreducible.add(around)
                        around = header[around]
                        steps += 1
                    if around != NO_LOOP:
                        steps += _nest(header, place, block, around)
            else:
                path.pop()
                pending.pop()
                place[block] = 0
                if path and header[block] != NO_LOOP:
                    steps += _nest(header, place, path[-1], header[block])
            if budget is not None and steps > budget:
                raise RecursionError("control-flow graph too complex")
    return Nest(header, latches, irreducible)
