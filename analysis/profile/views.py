"""Profile views of a database: top-down, bottom-up, flat, by line, by loop.

The canonical tree has a node per address; views are about procedures. Calls from several lines of a
procedure to one callee become one node, unless addresses are requested. Where a module's structure
is known, inlined calls and loops are nodes too, between a procedure and what it calls
(:mod:`hpcd.analysis.profile.entities`). Each view is a tree in columns, built in bulk; nothing
here walks nodes one by one.

A procedure may be on a path several times. Its inclusive cost counts each record once: only the
outermost of nested instances is added (Adhianto et al., HPCToolkit, CCPE 2010, section 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.database import Database
from hpcd.analysis.profile.entities import Entities, entities, scoped_tree
from hpcd.analysis.profile.filters import Filter
from hpcd.analysis.profile.formula import Formula
from hpcd.analysis.profile.marked_phases import MarkedPhases
from hpcd.analysis.profile.split_contexts import split_contexts
from hpcd.array_types import F64, I64, U32, U64, Mask
from hpcd.distinct import begins_run
from hpcd.errors import UsageError
from hpcd.masks import marked
from hpcd.model.cct import CCT
from hpcd.model.cct_union import collapse
from hpcd.model.scope import ScopeKind

VIEWS = ("top-down", "bottom-up", "flat")
SCOPE_VIEWS = (*VIEWS, "lines", "loops")
"""Those of :func:`make_view`."""

# The kinds of scope between a procedure and its callees.
_SCOPES = {
    "top-down": (ScopeKind.INLINED, ScopeKind.LOOP),
    "bottom-up": (ScopeKind.INLINED,),
    "flat": (ScopeKind.INLINED,),
    "lines": (ScopeKind.STATEMENT,),
    "loops": (ScopeKind.LOOP,),
}
# Views in which a procedure is not below what called it.
_REARRANGED = ("bottom-up", "flat", "lines", "loops")
# Headings that differ from a view's name: a trace line is not a source line.
_TITLES = {"lines": "source lines"}
# A hot path ends where no child has this share of its parent's cost.
_HOT_SHARE = 0.5


@dataclass(frozen=True)
class View:
    """A profile as a tree; node 0 is the whole, parents precede children, siblings are adjacent.

    ``parent``, ``procedure`` ``uint32[n]``, numbers of ``entities`` where these are given;
    ``frame`` ``uint64[n]`` when nodes are addresses;
    ``exclusive`` and ``inclusive`` ``float64[metrics, n]``. In bottom-up views a node's children
    are its callers and its costs those of the procedure at the top when called that way.
    ``omitted`` counts contexts left out because they were below the cut-off. ``derived`` are the
    last metrics, after the database's.
    """

    kind: str
    parent: U32
    procedure: U32
    exclusive: F64
    inclusive: F64
    frame: U64 | None = None
    omitted: int = 0
    entities: Entities | None = None
    derived: tuple[Formula, ...] = ()

    def __len__(self) -> int:
        return len(self.parent)

    @property
    def title(self) -> str:
        """Heading of a table or picture of the view."""
        return _TITLES.get(self.kind, self.kind)

    @property
    def is_top_down(self) -> bool:
        """Whether a node's children are its callees and contents."""
        return self.kind not in _REARRANGED

    @property
    def total(self) -> F64:
        """``float64[metrics]``: cost of everything."""
        total: F64 = self.inclusive[:, 0]
        return total

    def cost(self, metric: int) -> F64:
        """``float64[n]``: what nodes are ordered by; inclusive top-down and of loops."""
        by = self.inclusive if self.is_top_down or self.kind == "loops" else self.exclusive
        cost: F64 = by[metric]
        return cost


def make_view(
    db: Database,
    kind: str,
    *,
    metric: int = 0,
    share: float = 0.0,
    depth: int | None = None,
    addresses: bool = False,
    only: Filter | None = None,
    derived: Sequence[Formula] = (),
    split: MarkedPhases | None = None,
    nameless: bool = True,
) -> View:
    """The view named ``kind`` (of :data:`SCOPE_VIEWS`) of the costs that pass ``only``.

    Inlined calls and loops are nodes, unless ``addresses`` are. ``share`` (of the total of
    ``metric``, one of the database's) and ``depth`` spare views the work of what will not be shown;
    only the bottom-up view has use for them. ``split`` splits contexts of :data:`VIEWS` by phases.
    Without ``nameless`` procedures that have no names share a row for each module and caller.
    Raises :class:`UsageError`.
    """
    only = only or Filter()
    if split is not None:
        if kind not in VIEWS:
            raise UsageError(f"contexts are split by phases in the views {', '.join(VIEWS)} only")
        basis = contexts(db, kind, nameless=nameless)
        return with_derived(
            _split_view(db, basis, kind, split, only, metric, share, depth), derived
        )
    exclusive = only.exclusive(db)
    if kind == "top-down" and addresses:
        view = replace(
            _whole_view(kind, db.cct, exclusive), procedure=db.procedure_of_node, frame=db.cct.frame
        )
    else:
        basis = contexts(db, kind, nameless=nameless)
        view = view_over(basis, exclusive, kind)
        if kind in ("flat", "bottom-up"):
            view = by_caller(view, kind, metric=metric, share=share, depth=depth)
        elif kind in ("lines", "loops"):
            view = _side_by_side(db, basis, view, kind)
    return with_derived(view, derived)


def _split_view(
    db: Database,
    basis: ViewTree,
    kind: str,
    split: MarkedPhases,
    only: Filter,
    metric: int,
    share: float,
    depth: int | None,
) -> View:
    tree, known, own = split_contexts(db, basis.tree, basis.entities, basis.place, split, only)
    view = _whole_view(kind, tree, own, known)
    if kind == "top-down":
        return view
    return by_caller(view, kind, metric=metric, share=share, depth=depth)


@dataclass(frozen=True)
class ViewTree:
    """The tree a view is made of: ``tree``'s frames are ``entities``.

    ``place`` ``uint32[nodes]``: where in it the own cost of each context of the database belongs.
    ``listed`` ``bool[entities]``: what the view has rows of whatever it cost itself; in views of
    lines and of loops there are others in the tree.
    """

    tree: CCT
    entities: Entities
    place: U32
    listed: Mask


def contexts(db: Database, kind: str, *, nameless: bool = True) -> ViewTree:
    """The tree of the view named ``kind``, one of :data:`SCOPE_VIEWS`. Raises :class:`UsageError`.

    For ``nameless`` see :func:`make_view`; loops are listed whatever it is. O(n · log n) of the
    database's contexts.
    """
    if kind not in _SCOPES:
        raise UsageError(f"no view {kind}; there are {', '.join(SCOPE_VIEWS)}")
    merged = kind in ("flat", "bottom-up")
    all_entities = entities(db, merged=merged, nameless=nameless or kind == "loops")
    whole, place = scoped_tree(db, all_entities, _SCOPES[kind])
    tree, node_of = collapse(whole, whole.frame)
    listed = np.ones(len(all_entities), bool)
    if kind == "lines":
        placed = marked(len(all_entities), db.procedure_of_node[db.scope_of_node > 0])
        listed = (all_entities.kind == ScopeKind.STATEMENT) | all_entities.is_procedure & ~placed
    elif kind == "loops":
        listed = all_entities.kind == ScopeKind.LOOP
    return ViewTree(tree, all_entities, node_of[place], listed)


def view_over(basis: ViewTree, exclusive: F64, kind: str = "top-down") -> View:
    """Return the tree of a view as it is, callers above callees, with ``exclusive`` costs.

    ``exclusive`` is ``float64[metrics, contexts]``, a profile of the database.
    """
    own = sum_by(basis.place, exclusive, len(basis.tree))
    return _whole_view(kind, basis.tree, own, basis.entities)


def _side_by_side(db: Database, basis: ViewTree, down: View, kind: str) -> View:
    """All lines, and procedures of unknown lines; or all loops.

    A line's inclusive cost is that of the calls made there too; a loop's exclusive cost that of
    its own code outside of inner loops, inlined calls included. Raises :class:`UsageError` where
    no loop is known.
    """
    all_entities = basis.entities
    if kind == "loops" and not bool(basis.listed.any()):
        raise UsageError(f"{db.path}: no loops are known: no code that ran could be read")
    view = by_caller(down, kind)
    shown = basis.listed[view.procedure]
    if kind == "lines":
        # Code whose line is unknown leaves its cost with the procedure.
        shown |= all_entities.is_procedure[view.procedure] & view.exclusive.any(axis=0)
    shown[0] = True
    return replace(
        view,
        parent=view.parent[shown],
        procedure=view.procedure[shown],
        exclusive=view.exclusive[:, shown],
        inclusive=view.inclusive[:, shown],
    )


def view_of_several(
    tree: CCT,
    label: U32,
    cost: F64,
    kind: str,
    *,
    more: Sequence[F64] = (),
    share: float,
    depth: int | None,
) -> View:
    """A view (of :data:`VIEWS`) of ``tree`` with costs of several runs.

    ``label`` ``uint32[n]`` is the procedure of each node, ``cost`` ``float64[runs, n]``; ``more``
    rows follow those, then what the view is cut by, the sum of all runs' shares. What cost no run
    ``share`` of its total may be left out. Raises :class:`UsageError`.
    """
    total = cost.sum(axis=1, keepdims=True)
    shares = np.divide(cost, total, out=np.zeros_like(cost), where=total != 0)
    own = np.concatenate([cost, *more, shares.sum(axis=0, keepdims=True)])
    down = replace(_whole_view("top-down", tree, own), procedure=label)
    if kind == "top-down":
        return down
    if kind not in VIEWS[1:]:
        raise UsageError(f"no view {kind}; there are {', '.join(VIEWS)}")
    return by_caller(down, kind, metric=len(own) - 1, share=share / len(cost), depth=depth)


def with_derived(view: View, derived: Sequence[Formula]) -> View:
    """``view`` with metrics by formula after the others."""
    if not derived:
        return view
    both = [
        np.concatenate([costs, [formula.evaluate(costs) for formula in derived]])
        for costs in (view.exclusive, view.inclusive)
    ]
    return replace(view, exclusive=both[0], inclusive=both[1], derived=tuple(derived))


def hot_path(view: View, metric: int) -> list[int]:
    """The nodes from the whole down to where the cost is: always the costliest child.

    Ends where that has less than half of its parent's. Costs are :meth:`View.cost`. O(n).
    """
    cost = view.cost(metric)
    path = [0]
    order = np.argsort(view.parent[1:], kind="stable") + 1
    first = np.searchsorted(view.parent[order], np.arange(len(view) + 1))
    while True:
        node = path[-1]
        children = order[first[node] : first[node + 1]]
        if not len(children):
            return path
        best = int(children[np.argmax(cost[children])])
        # The whole has no cost of its own bottom-up: its costliest child always counts.
        if cost[best] <= 0 or (node and cost[best] < _HOT_SHARE * cost[node]):
            return path
        path.append(best)


def _whole_view(kind: str, tree: CCT, own: F64, known: Entities | None = None) -> View:
    """``tree`` with ``own`` costs ``float64[metrics, n]``; its frames are procedures."""
    return View(
        kind, tree.parent, tree.frame.astype(np.uint32), own, tree.inclusive(own), entities=known
    )


def outermost(group: I64, begin: I64, end: I64) -> Mask:
    """Which of the instances have no other of their group above them.

    ``group``, ``begin``, ``end`` ``int64[n]`` sorted by group, then ``begin``. Subtrees nest or are
    apart, so an instance lies within an earlier one of its group exactly if the furthest end so
    far is beyond its beginning.
    """
    if not len(group):
        return np.zeros(0, bool)
    span = int(end.max()) + 1
    furthest = np.maximum.accumulate(group * span + end)
    alone = np.ones(len(group), bool)
    alone[1:] = furthest[:-1] <= group[1:] * span + begin[1:]
    return alone


def by_caller(
    down: View, kind: str, *, metric: int = 0, share: float = 0.0, depth: int | None = None
) -> View:
    """Group the nodes of ``down`` by procedure; of the view bottom-up then by caller, by caller's
    caller, and so on.

    ``down`` is a top-down view, its nodes numbered by levels with siblings adjacent; the result is
    one of kind ``kind``. For ``metric``, ``share``, ``depth`` see :func:`make_view`.
    """
    depth = depth if kind == "bottom-up" else 1
    tree = CCT(down.parent, down.procedure.astype(np.uint64))
    begin, end = tree.preorder()
    cut = share * float(down.total[metric])
    # Instances in depth-first order; stable sorts keep it within groups.
    walk = np.argsort(begin)[1:]
    node = walk[down.inclusive[:, walk].any(axis=0)]
    caller = node
    above = np.zeros(len(node), np.int64)
    parents = [np.zeros(1, np.int64)]
    procedures = [np.zeros(1, np.uint32)]
    own = [down.total[:, None] * 0]
    whole = [down.total[:, None]]
    total = 1
    omitted = 0
    level = 0
    while len(node) and (depth is None or level < depth):
        level += 1
        key = above << np.int64(32) | down.procedure[caller]
        order = np.argsort(key, kind="stable")
        node, caller, key = node[order], caller[order], key[order]
        first = np.flatnonzero(begins_run(key))
        group = np.repeat(np.arange(len(first)), np.diff(first, append=len(key)))
        counted = outermost(group, begin[node], end[node])
        exclusive = np.add.reduceat(down.exclusive[:, node], first, axis=1)
        inclusive = sum_by(group[counted], down.inclusive[:, node[counted]], len(first))
        shown = exclusive[metric] >= cut if cut > 0 else np.ones(len(first), bool)
        omitted += int(len(first) - shown.sum())
        number = np.cumsum(shown) - 1 + total
        parents.append((key[first] >> np.int64(32))[shown])
        procedures.append((key[first] & np.int64(0xFFFFFFFF)).astype(np.uint32)[shown])
        own.append(exclusive[:, shown])
        whole.append(inclusive[:, shown])
        total += int(shown.sum())
        goes_on = shown[group] & (down.parent[caller] != 0)
        node, caller = node[goes_on], down.parent[caller[goes_on]].astype(np.int64)
        above = number[group[goes_on]]
    return View(
        kind,
        np.concatenate(parents).astype(np.uint32),
        np.concatenate(procedures),
        np.concatenate(own, axis=1),
        np.concatenate(whole, axis=1),
        omitted=omitted,
        entities=down.entities,
    )
