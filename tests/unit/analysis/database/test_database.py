"""The database directory: what is promised of it, and what happens when it is broken."""

from __future__ import annotations

import json
import re
import resource
import shutil
import sqlite3
import subprocess
import sys
import zlib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hpcd.analysis
from hpcd.__main__ import main
from hpcd.analysis.arrays import cell_store
from hpcd.analysis.arrays.column_files import ColumnWriter, create_column, open_column, save_column
from hpcd.analysis.database import Database, trace_check
from hpcd.analysis.database import directory as layout
from hpcd.analysis.database.check import check_database
from hpcd.analysis.merge.stages import merge
from hpcd.analysis.merge.unite import metric_cells
from hpcd.analysis.merge.unite.united_symbols import table_of
from hpcd.analysis.trace.pixel_samples import choose_lines, pixel_times
from hpcd.errors import FormatError, NotFoundError, UsageError
from hpcd.model.cct import NO_NODE
from tests.support.paths import ROOT
from tests.support.random_measurements import write_measurement


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("database")
    write_measurement(folder / "a", ranks=(0, 1), threads=2, events=2, weighted=True)
    write_measurement(folder / "b", seed=1, host="node1", ranks=(2, 3), events=2, weighted=True)
    merge([folder / "a", folder / "b"], folder / "db")
    return folder / "db"


@pytest.fixture
def db(database: Path) -> Iterator[Database]:
    with hpcd.analysis.open(database) as opened:
        yield opened


# --- columns ---


@given(st.lists(st.integers(0, 2**32 - 1), max_size=40), st.integers(0, 40))
def test_columns_come_back(
    tmp_path_factory: pytest.TempPathFactory, values: list[int], cut: int
) -> None:
    path = tmp_path_factory.mktemp("column") / "c.npy"
    array = np.array(values, np.uint32)
    create_column(path, np.uint32, len(array))
    with ColumnWriter(path) as column:
        column.write(cut, array[cut:])
        column.write(0, array[:cut])
    assert open_column(path, np.uint32, len(array)).tolist() == values
    assert np.load(path).tolist() == values


def test_a_column_of_another_kind_or_length_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.npy"
    save_column(path, np.arange(5, dtype=np.uint32))
    with pytest.raises(FormatError, match="column of uint32"):
        open_column(path, np.uint64)
    with pytest.raises(FormatError, match="length"):
        open_column(path, np.uint32, 6)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FormatError, match="length"):
        open_column(path, np.uint32)


@given(st.binary(max_size=200))
def test_no_bytes_make_a_column_reader_fail_otherwise(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("column") / "c.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + data)
    with pytest.raises(FormatError):
        open_column(path, np.uint32, 1 << 40)


# --- the tables ---


def test_tables_agree_with_columns(db: Database) -> None:
    with db.sql() as tables:
        rows = tables.execute(
            "SELECT trace_line, start_ns, end_ns, first_record, records FROM thread"
            " ORDER BY trace_line"
        ).fetchall()
        assert [row[1] for row in rows] == db.lines.start.tolist()
        assert [row[2] for row in rows] == db.lines.end.tolist()
        assert [row[4] for row in rows] == db.lines.records.tolist()
        inclusive = dict(
            tables.execute(
                "SELECT node, inclusive FROM node_metric JOIN metric ON metric.id = metric"
                " WHERE name = 'cpu_time'"
            )
        )
        for node, value in inclusive.items():
            assert value == db.metrics.inclusive("cpu_time")[node]
        assert len(inclusive) == np.count_nonzero(db.metrics.inclusive("cpu_time"))
        depths = [row[0] for row in tables.execute("SELECT depth FROM cct ORDER BY node")]
        assert depths == db.cct.depth().tolist()
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            tables.execute("DELETE FROM thread")


def test_the_documented_examples_run(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs" / "database.md").read_text()
    queries = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    assert len(queries) == 5
    with hpcd.analysis.open(database) as db, db.sql() as tables:
        for query in queries:
            assert tables.execute(query).fetchall()
        documented = re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.MULTILINE)
        for table, columns in documented:
            names = [row[1] for row in tables.execute(f"PRAGMA table_info({table})")]
            # One column for each metric.
            present = list(dict.fromkeys(re.sub(r"^total_\d+$", "total_K", name) for name in names))
            assert present == [name for name in re.findall(r"`(\w+)`", columns) if name in present]
            assert present
        rows = tables.execute("SELECT name FROM sqlite_schema WHERE type != 'index'")
        assert sorted(table for table, _ in documented) == sorted(row[0] for row in rows)
    for example in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(example, {"path": database})
    assert "rank 0" in capsys.readouterr().out


def test_lines_are_in_order_of_rank_and_labelled(db: Database) -> None:
    labels = ["rank 0", "rank 0 · t1 1100", "rank 1", "rank 1 · t1 1101", "rank 2", "rank 3"]
    assert db.lines.label == labels
    assert db.lines[-1].host == "node1"
    assert db.lines.rank.tolist() == [0, 0, 1, 1, 2, 3]
    assert len(list(db.lines)) == len(db.lines) == 6


# --- the grid ---


def by_hand(
    db: Database, lines: npt.NDArray[np.int64], times: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint32]:
    nodes = np.full((len(lines), len(times)), NO_NODE, np.uint32)
    for row, line in enumerate(lines.tolist()):
        records = db.records(line)
        for column, time in enumerate(times.tolist()):
            if db.lines.start[line] <= time <= db.lines.end[line]:
                nodes[row, column] = records.node[np.abs(records.time - time).argmin()]
    return nodes


@given(st.data())
@settings(max_examples=60)
def test_grid_shows_the_closest_record(database: Path, data: st.DataObject) -> None:
    with hpcd.analysis.open(database) as db:
        t0 = data.draw(st.integers(-100_000, db.duration_ns))
        t1 = t0 + data.draw(st.sampled_from([1, 1000, 100_000, db.duration_ns, 2**40]))
        height = data.draw(st.integers(1, 8))
        width = data.draw(st.sampled_from([1, 3, 50, 700]))
        grid = db.sample_grid(None, t0, t1, height, width)
        lines = db.sample_lines(None, height)
        assert grid.shape == (min(height, 6), width)
        expected = by_hand(db, lines, pixel_times(t0, t1, width))
        assert grid.tolist() == expected.tolist()


def test_grid_of_chosen_lines(db: Database) -> None:
    grid = db.sample_grid([4, 1], 0, db.duration_ns, 5, 9)
    both = db.sample_grid(None, 0, db.duration_ns, 6, 9)
    assert grid.tolist() == both[[4, 1]].tolist()
    for lines, size in (([6], (1, 1)), ([0], (0, 1)), ([0], (1, 0))):
        with pytest.raises(UsageError):
            db.sample_grid(lines, 0, 1, *size)
    with pytest.raises(UsageError):
        db.sample_grid([0], 5, 5, 1, 1)


def test_lines_are_chosen_systematically() -> None:
    assert choose_lines(None, 3, 3).tolist() == [0, 1, 2]
    assert choose_lines(None, 3, 9).tolist() == [1, 4, 7]
    assert choose_lines([5, 3, 1, 0], 2, 9).tolist() == [3, 0]


# --- what is broken is found ---


def test_a_sound_database_has_no_findings(database: Path) -> None:
    assert check_database(database) == []


def test_more_parts_than_files_may_be_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job of a million ranks has more measurements than a process may have open files."""
    for number in range(12):
        write_measurement(tmp_path / f"m{number}", seed=number, host=f"n{number}", ranks=(number,))
    merge([tmp_path / f"m{number}" for number in range(12)], tmp_path / "db")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (8, 8))

    def mapped() -> int:
        maps = Path("/proc/self/maps").read_text()
        return len(set(re.findall(rf"{tmp_path}.*\.part$", maps, re.MULTILINE)))

    with hpcd.analysis.open(tmp_path / "db") as db:
        lines = np.arange(12)
        times = pixel_times(0, db.duration_ns, 50)
        grid = db.sample_grid(None, 0, db.duration_ns, 12, 50)
        assert grid.tolist() == by_hand(db, lines, times).tolist()
        assert mapped() <= 4
        assert db.sample_grid(None, 0, db.duration_ns, 12, 50).tolist() == grid.tolist()
    assert check_database(tmp_path / "db") == []


# Draws every line of a database, once with few files that may be open, half of them by the database
# itself, and once without a limit.
_DRAWN = """
import os, resource, sys
import hpcd.analysis
def drawn():
    with hpcd.analysis.open(sys.argv[1]) as db:
        files = len(os.listdir("/proc/self/fd"))
        return files, db.sample_grid(None, 0, db.duration_ns, 40, 50).tolist()
files, whole = drawn()
resource.setrlimit(resource.RLIMIT_NOFILE, (2 * files, 2 * files))
assert drawn()[1] == whole
assert files < 40  # or there is no need to close any
"""


def test_a_picture_of_more_parts_than_files_may_be_open(tmp_path: Path) -> None:
    """All parts of a picture were open while it was drawn."""
    paths = [tmp_path / f"m{number}" for number in range(40)]
    for number, path in enumerate(paths):
        write_measurement(path, seed=number, host=f"n{number}", ranks=(number,), records=20)
    merge(paths, tmp_path / "db")
    command = [sys.executable, "-c", _DRAWN, str(tmp_path / "db")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("column", "change", "message"),
    [
        ("lines/start.npy", 10**9, "trace line 1 is not in time order or begins too late"),
        ("lines/end.npy", -(10**9), "trace line 1 has records after its end"),
        ("trace/event_start.npy", -1, "has records of events that do not exist"),
    ],
)
def test_records_that_contradict_the_columns_are_found(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str, change: int,
    message: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(trace_check, "_BATCH_BLOCKS", 1)
    copy = tmp_path / "db"
    shutil.copytree(database, copy)
    values = np.load(copy / column)
    values[1] += change
    np.save(copy / column, values)
    with hpcd.analysis.open(copy) as db:
        findings, _ = trace_check.check_trace(db, np.zeros(0, np.uint16))
    assert any(message in finding for finding in findings), findings
    lines = [int(finding.split()[2]) for finding in findings]
    assert lines == sorted(lines)


def test_records_of_nodes_that_do_not_exist_are_found(database: Path) -> None:
    with hpcd.analysis.open(database) as db:
        nodes = db.trace._map.node
        nodes._kept[1] = nodes[1][:2]
        findings, _ = trace_check.check_trace(db, np.zeros(0, np.uint16))
    assert findings
    assert all("has records of nodes that do not exist" in finding for finding in findings)


def test_an_order_of_blocks_that_is_wrong_is_found(tmp_path: Path) -> None:
    write_measurement(tmp_path / "m", ranks=[0], records=3000)
    merge([tmp_path / "m"], tmp_path / "db")
    with hpcd.analysis.open(tmp_path / "db") as db:
        table = db.trace.part(0).blocks
        assert len(table.base) > 1
        assert trace_check.check_trace(db, np.zeros(0, np.uint16)) == ([], 0)
        db.trace.part(0).__dict__["blocks"] = replace(table, base=np.roll(table.base, 1))
        findings, _ = trace_check.check_trace(db, np.zeros(0, np.uint16))
        assert "trace line 0 is not in time order or begins too late" in findings


def test_small_chunks_answer_alike(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = db.path.parent
    monkeypatch.setattr(metric_cells, "chunks_of", partial(cell_store.chunks_of, most=3))
    merge([folder / "a", folder / "b"], tmp_path / "small")
    assert check_database(tmp_path / "small") == []
    with hpcd.analysis.open(tmp_path / "small") as small:
        for name in db.metrics.names:
            assert np.array_equal(db.metrics.exclusive(name), small.metrics.exclusive(name))
            for line in range(len(db.lines)):
                one, other = (source.metrics.by_line(name, line) for source in (db, small))
                assert np.array_equal(one, other)
            for node in range(0, len(db.cct), 7):
                one, other = (source.metrics.by_node(name, node) for source in (db, small))
                assert np.array_equal(one, other)
                one, other = (source.metrics.over_lines(name, node) for source in (db, small))
                assert one == pytest.approx(other)
            one, other = (source.metrics.of_lines(name, np.array([5, 1])) for source in (db, small))
            assert one == pytest.approx(other)
            by_line = db.metrics.by_line(name, 1)
            assert other[by_line[0]].sum() > 0 or not by_line[1].any()


@given(data=st.data())
@settings(max_examples=60)
def test_no_bytes_make_reading_sums_fail_otherwise(
    database: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    copy = tmp_path_factory.getbasetemp() / "hostile-sums"
    if not copy.exists():
        shutil.copytree(database, copy)
    place = copy / data.draw(st.sampled_from(
        ["metrics/cells.npy", "metrics/frame_start.npy", "metrics/frame_cells.npy",
         "metrics/chunk_line.npy", "metrics/chunk_frame.npy", "metrics/frame_event.npy",
         "metrics/line.npy", "metrics/scale.npy", "trace/node.npy", "trace/node_frame.npy",
         "trace/node_count.npy", "cct/symbols.archive"]
    ))  # fmt: skip
    content = place.read_bytes()
    at = data.draw(st.integers(0, len(content) - 1))
    changed = bytearray(content)
    changed[at] = data.draw(st.integers(0, 255))
    place.write_bytes(changed)
    try:
        with hpcd.analysis.open(copy) as db:
            db.metrics.recounted()
            db.metrics.by_line(0, 1)
            db.metrics.by_node(0, 3)
            db.metrics.of_lines(1, np.array([2]))
            db.records(0)
        table_of(copy / "cct/symbols.archive")
    except FormatError:
        pass
    finally:
        place.write_bytes(content)


@pytest.mark.parametrize("size", [0, 1, 99, 100, 101, 950])
def test_checksums_of_stretches_are_those_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(layout, "BLOCK_BYTES", 100)
    monkeypatch.setattr(layout, "_READ_BYTES", 30)
    content = np.random.default_rng(0).integers(0, 256, size, np.uint8).tobytes()
    (tmp_path / "file").write_bytes(content)
    expected = tuple(zlib.crc32(content[at : at + 100]) for at in range(0, size, 100))
    assert layout.block_checksums(tmp_path / "file") == layout.FileEntry(size, expected)
    some = layout.block_checksums(tmp_path / "file", 2, 3)
    assert some.crc32 == expected[2:5]
    assert some.bytes == len(content[200:500])


def any_file(
    database: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> tuple[Path, str]:
    """A copy of the database, and the name of a file in it."""
    names = sorted(layout.manifest_files(database, layout.read_manifest(database)))
    name = data.draw(st.sampled_from(names))
    copy = tmp_path_factory.mktemp("broken") / "db"
    shutil.copytree(database, copy)
    return copy, name


@given(st.data())
@settings(max_examples=60)
def test_any_changed_byte_is_found(
    database: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    copy, name = any_file(database, tmp_path_factory, data)
    path = copy / name
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    findings = check_database(copy)
    assert any(name in finding.where and finding.fatal for finding in findings)
    # Reading on regardless may give wrong answers or a clear refusal, nothing else.
    try:
        with hpcd.analysis.open(copy) as db:
            db.sample_grid(None, 0, 10**9, 4, 4)
            assert db.procedure_names is not None
            assert db.scopes is not None
            assert db.measurements is not None
            assert db.lines.label is not None
    except FormatError:
        pass


@given(st.data())
@settings(max_examples=30)
def test_any_missing_or_short_file_is_found(
    database: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    copy, name = any_file(database, tmp_path_factory, data)
    path = copy / name
    if data.draw(st.booleans()):
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: -data.draw(st.integers(1, 64))])
    assert any(name in finding.where for finding in check_database(copy))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "damaged"),
        ("[]", "not an hpcd database"),
        ('{"format": "other"}', "not an hpcd database"),
        (
            '{"format": "hpcd-database", "version": 99}',
            "database format 99, this hpcd reads format 3: merge the measurements again, or use",
        ),
        ('{"format": "hpcd-database", "version": 3}', "no sizes, or no origin"),
        ("[" * 100_000, "damaged"),
    ],
)
def test_a_manifest_that_is_none(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(FormatError, match=message):
        hpcd.analysis.open(tmp_path)


def test_what_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        hpcd.analysis.open(tmp_path / "absent")
    with pytest.raises(FormatError):
        hpcd.analysis.open(tmp_path)


def test_check_command(database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(database), str(database.parent / "a")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{database}: database, sound",
        f"{database.parent / 'a'}: measurement, sound",
    ]
    copy = tmp_path / "db"
    shutil.copytree(database, copy)
    (copy / "cct" / "parent.npy").unlink()
    assert main(["check", "--json", str(copy), str(tmp_path)]) == 7
    report = json.loads(capsys.readouterr().out)
    assert report["sound"] is False
    assert [path["kind"] for path in report["paths"]] == ["database", ""]
    assert main(["check", str(tmp_path / "absent")]) == 8
    assert "no such file" in capsys.readouterr().out


def test_merge_command(database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = str(database.parent / "a")
    assert main(["merge", source, "-o", str(tmp_path / "db"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["lines"], result["records"], result["refused"]) == (4, 800, [])
    assert main(["merge", source, "-o", str(tmp_path / "db")]) == 6
    assert main(["merge", source, str(tmp_path), "-o", str(tmp_path / "x")]) == 7
    output = capsys.readouterr()
    assert "not a measurement directory" in output.err
    assert "4 trace lines" in output.out
    assert main(["merge", source, str(database.parent), "-o", str(tmp_path / "z")]) == 7
    assert f"a directory of measurements; give {database.parent}/*" in capsys.readouterr().err
    assert main(["merge", str(tmp_path / "absent"), "-o", str(tmp_path / "y")]) == 8


# The handler runs at each step: it waits for the GIL with SQLite's mutex held.
_READING_THREADS = """
import sys, threading
import hpcd.analysis
from hpcd.analysis.database import sqlite_reader

sqlite_reader._STEPS_AT_ONCE = 1
sqlite_reader._LEAST_STEPS = 1 << 40
with hpcd.analysis.open(sys.argv[1]) as db:
    def read():
        for _ in range(100):
            assert db.rows("SELECT a.id + 0.5 FROM process a, thread b, event c")
    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_threads_that_read_at_once_do_not_deadlock(database: Path) -> None:
    command = [sys.executable, "-c", _READING_THREADS, str(database)]
    subprocess.run(command, check=True, timeout=120)
