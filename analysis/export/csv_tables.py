"""A folder of CSV files: contexts, trace lines, metrics, costs, and the trace (RFC 4180, UTF-8).

The tables are those of :mod:`.tables`. Text that a spreadsheet would take for a formula begins with
an apostrophe; line ends and control characters are written as escapes.
"""

from __future__ import annotations

import csv
from pathlib import Path

from hpcd.analysis.export.export_selection import Selection
from hpcd.analysis.export.tables import Table, tables
from hpcd.analysis.export.text import one_line
from hpcd.array_types import Array


def write(selection: Selection, path: Path) -> None:
    """Write ``selection`` to files in the folder ``path``."""
    for table in tables(selection):
        with (path / f"{table.name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\r\n")
            writer.writerow(table.columns)
            _write_rows(writer, table)


def _write_rows(writer: object, table: Table) -> None:
    for batch in table.batches():
        columns = [_cells(column) for column in batch]
        writer.writerows(zip(*columns, strict=True))  # type: ignore[attr-defined]


def _cells(column: Array | list[str] | list[int | None]) -> list[object]:
    if not isinstance(column, list):
        return list(column.tolist())
    return [_safe(value) if isinstance(value, str) else value for value in column]


def _safe(value: str) -> str:
    text = one_line(value) if value else ""
    return f"'{text}" if text.lstrip().startswith(("=", "+", "-", "@")) else text
