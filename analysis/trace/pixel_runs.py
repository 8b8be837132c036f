"""A picture as runs of pixels that show the same node: most show what their neighbour does."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from hpcd.array_types import U16, U32
from hpcd.native.native_library import array_of, declare, loops_in

WIDEST = (1 << 16) - 1
"""Columns a picture may have at most, for ends of runs to fit 16 bits."""


def pixel_runs(nodes: npt.NDArray[np.unsignedinteger]) -> tuple[U32, U16]:
    """The runs of ``nodes`` ``[h, w]``, row after row: what each shows, and the column behind it;
    a row's last ends at ``w``."""
    width = nodes.shape[1]
    loops = loops_in(_declared)
    if loops and nodes.size and nodes.dtype == np.uint32 and nodes.flags.c_contiguous:
        count, fill = loops
        runs = count(nodes, len(nodes), width)
        # One more, that is written and not counted.
        found, end = np.empty(runs + 1, np.uint32), np.empty(runs + 1, np.uint16)
        fill(nodes, len(nodes), width, found, end)
        return found[:runs], end[:runs]
    last = np.empty(nodes.shape, bool)
    last[:, -1:] = True
    np.not_equal(nodes[:, 1:], nodes[:, :-1], out=last[:, :-1])
    at = np.flatnonzero(last)
    node: U32 = nodes.ravel()[at].astype(np.uint32, copy=False)
    return node, (at % width + 1).astype(np.uint16)


def _declared(library: ctypes.CDLL) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The loops of ``pixel_runs.c``."""
    nodes, ends, size = array_of(np.uint32), array_of(np.uint16), ctypes.c_int64
    return (
        declare(library, "count_runs", (nodes, size, size), size),
        declare(library, "pixel_runs", (nodes, size, size, nodes, ends)),
    )
