"""Marks of pictures besides colour: threads that wait, and calls that communicate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hpcd.analysis.roles.role import NameRole, have
from hpcd.analysis.roles.role_table import role_table
from hpcd.analysis.symbols.frame_names import marker_name
from hpcd.array_types import U8
from hpcd.model.codes import UnwindStatus

BLOCKED, COMMUNICATION, SLEEPING, INTERRUPT = 1, 2, 3, 4
_MARK_OF_ROLE = (
    (INTERRUPT, NameRole.INTERRUPT),
    (COMMUNICATION, NameRole.COMMUNICATION),
    (BLOCKED, NameRole.SCHEDULER),
)
# Paths of threads that slept when hpcd attached are without the scheduler's functions.
_SLEEPING = marker_name(UnwindStatus.BEFORE_ATTACH)


def marks(names: Sequence[str]) -> U8:
    """``uint8[n]``: :data:`BLOCKED` where a thread sleeps, :data:`COMMUNICATION` for calls into
    MPI and its like (all below them communicates too), :data:`SLEEPING` where it and all below it
    is of a thread that sleeps, :data:`INTERRUPT` where an interrupt begins: who is not running
    below one was preempted, and stands where it was interrupted; 0 else."""
    roles = role_table().of_labels(names)
    result = np.zeros(len(names), np.uint8)
    for mark, role in _MARK_OF_ROLE:
        result[have(roles, role)] = mark
    result[[name == _SLEEPING for name in names]] = SLEEPING
    return result
