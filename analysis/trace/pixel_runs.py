"""A picture as runs of pixels that show the same node: most show what their neighbour does."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hpcd.array_types import U16, U32

WIDEST = (1 << 16) - 1
"""Columns a picture may have at most, for ends of runs to fit 16 bits."""


def pixel_runs(nodes: npt.NDArray[np.unsignedinteger]) -> tuple[U32, U16]:
    """The runs of ``nodes`` ``[h, w]``, row after row: what each shows, and the column behind it;
    a row's last ends at ``w``."""
    width = nodes.shape[1]
    last = np.empty(nodes.shape, bool)
    last[:, -1:] = True
    np.not_equal(nodes[:, 1:], nodes[:, :-1], out=last[:, :-1])
    at = np.flatnonzero(last)
    node: U32 = nodes.ravel()[at].astype(np.uint32, copy=False)
    return node, (at % width + 1).astype(np.uint16)
