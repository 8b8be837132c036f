"""Recorded calls in measurements and databases: round trips, totals, hostile input."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from hpcd.analysis.calls.totals import UNKNOWN, total_calls
from hpcd.analysis.database import open as open_database
from hpcd.analysis.database.check import check_database
from hpcd.analysis.merge.stages import merge
from hpcd.errors import FormatError, UsageError
from hpcd.measurement.call_codec import Calls, decode_calls, encode_calls
from hpcd.measurement.check import check_measurement
from hpcd.measurement.chunk import ChunkKind, encode_chunk
from hpcd.measurement.reader import open_measurement
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model import frame
from hpcd.model.calls import CalledFunction, CalledObject, CallValue, Group, ValueKind
from hpcd.model.identity import Event, Host, Module, ModuleKind, Process, Thread
from tests.support.paths import ROOT
from tests.support.recorded import hpcd

VALUES = (CallValue("file", ValueKind.OBJECT), CallValue("read", ValueKind.BYTES, "B"),
          CallValue("error", ValueKind.ERROR))  # fmt: skip
READ = CalledFunction(0, "read", "", Group.IO, VALUES)
WRITE = CalledFunction(
    1, "write", "", Group.IO, (VALUES[0], CallValue("written", ValueKind.BYTES, "B"), VALUES[2])
)
BETWEEN = CalledFunction(
    2, "sendfile", "", Group.IO,
    (VALUES[0], CallValue("moved", ValueKind.BYTES, "B"), VALUES[2],
     CallValue("other", ValueKind.OBJECT)),
)  # fmt: skip
SEND = CalledFunction(
    3, "MPI_Send", "/lib/libmpi.so", Group.MPI,
    (CallValue("count", ValueKind.SIGNED), CallValue("datatype_size", ValueKind.BYTES, "B")),
)  # fmt: skip
SECOND = 10**9


def some_calls(count: int, seed: int = 3) -> Calls:
    """Calls of three lines and three functions, of files 5 and 6."""
    rng = np.random.default_rng(seed)
    value = np.zeros((count, 6), np.uint64)
    value[:, 0] = rng.integers(5, 7, count)
    value[:, 1] = rng.integers(0, 5000, count)
    function = rng.integers(0, 2, count).astype(np.uint16)
    return Calls(
        rng.integers(0, 3, count).astype(np.uint32),
        rng.integers(SECOND, 2 * SECOND, count).astype(np.uint64),
        rng.integers(100, 10**6, count).astype(np.uint64),
        rng.integers(0, 4, count).astype(np.uint32),
        function,
        np.ones(count, np.uint32),
        value,
    )


def write(
    path: Path, parts: list[Calls], *, host: str = "h", more: Sequence[CalledFunction] = ()
) -> None:
    """A measurement with one sample a line and these calls, a chunk each."""
    writer = MeasurementWriter(path, Host(host, "b", "6", "x86_64", 1), options={})
    writer.add_event(Event(0, "cpu-clock", "s", 1e-3, "cpu_time", 1000))
    writer.add_process(Process(0, 7, 1, "app", "/bin/app", ("app",), 0, SECOND))
    for line in range(3):
        writer.add_thread(Thread(line, 0, 7 + line, f"thread {line}", SECOND))
    writer.add_module(Module(1, ModuleKind.NAMED, "app"))
    writer.add_symbols(1, [(1, 1, "main"), (2, 1, "work"), (3, 1, "io")])
    writer.add_clock_pair(SECOND, 10**18)
    writer.add_nodes(
        np.array([0, 1, 2], np.uint32),
        np.array([frame.module_frame(1, at) for at in (1, 2, 3)], np.uint64),
    )
    lines = np.arange(3, dtype=np.uint32)
    writer.add_records(lines, np.full(3, SECOND, np.uint64), np.full(3, 3, np.uint32), 0)
    for function in (READ, WRITE, BETWEEN, *more):
        writer.add_function(function)
    writer.add_object(
        CalledObject(5, "file", "/data/a\x1b[1m", {"file_system": "ext4", "mount": "/data"})
    )
    writer.add_object(CalledObject(6, "socket", "a -> b", {"peer": "b"}))
    for calls in parts:
        writer.add_calls(calls)
        writer.flush()
    writer.add_clock_pair(3 * SECOND, 10**18 + 2 * SECOND)
    writer.close()


def database(tmp_path: Path, parts: list[Calls]) -> Path:
    write(tmp_path / "m", parts)
    merge([tmp_path / "m"], tmp_path / "db", workers=1)
    return tmp_path / "db"


def test_calls_are_read_as_they_were_written(tmp_path: Path) -> None:
    parts = [some_calls(1000, 1), some_calls(500, 2), Calls.none()]
    write(tmp_path / "m", parts)
    assert check_measurement(tmp_path / "m") == []
    with open_measurement(tmp_path / "m") as measurement:
        assert [f.name for f in measurement.functions.values()] == ["read", "write", "sendfile"]
        assert measurement.functions[1] == WRITE
        assert measurement.objects[6].details == {"peer": "b"}
        read = list(measurement.call_chunks())
    for want, have in zip(parts[:2], read, strict=True):
        want = want.in_order()
        for name in ("line", "time", "duration", "node", "function", "weight", "value"):
            assert np.array_equal(getattr(want, name), getattr(have, name)), name


def test_a_measurement_without_calls_is_as_before(tmp_path: Path) -> None:
    writer = MeasurementWriter(tmp_path / "m", Host("h", "b", "6", "x86_64", 1), options={})
    writer.add_event(Event(0, "cpu-clock", "s", 1e-3, "cpu_time", 1000))
    writer.add_process(Process(0, 7, 1, "app", "", (), 0, 5))
    writer.add_thread(Thread(0, 0, 7, "app", 5))
    writer.add_clock_pair(SECOND, 10**18)
    writer.close()
    merge([tmp_path / "m"], tmp_path / "db", workers=1)
    assert not (tmp_path / "db" / "calls").exists()
    assert check_database(tmp_path / "db") == []
    with open_database(tmp_path / "db") as db:
        assert len(db.calls) == 0
        assert db.calls.functions == []
        assert len(db.calls.select()) == 0
    refused = hpcd("calls", tmp_path / "db", check=False)
    assert refused.returncode == 2
    assert "no calls were recorded" in refused.stderr


def test_a_database_has_every_call_by_line_and_time(tmp_path: Path) -> None:
    calls = some_calls(2000)
    path = database(tmp_path, [calls[:700], calls[700:]])
    assert check_database(path) == []
    with open_database(path) as db:
        rows = db.calls.select()
        want = calls.in_order()
        assert np.array_equal(rows["line"], want.line)
        assert np.array_equal(rows["time"], want.time.astype(np.int64) - SECOND)
        assert np.array_equal(rows["duration"], want.duration)
        names = [function.name for function in db.calls.functions]
        assert [names[f] for f in rows["function"]] == [
            (READ, WRITE)[f].name for f in want.function
        ]
        assert [db.calls.objects[int(n)].kind for n in rows["value"][:20, 0]] == [
            {5: "file", 6: "socket"}[int(n)] for n in want.value[:20, 0]
        ]
        window = db.calls.select([1], SECOND // 4, SECOND // 2)
        inside = (rows["line"] == 1) & (rows["time"] >= SECOND // 4)
        assert np.array_equal(window, rows[inside & (rows["time"] < SECOND // 2)])
        total = db.sql().execute(
            "SELECT sum(calls), sum(duration_ns) FROM call_total JOIN called_function f"
            " ON f.id = function WHERE f.name = 'read'"
        ).fetchone()  # fmt: skip
        reads = calls.function == READ.id
        assert total == (int(reads.sum()), int(calls.duration[reads].sum()))


def test_totals_are_those_of_the_calls(tmp_path: Path) -> None:
    calls = some_calls(3000)
    with open_database(database(tmp_path, [calls])) as db:
        totals = total_calls(db, "function")
        at = totals.name.index("read")
        reads = calls[calls.function == READ.id]
        moved = reads.value[:, 1].astype(np.float64)
        seconds = reads.duration / 1e9
        assert (totals.calls[at], totals.read[at]) == (len(reads), moved.sum())
        assert totals.written[at] == 0
        assert totals.seconds[at] == pytest.approx(seconds.sum())
        some = moved > 0
        speed = moved[some] / seconds[some]
        assert totals.bandwidth[at] == pytest.approx(moved.sum() / seconds[some].sum())
        assert totals.least[at] == pytest.approx(speed.min())
        assert totals.mean[at] == pytest.approx(speed.mean())
        assert totals.most[at] == pytest.approx(speed.max())
        assert totals.stddev[at] == pytest.approx(speed.std())
        files = total_calls(db, "file")
        assert sorted(files.name) == ["/data/a\N{REPLACEMENT CHARACTER}[1m", "a -> b"]
        peers = total_calls(db, "peer")
        assert peers.name == ["b"]
        assert peers.calls[0] == (calls.value[:, 0] == 6).sum()
        paths = total_calls(db, "path")
        assert {"io < work < main", "[unknown]"} <= set(paths.name)
        # Of lines, and estimated from every thirtieth call.
        times = total_calls(db, "time")
        assert (times.name[0], times.name[-1]) == ("0.00 to 0.02 s", "0.98 to 1.00 s")
        assert len(times) == 50 and times.calls.sum() == totals.calls.sum()
        some = total_calls(db, "function", lines=[1])
        assert some.calls.sum() == (calls.line == 1).sum()
        estimate = total_calls(db, "function", most=100)
        assert estimate.calls.sum() == 3000
        assert estimate.read.sum() == pytest.approx(totals.read.sum(), rel=0.3)
        with pytest.raises(UsageError, match="not grouped by colour"):
            total_calls(db, "colour")


def one_call(function: int, value: list[int], weight: int = 1) -> Calls:
    return Calls(
        np.zeros(1, np.uint32),
        np.full(1, SECOND + 5, np.uint64),
        np.full(1, 1000, np.uint64),
        np.full(1, 3, np.uint32),
        np.full(1, function, np.uint16),
        np.full(1, weight, np.uint32),
        np.array([value], np.uint64),
    )


def test_bytes_between_two_files_are_read_from_one_and_written_to_the_other(
    tmp_path: Path,
) -> None:
    call = one_call(BETWEEN.id, [6, 100, 0, 5, 0, 0])
    with open_database(database(tmp_path, [call])) as db:
        files = total_calls(db, "file")
        by_name = {
            name: (int(files.read[at]), int(files.written[at]))
            for at, name in enumerate(files.name)
        }
        assert by_name["a -> b"] == (0, 100)
        assert by_name["/data/a\N{REPLACEMENT CHARACTER}[1m"] == (100, 0)
        functions = total_calls(db, "function")
        assert (functions.calls[0], functions.read[0], functions.written[0]) == (1, 100, 100)


def test_a_call_counts_for_those_it_stands_for(tmp_path: Path) -> None:
    with open_database(database(tmp_path, [one_call(0, [5, 7, 0, 0, 0, 0], weight=16)])) as db:
        totals = total_calls(db)
        assert (totals.calls[0], totals.read[0]) == (16, 112)
        assert db.sql().execute("SELECT calls, records FROM call_total").fetchall() == [(16, 1)]


def test_bytes_of_a_message_are_those_of_all_its_elements(tmp_path: Path) -> None:
    write(tmp_path / "m", [one_call(3, [1000, 8, 0, 0, 0, 0])], more=[SEND])
    merge([tmp_path / "m"], tmp_path / "db", workers=1)
    with open_database(tmp_path / "db") as db:
        assert total_calls(db).size.tolist() == [8000]


def test_calls_of_several_hosts_merge_in_any_order(tmp_path: Path) -> None:
    write(tmp_path / "a", [some_calls(500, 1)], host="a")
    write(tmp_path / "b", [some_calls(400, 2)], host="b")
    merge([tmp_path / "a", tmp_path / "b"], tmp_path / "ab", workers=1)
    merge([tmp_path / "b", tmp_path / "a"], tmp_path / "ba", workers=1)
    assert check_database(tmp_path / "ab") == []
    for file in sorted((tmp_path / "ab").rglob("*")):
        if file.is_file():
            other = tmp_path / "ba" / file.relative_to(tmp_path / "ab")
            assert file.read_bytes() == other.read_bytes(), file
    merge([tmp_path / "b"], tmp_path / "one", workers=1)
    merge([tmp_path / "a"], tmp_path / "one", workers=1, add=True)
    with open_database(tmp_path / "one") as db, open_database(tmp_path / "ab") as both:
        assert np.array_equal(db.calls.select(), both.calls.select())
        assert len(db.calls) == 900


@pytest.mark.parametrize(
    ("function", "value", "what"),
    [(9, [0] * 6, "function 9"), (0, [99, 1, 0, 0, 0, 0], "object 99")],
)
def test_calls_of_what_there_is_not_are_found(
    tmp_path: Path, function: int, value: list[int], what: str
) -> None:
    write(tmp_path / "m", [one_call(function, value)])
    assert any(what in finding.what for finding in check_measurement(tmp_path / "m"))
    merge([tmp_path / "m"], tmp_path / "db", workers=1)
    with open_database(tmp_path / "db") as db:
        assert check_database(tmp_path / "db") == []
        if function == 0:
            assert total_calls(db, "file").name == [UNKNOWN]


def test_huge_values_do_not_break_totals(tmp_path: Path) -> None:
    call = one_call(0, [5, (1 << 64) - 1, 0, 0, 0, 0], weight=(1 << 32) - 1)
    path = database(tmp_path, [call, call])
    with open_database(path) as db:
        (total,) = db.sql().execute("SELECT sum FROM call_value_total").fetchone()
        assert total > 1 << 60
    done = hpcd("calls", path)
    assert "read" in done.stdout


def test_damaged_chunks_are_refused() -> None:
    payload = encode_calls(some_calls(50).in_order())
    rng = np.random.default_rng(0)
    decoded = 0
    for _ in range(300):
        data = bytearray(payload)
        for at in rng.integers(0, len(data), 3).tolist():
            data[at] = int(rng.integers(0, 256))
        try:
            calls = decode_calls(bytes(data[: int(rng.integers(1, len(data) + 1))]))
        except FormatError:
            continue
        decoded += 1
        assert len(calls.value) == len(calls)
    assert decoded < 300


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        (
            ChunkKind.CALLED,
            [{"id": 1 << 20, "name": "f", "library": "", "group": "io", "values": []}],
        ),
        (ChunkKind.CALLED, [{"id": 1, "name": 7, "library": "", "group": "io"}]),
        (
            ChunkKind.CALLED,
            [{"id": 1, "name": "f", "library": "", "group": "io", "values": [{}] * 9}],
        ),
        (ChunkKind.OBJECTS, [{"id": 0, "kind": "file", "name": "x"}]),
        (ChunkKind.OBJECTS, [{"id": 1, "kind": "file", "name": "x", "details": []}]),
        (ChunkKind.OBJECTS, {"id": 1}),
    ],
)
def test_odd_declarations_are_damage(tmp_path: Path, kind: ChunkKind, rows: object) -> None:
    write(tmp_path / "m", [])
    (segment,) = (tmp_path / "m").glob("segment-*.hpcd")
    with open_measurement(tmp_path / "m") as measurement:
        chunks = int((measurement.index or {})["chunks"])
    with segment.open("ab") as file:
        file.write(encode_chunk(kind, json.dumps(rows).encode(), chunks))
    with open_measurement(tmp_path / "m") as measurement:
        assert len(measurement.damage) == 1
        assert set(measurement.functions) == {0, 1, 2}


def test_the_documented_query_runs(tmp_path: Path) -> None:
    text = (ROOT / "docs/calls.md").read_text()
    (query,) = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    calls = some_calls(500)
    with open_database(database(tmp_path, [calls])) as db:
        rows = db.sql().execute(query).fetchall()
    written = calls[calls.function == WRITE.id]
    assert sum(row[2] for row in rows) == int(written.value[:, 1].sum())
    assert len(rows) == 2


def test_the_command_prints_text_and_json(tmp_path: Path) -> None:
    path = database(tmp_path, [some_calls(200)])
    text = hpcd("calls", path, "--by", "function", "--by", "peer").stdout
    assert "200 calls" in text
    assert "\x1b" not in text
    whole = json.loads(hpcd("calls", path, "--json", "--limit", 0).stdout)
    assert whole["calls"] == 200
    assert {group["name"] for group in whole["totals"]["function"]} == {"read", "write"}
    speed = whole["totals"]["function"][0]["bandwidth"]
    assert all(math.isfinite(speed[name]) for name in ("overall", "min", "mean", "max", "stddev"))
    only = json.loads(hpcd("calls", path, "--json", "--function", "write").stdout)
    assert [group["name"] for group in only["totals"]["function"]] == ["write"]
    for wrong in (["--function", "nothing"], ["--group", "mpi"], ["--limit", "-1"]):
        refused = hpcd("calls", path, *wrong, check=False)
        assert refused.returncode == 2
        assert refused.stderr.startswith("hpcd: ")
        assert len(refused.stderr.splitlines()) == 1
