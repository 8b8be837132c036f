"""Rows of identities read at once are those read one by one, and by column they stay the same."""

from __future__ import annotations

import json
import pickle
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from hpcd.analysis.merge.sqlite_writer import write_tables
from hpcd.measurement.identity_columns import IdentityColumns, arrays_of
from hpcd.measurement.identity_rows import read_columns, read_row, read_rows
from hpcd.measurement.identity_text import symbol_modules
from hpcd.measurement.reader import add_symbols
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
        assert arrays_of([columns], "pid").tolist() == [n << 40 for n in range(many)]
        assert arrays_of([columns], "size", -1).tolist() == [-1] * many
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


def written(rows: Any) -> bytes:
    return json.dumps(rows, separators=(",", ":")).encode()


SYMBOLS = {"3": [[0, 16, "main"], [1 << 50, 7, "f(int)"]], "4": [], "1": [[5, 0, ""]]}


def test_text_is_read_into_columns_as_json_is() -> None:
    threads = [{"line": 2 * number, "process": 0, "tid": 7, "name": "worker", "start_ns": number,
                "end_ns": number if number % 2 else None, "cpu_ns": None, "attached_ns": -5,
                "asleep_since_ns": -(10**17)} for number in range(5)]  # fmt: skip
    processes = [process(number, pid=number << 40, command=[]) for number in range(4)]
    for kind, key, rows in (
        (Thread, "line", threads), (Process, "id", processes), (Process, "id", [process(3)]),
        (Process, "id", [process(0), process(1, command=["b", "c d"], job="other")]),
        (Thread, "line", []),
    ):  # fmt: skip
        columns = read_columns(kind, written(rows))
        assert columns == {getattr(row, key): row for row in read_rows(kind, rows)}
        assert columns is not None
        assert columns.columns == IdentityColumns.of(kind, dict(columns.items())).columns
        # Torn anywhere it is not read by these loops.
        text = written(rows)
        for end in range(len(text)):
            assert read_columns(kind, text[:end]) is None


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([process(0)]).encode(),
        written([process(1), process(1)]),
        written([process(2), process(1)]),
        written([process(-1)]),
        written([process(1 << 32)]),
        written([process(0, pid=10**18)]),
        written([process(0, pid=1.5)]),
        written([process(0, pid=None)]),
        written([process(0, name="\u00e9")]),
        written([process(0, name='"')]),
        written([process(0, command=["a", 1])]),
        written([process(0, later=1)]),
        written([process(0)]).replace(b'"pid":100', b'"pid":0100'),
        written([process(0)]).replace(b'"pid":100', b'"pid":-0'),
        written([process(0)]).replace(b'"j"', b'"\x01"'),
        written([process(0)]).replace(b'"j"', b'"\xc3\xa9"'),
        written([process(0)]) + b" ",
    ],
)
def test_what_is_written_in_another_way_is_left_to_json(text: bytes) -> None:
    assert read_columns(Process, text) is None


def test_modules_with_symbols_are_found_in_text() -> None:
    text, known = written(SYMBOLS), {}
    add_symbols(known, json.loads(text))
    assert symbol_modules(text) == [module for module, rows in known.items() if rows]
    assert symbol_modules(b"{}") == []
    for end in range(len(text)):
        assert symbol_modules(text[:end]) is None
    for other in ({"3": [[0, 1, 2]]}, {"3": [[0, 1]]}, {"a": []}, {"3": [[0, 1, "\u00e9"]]}, []):
        assert symbol_modules(written(other)) is None
    assert symbol_modules(b'{"3":[],"3":[]}') is None
