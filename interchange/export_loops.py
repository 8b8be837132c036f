"""What an export does with each record or slice by compiled loops (:mod:`hpcd.native`).

Each function does what Python or numpy does beside its caller. Arrays have the types and shapes
that the callers document.
"""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt

from hpcd.array_types import F64, I64, U8, Mask
from hpcd.native.native_library import array_of, declare, loops_in, struct_of

_INT, _ADDRESS = ctypes.c_int64, ctypes.c_void_p
_U8, _I64, _F64 = array_of(np.uint8), array_of(np.int64), array_of(np.float64)
_MASK = array_of(np.bool_)
_TEXTS = struct_of(np.uint8, np.int64)
_OPEN = struct_of(np.int64, np.int64, np.float64, int)
_ENDED = struct_of(np.int64, np.int64, np.int64, np.bool_, np.float64, int)
# Digits of a 64-bit number, its sign, its point, a zero before that, and the comma.
_LONGEST = 24

Texts = tuple[npt.NDArray[np.uint8], I64]
"""Letters ``uint8``, and where each text begins and the last ends ``int64[n + 1]``."""


class ExportLoops:
    """The loops of ``sample_calls.c``, ``nested_slices.c``, ``slice_text.c`` and
    ``decimal_rows.c``."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._samples = declare(
            library, "write_samples",
            (_ADDRESS, _ADDRESS, _ADDRESS, _ADDRESS, _I64, _INT, ctypes.c_uint32), ctypes.c_int,
        )  # fmt: skip
        self._nested = declare(
            library, "nested_slices",
            (_I64, _I64, _I64, _I64, _I64, _I64, _F64, _INT, _INT, _ADDRESS, _I64, _ADDRESS), _INT,
        )  # fmt: skip
        self._slices = declare(
            library, "slice_events",
            (_U8, _INT, _INT, _INT, _ADDRESS, _ADDRESS, _ADDRESS, _I64, _I64, _I64, _MASK, _I64,
             _INT), _INT,
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

    def nested(
        self, parent: I64, depth: I64, contexts: I64, begins: I64, lasting: I64, following: I64,
        costs: F64, open_rows: tuple[I64, I64, F64], opened: int,
        found: tuple[I64, I64, I64, Mask, F64],
    ) -> tuple[int, int]:  # fmt: skip
        """Slices that end where one of some stretches begins, and the waits of these; how many, and
        how many are open then. ``open_rows`` are context, begin and cost, a row for each depth, of
        which ``opened`` are in use; ``found`` is where slices are put: context, begin, end, wait,
        cost. Parents precede children, and are one less deep."""
        count = np.array([opened], np.int64)
        made: int = self._nested(
            parent, depth, contexts, begins, lasting, following, costs, len(costs), len(contexts),
            _OPEN(*open_rows, len(open_rows[0])), count, _ENDED(*found, len(found[0])),
        )  # fmt: skip
        return made, int(count[0])

    def slice_events(
        self, text: U8, first: int, stop: int, names: Texts, phrases: Texts, costs: Texts,
        name: I64, begin: I64, length: I64, wait: Mask, pieces: I64,
    ) -> int:  # fmt: skip
        """Put slices ``first`` to ``stop`` into ``text``, which has room for them, as Chrome's
        events; how many bytes they take.

        ``name`` and ``pieces`` (costs, of each metric, 0 for none) are numbers of texts for each
        slice. The first phrases stand before the name, between begin and length, for a wait, around
        costs, at the end, and before the cost of each metric. Costs have a comma behind them.
        """
        written: int = self._slices(
            text, first, stop, len(name), _TEXTS(*names), _TEXTS(*phrases), _TEXTS(*costs), name,
            begin, length, wait, pieces, len(pieces),
        )  # fmt: skip
        return written

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
