"""Reading a chunk's records by compiled loops: what :mod:`hpcd.measurement.codec` does by numpy.

Arrays have the types and shapes that the callers document, and are contiguous.
"""

from __future__ import annotations

import ctypes

import numpy as np

from hpcd.array_types import I64, U8, U16, U32, U64, Array
from hpcd.native.native_library import array_of, declare, loops_in

_I64 = ctypes.c_int64


class RecordLoops:
    """The loops of ``record_chunks.c``."""

    def __init__(self, library: ctypes.CDLL) -> None:
        planes, kinds = array_of(np.uint8), array_of(np.uint32)
        self._columns = {
            np.dtype(dtype): declare(
                library,
                name,
                (planes, _I64, array_of(dtype), _I64, array_of(dtype), _I64),
                ctypes.c_bool,
            )
            for name, dtype in (("column32", np.uint32), ("column64", np.uint64))
        }
        self._odd_ones = declare(library, "odd_ones", (kinds, _I64), _I64)
        wide = array_of(np.uint64)
        self._times_and_values = declare(
            library,
            "times_and_values",
            (array_of(np.int64), _I64, ctypes.c_uint64, ctypes.c_uint64, kinds, wide, wide,
             array_of(np.uint16), wide),
            ctypes.c_int,
        )  # fmt: skip

    def column(self, planes: U8, words: Array, values: Array) -> bool:
        """Fill ``values`` with what ``planes`` ``uint8[width, n]`` say, which are places in
        ``words`` if it has any; whether there are so many."""
        answer: bool = self._columns[values.dtype](
            planes, len(planes), words, len(words), values, len(values)
        )
        return answer

    def odd_ones(self, kind: U32) -> int:
        """How many records have a value that is not 1."""
        number: int = self._odd_ones(kind, len(kind))
        return number

    def times_and_values(
        self, start: I64, base: int, unit: int, kind: U32, odd: U64, time: U64, event: U16,
        value: U64,
    ) -> int:  # fmt: skip
        """Make of steps in ``time`` the times, and of ``kind`` and ``odd`` (with one more than
        there are) events and values; 0, or 1 where a step is too long, 2 where a wait is, 3 where
        an event is out of range."""
        fault: int = self._times_and_values(
            start, len(start) - 1, base, unit, kind, odd, time, event, value
        )
        return fault


def record_loops() -> RecordLoops | None:
    """The loops, or None where they were not compiled."""
    return loops_in(RecordLoops)
