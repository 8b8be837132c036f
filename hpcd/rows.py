"""Dataclasses of arrays that have an entry for each row, as tables have columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_Table = TypeVar("_Table", bound="DataclassInstance")


def take_rows(table: _Table, rows: Any) -> _Table:
    """Return the ``rows`` of ``table``, by indices, a mask or a slice; only arrays have rows."""
    columns = {field.name: getattr(table, field.name) for field in fields(table)}
    arrays = {name: one for name, one in columns.items() if isinstance(one, np.ndarray)}
    return replace(table, **{name: column[rows] for name, column in arrays.items()})


def join_rows(tables: Sequence[_Table]) -> _Table:
    """Return the rows of ``tables``, of one or more, as one table. All fields are arrays."""
    names = [field.name for field in fields(tables[0])]
    return type(tables[0])(
        *(np.concatenate([getattr(table, name) for table in tables]) for name in names)
    )
