"""What checking a database does with each record by compiled loops (:mod:`hpcd.native`).

The same as decoding blocks by :mod:`hpcd.analysis.trace.blocks` and looking at what comes out, but
nothing comes out: a record costs some nanoseconds rather than some tens. What these functions do
not accept numpy decodes, and says what is wrong with it.
"""

from __future__ import annotations

import ctypes

import numpy as np

from hpcd.array_types import I64, U8, U16, U32, Mask
from hpcd.native.native_library import array_of, declare, loops_in

_INT = ctypes.c_int64
_U8, _U16, _U32 = (array_of(kind) for kind in (np.uint8, np.uint16, np.uint32))
_I64, _MASK = array_of(np.int64), array_of(np.bool_)


class CheckLoops:
    """The loops of ``block_check.c``."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._places = declare(
            library, "check_places",
            (_U8, _INT, _INT, _I64, _I64, _I64, _U16, _U32, _INT, _I64, _MASK), ctypes.c_bool,
        )  # fmt: skip
        self._codes = declare(
            library, "check_codes",
            (_U8, _INT, _INT, _I64, _I64, _I64, _U16, _MASK, _INT, _MASK, _U8, _INT, _I64, _U32),
            _INT,
        )  # fmt: skip

    def check_places(
        self, data: U8, begin: I64, end: I64, count: I64, width: U16, least: U32, nodes: int,
        length: I64, bad: Mask,
    ) -> bool:  # fmt: skip
        """Fill in how many ticks each block lasts, and whether it has nodes from ``nodes`` on.

        Times and nodes of block ``i`` are in ``data`` from ``begin[i]`` on, before ``end[i]``.
        False where they cannot be.
        """
        can: bool = self._places(
            data, len(data), len(count), begin, end, count, width, least, nodes, length, bad
        )
        return can

    def check_codes(
        self, data: U8, begin: I64, end: I64, count: I64, width: U16, interval: Mask, bad: Mask,
        places: U8, place: I64, least: U32,
    ) -> int:  # fmt: skip
        """Fill in which blocks have events from ``len(interval)`` on; how many records only mark
        where an interval ends, those of events that are ``interval`` ``bool[events]``.

        Codes of block ``i`` are in ``data`` from ``begin[i]`` on, before ``end[i]``; a block
        without has -1. Its times are in ``places`` from ``place[i]`` on, as :meth:`check_places`
        has found. -1 where they cannot be.
        """
        ends: int = self._codes(
            data, len(data), len(count), begin, end, count, width, interval, len(interval), bad,
            places, len(places), place, least,
        )  # fmt: skip
        return ends


def check_loops() -> CheckLoops | None:
    """The loops, or None where they were not compiled."""
    return loops_in(CheckLoops)
