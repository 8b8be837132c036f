"""Nodes of the tree that pictures show, one for each state that threads are in at a call path.

A pixel says at which context its thread is and whether it runs there, waits, or waits for a CPU.
The page looks states up by node. So where a context has time in more than one state, the tree has a
node for each: the tree's own for most of the time, and siblings of it, without children, behind all
nodes of the tree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpcd.analysis.trace.states import STATES
from hpcd.array_types import F64, I64, U8, U32, Mask
from hpcd.distinct import begins_run
from hpcd.model.cct import CCT
from hpcd.model.codes import State


@dataclass(frozen=True)
class ContextTimes:
    """Seconds of ``c`` contexts by state, ``float64[STATES, c]``, and the look of each.

    ``look`` ``int64[STATES, c]`` numbers what pictures tell apart: a thread's state and its cause.
    """

    seconds: F64
    look: I64


@dataclass(frozen=True)
class StateNodes:
    """A tree of ``n`` nodes with a node for each look.

    ``look`` ``int64[n]`` is the look of each node, ``place`` ``uint32[STATES, c]`` the node of each
    state of each context.
    """

    tree: CCT
    look: I64
    place: U32


def divide(
    tree: CCT, place: U32, times: ContextTimes, usual: I64, runs: int, in_kernel: Mask
) -> StateNodes:
    """Return ``tree`` with a node for each look of the contexts at each of its nodes.

    ``place`` ``uint32[c]`` are the contexts' nodes; ``usual`` ``int64[n]`` is the look of nodes
    without time, ``runs`` that of a thread that runs, ``in_kernel`` ``bool[c]`` the contexts in the
    kernel. O(n + c · log c).
    """
    has = times.seconds > 0
    # A thread may resume at any call path of the user's code; paths in the kernel are samples.
    waits = has[State.BLOCKED] | has[State.READY]
    has[State.SAMPLED] |= waits & ~in_kernel
    looks = int(times.look.max(initial=0)) + 1
    key = place.astype(np.int64) * looks + times.look
    known, of_key = np.unique(key[has], return_inverse=True)
    spent = np.bincount(of_key, times.seconds[has], len(known))
    node = known // looks
    # A node keeps the look of most of its time, the first here.
    order = np.lexsort((-spent, node))
    known, node = known[order], node[order]
    first = begins_run(node)
    look = usual.copy()
    look[node[first]] = known[first] % looks
    not_sampled = len(tree)
    original = np.concatenate((np.arange(len(tree)), [0], node[~first]))
    number = np.empty(len(known), np.int64)
    number[first] = node[first]
    number[~first] = not_sampled + 1 + np.arange(len(node) - int(first.sum()))
    in_order = np.empty(len(known), np.int64)
    in_order[order] = number
    place_of = np.repeat(place.astype(np.uint32)[None], STATES, axis=0)
    place_of[has] = in_order[of_key]
    unknown = waits & ~has[State.SAMPLED]
    unknown[:1] = True
    place_of[State.SAMPLED, unknown] = not_sampled
    return StateNodes(
        CCT(tree.parent[original], tree.frame[original]),
        np.concatenate((look, [runs], known[~first] % looks)), place_of,
    )  # fmt: skip


def look_of(state: int, cause: int | I64) -> int | I64:
    """Return the look of a thread's state and its cause, ``int64[n]`` of ``n`` causes."""
    return cause << 2 | state


def unpack(look: I64) -> tuple[U8, U8]:
    """Return the state and the cause of each look, ``uint8[n]`` both."""
    return (look & 3).astype(np.uint8), (look >> 2).astype(np.uint8)
