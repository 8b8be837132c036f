"""Rows of identities read at once are those read one by one, and by column they stay the same."""

from __future__ import annotations

import pickle
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from hpcd.analysis.merge.sqlite_writer import write_tables
from hpcd.measurement.identity_columns import IdentityColumns
from hpcd.measurement.identity_rows import read_row, read_rows
from hpcd.model.identity import Process, Thread


def process(number: int, **changes: Any) -> dict[str, Any]:
    row = {
        "id": number, "pid": 100 + number, "parent_pid": 1, "name": "a", "exe": "/bin/a",
        "command": ["a", str(number % 2)], "uid": 0, "start_ns": 5, "job": "j", "rank": number,
        "size": None,
    }  # fmt: skip
    return {**row, **changes}


@pytest.mark.parametrize(
    "rows",
    [
        [process(number) for number in range(9)],
        [process(number, rank=None if number % 2 else 3) for number in range(9)],
        [process(number, later="unknown") for number in range(9)],
        [*(process(number) for number in range(8)), {"id": 9, "pid": 1, "parent_pid": 1, "name": "",
         "exe": "", "command": [7], "uid": 0, "start_ns": 0}],
    ],
    ids=["all alike", "with and without ranks", "of a later version", "of an earlier one"],
)  # fmt: skip
def test_rows_read_at_once_are_those_read_one_by_one(rows: list[dict[str, Any]]) -> None:
    assert read_rows(Process, rows) == [read_row(Process, row) for row in rows]


@pytest.mark.parametrize("wrong", [{"pid": "1"}, {"name": 5}, {"command": 5}, {"pid": True}])
def test_what_is_no_row_is_refused_among_many(wrong: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        read_rows(Process, [*(process(number) for number in range(8)), process(8, **wrong)])


def test_rows_by_column_are_the_same_rows() -> None:
    for many in (0, 1, 7):
        rows = {n: read_row(Process, process(n, pid=n << 40)) for n in range(many)}
        columns = pickle.loads(pickle.dumps(IdentityColumns.of(Process, rows)))
        assert columns == rows
        assert len(columns) == many
        assert columns.array("pid").tolist() == [n << 40 for n in range(many)]
        assert columns.array("size", -1).tolist() == [-1] * many
    threads = {5: Thread(5, 0, 1, "x", 2, None, 3), 2: Thread(2, 1, 1 << 70, "y", 2, 9)}
    assert IdentityColumns.of(Thread, threads) == threads
    with pytest.raises(KeyError):
        IdentityColumns.of(Thread, threads)[1]


@pytest.mark.parametrize("metrics", [0, 3, 70])
def test_totals_by_line_answer_alike_however_they_are_stored(tmp_path: Path, metrics: int) -> None:
    rows = [(metric, line, metric * 10.5 + line) for metric in range(metrics) for line in (0, 1)]
    if 0 < metrics <= 64:
        wide = [(line, *(metric * 10.5 + line for metric in range(metrics))) for line in (0, 1)]
        write_tables(tmp_path / "db", [("trace_line_total", wide)], metrics)
    else:
        write_tables(tmp_path / "db", [("trace_line_metric", rows)], metrics)
    with sqlite3.connect(tmp_path / "db") as connection:
        assert connection.execute("SELECT * FROM trace_line_metric").fetchall() == rows
        query = "SELECT total FROM trace_line_metric WHERE metric = ? AND trace_line = 1"
        assert connection.execute(query, (2,)).fetchall() == [(22.0,)] * (metrics > 2)
