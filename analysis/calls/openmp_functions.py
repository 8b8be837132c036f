"""Roles of the functions of OpenMP's runtimes, by their names (``--probes openmp``)."""

from __future__ import annotations

from enum import IntEnum
from fnmatch import fnmatchcase


class OpenmpRole(IntEnum):
    """The meaning of the time within calls of a function, what these call apart."""

    NONE = 0
    REGION = 1
    """A parallel region: the call that begins it returns when it has ended."""
    BODY = 2
    """What one thread does of a region, or a task."""
    BARRIER = 3
    """Waiting for others."""
    LOCK = 4
    """Waiting for a lock, a critical section, a turn."""
    SCHEDULING = 5
    """Handing out iterations and tasks."""


# GCC's are described in the manual of libgomp ("The libgomp ABI"), LLVM's in its kmp_csupport.cpp.
# A function has the first role that fits.
_PATTERNS = {
    OpenmpRole.BODY: ("*._omp_fn.*", "*.omp_outlined*", "*.omp_task_entry.*"),
    OpenmpRole.REGION: ("GOMP_parallel*", "__kmpc_fork_call"),
    OpenmpRole.LOCK: (
        "GOMP_critical_*", "GOMP_atomic_start", "GOMP_ordered_start", "omp_set_*lock",
        "__kmpc_critical*", "__kmpc_ordered",
    ),
    OpenmpRole.BARRIER: (
        "GOMP_barrier", "GOMP_loop_end", "GOMP_sections_end", "GOMP_single_copy_start",
        "GOMP_taskwait", "GOMP_taskgroup_end", "__kmpc_barrier", "__kmpc_reduce*",
        "__kmpc_end_reduce", "__kmpc_omp_taskwait", "__kmpc_end_taskgroup",
    ),
    OpenmpRole.SCHEDULING: (
        "GOMP_loop_*", "GOMP_sections_*", "GOMP_task*", "__kmpc_dispatch_*",
        "__kmpc_for_static_init_*", "__kmpc_omp_task", "__kmpc_taskloop",
    ),
}  # fmt: skip


def openmp_role(name: str) -> OpenmpRole:
    """Return what the recorded function called ``name`` does; nothing of OpenMP for others."""
    for role, patterns in _PATTERNS.items():
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            return role
    return OpenmpRole.NONE
