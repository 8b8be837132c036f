"""Names of calling contexts, with functions inlined at their addresses."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hpcd.analysis.database import Database
from hpcd.array_types import I64
from hpcd.model.cct import nearest_chosen
from hpcd.model.scope import ScopeKind

CALLS_AND_LOOPS = (ScopeKind.INLINED, ScopeKind.LOOP)
"""The kinds of scopes that may become contexts: statements are too fine."""


class ContextNames:
    """Names of contexts: the function inlined at a context's address, as ``force [inlined]``, or
    else its procedure's display name.

    ``label`` ``int64[nodes]`` is the index of each context's name in ``labels``, of which equal
    ones are one. O(n).
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        scopes, own = db.scopes, db.procedure_names
        inlined = nearest_chosen(scopes.parent, scopes.kind == ScopeKind.INLINED)
        numbers: dict[str, int] = {}
        names = [*own, *(f"{name} [inlined]" for name in scopes.name)]
        number = np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int64)
        inside = inlined[db.scope_of_node].astype(np.int64)
        self.label: I64 = number[np.where(inside > 0, len(own) + inside, db.procedure_of_node)]
        self.labels = list(numbers)

    def path(self, nodes: Iterable[int]) -> list[str]:
        """Return the names of contexts that call one another, the outermost first: of each its
        procedure, then what is inlined there."""
        names, procedure = self._db.procedure_names, self._db.procedure_of_node
        pairs = ((names[procedure[at]], self.labels[self.label[at]]) for at in nodes)
        return [name for pair in pairs for name in dict.fromkeys(pair)]
