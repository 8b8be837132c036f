"""The code of a database that is the program's own: its load modules, procedures and contexts.

Python's interpreter and what is installed for it serve a program that has code beside them, and are
the program where it has none.
"""

from __future__ import annotations

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.roles.program_modules import is_program_code
from hpcd.analysis.roles.role import NameRole, have
from hpcd.array_types import Mask


def program_modules(db: Database) -> Mask:
    """``bool[modules + 1]``: the load modules, by number, that are the program's own code."""
    for installed in (False, True):
        modules = (is_program_code(row.path, row.kind, installed=installed) for row in db.modules)
        own = np.array([False, *modules], bool)
        if own.any():
            break
    return own


def program_procedures(db: Database) -> Mask:
    """``bool[procedures]``: the program's own procedures. Stubs, by which it calls a library,
    are not."""
    return program_modules(db)[db.procedures.module] & ~have(db.roles, NameRole.STUB)


def program_contexts(db: Database) -> Mask:
    """``bool[nodes]``: contexts with names in the program's own code.

    In a module that was stripped, where fewer have a name than not, all of them: those of its entry
    point and ``main``, which have their names in any case, are not counted. All contexts where the
    program has no code of its own.
    """
    module = db.procedures.module[db.procedure_of_node]
    own: Mask = program_procedures(db)[db.procedure_of_node]
    weights = np.array([_weight(name) for name in db.procedures.name], np.int64)
    weight = weights[db.procedure_of_node]
    balance = np.bincount(module[own], weight[own], len(db.modules) + 1)
    own &= (weight <= 0) | (balance > 0)[module]
    return own if bool(own.any()) else np.ones(len(own), bool)


def _weight(name: str) -> int:
    """Return 1 for a name that only a stripped module has, -1 for one it cannot have, else 0."""
    return 1 if name.startswith("[") else 0 if name in ("_start", "main") else -1
