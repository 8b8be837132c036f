"""Roles of the functions of OpenMP's runtimes, by their names (``--probes openmp``)."""

from __future__ import annotations

from enum import IntEnum
from fnmatch import fnmatchcase
from typing import NamedTuple


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


class OpenmpFunction(NamedTuple):
    """The ``role`` of a function, and the ``construct`` of the source that it belongs to."""

    role: OpenmpRole
    construct: str


# GCC's are described in the manual of libgomp ("The libgomp ABI"), LLVM's in its kmp_csupport.cpp.
# A function has the first role that fits.
_FUNCTIONS = (
    (OpenmpRole.BODY, "task", ("*._omp_fn.*", "*.omp_outlined*", "*.omp_task_entry.*")),
    (OpenmpRole.REGION, "region", ("GOMP_parallel*", "__kmpc_fork_call")),
    (OpenmpRole.LOCK, "critical section", ("GOMP_critical_*", "__kmpc_critical*")),
    (OpenmpRole.LOCK, "atomic section", ("GOMP_atomic_start",)),
    (OpenmpRole.LOCK, "ordered section", ("GOMP_ordered_start", "__kmpc_ordered")),
    (OpenmpRole.LOCK, "lock", ("omp_set_*lock",)),
    (OpenmpRole.BARRIER, "barrier", ("GOMP_barrier*", "__kmpc_barrier", "__kmpc_cancel_barrier")),
    (OpenmpRole.BARRIER, "end of loop", ("GOMP_loop_end*",)),
    (OpenmpRole.BARRIER, "end of sections", ("GOMP_sections_end*",)),
    (OpenmpRole.BARRIER, "single", ("GOMP_single_copy_start",)),
    (OpenmpRole.BARRIER, "reduction", ("__kmpc_reduce*", "__kmpc_end_reduce")),
    (
        OpenmpRole.BARRIER, "taskwait",
        ("GOMP_taskwait*", "GOMP_taskgroup_end", "__kmpc_omp_taskwait*", "__kmpc_end_taskgroup"),
    ),
    (
        OpenmpRole.SCHEDULING, "creating tasks",
        ("GOMP_task*", "__kmpc_omp_task", "__kmpc_omp_task_with_deps", "__kmpc_taskloop*"),
    ),
    (OpenmpRole.SCHEDULING, "handing out sections", ("GOMP_sections*",)),
    (
        OpenmpRole.SCHEDULING, "handing out iterations",
        ("GOMP_loop_*", "__kmpc_dispatch_*", "__kmpc_for_static_init_*"),
    ),
)  # fmt: skip


def openmp_function(name: str) -> OpenmpFunction:
    """Return what the recorded function called ``name`` does; ``NONE`` if nothing of OpenMP."""
    for role, construct, patterns in _FUNCTIONS:
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            return OpenmpFunction(role, construct)
    return OpenmpFunction(OpenmpRole.NONE, "")
