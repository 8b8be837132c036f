"""From sampled CCT nodes to the procedures a picture shows at one depth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpcd.analysis import Database
from hpcd.analysis.parallel.program_code import program_contexts
from hpcd.analysis.parallel.tree_matching import innermost
from hpcd.analysis.profile.working_lines import working_lines
from hpcd.array_types import I64, U32, Mask
from hpcd.model import frame
from hpcd.model.cct import NO_NODE
from hpcd.viewer.marks import BLOCKED, INTERRUPT, marks

NO_PROCEDURE = np.uint32(0xFFFFFFFF)
# A depth tells enough with this part of the variety that any has.
_INTERESTING = 0.75
_DEEPEST_DEFAULT = 20
# An executable's first procedure, and the C library's that it calls, which calls main.
_ENTRIES = ("_start", "_dl_start_user")
_STARTS_MAIN = "__libc_start_main"
# Of depths to choose from: how deep, by how large a picture, and how many procedures are named.
_DEEPEST_CHOICE, _ROWS, _COLUMNS, _SHOWN = 60, 200, 400, 3


def procedures_at(db: Database, nodes: U32, depth: int) -> U32:
    """Procedure of each pixel at call path depth ``depth`` (1: outermost); same shape.

    A path that is shallower shows its deepest frame (ICS 2011, section 5.1). NO_PROCEDURE where
    there is no path. Procedures of one name are one: code made at run time is a module of each
    process. One table over the CCT, one gather over the pixels.
    """
    table = _first_of_name(db)[db.procedure_of_node[db.cct.ancestor_at(depth)]]
    shown = nodes != NO_NODE
    picture = np.full(nodes.shape, NO_PROCEDURE, np.uint32)
    picture[shown] = table[nodes[shown]]
    return picture


def without_preemption(db: Database, nodes: U32) -> U32:
    """``nodes`` (any shape) with those of preempted threads replaced by where these stood.

    A thread that is not running below an interrupt's entry has lost its CPU: what it does is what
    it did before. The path main > solve > asm_sysvec_apic_timer_interrupt [k] > schedule [k]
    becomes main > solve; that it does not run is shown by marks, of the nodes as they were.
    """
    mark = marks(db.procedure_names)[db.procedure_of_node]
    entry = innermost(db.cct, mark == INTERRUPT)
    # Parents have lower numbers: the thread stopped running below the entry.
    preempted = (entry > 0) & (innermost(db.cct, mark == BLOCKED) > entry)
    table = np.where(preempted, db.cct.parent[entry], np.arange(len(db.cct))).astype(np.uint32)
    shown = nodes != NO_NODE
    result = nodes.copy()
    result[shown] = table[nodes[shown]]
    return result


def _first_of_name(db: Database) -> U32:
    """For each procedure the first that has its name."""
    first: dict[str, int] = {}
    return np.array(
        [first.setdefault(name, at) for at, name in enumerate(db.procedure_names)], np.uint32
    )


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


def best_depth(db: Database, nodes: U32, lines: Sequence[int] | I64) -> int:
    """The depth that tells most at a glance of ``nodes`` ``uint32[h, w]`` of ``lines`` ``[h]``.

    The outer frames are start-up code all samples share; far inside, everything differs. Taken is
    the shallowest depth with three quarters of the variety (entropy over pixels) that any depth
    up to 20 has. Variety is counted in the program's own procedures, frames of libraries and of the
    kernel being their callers' affair: how MPI waits tells less than where the program called it.
    It is the variety within programs: that the outermost frames of a launcher differ from those of
    its ranks, labels tell. Truncated paths, and those without any own frame, do not count.
    """
    return most_telling(_varieties(db, nodes, lines, _DEEPEST_DEFAULT))


def most_telling(varieties: Sequence[float]) -> int:
    """The depth :func:`best_depth` takes of those from 1 on with these varieties."""
    considered = varieties[:_DEEPEST_DEFAULT]
    most = max(considered, default=0.0)
    if most == 0:
        return 1
    return next(at for at, variety in enumerate(considered, 1) if variety >= _INTERESTING * most)


def depth_contents(
    db: Database, nodes: U32, lines: Sequence[int] | I64, deepest: int
) -> list[DepthContent]:
    """Return the figures of each depth for ``nodes`` of ``lines``, from 1 on, down to ``deepest``
    or the deepest path; preempted threads where they stood. O(pixels + distinct nodes · depths).
    """
    nodes = without_preemption(db, nodes)
    distinct, pixels = np.unique(nodes[nodes != NO_NODE], return_counts=True)
    varieties = _varieties(db, nodes, lines, deepest)
    procedure_of_node = _first_of_name(db)[db.procedure_of_node]
    contents = []
    for depth, ancestor in enumerate(db.cct.ancestors(distinct, len(varieties)), 1):
        procedure, which = np.unique(procedure_of_node[ancestor], return_inverse=True)
        count = np.bincount(which, pixels, len(procedure)).astype(np.int64)
        contents.append(DepthContent(depth, varieties[depth - 1], _largest_first(procedure, count)))
    return contents


def _varieties(db: Database, nodes: U32, lines: Sequence[int] | I64, deepest: int) -> list[float]:
    program = db.lines.texts("process")[1][np.asarray(lines, np.int64)].astype(np.int64)
    own = innermost(db.cct, program_contexts(db) & ~_start_up(db))
    shown = nodes != NO_NODE
    deepest = min(int(db.cct.depth()[nodes[shown]].max(initial=0)), deepest)
    counted = (own > 0) & ~frame.is_marker(db.cct.frame[db.cct.ancestor_at(1)])
    shown[shown] = counted[nodes[shown]]
    if not bool(shown.any()):
        return [0.0] * deepest
    # Pixels by program and node: few kinds of many.
    key, pixels = np.unique(
        (np.broadcast_to(program[:, None], nodes.shape) * len(db.cct))[shown] + nodes[shown],
        return_counts=True,
    )
    program, node = key // len(db.cct), key % len(db.cct)
    share = pixels / pixels.sum()
    of_program = np.bincount(program, share)
    procedures = len(db.procedure_names)
    varieties = []
    for ancestor in db.cct.ancestors(node, deepest):
        procedure = db.procedure_of_node[own[ancestor]]
        both, of_both = np.unique(program * procedures + procedure, return_inverse=True)
        part = np.bincount(of_both, share)
        bits = (part * np.log2(of_program[both // procedures] / part)).sum()
        varieties.append(max(0.0, float(bits)))
    return varieties


def _start_up(db: Database) -> Mask:
    """``bool[nodes]``: the executable's code that has main called, by name or by what it calls."""
    of_procedure = np.array([name in _ENTRIES for name in db.procedure_names], bool)
    calls_main = np.array([name.startswith(_STARTS_MAIN) for name in db.procedure_names], bool)
    entries: Mask = of_procedure[db.procedure_of_node]
    entries[db.cct.parent[calls_main[db.procedure_of_node]]] = True
    outermost: Mask = entries & (db.cct.depth() == 1)
    return outermost


def depth_choice(db: Database) -> dict[str, object]:
    """Return what the choice of a depth shows: ``best``, and of each of ``depths`` its ``variety``
    in bits, how many ``procedures`` it shows, and ``shown``, the names and shares of the largest.

    Of the whole recording's working lines, sampled.
    """
    lines = np.flatnonzero(working_lines(db))
    contents: list[DepthContent] = []
    if len(lines) and db.duration_ns > 0:
        chosen = db.sample_lines(lines, _ROWS)
        nodes = db.sample_grid(chosen, 0, db.duration_ns, len(chosen), _COLUMNS)
        contents = depth_contents(db, nodes, chosen, _DEEPEST_CHOICE)
    names = db.procedure_names
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
