"""Which load modules are the program's own code, and which serve it.

Parallel programs keep their code in libraries (GROMACS, LAMMPS, PETSc, OpenFOAM, Python packages),
so the executable alone is not the program. Modules of the system, of run-time systems, of MPI and
of numerical libraries are told by their names (:mod:`hpcd.analysis.roles`); every other module is
the program's own, and what users say is.
"""

from __future__ import annotations

import re
from pathlib import PurePath

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.roles.role import NameRole, have
from hpcd.analysis.roles.role_table import role_table
from hpcd.array_types import Mask
from hpcd.model.identity import ModuleKind

# Of Python: what is installed for all, but for packages; and what the interpreter brings in itself.
_STANDARD_LIBRARY = re.compile(r"/python3\.\d+t?/(?!(site|dist)-packages/)|^<frozen ")
_NOT_OWN = NameRole.C_LIBRARY | NameRole.OPENMP | NameRole.SUPPORT


def is_program_code(path: str, kind: str) -> bool:
    """Whether a load module is the program's own code."""
    if kind == ModuleKind.PYTHON:
        return not _STANDARD_LIBRARY.search(path)
    if kind not in (ModuleKind.ELF, ModuleKind.JIT, ModuleKind.NAMED):
        return False
    name = PurePath(path.removesuffix(" (deleted)")).name
    if name in ("[vdso]", "[vsyscall]"):  # as other tools call what has a kind of its own
        return False
    roles = role_table().of_module(path)
    return bool(roles & NameRole.PROGRAM) or not roles & _NOT_OWN


def program_procedures(db: Database) -> Mask:
    """``bool[procedures]``: those of the program's own code. Stubs, by which it calls a library,
    are not."""
    modules = np.array([False, *(is_program_code(row.path, row.kind) for row in db.modules)], bool)
    return modules[db.procedures.module] & ~have(db.roles, NameRole.STUB)


def program_contexts(db: Database) -> Mask:
    """``bool[nodes]``: contexts in the program's own code, those that have names.

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
