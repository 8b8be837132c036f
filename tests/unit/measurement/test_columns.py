"""Columns that no writer makes are refused."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from hpcd.errors import FormatError
from hpcd.measurement.columns import ColumnCursor, encode_column

RANKED = 3


def ranked(words: list[int], places: list[int]) -> bytes:
    """A column with a dictionary, of bytes."""
    content = struct.pack("<IBB2x", len(words), 1, 1) + bytes(words) + bytes(places)
    return struct.pack("<BBHI", RANKED, 0, 0, len(content)) + content


def test_a_dictionary_has_no_more_words_than_the_column_values() -> None:
    column = ranked([5, 7], [0, 1, 0])
    assert ColumnCursor(column).column(3, np.uint32).tolist() == [5, 7, 5]
    for words, places in (([5, 7, 9, 11], [0, 1, 0]), ([], [0, 0, 0]), ([5], [0, 1, 0])):
        with pytest.raises(FormatError):
            ColumnCursor(ranked(words, places)).column(3, np.uint32)


def test_numbers_beyond_16_bits_are_no_column_of_16_bits() -> None:
    for value in (0, (1 << 16) - 1):
        column = encode_column(np.array([1, value], np.uint32))
        assert ColumnCursor(column).column(2, np.uint16).tolist() == [1, value]
    with pytest.raises(FormatError, match="exceeds 16 bits"):
        ColumnCursor(encode_column(np.array([1, 1 << 16], np.uint32))).column(2, np.uint16)
