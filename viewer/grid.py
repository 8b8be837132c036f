"""From sampled CCT nodes to the procedures a picture shows at one depth."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hpcd.analysis import Database
from hpcd.model.cct import NO_NODE

U32 = npt.NDArray[np.uint32]

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
    up to 20 has.
    """
    deepest = int(db.cct.depth()[nodes[nodes != NO_NODE]].max(initial=1))
    variety = []
    for depth in range(1, min(deepest, 20) + 1):
        part = np.array([share for _, share in shares(procedures_at(db, nodes, depth))])
        variety.append(float(-(part * np.log2(part)).sum()) if len(part) else 0.0)
    if not variety or max(variety) == 0:
        return 1
    return next(
        depth for depth, each in enumerate(variety, 1) if each >= _INTERESTING * max(variety)
    )
