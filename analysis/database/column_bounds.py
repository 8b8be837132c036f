"""Bounds of the numbers that readers of a database rely on, checked when it is opened.

What takes time in proportion to the tables is checked by :func:`wrong_types`, for ``hpcd check``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from hpcd.analysis.database.schema import SCHEMA
from hpcd.analysis.trace.trace_lines import LineColumns
from hpcd.errors import FormatError

# Records have 16 bits for their event.
_MOST_EVENTS = 1 << 16
# Differences of times are computed: these fit into 63 bits. A merge lets clocks tell times up to
# 2^62, and uptimes up to 2^60.
_EARLIEST_NS, _LATEST_NS = -(1 << 60), 3 << 61
_MOST_LINES = (1 << 32) - 1
_CONDITIONS = {
    "INTEGER": "typeof({0}) NOT IN ('integer', 'null')",
    # Infinity is a number to SQLite, and what is none is NULL.
    "REAL": "typeof({0}) NOT IN ('real', 'integer', 'null') OR abs({0}) > 1.7e308",
    "TEXT": "typeof({0}) NOT IN ('text', 'null')",
}


class Rows(Protocol):
    """Answers a query to the tables of a database, with parameters."""

    def __call__(self, query: str, *parameters: object) -> Iterator[tuple[Any, ...]]:
        """Yield the rows. Raises :class:`FormatError`."""


def require_events(rows: Rows, path: Path) -> None:
    """Raise :class:`FormatError` unless events have numbers, scales and frequencies that are
    some. O(events), which are few."""
    wrong = (
        f"id NOT BETWEEN 0 AND {_MOST_EVENTS - 1} OR scale IS NULL OR frequency < 0"
        f" OR {_CONDITIONS['REAL'].format('scale')}"
        f" OR {_CONDITIONS['INTEGER'].format('frequency')}"
        f" OR {_CONDITIONS['INTEGER'].format('interval')}"
    )
    for (number,) in rows(f"SELECT id FROM event WHERE {wrong} LIMIT 1"):
        raise FormatError(f"{path}: event {number} is damaged")


def require_lines(columns: LineColumns, rows: Rows, path: Path) -> None:
    """Raise :class:`FormatError` unless trace lines have a process, and times that can be
    subtracted. O(lines)."""
    ((last,),) = rows("SELECT coalesce(max(id), -1) FROM process_row")
    if int(columns.process.max(initial=0)) > last and len(columns.process):
        raise FormatError(f"{path}: a trace line's process does not exist")
    for times in (columns.start, columns.end):
        if len(times) and not _EARLIEST_NS <= int(times.min()) <= int(times.max()) <= _LATEST_NS:
            raise FormatError(f"{path}: a trace line's times are out of range")


def wrong_types(rows: Rows) -> Iterator[str]:
    """Say which columns of the tables have values of another type than theirs, infinity, or a line
    of source code that no file has. O(rows of all tables)."""
    for table, columns in _tables().items():
        for column, kind in columns.items():
            condition = _CONDITIONS[kind].format(column)
            if column == "source_line":
                condition += f" OR {column} NOT BETWEEN 0 AND {_MOST_LINES}"
            if next(iter(rows(f"SELECT 1 FROM {table} WHERE {condition} LIMIT 1")), None):
                yield f"{table}: a value of {column} is out of range, or of another type"


def _tables() -> dict[str, dict[str, str]]:
    """The types of columns, by table and column."""
    tables = re.findall(r"CREATE TABLE (\w+) \((.*?)\)(?: WITHOUT ROWID)?;", SCHEMA, re.DOTALL)
    return {table: dict(re.findall(r"(\w+) (INTEGER|REAL|TEXT)\b", body)) for table, body in tables}
