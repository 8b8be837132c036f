"""What an export does with each record or slice by compiled loops (:mod:`hpcd.native`).

Each function does what Python or numpy does beside its caller. Arrays have the types and shapes
that the callers document.
"""

from __future__ import annotations

import ctypes

import numpy as np

from hpcd.array_types import I64
from hpcd.native.native_library import array_of, declare, loops_in

_INT, _ADDRESS = ctypes.c_int64, ctypes.c_void_p
_U8, _I64 = array_of(np.uint8), array_of(np.int64)
# Digits of a 64-bit number, its sign, its point, a zero before that, and the comma.
_LONGEST = 24


class ExportLoops:
    """The loops of ``sample_calls.c`` and ``decimal_rows.c``."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._samples = declare(
            library, "write_samples",
            (_ADDRESS, _ADDRESS, _ADDRESS, _ADDRESS, _I64, _INT, ctypes.c_uint32), ctypes.c_int,
        )  # fmt: skip
        self._rows = declare(
            library, "decimal_rows", (_U8, _I64, _INT, _INT, _I64, _U8, _INT), _INT
        )

    def write_samples(
        self, add: int, sample: int, writer: int, attributes: int, samples: I64, undefined: int
    ) -> int:
        """Write samples to an OTF2 archive by its library's own functions, those at the addresses
        ``add`` (``OTF2_AttributeList_AddUint64``) and ``sample``
        (``OTF2_EvtWriter_CallingContextSample``); the first error's code, or 0. ``samples``
        ``int64[n, 5]``: time, context, event, metric, and what it stands for."""
        code: int = self._samples(
            add, sample, writer, attributes, np.ascontiguousarray(samples), len(samples), undefined
        )
        return code

    def decimal_rows(self, values: I64, places: I64, end: bytes) -> bytes:
        """Rows of ``values`` ``int64[columns, n]``, each column divided by ``10 ** places``, with
        commas between and ``end`` behind them."""
        columns, rows = values.shape
        text = np.empty(values.size * _LONGEST + rows * len(end), np.uint8)
        written = self._rows(
            text, values, columns, rows, places, np.frombuffer(end, np.uint8), len(end)
        )
        return text[:written].tobytes()


def export_loops() -> ExportLoops | None:
    """The loops, or None where they were not compiled."""
    return loops_in(ExportLoops)
