"""Which load modules are the program's own code, and which serve it.

Parallel programs keep their code in libraries (GROMACS, LAMMPS, PETSc, OpenFOAM, Python packages),
so the executable alone is not the program. Modules of the system, of run-time systems, of MPI and
of numerical libraries are told by their names (:mod:`hpcd.analysis.roles`); every other module is
the program's own, and what users say is. Python's interpreter and what is installed for it serve a
program that has code beside them, and are the program where it has none.
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

# Of Python: what is installed for all, but for packages; what the interpreter brings in itself; and
# functions that were gone before their file was known.
_STANDARD_LIBRARY = re.compile(r"/python3\.\d+t?/(?!(site|dist)-packages/)|^<frozen |^\[python\]$")
# By which the commands of packages begin.
_COMMAND = re.compile(r"/bin/[^/]+$")
_NOT_OWN = NameRole.C_LIBRARY | NameRole.OPENMP | NameRole.SUPPORT
_INSTALLED = NameRole.PACKAGE | NameRole.PYTHON


def is_program_code(path: str, kind: str, *, installed: bool = False) -> bool:
    """Whether a load module is the program's own code; ``installed`` is whether packages of Python,
    extensions in C and the interpreter count as such."""
    if kind not in (ModuleKind.ELF, ModuleKind.JIT, ModuleKind.NAMED, ModuleKind.PYTHON):
        return False
    if kind == ModuleKind.PYTHON and (
        _STANDARD_LIBRARY.search(path) or (_COMMAND.search(path) and not installed)
    ):
        return False
    name = PurePath(path.removesuffix(" (deleted)")).name
    if name in ("[vdso]", "[vsyscall]"):  # as other tools call what has a kind of its own
        return False
    roles = role_table().of_module(path)
    served = _NOT_OWN if installed else _NOT_OWN | _INSTALLED
    return bool(roles & NameRole.PROGRAM) or not roles & served


def program_modules(db: Database) -> Mask:
    """``bool[modules + 1]``: the load modules, by number, that are the program's own code."""
    for installed in (False, True):
        modules = (is_program_code(row.path, row.kind, installed=installed) for row in db.modules)
        own = np.array([False, *modules], bool)
        if own.any():
            break
    return own


def program_procedures(db: Database) -> Mask:
    """``bool[procedures]``: those of the program's own code. Stubs, by which it calls a library,
    are not."""
    return program_modules(db)[db.procedures.module] & ~have(db.roles, NameRole.STUB)


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
