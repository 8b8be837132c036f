"""What pictures mark besides colour: threads that wait, and calls that communicate."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from hpcd.analysis.symbols.frame_names import marker_name
from hpcd.model.unwind_status import UnwindStatus

BLOCKED, COMMUNICATION, SLEEPING = 1, 2, 3

# Paths of threads that slept when hpcd attached are without the scheduler's functions.
_SLEEPING = marker_name(UnwindStatus.BEFORE_ATTACH)

_BLOCKED = re.compile(r"(__)?schedule \[k\]")
_COMMUNICATION = re.compile(
    r"P?MPI_[A-Z]\w*"
    r"|p?mpi_\w+_+"  # Fortran
    r"|nccl[A-Z]\w*|n?shmem_\w+|gasnet_\w+|ucp_\w+"
)


def marks(names: Iterable[str]) -> npt.NDArray[np.uint8]:
    """``uint8[n]``: :data:`BLOCKED` where a thread sleeps, :data:`COMMUNICATION` for calls into
    MPI and its like (all below them communicates too), :data:`SLEEPING` where it and all below it
    is of a thread that sleeps, 0 else."""
    return np.array(
        [
            SLEEPING
            if name == _SLEEPING
            else BLOCKED
            if _BLOCKED.fullmatch(name)
            else COMMUNICATION
            if _COMMUNICATION.fullmatch(name)
            else 0
            for name in names
        ],
        np.uint8,
    )
