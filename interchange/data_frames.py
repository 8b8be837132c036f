"""Tables of a database for pandas and Arrow: :func:`pandas_frame`, :func:`arrow_table`.

The tables are those of :mod:`.tables`, by name: ``contexts``, ``modules``, ``metrics``, ``events``,
``trace_lines``, ``costs`` and ``trace``. All functions take what ``hpcd export`` takes: ``filters``
as in ``--filter``, ``metrics`` by name, ``depth`` in frames.

    >>> with hpcd.analysis.open("run.db") as db:                           # doctest: +SKIP
    ...     costs = hpcd.interchange.pandas_frame(db, "costs", ["rank=0-3"])
    ...     costs.groupby("trace_line")["cpu_time"].sum()
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.profile.filters import Filter
from hpcd.errors import UsageError, did_you_mean
from hpcd.interchange.export_selection import Selection
from hpcd.interchange.libraries import library
from hpcd.interchange.tables import Table, tables
from hpcd.interchange.text import utf8

if TYPE_CHECKING:
    import pandas
    import pyarrow

TABLES = ("contexts", "modules", "metrics", "events", "trace_lines", "costs", "trace")
"""The names of the tables."""


def pandas_frame(
    db: Database,
    table: str,
    filters: Sequence[str] = (),
    metrics: Sequence[str] = (),
    depth: int | None = None,
) -> pandas.DataFrame:
    """A table as a pandas ``DataFrame``; the columns' types are those of ``docs/python.md``.

    The whole table is in memory: of ``trace`` 35 bytes and 8 a metric for each record. Raises
    :class:`UsageError` for an unknown table, metric or filter, :class:`PlatformError` without
    pandas.
    """
    pandas = library("pandas", "pandas", "a data frame")
    chosen = _table(db, table, filters, metrics, depth)
    parts: list[list[Any]] = [[] for _ in chosen.columns]
    for batch in chosen.batches():
        for part, column in zip(parts, batch, strict=True):
            part.append(column)
    return pandas.DataFrame(
        {
            utf8(name): _series(pandas, part, kind)
            for name, part, kind in zip(chosen.columns, parts, chosen.kinds, strict=True)
        }
    )


def _series(pandas: Any, parts: list[Any], kind: str) -> Any:
    if kind == "text":
        return pandas.Series([utf8(str(value)) for part in parts for value in part], dtype="str")
    if kind == "i4?":
        return pandas.array([value for part in parts for value in part], dtype="Int32")
    return np.concatenate([np.asarray(part, kind) for part in parts] or [np.zeros(0, kind)])


def arrow_batches(
    db: Database,
    table: str,
    filters: Sequence[str] = (),
    metrics: Sequence[str] = (),
    depth: int | None = None,
) -> pyarrow.RecordBatchReader:
    """A table as a stream of Arrow record batches, made as they are read.

    Memory does not grow with the table: DuckDB, Polars and ``pyarrow.dataset`` read a trace of any
    length from it. Raises as :func:`pandas_frame` does.
    """
    arrow = library("pyarrow", "pyarrow", "an Arrow table")
    # Its types are pyarrow's: it can only be imported where that is.
    from hpcd.interchange.arrow_tables import record_batches, schema_of

    selection = Selection(db, Filter.parse(filters), metrics, depth)
    chosen = _named(selection, table)
    schema = schema_of(chosen, selection)
    reader = arrow.RecordBatchReader.from_batches(schema, record_batches(chosen, schema))
    return cast("pyarrow.RecordBatchReader", reader)


def arrow_table(
    db: Database,
    table: str,
    filters: Sequence[str] = (),
    metrics: Sequence[str] = (),
    depth: int | None = None,
) -> pyarrow.Table:
    """A table as a ``pyarrow.Table``, whole in memory. Raises as :func:`pandas_frame` does."""
    return arrow_batches(db, table, filters, metrics, depth).read_all()


def _table(
    db: Database, name: str, filters: Sequence[str], metrics: Sequence[str], depth: int | None
) -> Table:
    return _named(Selection(db, Filter.parse(filters), metrics, depth), name)


def _named(selection: Selection, name: str) -> Table:
    if name not in TABLES:
        raise UsageError(
            f"no table {name!r}{did_you_mean(name, TABLES)}; there are {', '.join(TABLES)}"
        )
    return next(table for table in tables(selection) if table.name == name)
