"""Which load modules are the program's own code, and which serve it.

Parallel programs keep their code in libraries (GROMACS, LAMMPS, PETSc, OpenFOAM, Python packages),
so the executable alone is not the program. Modules of the system, of run-time systems, of MPI and
of numerical libraries are told by their names; every other module is the program's own, and what
users say is.
"""

from __future__ import annotations

import re
from pathlib import PurePath

from hpcd.analysis.roles.role import NameRole
from hpcd.analysis.roles.role_table import role_table
from hpcd.model.identity import SOURCE_KINDS, ModuleKind

# Of Python: what is installed for all, but for packages; what the interpreter brings in itself; and
# functions that were gone before their file was known.
_STANDARD_LIBRARY = re.compile(r"/python3\.\d+t?/(?!(site|dist)-packages/)|^<frozen |^\[python\]$")
# Packages that the JDK brings, and code of the JVM's own.
_JAVA_LIBRARY = re.compile(r"(javax?|jdk|sun|com/sun)/|\[java\]$")
# By which the commands of packages begin.
_COMMAND = re.compile(r"/bin/[^/]+$")
_NOT_OWN = NameRole.C_LIBRARY | NameRole.OPENMP | NameRole.SUPPORT
_INSTALLED = NameRole.PACKAGE | NameRole.PYTHON


def is_program_code(path: str, kind: str, *, installed: bool = False) -> bool:
    """Whether a load module is the program's own code; ``installed`` is whether packages of Python,
    extensions in C and the interpreter count as such."""
    if kind not in (ModuleKind.ELF, ModuleKind.JIT, ModuleKind.NAMED, *SOURCE_KINDS):
        return False
    if kind == ModuleKind.JAVA:
        return not _JAVA_LIBRARY.match(path)
    if kind == ModuleKind.PYTHON and (
        _STANDARD_LIBRARY.search(path) or (_COMMAND.search(path) and not installed)
    ):
        return False
    name = PurePath(path.removesuffix(" (deleted)")).name
    if name in ("[vdso]", "[vsyscall]"):  # as other tools call modules of other kinds
        return False
    roles = role_table().of_module(path)
    served = _NOT_OWN if installed else _NOT_OWN | _INSTALLED
    return bool(roles & NameRole.PROGRAM) or not roles & served
