"""Writing the SQLite file of a database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from hpcd.analysis.database.schema import INDEXES, SCHEMA, line_totals_schema
from hpcd.errors import StorageError

Row = Sequence[Any]


def write_tables(path: Path, tables: Iterable[tuple[str, Iterable[Row]]], metrics: int) -> None:
    """Create the SQLite file with ``tables`` (name and rows, all columns), of so many ``metrics``.

    Raises :class:`StorageError`.
    """
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            # The directory is renamed into place when all is written: no journal is needed.
            connection.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")
            connection.executescript(SCHEMA + line_totals_schema(metrics))
            connection.execute("BEGIN")
            for name, rows in tables:
                width = len(connection.execute(f"SELECT * FROM {name}").description)
                marks = ", ".join("?" * width)
                connection.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
            connection.execute("COMMIT")
            connection.executescript(INDEXES)
    except sqlite3.Error as error:
        raise StorageError(f"{path}: {error}") from None
