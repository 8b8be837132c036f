"""A picture as runs of pixels that show the same node: most show what their neighbour does."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hpcd.array_types import U16, U32
from hpcd.kernels.library import kernels


def pixel_runs(nodes: npt.NDArray[np.unsignedinteger]) -> tuple[U32, U16]:
    """The runs of ``nodes`` ``[h, w]``, row after row: the node of each, and the column behind it;
    a row's last ends at ``w``."""
    rows, width = nodes.shape
    if not nodes.size:
        return np.zeros(0, np.uint32), np.zeros(0, np.uint16)
    pixels = np.ascontiguousarray(nodes, np.uint32)
    runs = kernels.count_runs(pixels, rows, width)
    # One more, that is written and not counted.
    node, end = np.empty(runs + 1, np.uint32), np.empty(runs + 1, np.uint16)
    kernels.pixel_runs(pixels, rows, width, node, end)
    return node[:runs], end[:runs]
