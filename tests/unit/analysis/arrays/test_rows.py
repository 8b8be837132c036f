"""Rows of dataclasses of arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpcd.array_types import I64
from hpcd.rows import join_rows, take_rows


@dataclass(frozen=True)
class Table:
    number: I64
    pair: I64
    ready: I64 | None = None
    name: str = "table"


def test_rows_are_taken_of_all_arrays_and_other_fields_stay() -> None:
    table = Table(np.arange(4), np.arange(8).reshape(4, 2))
    for rows in (np.array([3, 1]), np.array([False, True, False, True]), slice(1, 3)):
        taken = take_rows(table, rows)
        assert taken.number.tolist() == np.arange(4)[rows].tolist()
        assert taken.pair.tolist() == table.pair[rows].tolist()
        assert (taken.ready, taken.name) == (None, "table")


@dataclass(frozen=True)
class Columns:
    number: I64
    pair: I64


def test_tables_are_joined_in_their_order() -> None:
    parts = [Columns(np.array([n, n]), np.full((2, 2), n)) for n in (5, 2)]
    whole = join_rows(parts)
    assert whole.number.tolist() == [5, 5, 2, 2]
    assert whole.pair.shape == (4, 2)
