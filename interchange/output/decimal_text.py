"""Columns of numbers as decimal text, thousands at a time.

Python makes the text of a number in some hundred ns, the kernel in some ns. It takes whole numbers;
other values are left to Python.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hpcd.array_types import F64, I64, Array
from hpcd.kernels.library import kernels

# Digits of a 64-bit number, its sign, its point, a zero before that, and the comma.
_LONGEST = 24
# Whole numbers to this are exact as float64, and so are their decimals read again.
_EXACT = 2.0**53


def decimal_rows(columns: Sequence[Array], places: int, end: bytes) -> bytes:
    """Return the rows of ``columns``: commas between numbers, ``end`` after each row.

    Columns are integers or float64[n]. Floats are exact when read back, up to the last
    bit; fast if they are whole numbers of ``10 ** -places``, such as seconds in ns.
    """
    scaled = [
        _whole(column, places) if column.dtype.kind == "f" else (column.astype(np.int64), 0)
        for column in columns
    ]
    whole = [column for column in scaled if column is not None]
    if len(whole) == len(scaled):
        values = np.stack([values for values, _ in whole])
        return _rows(values, np.array([n for _, n in whole]), end)
    texts = [
        map(repr, column.tolist()) if whole is None else decimals(*whole).split(",")
        for column, whole in zip(columns, scaled, strict=True)
    ]
    return b"".join(",".join(row).encode("ascii") + end for row in zip(*texts, strict=True))


def decimals(values: I64, places: int = 0) -> str:
    """Return ``values`` int64[n] divided by ``10 ** places``, exactly, commas between."""
    values = np.ascontiguousarray(values[None], np.int64)
    return _rows(values, np.array([places]), b",")[:-1].decode("ascii")


def numbers(values: F64, places: int) -> str:
    """Return ``values`` float64[n] rounded to ``places`` decimals, commas between."""
    scaled = _scaled(values, places)
    if (np.abs(scaled) < _EXACT).all():
        return decimals(scaled.astype(np.int64), places)
    return ",".join([f"{value:.15g}" for value in np.round(values, places).tolist()])


def _rows(values: I64, places: I64, end: bytes) -> bytes:
    """Return rows of the numbers ``values`` int64[columns, n], each column divided by ``10 **
    places`` int64[columns]."""
    columns, rows = values.shape
    text = np.empty(values.size * _LONGEST + rows * len(end), np.uint8)
    written = kernels.decimal_rows(text, values, columns, rows, places, end, len(end))
    return text[:written].tobytes()


def _whole(values: F64, places: int) -> tuple[I64, int] | None:
    """Return ``values`` as whole numbers and the number of digits that are decimals: 0 or
    ``places``; None if neither is enough."""
    for used in dict.fromkeys((0, places)):
        scaled = _scaled(values, used)
        if (np.abs(scaled) < _EXACT).all():
            near = np.abs(scaled / 10.0**used - values) <= np.spacing(np.abs(values))
            if near.all():
                return scaled.astype(np.int64), used
    return None


def _scaled(values: F64, places: int) -> F64:
    with np.errstate(over="ignore"):
        scaled: F64 = np.rint(values * 10.0**places)
    return scaled
