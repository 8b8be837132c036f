"""Chosen entries of arrays, as a mask and by their place."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpcd.array_types import I64, Mask


def marked(count: int, chosen: Any) -> Mask:
    """Return bool[count]: true for the ``chosen`` numbers."""
    mask = np.zeros(count, bool)
    mask[chosen] = True
    return mask


def positions(count: int, chosen: Any, missing: int = -1) -> I64:
    """Return int64[count]: the index of each number in ``chosen``, ``missing`` of others."""
    place = np.full(count, missing, np.int64)
    place[chosen] = np.arange(len(chosen))
    return place
