"""From sampled CCT nodes to the procedures a picture shows at one depth."""

from __future__ import annotations

import numpy as np

from hpcd.analysis import Database
from hpcd.analysis.parallel.program_code import is_program_code
from hpcd.analysis.parallel.tree_matching import innermost
from hpcd.array_types import U32, Mask
from hpcd.model.cct import NO_NODE

NO_PROCEDURE = np.uint32(0xFFFFFFFF)
# A depth is worth showing when this many procedures share the picture.
_INTERESTING = 0.75


def procedures_at(db: Database, nodes: U32, depth: int) -> U32:
    """Procedure of each pixel at call path depth ``depth`` (1: outermost); same shape.

    A path that is shallower shows its deepest frame (ICS 2011, section 5.1). NO_PROCEDURE where
    there is no path. Procedures of one name are one: code made at run time is a module of each
    process. One table over the CCT, one gather over the pixels.
    """
    first: dict[str, int] = {}
    same = np.array(
        [first.setdefault(name, at) for at, name in enumerate(db.procedure_names)], np.uint32
    )
    table = same[db.procedure_of_node[db.cct.ancestor_at(depth)]]
    shown = nodes != NO_NODE
    picture = np.full(nodes.shape, NO_PROCEDURE, np.uint32)
    picture[shown] = table[nodes[shown]]
    return picture


def shares(picture: U32) -> list[tuple[int, float]]:
    """(procedure, share of the non-blank pixels), largest first."""
    shown = picture[picture != NO_PROCEDURE]
    if not len(shown):
        return []
    procedure, count = np.unique(shown, return_counts=True)
    order = np.lexsort((procedure, -count))
    return [(int(procedure[i]), float(count[i] / len(shown))) for i in order]


def best_depth(db: Database, nodes: U32) -> int:
    """The depth that tells most at a glance.

    The outer frames are start-up code all samples share; far inside, everything differs. Taken is
    the shallowest depth with three quarters of the variety (entropy over pixels) that any depth
    up to 20 has. Variety is counted in the program's own procedures, frames of libraries and of the
    kernel being their callers' affair: how MPI waits tells less than where the program called it.
    """
    shown = nodes[nodes != NO_NODE]
    deepest = int(db.cct.depth()[shown].max(initial=1))
    nodes_seen, pixels = np.unique(shown, return_counts=True)
    own = innermost(db.cct, _own_nodes(db))
    variety = []
    for depth in range(1, min(deepest, 20) + 1):
        procedure = db.procedure_of_node[own[db.cct.ancestor_at(depth)[nodes_seen]]]
        count = np.bincount(procedure, pixels)
        part = count[count > 0] / max(len(shown), 1)
        variety.append(float(-(part * np.log2(part)).sum()))
    if not variety or max(variety) == 0:
        return 1
    return next(
        depth for depth, entropy in enumerate(variety, 1) if entropy >= _INTERESTING * max(variety)
    )


def _own_nodes(db: Database) -> Mask:
    """``bool[nodes]``: contexts in the program's own code; all where it has none."""
    of_module = np.array(
        [False, *(is_program_code(row.path, row.kind) for row in db.modules)], bool
    )
    own: Mask = of_module[db.procedures.module[db.procedure_of_node]]
    return own if bool(own.any()) else np.ones(len(own), bool)
