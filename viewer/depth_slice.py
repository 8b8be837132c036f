"""From sampled CCT nodes to the procedures a picture shows at one depth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpcd.analysis import Database
from hpcd.analysis.parallel.tree_matching import innermost
from hpcd.analysis.profile.launchers import own_lines
from hpcd.array_types import I64, U32, Mask
from hpcd.model.cct import NO_NODE
from hpcd.viewer.picture_tree import PictureTree

NO_PROCEDURE = np.uint32(0xFFFFFFFF)
# A depth tells enough with this part of the variety that any has.
_INTERESTING = 0.75
_DEEPEST_DEFAULT = 20
# Of depths to choose from: how deep, by how large a picture, and how many procedures are named.
_DEEPEST_CHOICE, _ROWS, _COLUMNS, _SHOWN = 60, 200, 400, 3


def entities_shown(shown: U32, nodes: U32) -> U32:
    """The entity of each pixel, by that of each node; NO_PROCEDURE where there is no node."""
    picture: U32 = np.take(np.append(shown, NO_PROCEDURE), nodes, mode="clip")
    return picture


def shares(picture: U32) -> list[tuple[int, float]]:
    """(procedure, share of the non-blank pixels), largest first."""
    shown = picture[picture != NO_PROCEDURE]
    return _largest_first(*np.unique(shown, return_counts=True))


def _largest_first(procedure: U32, pixels: I64) -> list[tuple[int, float]]:
    total = int(pixels.sum())
    order = np.lexsort((procedure, -pixels))
    return [(int(procedure[i]), float(pixels[i] / total)) for i in order]


@dataclass(frozen=True)
class DepthContent:
    """Figures of a picture at a call path depth: ``variety`` of the program's own procedures
    there, entropy over pixels in bits, and all ``shares`` as :func:`shares` gives them."""

    depth: int
    variety: float
    shares: list[tuple[int, float]]


def most_telling(varieties: Sequence[float]) -> int:
    """The depth that tells most at a glance, of those from 1 on with these varieties.

    The outer frames are start-up code all samples share; far inside, everything differs. Taken is
    the shallowest depth with three quarters of the variety (entropy over pixels) that any depth
    up to 20 has. Variety is counted in the program's own procedures, frames of libraries and of the
    kernel being their callers' affair: how MPI waits tells less than where the program called it.
    It is the variety within programs: that the outermost frames of a launcher differ from those of
    its ranks, labels tell. Truncated paths, and those without any own frame, do not count.
    """
    considered = varieties[:_DEEPEST_DEFAULT]
    most = max(considered, default=0.0)
    if most == 0:
        return 1
    return next(at for at, variety in enumerate(considered, 1) if variety >= _INTERESTING * most)


def depth_contents(
    db: Database, picture: PictureTree, nodes: U32, lines: Sequence[int] | I64, deepest: int
) -> list[DepthContent]:
    """Return the figures of each depth for ``nodes`` of ``lines``, from 1 on, down to ``deepest``
    or the deepest path; preempted threads where they stood. O(pixels + nodes · depths).
    """
    distinct, pixels = np.unique(nodes[nodes != NO_NODE], return_counts=True)
    varieties = _varieties(db, picture, nodes, lines, deepest)
    contents = []
    for depth, variety in enumerate(varieties, 1):
        count = np.bincount(picture.at(depth)[distinct], pixels, len(picture.names))
        shown = np.flatnonzero(count).astype(np.uint32)
        contents.append(
            DepthContent(depth, variety, _largest_first(shown, count[shown].astype(np.int64)))
        )
    return contents


def _varieties(
    db: Database, picture: PictureTree, nodes: U32, lines: Sequence[int] | I64, deepest: int
) -> list[float]:
    program = db.lines.texts("process")[1][np.asarray(lines, np.int64)].astype(np.int64)
    tree, size = picture.tree, len(picture)
    own = innermost(tree, picture.is_own[picture.entity] & ~_start_up(picture))
    shown = nodes != NO_NODE
    deepest = min(int(picture.depth[nodes[shown]].max(initial=0)), deepest)
    first = tree.ancestor_at(1)
    marker = np.array([name.startswith("[truncated") for name in picture.names], bool)
    counted = (own > 0) & ~marker[picture.entity[first]]
    shown[shown] = counted[nodes[shown]]
    if not bool(shown.any()):
        return [0.0] * deepest
    # Pixels by program and node: few kinds of many.
    key, pixels = np.unique(
        (np.broadcast_to(program[:, None], nodes.shape) * size)[shown] + nodes[shown],
        return_counts=True,
    )
    program, node = key // size, key % size
    share = pixels / pixels.sum()
    of_program = np.bincount(program, share)
    entities = len(picture.names)
    varieties = []
    for depth in range(1, deepest + 1):
        entity = picture.own_at(own, depth)[node].astype(np.int64)
        both, of_both = np.unique(program * entities + entity, return_inverse=True)
        part = np.bincount(of_both, share)
        bits = (part * np.log2(of_program[both // entities] / part)).sum()
        varieties.append(max(0.0, float(bits)))
    return varieties


def _start_up(picture: PictureTree) -> Mask:
    """``bool[nodes]``: the executable's code that has main called, by name or by what it calls."""
    entries = picture.begins[picture.entity]
    entries[picture.tree.parent[entries]] = True
    outermost: Mask = entries & (picture.tree.depth() == 1)
    return outermost


def depth_choice(db: Database, picture: PictureTree) -> dict[str, object]:
    """Return what the choice of a depth shows: ``best``, and of each of ``depths`` its ``variety``
    in bits, how many ``procedures`` it shows, and ``shown``, the names and shares of the largest.

    Of the whole recording's own lines, sampled.
    """
    lines = np.flatnonzero(own_lines(db))
    contents: list[DepthContent] = []
    if len(lines) and db.duration_ns > 0:
        selected = db.sample_lines(lines, _ROWS)
        nodes = db.sample_grid(selected, 0, db.duration_ns, len(selected), _COLUMNS)
        nodes = picture.of_pixels(nodes)
        contents = depth_contents(db, picture, nodes, selected, _DEEPEST_CHOICE)
    names = picture.short_names
    return {
        "best": most_telling([content.variety for content in contents]),
        "depths": [
            {
                "variety": round(content.variety, 3),
                "procedures": len(content.shares),
                "shown": [
                    [names[number], round(share, 4)] for number, share in content.shares[:_SHOWN]
                ],
            }
            for content in contents
        ],
    }
