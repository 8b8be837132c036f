"""Compiled kernels of exports (:mod:`hpcd.native`): numbers as text, samples of OTF2 archives."""

from __future__ import annotations

import ctypes

import numpy as np

from hpcd.array_types import I64
from hpcd.errors import PlatformError
from hpcd.native.native_library import array_of, declare, loops_in

_INT, _ADDRESS = ctypes.c_int64, ctypes.c_void_p
_U8, _I64 = array_of(np.uint8), array_of(np.int64)
# Digits of a 64-bit number, its sign, its point, a zero before that, and the comma.
_LONGEST = 24


class ExportKernels:
    """The kernels of ``decimal_rows.c`` and ``sample_calls.c``."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._rows = declare(
            library, "decimal_rows", (_U8, _I64, _INT, _INT, _I64, _U8, _INT), _INT
        )
        self._samples = declare(
            library, "write_samples",
            (_ADDRESS, _ADDRESS, _ADDRESS, _ADDRESS, _I64, _INT, ctypes.c_uint32), ctypes.c_int,
        )  # fmt: skip

    def decimal_rows(self, values: I64, places: I64, end: bytes) -> bytes:
        """Return rows of decimal text: commas between the columns, ``end`` after each row.

        ``values`` int64[columns, n], each column divided by ``10 ** places``; ``places``
        int64[columns].
        """
        columns, rows = values.shape
        text = np.empty(values.size * _LONGEST + rows * len(end), np.uint8)
        written = self._rows(
            text, values, columns, rows, places, np.frombuffer(end, np.uint8), len(end)
        )
        return text[:written].tobytes()

    def write_samples(
        self, add: int, sample: int, writer: int, attributes: int, samples: I64, undefined: int
    ) -> int:
        """Write samples to an OTF2 archive by functions of its library.

        ``add`` and ``sample`` are the addresses of ``OTF2_AttributeList_AddUint64`` and
        ``OTF2_EvtWriter_CallingContextSample``; ``samples`` int64[n, 5] are time, context, event,
        metric and weight. Returns the first error's code, or 0.
        """
        code: int = self._samples(
            add, sample, writer, attributes, np.ascontiguousarray(samples), len(samples), undefined
        )
        return code


def export_kernels() -> ExportKernels:
    """Return the kernels. Raises PlatformError where they were not compiled."""
    kernels = loops_in(ExportKernels)
    if kernels is None:
        raise PlatformError("the compiled kernels are missing: make objects")
    return kernels
