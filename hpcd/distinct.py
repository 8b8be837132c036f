"""Distinct values of arrays.

In place of numpy.unique, which as of numpy 2.4 imports masked arrays when it is used first: 25 ms
and 1.3 MB of a recorder, often at the end of a short command.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T", bound=np.generic)


def distinct(values: npt.NDArray[T]) -> npt.NDArray[T]:
    """Return the values that are in ``values`` [n], each once, in ascending order."""
    ordered = np.sort(values)
    once: npt.NDArray[T] = ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]
    return once


def are_among(values: npt.NDArray[T], ordered: npt.NDArray[T]) -> npt.NDArray[np.bool_]:
    """Return for each of ``values`` [n] whether it is among ``ordered``, which is distinct and
    ascending."""
    if not len(ordered):
        return np.zeros(len(values), bool)
    at = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    same: npt.NDArray[np.bool_] = ordered[at] == values
    return same
