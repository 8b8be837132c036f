"""Which load modules are the program's own code, and which serve it.

Parallel programs keep their code in libraries (GROMACS, LAMMPS, PETSc, OpenFOAM, Python packages),
so the executable alone is not the program. Modules of the system, of run-time systems, of MPI and
of numerical libraries are told by their names; every other module is the program's own. Users add
patterns in ``hpcd/libraries.txt`` below XDG_CONFIG_HOME: one a line, ``-pattern`` for modules that
are the program's own all the same.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path, PurePath

import numpy as np

from hpcd.analysis.database import Database
from hpcd.array_types import Mask
from hpcd.model.identity import ModuleKind

_LARGEST = 1 << 16
_SYSTEM = (
    "ld-linux*", "ld-musl*", "libc.so*", "libc-*.so", "libc.musl*", "libm.so*", "libm-*.so",
    "libmvec*", "libpthread*", "libdl.so*", "libdl-*", "librt.so*", "librt-*", "libutil.so*",
    "libresolv*", "libnss_*", "libgcc_s*", "libstdc++*", "libc++*", "libunwind*", "libgfortran*",
    "libquadmath*", "libflang*", "libgo.so*", "libatomic*", "libz.so*", "libzstd*", "liblzma*",
    "libbz2*", "liblz4*", "libssl*", "libcrypto*", "libcurl*", "libxml2*", "libexpat*",
    "libsystemd*", "libudev*", "libpci*", "libnuma*", "libnl-*", "libjemalloc*", "libtcmalloc*",
    "libtbbmalloc*", "libmimalloc*", "libsqlite3*", "libffi*", "libgmp.so*", "libglib-2*",
    "libuuid*",
)  # fmt: skip
_RUNTIME = (
    "libgomp*", "libomp*", "libiomp*", "libtbb*", "libpython*", "libjvm*", "libjulia*", "libnode*",
    "libmono*", "libcoreclr*", "libruby*", "libperl*", "libcilkrts*", "libqthread*", "libhwloc*",
    "libevent*", "libcuda.so*", "libcudart*", "libamdhip64*", "libhsa-runtime*", "libOpenCL*",
    "libze_loader*", "libnvidia-*",
)  # fmt: skip
_MPI = (
    "libmpi*", "libopen-pal*", "libopen-rte*", "libompi*", "libprrte*", "mca_*", "libmca_*",
    "libpmix*", "libpmi*", "libmpich*", "libmpl*", "libopa*", "libucp*", "libucs*", "libuct*",
    "libucm*", "libfabric*", "libibverbs*", "librdmacm*", "libpsm*", "libinfinipath*", "libmlx*",
    "libefa*", "libsharp*", "libhcoll*", "libxpmem*", "libnccl*", "librccl*", "libgasnet*",
    "libslurm*", "libmunge*", "liboshmem*",
)  # fmt: skip
_NUMERICAL = (
    "libblas*", "liblapack*", "libcblas*", "libopenblas*", "libatlas*", "libflexiblas*", "libblis*",
    "libflame*", "libmkl_*", "libarmpl*", "libsci_*", "libessl*", "libscalapack*", "libelpa*",
    "libfftw3*", "libcublas*", "libcufft*", "libcusolver*", "libcusparse*", "libcudnn*",
    "librocblas*", "librocfft*", "libhdf5*", "libnetcdf*", "libpnetcdf*", "libadios2*", "libgsl*",
    "libgslcblas*", "_multiarray_umath*", "_umath_linalg*", "_pocketfft*", "lapack_lite*",
)  # fmt: skip
_SUPPORT = _SYSTEM + _RUNTIME + _MPI + _NUMERICAL


def is_program_code(path: str, kind: str) -> bool:
    """Whether a load module is the program's own code."""
    if kind not in (ModuleKind.ELF, ModuleKind.JIT, ModuleKind.NAMED):
        return False
    name = PurePath(path.removesuffix(" (deleted)")).name
    if name in ("[vdso]", "[vsyscall]"):  # as other tools call what has a kind of its own
        return False
    mine, foreign = _users_patterns()
    if _fits(mine, name, path):
        return True
    return not (_fits(_SUPPORT, name) or _fits(foreign, name, path))


def program_procedures(db: Database) -> Mask:
    """``bool[procedures]``: those of the program's own code. Stubs, by which it calls a library,
    are not."""
    modules = np.array([False, *(is_program_code(row.path, row.kind) for row in db.modules)], bool)
    stub = np.array([name.endswith("@plt") for name in db.procedures.name], bool)
    own: Mask = modules[db.procedures.module] & ~stub
    return own


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


def _fits(patterns: Sequence[str], *names: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)


@cache
def _users_patterns() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The user's patterns of modules that are the program's own, and of modules that are not."""
    base = os.environ.get("XDG_CONFIG_HOME")
    path = (Path(base) if base else Path.home() / ".config") / "hpcd/libraries.txt"
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            text = file.read(_LARGEST)
    except OSError:
        return (), ()
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    mine = tuple(line[1:].strip() for line in lines if line.startswith("-"))
    return mine, tuple(line for line in lines if not line.startswith("-"))
