"""Control-flow graphs of functions, from the branches in them.

Branches are recognised by instruction set (:mod:`x86`, :mod:`arm64`); blocks and edges are made
from them in the same way everywhere.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import NamedTuple


class Flow(IntEnum):
    """The kinds of instructions after which control may go elsewhere than to the next one."""

    JUMP = 1
    INDIRECT = 2
    CONDITIONAL = 3
    RETURN = 4
    STOP = 5
    CALL = 6


class Branch(NamedTuple):
    """An instruction at ``at``, the next one at ``after``; ``target`` where it is known."""

    at: int
    after: int
    flow: int
    target: int


class Graph(NamedTuple):
    """Basic blocks in order of address, block 0 the entry.

    ``start`` is a block's first address, ``last`` one within its last instruction;
    ``successors`` are block numbers.
    """

    start: list[int]
    last: list[int]
    successors: list[list[int]]


Tables = Callable[[Branch], Sequence[int]]


def may_loop(branches: Sequence[Branch], start: int) -> bool:
    """Return whether any branch leads back, or to an unknown address."""
    for branch in branches:
        flow = branch.flow
        if flow == Flow.INDIRECT or (
            (flow == Flow.JUMP or flow == Flow.CONDITIONAL) and start <= branch.target <= branch.at
        ):
            return True
    return False


def graph_of(
    start: int,
    end: int,
    branches: Sequence[Branch],
    tables: Tables,
    never_returns: Callable[[int], bool],
) -> Graph:
    """The graph of the function from ``start`` up to ``end``.

    ``tables`` gives the targets of an indirect jump, ``never_returns`` says whether calls of a
    procedure come back. Jumps out of the function are ends.
    """
    leaders = {start}
    ends: list[tuple[Branch, list[int]]] = []
    for branch in branches:
        flow = branch.flow
        if flow == Flow.CALL:
            if not never_returns(branch.target):
                continue
            targets: list[int] = []
        elif flow == Flow.CONDITIONAL:
            targets = [branch.after, branch.target]
        elif flow == Flow.JUMP:
            targets = [branch.target]
        elif flow == Flow.INDIRECT:
            targets = list(tables(branch))
        else:
            targets = []
        targets = [target for target in targets if start <= target < end]
        leaders.update(targets)
        leaders.add(branch.after)
        ends.append((branch, targets))
    leaders.discard(end)
    blocks = sorted(leader for leader in leaders if start <= leader < end)
    number = {address: index for index, address in enumerate(blocks)}
    count = len(blocks)
    successors = [[index + 1] for index in range(count)]
    if count:
        successors[-1] = []
    last = [address - 1 for address in [*blocks[1:], end]]
    for branch, targets in ends:
        block = bisect_right(blocks, branch.at) - 1
        last[block] = branch.at
        successors[block] = [number[target] for target in targets]
    return Graph(blocks, last, successors)
