"""Contexts that requests name: nodes and entities of the trees of views."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cached_property

import numpy as np

from hpcd.analysis import Database
from hpcd.analysis.profile.views import SCOPE_VIEWS, ViewTree, contexts
from hpcd.analysis.symbols.short_names import short_names
from hpcd.array_types import Mask
from hpcd.errors import UsageError
from hpcd.kept_answers import KeptAnswers
from hpcd.model.cct_union import collapse
from hpcd.model.scope import ScopeKind
from hpcd.viewer.picture_tree import with_places

NAMELESS = "+nameless"
"""Ends the name of a view in which procedures without names have rows of their own."""


class Trees:
    """The trees of one database's views, each made when it is first needed."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._get = KeptAnswers(self._make, 2 * len(SCOPE_VIEWS))

    @cached_property
    def files(self) -> dict[str, int]:
        """Numbers of all source files the line tables name."""
        names = {*self._db.scopes.file, *self._db.procedures.file} - {""}
        return {name: at for at, name in enumerate(sorted(names), 1)}

    def of(self, view: str) -> ViewTree:
        """The tree of a view. Raises :class:`UsageError`."""
        return self._get(view)[0]

    def labels(self, view: str) -> list[str]:
        """Return the name of each entity of a view. Raises :class:`UsageError`."""
        return self._get(view)[1]

    def by_name(self, view: str) -> ViewTree:
        """The tree of a view in which entities of the same name are one."""
        contexts_of_view, labels = self._get(view)
        first: dict[str, int] = {}
        named = (contexts_of_view.entities.kind <= ScopeKind.INLINED).tolist()
        same = [first.setdefault(label, at) if named[at] else at for at, label in enumerate(labels)]
        of_node = np.array(same, np.uint64)[contexts_of_view.tree.frame.astype(np.int64)]
        tree, node_of = collapse(contexts_of_view.tree, of_node)
        return replace(contexts_of_view, tree=tree, place=node_of[contexts_of_view.place])

    def _make(self, view: str) -> tuple[ViewTree, list[str]]:
        kind = view.removesuffix(NAMELESS)
        contexts_of_view = contexts(self._db, kind, nameless=kind != view)
        entities = contexts_of_view.entities
        names = self._db.procedure_names
        labels = with_places(self._db, [entities.label(number) for number in range(len(entities))])
        if kind in ("lines", "loops"):
            # These stand alone; elsewhere they hang below their procedure.
            for at in np.flatnonzero(~entities.is_procedure).tolist():
                labels[at] += f" in {names[int(entities.procedure[at])]}"
        return contexts_of_view, labels

    def summary(self, view: str) -> dict[str, object]:
        """Return a view's entities."""
        contexts_of_view, labels = self._get(view)
        entities = contexts_of_view.entities
        return {
            "name": labels,
            "short": short_names(labels),
            "kind": entities.kind.tolist(),
            "procedure": entities.procedure.tolist(),
            "files": ["", *self.files],
            "file": [self.files.get(path, 0) for path in entities.file],
            "line": entities.line.tolist(),
            "listed": contexts_of_view.listed.astype(np.uint8).tolist(),
            "shared": int(entities.shared.sum()),
        }

    def coloured_as(self, view: str) -> list[str]:
        """Names of procedures by which entities are coloured: their own, or that they are in."""
        entities = self.of(view).entities
        names = self._db.procedure_names
        return [
            name if kind <= ScopeKind.INLINED else names[owner]
            for name, kind, owner in zip(
                entities.name, entities.kind.tolist(), entities.procedure.tolist(), strict=True
            )
        ]

    def inside(self, context: str) -> Mask:
        """``bool[nodes]``: the database's contexts in ``context`` and all below them.

        ``n`` and node numbers between dots, of the tree from the top; ``VIEW:NAME``: what is
        called that in a view, wherever it is. Raises :class:`UsageError`.
        """
        whole = self.of("top-down")
        if re.fullmatch(r"n\d{1,9}(\.\d{1,9})*", context, re.ASCII):
            tops = np.zeros(len(whole.tree), bool)
            selected = np.array(context[1:].split("."), np.int64)
            if int(selected.max()) >= len(tops):
                raise UsageError("no such context")
            tops[selected] = True
            return whole.tree.below(tops)[whole.place]
        view, colon, name = context.partition(":")
        if not colon:
            raise UsageError("a context is n and node numbers between dots, or VIEW:NAME")
        contexts_of_view = self.of(view)
        named = np.array([label == name for label in self.labels(view)], bool)
        if not bool(named.any()):
            raise UsageError(f"no {name[:100]} in the view {view}")
        # What is called from it is inside too.
        tops = named[contexts_of_view.tree.frame.astype(np.int64)]
        tops[0] = False
        return contexts_of_view.tree.below(tops)[contexts_of_view.place]
