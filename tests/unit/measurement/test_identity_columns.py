"""Tables of identities come back from JSON, and whatever else there is in it is refused."""

from __future__ import annotations

import json
import pickle
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcd.analysis.merge.publish.sqlite_writer import write_tables
from hpcd.errors import FormatError
from hpcd.measurement.identity_columns import (
    IdentityColumns,
    arrays_of,
    read_host,
    read_table,
    table_of,
)
from hpcd.measurement.recorded_symbols import read_symbols
from hpcd.model.identity import Event, Module, ModuleKind, Process, Thread


def process(number: int, **changes: Any) -> Process:
    row = {
        "id": number, "pid": 100 + number, "parent_pid": 1, "name": "a", "exe": "/bin/a",
        "command": ("a", str(number % 2)), "uid": 0, "start_ns": 5, "job": "j", "rank": number,
        "size": None,
    }  # fmt: skip
    return Process(**{**row, **changes})


def as_json(kind: type[Any], rows: list[Any]) -> dict[str, Any]:
    table: dict[str, Any] = json.loads(json.dumps(table_of(kind, rows)))
    return table


numbers = st.integers(-(1 << 63), (1 << 63) - 1)
texts = st.text(max_size=9)
rows_of = {
    Process: st.builds(
        Process, st.integers(0, (1 << 32) - 1), numbers, numbers, texts, texts,
        st.lists(texts, max_size=3).map(tuple), numbers, numbers, texts, st.none() | numbers,
        st.none() | numbers,
    ),
    Thread: st.builds(
        Thread, st.integers(0, (1 << 32) - 1), numbers, numbers, texts, numbers,
        st.none() | numbers, st.none() | numbers, st.none() | numbers, st.none() | numbers,
    ),
    Event: st.builds(
        Event, st.integers(0, 99), texts, texts, st.floats(0, 9), texts, numbers, st.booleans()
    ),
    Module: st.builds(
        Module, st.integers(0, 99), st.sampled_from(ModuleKind), texts, texts, numbers, numbers
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", rows_of, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_tables_come_back(kind: type[Any], data: st.DataObject) -> None:
    rows = data.draw(st.lists(rows_of[kind], max_size=5))
    table = read_table(kind, as_json(kind, rows))
    assert table.values() == rows
    assert len(table) == len(rows)
    keys = [getattr(row, "line" if kind is Thread else "id") for row in rows]
    assert table.ascends() == (keys == sorted(set(keys)))
    if len(set(keys)) == len(keys):
        by_number = dict(zip(keys, rows, strict=True))
        assert table == by_number
        assert table.columns == IdentityColumns.of(kind, by_number).columns


def test_what_all_rows_have_is_written_once() -> None:
    table = table_of(Process, [process(number) for number in range(9)])
    assert table["exe"] == ["/bin/a"] and table["size"] == [None]
    assert table["id"] == list(range(9))
    assert table_of(Process, [process(3)] * 2)["id"] == [3, 3]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"pid": ["1"] * 3}, "another type"),
        ({"pid": [1.5] * 3}, "another type"),
        ({"pid": [True] * 3}, "another type"),
        ({"pid": [None] * 3}, "another type"),
        ({"name": [5]}, "another type"),
        ({"command": [5]}, "another type"),
        ({"command": ["a b"]}, "another type"),
        ({"pid": [1, 2]}, "no column of 3 rows"),
        ({"pid": []}, "no column of 3 rows"),
        ({"pid": 7}, "no column of 3 rows"),
        ({"pid": None}, "no column of 3 rows"),
        ({"id": [1 << 32, 1, 2]}, "id 4294967296 is out of range"),
        ({"id": [0, -1, 2]}, "id -1 is out of range"),
        ({"uid": [1 << 63]}, "uid is out of range"),
        ({"pid": [-(1 << 63) - 1, 1, 2]}, "pid is out of range"),
        ({"rank": [1 << 70, None, 2]}, "rank is out of range"),
        ({"id": 5}, "a table without id"),
        ({"id": None}, "a table without id"),
    ],
)
def test_what_is_no_table_is_refused(wrong: dict[str, Any], why: str) -> None:
    table = {**as_json(Process, [process(number) for number in range(3)]), **wrong}
    with pytest.raises((FormatError, TypeError), match=why):
        read_table(Process, table)
    with pytest.raises(TypeError, match="no object"):
        read_table(Process, [table])


def test_tables_of_other_versions_are_read() -> None:
    table = as_json(Process, [process(number) for number in range(3)])
    assert read_table(Process, {**table, "later": [1, 2, 3]}).values() == [*map(process, range(3))]
    del table["rank"]
    assert read_table(Process, table).column("rank") == [None] * 3
    with pytest.raises(ValueError):
        read_table(Module, {"id": [1], "kind": ["of-a-later-version"], "path": [""]})


def test_a_host_is_an_object() -> None:
    host = {"hostname": "h", "boot_id": "b", "kernel": "6", "machine": "x86_64", "cpus": 2}
    assert read_host(host).cpus == 2
    for wrong in ({**host, "cpus": "2"}, {**host, "kernel": None}, {"cpus": 2}, 5):
        with pytest.raises((TypeError, KeyError)):
            read_host(wrong)


def test_rows_by_column_are_the_same_rows() -> None:
    for count in (0, 1, 7):
        rows = {n: process(n, pid=n << 40) for n in range(count)}
        columns = pickle.loads(pickle.dumps(IdentityColumns.of(Process, rows)))
        assert columns == rows
        assert len(columns) == count
        assert arrays_of([columns], "pid").tolist() == [n << 40 for n in range(count)]
        assert arrays_of([columns], "size", -1).tolist() == [-1] * count
    threads = {5: Thread(5, 0, 1, "x", 2, None, 3), 2: Thread(2, 1, 1 << 70, "y", 2, 9)}
    assert IdentityColumns.of(Thread, threads) == threads
    with pytest.raises(KeyError):
        IdentityColumns.of(Thread, threads)[1]


def test_symbols_are_read_by_column() -> None:
    columns = ([0, 1 << 50], [16, 7], ["main", "f(int)"])
    payload = {"3": columns, "4": [[], [], []], "5": [*columns, [0, 9]]}
    assert read_symbols(json.dumps(payload).encode()) == {
        3: (columns, []), 4: (([], [], []), []), 5: (columns, [0, 9]),
    }  # fmt: skip
    for wrong in (
        {"3": [[0], [1], [2]]}, {"3": [[0], [1]]}, {"a": [[], [], []]}, [], {"3": [[0], [1], []]},
        {"3": [[0.5], [1], [""]]}, {"3": [0, 1, ""]}, {"3": [[True], [1], [""]]},
        {"3": [*columns, [1]]}, {"3": [*columns, [1, "2"]]}, {"3": [*columns, [1, -2]]},
        {"3": [*columns, [1, 1 << 63]]}, {"3": [*columns, 7]},
    ):  # fmt: skip
        with pytest.raises((FormatError, TypeError, ValueError, AttributeError)):
            read_symbols(json.dumps(wrong).encode())


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
