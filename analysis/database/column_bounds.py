"""Bounds of the numbers that readers of a database rely on.

Those of columns are checked when a database is opened, those of a table when it is first read
(:func:`damaged_columns`), and all by ``hpcd check``: no reader checks them again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from hpcd.analysis.database.schema import SCHEMA
from hpcd.analysis.trace.trace_lines import NO_RANK, LineColumns
from hpcd.array_types import I64
from hpcd.errors import FormatError
from hpcd.model.identity import MOST_FREQUENCY, MOST_RANKS

# Differences of times are computed: these fit into 63 bits. A merge lets clocks tell times up to
# 2^62, and uptimes up to 2^60.
_EARLIEST_NS, LATEST_NS = -(1 << 60), 3 << 61
_MOST = (1 << 32) - 1
LEAST_COST, MOST_COST = 1e-100, 1e100
"""Costs are 0 or between these: they can be added up, squared and divided by one another."""
_RANGES = {
    "source_line": (0, _MOST), "frequency": (0, MOST_FREQUENCY), "rank": (0, MOST_RANKS),
    "host.cpus": (0, _MOST),
    "process_row.size": (0, MOST_RANKS), "procedure.size": (0, 1 << 62),
    "calls": (0, 1 << 62), "records": (0, 1 << 62),
}  # fmt: skip
_NULLABLE = {
    "process_row": {"rank", "size", "end_ns", "cpu_before_ns", "cpu_ns"},
    "thread": {"attached_ns", "asleep_since_ns"},
    "procedure": {"module", "source_file", "source_line", "linkage_name"},
    "scope": {"parent", "name", "source_file", "source_line"},
    "cct": {"scope"},
    "called_object": {"file_system", "mount", "peer"},
    "call_total": {"object"},
}
# Tables whose rows are numbered from 1, and the table behind a view.
_FROM_ONE = {"module", "scope", "called_object"}
_ROWS_OF = {"process": "process_row"}


class Rows(Protocol):
    """Answers a query to the tables of a database, with parameters."""

    def __call__(self, query: str, *parameters: object) -> Iterator[tuple[Any, ...]]:
        """Yield the rows. Raises :class:`FormatError`."""


def require_lines(columns: LineColumns, rows: Rows, path: Path) -> None:
    """Raise :class:`FormatError` unless trace lines have a process, and times that can be
    subtracted. O(lines)."""
    ((last,),) = rows("SELECT coalesce(max(id), -1) FROM process_row")
    if int(columns.process.max(initial=0)) > last and len(columns.process):
        raise FormatError(f"{path}: a trace line's process does not exist")
    for times in (columns.start, columns.end):
        require_times(times, path)
    ranks = columns.rank
    if not NO_RANK <= int(ranks.min(initial=0)) <= int(ranks.max(initial=0)) <= MOST_RANKS:
        raise FormatError(f"{path}: a trace line's rank is out of range")


def require_times(times: I64, path: Path) -> None:
    """Raise :class:`FormatError` unless ``times``, ns since the origin, can be subtracted."""
    if len(times) and not _EARLIEST_NS <= int(times.min()) <= int(times.max()) <= LATEST_NS:
        raise FormatError(f"{path}: times are out of range")


class _Column(NamedTuple):
    """A column of a table; ``refers`` is the table whose rows it numbers, or empty."""

    name: str
    kind: str
    key: bool
    refers: str

    def condition(self, table: str) -> str:
        """Return the SQL condition of a value that readers do not expect."""
        name = self.name
        null = name in _NULLABLE.get(table, ())
        kinds = {"INTEGER": "'integer'", "REAL": "'real', 'integer'", "TEXT": "'text'"}[self.kind]
        terms = [f"typeof({name}) NOT IN ({kinds}{', ' + repr('null') if null else ''})"]
        low, high = _RANGES.get(name) or _RANGES.get(f"{table}.{name}", (0, 0))
        if name.endswith("_ns"):
            low, high = -LATEST_NS, LATEST_NS
        if high:
            terms.append(f"{name} NOT BETWEEN {low} AND {high}")
        if self.kind == "REAL":
            terms.append(f"{name} <> 0 AND {name} NOT BETWEEN {LEAST_COST} AND {MOST_COST}")
        if self.refers:
            target = _ROWS_OF.get(self.refers, self.refers)
            key = next(iter(_tables()[target])).name
            terms.append(
                f"{name} NOT BETWEEN 0 AND (SELECT coalesce(max({key}), -1) FROM {target})"
            )
        return " OR ".join(terms)


def tables_of(query: str) -> set[str]:
    """Return the tables of the schema that a query reads."""
    names = set(re.findall(r"\b(?:FROM|JOIN) (\w+)", query))
    if "process" in names:
        names |= {"process_row", "shared_text", "measurement"}
    return names & _tables().keys()


def damaged_columns(rows: Rows, tables: Iterable[str] | None = None) -> Iterator[str]:
    """Say which columns of ``tables``, by default all, have values of another type than theirs, out
    of range, or that refer to nothing; and which tables lack rows. O(rows of the tables)."""
    for table in _tables() if tables is None else sorted(tables):
        columns = _tables()[table]
        conditions = [f"max({column.condition(table)})" for column in columns]
        key = next((column.name for column in columns if column.key), "0")
        query = f"SELECT count(*), min({key}), max({key}), {', '.join(conditions)} FROM {table}"
        ((count, first, last, *damaged),) = rows(query)
        for column, wrong in zip(columns, damaged, strict=True):
            if wrong:
                yield f"{table}: a value of {column.name} is out of range, or of another type"
        begin = int(table in _FROM_ONE)
        if key != "0" and count and (first, last) != (begin, begin + count - 1):
            yield f"{table}: rows are missing"


@cache
def _tables() -> dict[str, list[_Column]]:
    tables = re.findall(r"CREATE TABLE (\w+) \((.*?)\)(?: WITHOUT ROWID)?;", SCHEMA, re.DOTALL)
    column = (
        r"(\w+) (INTEGER|REAL|TEXT)\b( PRIMARY KEY)?(?: NOT NULL| UNIQUE)?(?: REFERENCES (\w+))?"
    )
    return {
        table: [
            _Column(name, kind, bool(key) and kind == "INTEGER", refers)
            for name, kind, key, refers in re.findall(column, body)
        ]
        for table, body in tables
    }
