"""A folder of CSV files: contexts, trace lines, metrics, costs, and the trace (RFC 4180, UTF-8).

The tables of :mod:`.tables`. Text that a spreadsheet would take for a formula begins with
an apostrophe; line ends and control characters are written as escapes.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

from hpcd.interchange.fitted_names import one_line
from hpcd.interchange.output.decimal_text import decimal_rows
from hpcd.interchange.output.export_selection import ExportSelection
from hpcd.interchange.tables.selected_tables import Column, tables

_LINE_END = "\r\n"
# Costs in seconds are whole ns.
_COST_PLACES = 9
# Rows of numbers made at once fit the processor's caches.
_ROWS = 8192


def write(selection: ExportSelection, path: Path) -> None:
    """Write ``selection`` to files in the folder ``path``."""
    for table in tables(selection):
        with (path / f"{table.name}.csv").open("wb") as file:
            file.write(_text_rows([[name] for name in table.columns]))
            for batch in table.batches():
                numbers = [column for column in batch if not isinstance(column, list)]
                if len(numbers) < len(batch):
                    file.write(_text_rows(batch))
                    continue
                for at in range(0, len(numbers[0]), _ROWS):
                    columns = [column[at : at + _ROWS] for column in numbers]
                    file.write(decimal_rows(columns, _COST_PLACES, _LINE_END.encode()))


def _text_rows(columns: list[Column] | list[list[str]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator=_LINE_END)
    writer.writerows(zip(*map(_cells, columns), strict=True))
    return text.getvalue().encode()


def _cells(column: Column) -> list[object]:
    if not isinstance(column, list):
        return list(column.tolist())
    return [_safe(value) if isinstance(value, str) else value for value in column]


def _safe(value: str) -> str:
    text = one_line(value) if value else ""
    return f"'{text}" if text.lstrip().startswith(("=", "+", "-", "@")) else text
