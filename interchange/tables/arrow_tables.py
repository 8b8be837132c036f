"""Tables as Parquet or Arrow IPC files (https://arrow.apache.org/docs/format), by pyarrow.

The tables of :mod:`.tables`, written batch by batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet

from hpcd.interchange.fitted_names import utf8
from hpcd.interchange.output.export_selection import ExportSelection
from hpcd.interchange.tables.selected_tables import Column, Table, tables

_TYPES = {
    "u1": pyarrow.uint8(), "u2": pyarrow.uint16(), "u4": pyarrow.uint32(), "u8": pyarrow.uint64(),
    "i8": pyarrow.int64(), "i4?": pyarrow.int32(), "f8": pyarrow.float64(),
    # Plain strings hold 2 GB in a batch.
    "text": pyarrow.large_string(),
}  # fmt: skip
# Rows written at once: row groups of a few would make a file larger than its contents.
_ROWS = 1 << 17


def write_parquet(selection: ExportSelection, path: Path) -> None:
    """Write ``selection`` to Parquet files in the folder ``path``."""

    def open_file(file: Path, schema: Any) -> Any:
        return pyarrow.parquet.ParquetWriter(file, schema, compression="zstd")

    _write(selection, path, ".parquet", open_file)


def write_arrow(selection: ExportSelection, path: Path) -> None:
    """Write ``selection`` to Arrow IPC files in the folder ``path``."""
    _write(selection, path, ".arrow", lambda file, schema: pyarrow.ipc.new_file(str(file), schema))


def schema_of(table: Table, selection: ExportSelection) -> Any:
    """Return the ``pyarrow.Schema`` of ``table``; columns of metrics have a ``unit``."""
    units = dict(zip(selection.names, selection.units, strict=True))
    return pyarrow.schema(
        [
            pyarrow.field(utf8(name), _TYPES[kind], metadata={"unit": units.get(name, "")})
            for name, kind in zip(table.columns, table.kinds, strict=True)
        ]
    )


def record_batches(table: Table, schema: Any) -> Iterator[Any]:
    """Yield the rows of ``table`` as ``pyarrow.RecordBatch``."""
    for columns in table.batches():
        arrays = [_array(column, kind) for column, kind in zip(columns, table.kinds, strict=True)]
        yield pyarrow.record_batch(arrays, schema=schema)


def _write(
    selection: ExportSelection, path: Path, suffix: str, open_file: Callable[[Path, Any], Any]
) -> None:
    for table in tables(selection):
        schema = schema_of(table, selection)
        with open_file(path / f"{table.name}{suffix}", schema) as writer:
            _write_table(writer, table, schema)


def _write_table(writer: Any, table: Table, schema: Any) -> None:
    held: list[Any] = []
    rows = 0
    for batch in record_batches(table, schema):
        held.append(batch)
        rows += len(batch)
        if rows >= _ROWS:
            writer.write_table(pyarrow.Table.from_batches(held, schema).combine_chunks())
            held, rows = [], 0
    if held:
        writer.write_table(pyarrow.Table.from_batches(held, schema).combine_chunks())


def _array(column: Column, kind: str) -> Any:
    if isinstance(column, np.ndarray):
        return pyarrow.array(np.ascontiguousarray(column), _TYPES[kind])
    if kind == "text":
        return pyarrow.array([utf8(str(value)) for value in column], _TYPES[kind])
    return pyarrow.array(column, _TYPES[kind])
