"""Reading the SQLite file of a database, which is hostile input.

A schema is a program: a view in place of a table, a generated column or an index on an expression
runs when the table is read. So a file is read if it was made by exactly the statements of
:mod:`~hpcd.analysis.database.schema`, a statement may take steps in proportion to the file, and
sorting makes no temporary files but takes bounded memory.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import quote

from hpcd.analysis.database.schema import INDEXES, MOST_COLUMNS, SCHEMA, line_totals_schema
from hpcd.errors import FormatError
from hpcd.regular_file import open_regular

_Object = tuple[str, str, str, str]
"""Kind, name, table and statement of an entry of a schema."""

# A summary, the longest text, is far below a MiB; lines are chosen by a parameter of JSON.
_MOST_BYTES = 64 << 20
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: _MOST_BYTES,
    sqlite3.SQLITE_LIMIT_COLUMN: 128,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: MOST_COLUMNS,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 100_000,
}
# Steps of SQLite's machine: some 10 a row and 50 million a second. A row has ten bytes at least,
# and sorting and joining take a few times as many. The least is for queries on small databases.
_STEPS_A_BYTE, _LEAST_STEPS = 200, 50_000_000
_STEPS_AT_ONCE = 1_000_000
# Bytes that SQLite may take in this process: 16 million rows sorted by a number.
_MOST_HEAP = 512 << 20

# Rows that a thread takes before another may have the connection.
_ROWS_AT_ONCE = 1000

_LINE_TOTALS = "trace_line_total"
"""The table with a column for each metric."""


class BoundedConnection(sqlite3.Connection):
    """A connection whose statements are interrupted when they take too many steps.

    Several threads may use it, each while it holds ``lock``: without that they deadlock. The
    handler that counts steps waits for the GIL with SQLite's mutex held; a thread that reads a
    column waits for this mutex with the GIL held, which sqlite3 releases for steps alone.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.lock = Lock()

    def bound_steps(self, size: int) -> None:
        """Bound the steps of a statement for a file of ``size`` bytes."""
        self._most = (_LEAST_STEPS + _STEPS_A_BYTE * size) // _STEPS_AT_ONCE
        self._left = self._most
        self.set_progress_handler(self._goes_on_no_longer, _STEPS_AT_ONCE)

    def cursor(self, *arguments: Any, **options: Any) -> Any:
        """A new cursor, and all steps anew."""
        self._left = self._most
        return super().cursor(*arguments, **options)

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        """Execute a statement, with all steps anew."""
        self._left = self._most
        return super().execute(*arguments)

    def _goes_on_no_longer(self) -> bool:
        self._left -= 1
        return self._left < 0


def connect(path: Path) -> BoundedConnection:
    """Open the SQLite file of a database read-only. Raises :class:`FormatError`, also where its
    schema is another than a database's."""
    with open_regular(path) as file:
        size = file.seek(0, 2)
    try:
        uri = f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
        connection = sqlite3.connect(
            uri, uri=True, check_same_thread=False, factory=BoundedConnection
        )
    except sqlite3.Error as error:
        raise FormatError(f"{path}: {error}") from None
    try:
        for category, limit in _LIMITS.items():
            connection.setlimit(category, limit)
        if sys.version_info >= (3, 12):
            connection.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
        connection.bound_steps(size)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(f"PRAGMA hard_heap_limit = {_MOST_HEAP}")
        _require_schema(connection, path)
    except sqlite3.Error as error:
        connection.close()
        raise FormatError(f"{path}: {error}") from None
    except FormatError:
        connection.close()
        raise
    return connection


def each_row(
    connection: BoundedConnection, path: Path, query: str, *parameters: object
) -> Iterator[tuple[Any, ...]]:
    """The rows of ``query`` one by one. Raises :class:`FormatError` naming ``path``."""
    try:
        with connection.lock:
            cursor = connection.execute(query, parameters)
            rows = cursor.fetchmany(_ROWS_AT_ONCE)
        while rows:
            yield from rows
            with connection.lock:
                rows = cursor.fetchmany(_ROWS_AT_ONCE)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise FormatError(f"{path}: {error}") from None
    except MemoryError:
        raise FormatError(f"{path}: a query needs more than {_MOST_HEAP >> 20} MiB") from None


def _require_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file with objects that hpcd does not make."""
    # More than there may be, lest a long schema be read whole.
    most = len(_schema(0)) + len(_schema(1))
    rows = connection.execute(
        "SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master LIMIT ?", (most,)
    ).fetchall()
    metrics = sum(str(sql).count(" REAL") for _, name, _, sql in rows if name == _LINE_TOTALS)
    known = _schema(min(metrics, MOST_COLUMNS))
    for row in rows:
        if row not in known:
            raise FormatError(f"{path}: its {row[0]} {str(row[1])[:60]!r} is not one of a database")


@cache
def _schema(metrics: int) -> frozenset[_Object]:
    """The objects of a database whose totals by trace line have columns for ``metrics`` metrics."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(SCHEMA + line_totals_schema(metrics) + INDEXES)
        return frozenset(
            connection.execute("SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master")
        )
