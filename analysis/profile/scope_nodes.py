"""The calling context tree with what stands between a procedure and an address in it.

A node of the canonical tree is an address in a procedure. Inlined calls and loops around that
address become nodes of their own, below the procedure's, from the outside in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np
import numpy.typing as npt

from hpcd.analysis.database import Database
from hpcd.analysis.database.scopes import Scopes
from hpcd.analysis.structure import ScopeKind
from hpcd.array_types import I64, U32, U64
from hpcd.model.cct import CCT

CALLS_AND_LOOPS = (ScopeKind.INLINED, ScopeKind.LOOP)
"""The kinds of scopes that may become nodes: statements are too fine."""


def name_contexts(db: Database) -> tuple[I64, list[str]]:
    """``int64[nodes]``: of each node an index into the names: what was inlined at its address, as
    ``force [inlined]``, or else its procedure's display name. Equal names are one. O(n)."""
    scopes = db.scopes
    inlined = scopes.parent.astype(np.int64)
    own = scopes.kind == ScopeKind.INLINED
    inlined[own] = np.flatnonzero(own)
    while not bool((own[inlined] | (inlined == 0)).all()):
        inlined = np.where(own[inlined], inlined, scopes.parent[inlined])
    numbers: dict[str, int] = {}
    names = [*db.procedure_names, *(f"{name} [inlined]" for name in scopes.name)]
    number = np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int64)
    inside = inlined[db.scope_of_node]
    of_node = np.where(inside > 0, len(db.procedure_names) + inside, db.procedure_of_node)
    return number[of_node], list(numbers)


class ContextNames:
    """Names of contexts, with what was inlined at their addresses."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.label, self.labels = name_contexts(db)
        """As :func:`name_contexts` has them."""

    def path(self, nodes: Iterable[int]) -> list[str]:
        """Return the names of contexts that call one another, the outermost first: of each its
        procedure, then what is inlined there."""
        names, procedure = self._db.procedure_names, self._db.procedure_of_node
        pairs = ((names[procedure[at]], self.labels[self.label[at]]) for at in nodes)
        return [name for pair in pairs for name in dict.fromkeys(pair)]


def becomes_node(
    scopes: Scopes, kinds: Collection[ScopeKind] = CALLS_AND_LOOPS
) -> npt.NDArray[np.bool_]:
    """``bool[scopes]``: those of ``kinds``."""
    return np.isin(scopes.kind, list(kinds))


def insert_scope_nodes(
    tree: CCT,
    frames: U64,
    scopes: Scopes,
    scope_of: U32,
    scope_frames: U64,
    kinds: Collection[ScopeKind] = CALLS_AND_LOOPS,
) -> tuple[CCT, U32]:
    """``tree`` with its nodes' scopes as nodes, and ``uint32[n]``: where each node went.

    ``frames`` ``uint64[n]`` are those of the nodes as procedures; ``scope_of`` ``uint32[n]`` their
    innermost scopes, of which those of ``kinds`` become nodes with frames of ``scope_frames``
    ``uint64[scopes]``. O(n · nesting).
    """
    kept = becomes_node(scopes, kinds)
    kept[0] = True
    # The innermost scope at or around each that is kept, and the one around that.
    nearest = np.where(kept, np.arange(len(scopes)), scopes.parent)
    while not bool(kept[nearest].all()):
        nearest = nearest[nearest]
    around = nearest[scopes.parent].astype(np.uint32)
    around[~kept] = 0
    around[0] = 0
    depth = CCT(around, np.zeros(len(scopes), np.uint64)).depth().astype(np.int64)
    innermost = nearest[scope_of]
    innermost[0] = 0
    length = depth[innermost]
    last = np.arange(len(tree)) + np.cumsum(length)
    first = last - length
    total = len(tree) + int(length.sum())
    parent = np.arange(total, dtype=np.int64) - 1
    parent[first] = last[tree.parent]
    parent[0] = 0
    unfolded = np.zeros(total, np.uint64)
    unfolded[first] = frames
    at, where = innermost.copy(), last.copy()
    nodes = np.flatnonzero(length > 0)
    while len(nodes):
        unfolded[where[nodes]] = scope_frames[at[nodes]]
        at[nodes] = around[at[nodes]]
        where[nodes] -= 1
        nodes = nodes[at[nodes] > 0]
    return CCT(parent.astype(np.uint32), unfolded), last.astype(np.uint32)
