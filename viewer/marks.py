"""Marks of pictures besides colour: threads that wait, and calls that communicate."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from hpcd.analysis.symbols.frame_names import marker_name
from hpcd.model.unwind_status import UnwindStatus

BLOCKED, COMMUNICATION, SLEEPING, INTERRUPT = 1, 2, 3, 4

# Paths of threads that slept when hpcd attached are without the scheduler's functions.
_SLEEPING = marker_name(UnwindStatus.BEFORE_ATTACH)

_BLOCKED = re.compile(r"(__)?schedule \[k\]")
# Where the kernel is entered by an interrupt (arch/x86/entry, arch/arm64/kernel/entry.S).
_INTERRUPT = re.compile(
    r"(asm_sysvec_\w+|asm_common_interrupt|el[01][th]?_(64_|32_)?(irq|interrupt)\w*) \[k\]"
)
_COMMUNICATION = re.compile(
    r"P?MPI_[A-Z]\w*"
    r"|p?mpi_\w+_+"  # Fortran
    r"|nccl[A-Z]\w*|n?shmem_\w+|gasnet_\w+|ucp_\w+"
)


def marks(names: Iterable[str]) -> npt.NDArray[np.uint8]:
    """``uint8[n]``: :data:`BLOCKED` where a thread sleeps, :data:`COMMUNICATION` for calls into
    MPI and its like (all below them communicates too), :data:`SLEEPING` where it and all below it
    is of a thread that sleeps, :data:`INTERRUPT` where an interrupt begins: who is not running
    below one was preempted, and stands where it was interrupted; 0 else."""
    return np.array(
        [
            SLEEPING
            if name == _SLEEPING
            else BLOCKED
            if _BLOCKED.fullmatch(name)
            else COMMUNICATION
            if _COMMUNICATION.fullmatch(name)
            else INTERRUPT
            if _INTERRUPT.fullmatch(name)
            else 0
            for name in names
        ],
        np.uint8,
    )
