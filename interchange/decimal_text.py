"""Columns of numbers as decimal text, thousands at a time.

Python makes the text of a number in some hundred ns; here the digits of all of them are looked up
four at a time. Text is in matrices of bytes, a row for each number, in which NUL stands for
nothing: what is left over of each row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hpcd.array_types import F64, I64, Array

Letters = npt.NDArray[np.uint8]
"""``uint8[n, width]``: ASCII, and NUL for nothing."""

_ZERO = ord("0")
# The four digits of each number below 10,000, as they are in memory.
_QUADS = np.frombuffer(b"".join(b"%04d" % number for number in range(10_000)), np.uint32)
_QUAD = np.uint64(10_000)
# Whole numbers to this are exact as float64, and so are their decimals read again.
_EXACT = 2.0**53


def decimal_letters(values: I64, places: int = 0) -> Letters:
    """``values`` ``int64[n]`` divided by ``10 ** places``, exactly, without zeros at the end."""
    if len(values) > 1 and (values == values[0]).all():
        return np.repeat(decimal_letters(values[:1], places), len(values), axis=0)
    quads = _quads(np.abs(values), places)
    digits = quads.view(np.uint8)
    point = digits.shape[1] - places
    # A column for the sign, and one for the point.
    letters = np.zeros((len(values), 1 + digits.shape[1] + bool(places)), np.uint8)
    letters[:, 1 : 1 + point] = digits[:, :point]
    blank = np.ones(len(values), bool)
    for column in range(1, point):
        blank &= letters[:, column] == _ZERO
        letters[blank, column] = 0
    if places:
        letters[:, 1 + point] = ord(".")
        letters[:, 2 + point :] = digits[:, point:]
        blank = np.ones(len(values), bool)
        for column in range(letters.shape[1] - 1, 1 + point, -1):
            blank &= letters[:, column] == _ZERO
            letters[blank, column] = 0
        letters[blank, 1 + point] = 0
    letters[values < 0, 0] = ord("-")
    return letters


def _quads(size: I64, places: int) -> npt.NDArray[np.uint32]:
    """The digits of ``size``, four in each entry of ``uint32[n, groups]``, and more of them than
    ``places``."""
    digits = max(len(str(int(size.max(initial=0)))), places + 1)
    groups = -(-digits // 4)
    quads = np.empty((len(size), groups), np.uint32)
    left = size.astype(np.uint64)
    for group in reversed(range(groups)):
        rest = left // _QUAD
        quads[:, group] = _QUADS[(left - rest * _QUAD).astype(np.int64)]
        left = rest
    return quads


def number_letters(values: F64, places: int) -> Letters:
    """``values`` ``float64[n]``: text from which they are read to the last bit but one. Fast where
    they are whole numbers of ``10 ** -places``, such as ns of seconds."""
    if len(values) > 1 and (values == values[0]).all():
        return np.repeat(number_letters(values[:1], places), len(values), axis=0)
    whole = _whole(values, places)
    if whole is not None:
        return decimal_letters(*whole)
    letters = np.array([*map(repr, values.tolist())], np.bytes_)
    return letters.view(np.uint8).reshape(len(values), -1)


def _whole(values: F64, places: int) -> tuple[I64, int] | None:
    """Whole numbers and how many of their digits are decimals of ``values``; None where there are
    none so few."""
    for used in dict.fromkeys((0, places)):
        scaled = _scaled(values, used)
        if (np.abs(scaled) < _EXACT).all():
            near = np.abs(scaled / 10.0**used - values) <= np.spacing(np.abs(values))
            if near.all():
                return scaled.astype(np.int64), used
    return None


def rows_of_numbers(columns: Sequence[Array], places: int, end: bytes, loops: Any) -> bytes:
    """A row for each of ``columns``, as :func:`decimal_letters` and :func:`number_letters` have
    them; see :func:`rows_of_text`. ``loops`` is :class:`ExportLoops` or
    None."""
    if loops is not None:
        known = [
            _whole(column, places) if column.dtype.kind == "f" else (column.astype(np.int64), 0)
            for column in columns
        ]
        whole = [one for one in known if one is not None]
        if len(whole) == len(known):
            values = np.stack([column for column, _ in whole])
            return _compiled_rows(values, [used for _, used in whole], end, loops)
    letters = [
        number_letters(column, places)
        if column.dtype.kind == "f"
        else decimal_letters(column.astype(np.int64))
        for column in columns
    ]
    return rows_of_text(letters, end)


def _compiled_rows(values: I64, places: Sequence[int], end: bytes, loops: Any) -> bytes:
    """Rows of ``values`` ``int64[columns, n]``, each column with so many ``places``."""
    rows: bytes = loops.decimal_rows(values, np.array(places, np.int64), end)
    return rows


def rows_of_text(columns: Sequence[Letters], end: bytes) -> bytes:
    """A row for each of ``columns``, which are divided by commas; each ends with ``end``."""
    count = len(columns[0])
    parts = []
    for number, column in enumerate(columns):
        after = end if number == len(columns) - 1 else b","
        parts += [column, np.tile(np.frombuffer(after, np.uint8), (count, 1))]
    return np.concatenate(parts, axis=1).tobytes().translate(None, b"\0")


def decimals(values: I64, places: int = 0, loops: Any = None) -> str:
    """``values`` divided by ``10 ** places``, divided by commas; ``loops`` as above."""
    if loops is not None:
        values = np.ascontiguousarray(values[None], np.int64)
        return _compiled_rows(values, [places], b",", loops)[:-1].decode("ascii")
    return rows_of_text([decimal_letters(values, places)], b",")[:-1].decode("ascii")


def numbers(values: F64, places: int, loops: Any = None) -> str:
    """``values`` ``float64[n]`` rounded to ``places`` decimals, divided by commas; ``loops`` as
    above."""
    scaled = _scaled(values, places)
    if (np.abs(scaled) < _EXACT).all():
        return decimals(scaled.astype(np.int64), places, loops)
    return ",".join([f"{value:.15g}" for value in np.round(values, places).tolist()])


def _scaled(values: F64, places: int) -> F64:
    with np.errstate(over="ignore"):
        scaled: F64 = np.rint(values * 10.0**places)
    return scaled
