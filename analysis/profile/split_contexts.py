"""Calling contexts split by the phases they cost something in: ``solve [n=3]``, ``solve [n=4]``.

The context that marks a phase, and all below it, is there once for each group of phases. What a
phase costs on paths that do not lead through such a context hangs below the phase's name.
"""

from __future__ import annotations

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.database import Database
from hpcd.analysis.profile.entities import Entities
from hpcd.analysis.profile.filters import Filter
from hpcd.analysis.profile.marked_phases import MarkedPhases
from hpcd.analysis.profile.phase_costs import phase_costs
from hpcd.array_types import F64, I64, U32, Mask
from hpcd.distinct import distinct
from hpcd.model.cct import CCT
from hpcd.model.cct_union import collapse
from hpcd.model.scope import ScopeKind

# Lines whose costs wait to be added up.
_PENDING = 64


def split_contexts(
    db: Database, tree: CCT, entities: Entities, place: U32, phases: MarkedPhases, only: Filter
) -> tuple[CCT, Entities, F64]:
    """``tree``, whose frames are ``entities``, split by ``phases``; the entities of the result, and
    ``float64[metrics, nodes]``: what its nodes cost themselves of what fits ``only``.

    ``place`` ``uint32[nodes]``: where in ``tree`` each context of the database is. O(records of the
    lines with phases), and for each group of phases the contexts that have costs in it.
    """
    group, node, part = _costs_in_phases(db, phases, only)
    split = _Split(tree, entities, phases)
    whole, at = split.tree(group, place[node].astype(np.int64))
    costs = []
    for all_of_it, moved in zip(only.exclusive(db), part, strict=True):
        # What lies in a phase stands there, and not where it would else.
        rest = all_of_it - sum_by(node, moved, len(all_of_it))
        row = sum_by(place, np.maximum(rest, 0), len(whole))
        costs.append(row + sum_by(at, moved, len(whole)))
    smaller, to = collapse(whole, whole.frame)
    return smaller, split.entities(), sum_by(to, np.stack(costs), len(smaller))


def _costs_in_phases(db: Database, phases: MarkedPhases, only: Filter) -> tuple[I64, I64, F64]:
    """Costs of contexts in phases: ``group`` and ``node`` ``int64[n]``, each pair once, and
    ``float64[metrics, n]``."""
    selected, fits = only.lines(db), only.contexts(db)
    lines = [line for line in phases.lines.tolist() if selected[line]]
    keys: list[I64] = [np.zeros(0, np.int64)]
    costs: list[F64] = [np.zeros((len(db.metrics.names), 0))]
    for line in phase_costs(db, lines, only.time_in(db, phases.segments), len(phases)):
        inside = fits[line.node]
        keys.append((line.group * len(db.cct) + line.node)[inside])
        costs.append(line.cost[:, inside])
        if len(keys) > _PENDING:
            key, cost = _added(keys, costs)
            keys, costs = [key], [cost]
    key, cost = _added(keys, costs)
    return key // len(db.cct), key % len(db.cct), cost


def _added(keys: list[I64], costs: list[F64]) -> tuple[I64, F64]:
    distinct, place = np.unique(np.concatenate(keys), return_inverse=True)
    return distinct, sum_by(place, np.concatenate(costs, axis=1), len(distinct))


class _Split:
    """Makes the larger tree, and the entities of its new nodes."""

    def __init__(self, tree: CCT, entities: Entities, phases: MarkedPhases) -> None:
        self._tree = tree
        self._entities = entities
        self._phases = phases
        self._family = np.array(phases.family)
        self._names: list[str] = []
        self._owners: list[int] = []
        self._numbers: dict[tuple[int, int], int] = {}

    def tree(self, group: I64, node: I64) -> tuple[CCT, I64]:
        """The tree with each ``node[i]`` in ``group[i]``, and where in it these are, ``int64[n]``.

        Its first nodes are those of the tree as it was. O(n · depth).
        """
        size = len(self._tree)
        keys = [np.zeros(0, np.int64)]
        heads = [np.zeros(0, bool)]
        for family in np.unique(self._family[group]).tolist():
            head = self._heads(family)
            mine = self._family[group] == family
            selected = distinct(group[mine] * size + node[mine])
            above = selected
            while len(above):
                # Up to the context that marks the phase; without one up to the root.
                above = above[~head[above % size]]
                above = distinct(above - above % size + self._tree.parent[above % size])
                selected = np.concatenate([selected, above])
            keys.append(distinct(selected))
            heads.append(head[keys[-1] % size])
        key, is_head = np.concatenate(keys), np.concatenate(heads)
        order = np.argsort(key)
        key, is_head = key[order], is_head[order]
        of, at = key // size, key % size
        parent = self._tree.parent[at].astype(np.int64)
        inner = ~is_head
        parent[inner] = size + np.searchsorted(key, (key - at + parent)[inner])
        label = self._tree.frame[at].copy()
        for number in np.flatnonzero(is_head).tolist():
            label[number] = self._entity(int(of[number]), int(at[number]))
        tree = CCT(
            np.concatenate([self._tree.parent, parent.astype(np.uint32)]),
            np.concatenate([self._tree.frame, label]),
        )
        return tree, size + np.searchsorted(key, group * size + node)

    def entities(self) -> Entities:
        """The earlier entities, and the entities of contexts that mark phases."""
        old, more = self._entities, len(self._names)
        owners = np.array(self._owners, np.int64)
        return Entities(
            np.append(old.kind, np.full(more, ScopeKind.PROCEDURE, np.uint8)),
            old.name + self._names,
            np.append(old.procedure, owners.astype(np.uint32)),
            old.file + [old.file[owner] for owner in self._owners],
            np.append(old.line, old.line[owners]).astype(np.uint32),
            old.of_procedure,
            np.append(old.shared, np.zeros(more, bool)),
            old.of_scope,
        )

    def _heads(self, family: int) -> Mask:
        """``bool[nodes]``: contexts that mark phases of ``family``, and the root."""
        marking = np.zeros(len(self._entities), bool)
        procedures = self._phases.procedures(family)
        marking[: len(procedures)] = procedures
        heads: Mask = marking[self._tree.frame]
        heads[0] = True
        return heads

    def _entity(self, group: int, node: int) -> int:
        """The number of what ``node`` is in ``group``."""
        owner = int(self._tree.frame[node])
        name = self._entities.name[owner]
        label = self._phases.label(group, name) if node else f"[{self._phases.name[group]}]"
        if label == name:
            return owner
        if (group, owner) not in self._numbers:
            self._numbers[group, owner] = len(self._entities) + len(self._names)
            self._names.append(label)
            self._owners.append(owner)
        return self._numbers[group, owner]
