"""Writing the SQLite file of a database."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import chain, islice
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from urllib.parse import quote

from hpcd.analysis.arrays.column_files import storage_error
from hpcd.analysis.database.schema import INDEXES, SCHEMA, line_totals_schema
from hpcd.errors import StorageError

Row = Sequence[Any]


# Rows that one statement inserts, a third less time than one by one, and values: before 3.32 SQLite
# takes no more.
_TOGETHER, _MOST_VALUES = 32, 999


class TableWriter:
    """Writes the SQLite file of a database in a thread of its own, while workers do other things:
    tables in the order in which they are added."""

    def __init__(self, path: Path, metrics: int) -> None:
        self._tables: SimpleQueue[Mapping[str, Iterable[Row]]] = SimpleQueue()
        self._thread = ThreadPoolExecutor(1)
        self._written = self._thread.submit(write_tables, path, self._added(), metrics)

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._tables.put({})
        self._thread.shutdown()

    def add(self, tables: Mapping[str, Iterable[Row]]) -> None:
        """Write these tables (name to rows) after the tables added before."""
        self._tables.put(tables)

    def finish(self) -> None:
        """Wait until all is written. Raises :class:`StorageError`."""
        self._tables.put({})
        self._written.result()

    def _added(self) -> Iterator[tuple[str, Iterable[Row]]]:
        while tables := self._tables.get():
            yield from tables.items()


def write_tables(path: Path, tables: Iterable[tuple[str, Iterable[Row]]], metrics: int) -> None:
    """Create the SQLite file with ``tables`` (name and rows, all columns), for a number of
    ``metrics``.

    Raises :class:`StorageError`.
    """
    try:
        with closing(_create(path)) as connection:
            # The directory is renamed into place when all is written: no journal is needed.
            connection.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")
            connection.executescript(SCHEMA + line_totals_schema(metrics))
            connection.execute("BEGIN")
            for name, rows in tables:
                _insert(connection, name, iter(rows))
            connection.execute("COMMIT")
            connection.executescript(INDEXES)
    except sqlite3.Error as error:
        raise StorageError(f"{path}: {error}") from None


def _create(path: Path) -> sqlite3.Connection:
    """Make a file and connect to it. SQLite resolves the links of a path and opens the result by
    name: another file, if another user changed a folder of that path meanwhile."""
    try:
        with path.open("xb") as new_file:
            uri = f"file:{quote(str(path))}?mode=rw"
            connection = sqlite3.connect(uri, uri=True, isolation_level=None)
            if not _is_open(new_file.fileno()):
                connection.close()
                raise StorageError(f"{path}: moved by another process")
            return connection
    except OSError as error:
        raise storage_error(path, error) from None


def _is_open(fd: int) -> bool:
    """Whether this process has the file of descriptor ``fd`` open by another one, too."""
    mine = os.fstat(fd)
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            if int(entry.name) != fd and os.path.samestat(os.fstat(int(entry.name)), mine):
                return True
    return False


def _insert(connection: sqlite3.Connection, name: str, rows: Iterator[Row]) -> None:
    width = len(connection.execute(f"SELECT * FROM {name}").description)
    marks = f"({', '.join('?' * width)})"
    count = min(_TOGETHER, _MOST_VALUES // width)
    rest: list[Row] = []

    def together() -> Iterator[list[Any]]:
        while len(some := list(islice(rows, count))) == count:
            yield list(chain.from_iterable(some))
        rest.extend(some)

    many = ", ".join([marks] * count)
    connection.executemany(f"INSERT INTO {name} VALUES {many}", together())
    connection.executemany(f"INSERT INTO {name} VALUES {marks}", rest)
