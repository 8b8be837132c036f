"""Bounds of consecutive items of different sizes in one column."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hpcd.array_types import I64


def bounds_of(sizes: Sequence[int] | I64) -> I64:
    """Return ``int64[n + 1]``: where each of ``n`` things of these ``sizes`` begins, and where the
    last one ends."""
    return np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
