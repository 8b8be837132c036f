"""Distinct values of arrays.

In place of numpy.unique, which as of numpy 2.4 imports masked arrays when it is used first: 25 ms
and 1.3 MB of a recorder, often at the end of a short command.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from hpcd.array_types import Array, Mask

T = TypeVar("T", bound=np.generic)


def distinct(values: npt.NDArray[T]) -> npt.NDArray[T]:
    """Return the values that are in ``values`` [n], each once, in ascending order."""
    ordered = np.sort(values)
    once: npt.NDArray[T] = ordered[begins_run(ordered)]
    return once


def begins_run(*columns: Array) -> Mask:
    """Return where runs of equal entries begin in ``columns``, [n] each: bool[n], true for the
    first entry and for each that differs in any column from the entry before."""
    begins = np.ones(len(columns[0]), bool)
    if len(begins):
        begins[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return begins


def are_among(values: npt.NDArray[T], ordered: npt.NDArray[T]) -> Mask:
    """Return for each of ``values`` [n] whether it is among ``ordered``, which is distinct and
    ascending."""
    if not len(ordered):
        return np.zeros(len(values), bool)
    at = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    same: Mask = ordered[at] == values
    return same
