"""Names of calling contexts, with functions inlined at their addresses."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.roles.role import NameRole, have
from hpcd.analysis.roles.role_table import role_table
from hpcd.array_types import I64
from hpcd.model.cct import nearest_chosen
from hpcd.model.scope import INLINED_ENDING, ScopeKind

CALLS_AND_LOOPS = (ScopeKind.INLINED, ScopeKind.LOOP)
"""The kinds of scopes that may become contexts: statements are too fine."""

_FILES_CODE = "<module>"


def _file_name(db: Database, procedure: int) -> str:
    """Return the name of a procedure's file; of none, as of ``python -c``, what Python calls it."""
    number = int(db.procedures.module[procedure])
    name = PurePath(db.modules[number - 1].path).name if number else ""
    return name if name and not name.startswith("<") else _FILES_CODE


class ContextNames:
    """Names of contexts: the function inlined at a context's address, as ``force [inlined]``, or
    else its procedure's display name; of a Python file's own code the file's.

    Inlined code of a language's library has no name: it works for what it is inlined in.
    ``label`` ``int64[nodes]`` is the index of each context's name in ``labels``, of which equal
    ones are one. O(n).
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        scopes = db.scopes
        own = [
            _file_name(db, number) if name == _FILES_CODE else name
            for number, name in enumerate(db.procedure_names)
        ]
        library = have(role_table().of_labels(scopes.name), NameRole.HEADER)
        inlined = nearest_chosen(scopes.parent, (scopes.kind == ScopeKind.INLINED) & ~library)
        numbers: dict[str, int] = {}
        names = [*own, *(f"{name}{INLINED_ENDING}" for name in scopes.name)]
        number = np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int64)
        inside = inlined[db.scope_of_node].astype(np.int64)
        self.label: I64 = number[np.where(inside > 0, len(own) + inside, db.procedure_of_node)]
        self.labels = list(numbers)
        self._of_procedure = number[: len(own)]
        labels = [name.removesuffix(INLINED_ENDING) for name in self.labels]
        self.library = have(role_table().of_labels(labels), NameRole.HEADER)
        """``bool[labels]``: names of a language's library, which is part of each program."""

    def path(self, nodes: Iterable[int]) -> list[str]:
        """Return the names of contexts that call one another, the outermost first: of each its
        procedure, unless it is a library's that something is inlined in, then what is."""
        names = list[str]()
        for at in nodes:
            outer, label = self._of_procedure[self._db.procedure_of_node[at]], self.label[at]
            names += [self.labels[outer]] * bool(outer != label and not self.library[outer])
            names.append(self.labels[label])
        return names
