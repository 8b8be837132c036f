"""Tables of a database for pandas and Arrow: :func:`pandas_frame`, :func:`arrow_table`.

The tables of :mod:`.tables`, by name: ``contexts``, ``modules``, ``metrics``, ``events``,
``trace_lines``, ``costs`` and ``trace``. All functions take the options of ``hpcd export``:
``filters`` as in ``--filter``, ``metrics`` by name, ``depth`` in frames.

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
from hpcd.interchange.fitted_names import utf8
from hpcd.interchange.formats import import_library
from hpcd.interchange.output.export_selection import ExportSelection
from hpcd.interchange.tables.selected_tables import Table, tables

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
    """Return a table as a pandas ``DataFrame``; docs/python.md has the columns' types.

    The whole table is in memory: ``trace`` takes 35 bytes a record and 8 for each metric. Raises
    :class:`UsageError` for an unknown table, metric or filter, :class:`PlatformError` without
    pandas.
    """
    pandas = import_library("pandas", "pandas", "a data frame")
    source = _select_table(ExportSelection(db, Filter.parse(filters), metrics, depth), table)
    parts: list[list[Any]] = [[] for _ in source.columns]
    for batch in source.batches():
        for part, column in zip(parts, batch, strict=True):
            part.append(column)
    return pandas.DataFrame(
        {
            utf8(name): _series(pandas, part, kind)
            for name, part, kind in zip(source.columns, parts, source.kinds, strict=True)
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
    """Return a table as a stream of Arrow record batches, made as they are read.

    Memory does not grow with the table: DuckDB, Polars and ``pyarrow.dataset`` read a trace of any
    length from it. Raises as :func:`pandas_frame` does.
    """
    arrow = import_library("pyarrow", "pyarrow", "an Arrow table")
    # It imports pyarrow itself.
    from hpcd.interchange.tables.arrow_tables import record_batches, schema_of

    selection = ExportSelection(db, Filter.parse(filters), metrics, depth)
    source = _select_table(selection, table)
    schema = schema_of(source, selection)
    reader = arrow.RecordBatchReader.from_batches(schema, record_batches(source, schema))
    return cast("pyarrow.RecordBatchReader", reader)


def arrow_table(
    db: Database,
    table: str,
    filters: Sequence[str] = (),
    metrics: Sequence[str] = (),
    depth: int | None = None,
) -> pyarrow.Table:
    """Return a table as a ``pyarrow.Table``, whole in memory. Raises as :func:`pandas_frame`."""
    return arrow_batches(db, table, filters, metrics, depth).read_all()


def _select_table(selection: ExportSelection, name: str) -> Table:
    if name not in TABLES:
        raise UsageError(
            f"no table {name!r}{did_you_mean(name, TABLES)}; there are {', '.join(TABLES)}"
        )
    return next(table for table in tables(selection) if table.name == name)
