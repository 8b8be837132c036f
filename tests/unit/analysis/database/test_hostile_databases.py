"""Databases and measurements that lie are refused in a line, and keep nobody waiting."""

from __future__ import annotations

import os
import socket
import sqlite3
from contextlib import closing
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import hpcd.analysis
from hpcd.analysis.database import directory, sqlite_reader
from hpcd.analysis.database.check import check_database
from hpcd.analysis.merge.stages import merge
from hpcd.errors import FormatError
from hpcd.measurement.chunk import MAX_SEGMENT
from hpcd.measurement.reader import open_measurement
from hpcd.measurement.segments import measurement_size
from hpcd.viewer.pictures import VIEWS
from tests.support.called import ranks_that_call
from tests.support.hostile_databases import ask, change_tables, copy_of, mend
from tests.support.made import Step, make
from tests.support.random_measurements import write_measurement
from tests.support.viewer import eight_ranks

_ENDLESS = "WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"


@pytest.fixture(scope="module")
def measurement(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("honest") / "m"
    write_measurement(path, ranks=(0, 1), threads=2, events=2, weighted=True)
    return path


@pytest.fixture(scope="module")
def database(measurement: Path) -> Path:
    merge([measurement], measurement.parent / "db")
    return measurement.parent / "db"


def refused(*arguments: str | Path) -> str:
    """Return the line that refuses a damaged file."""
    done = ask(*arguments)
    text = done.stdout + done.stderr
    assert done.returncode == FormatError.exit_code, text
    assert "internal error" not in text
    return text


# --- SQLite ---


_LARGE = "hex(zeroblob(400000000))"


@pytest.mark.parametrize(
    "statements",
    [
        # Rows without end; of a table that is read as the database is opened, and of another.
        ("DROP TABLE metric",
         f"CREATE VIEW metric AS {_ENDLESS} SELECT x AS id, 'records' AS name, '' AS unit FROM c"),
        ("DROP VIEW process",
         f"CREATE VIEW process AS {_ENDLESS} SELECT x AS id, 1 AS measurement, 1 AS host, x AS pid,"
         " 0 AS parent_pid, 'a' AS name, 'a' AS exe, '[]' AS command, 0 AS uid, 0 AS start_ns,"
         " '' AS job, 0 AS rank, 1 AS size FROM c"),
        # Sorting fills the disk with temporary files.
        ("DROP TABLE event",
         f"CREATE VIEW event AS {_ENDLESS} SELECT -x AS id, hex(randomblob(9999)) AS name,"
         " 's' AS unit, 1.0 AS scale, 'cpu_time' AS metric, 1 AS frequency, 0 AS interval FROM c"),
        # Memory: few rows have a gigabyte.
        ("DROP TABLE host",
         f"CREATE VIEW host AS SELECT 1 AS id, {_LARGE} AS hostname, '' AS boot_id, '' AS kernel,"
         " '' AS machine, 1 AS cpus"),
        (f"ALTER TABLE thread ADD COLUMN more TEXT AS ({_LARGE})",),
        ("CREATE INDEX expensive ON thread (tid) WHERE length(zeroblob(tid)) >= 0",),
        ("CREATE TRIGGER runs AFTER INSERT ON meta BEGIN SELECT 1; END",),
        ("CREATE VIRTUAL TABLE words USING fts5 (word)",),
        ("DROP TABLE module",
         "CREATE TABLE module (id INTEGER PRIMARY KEY, kind TEXT, path TEXT, build_id TEXT,"
         f" symbols TEXT CHECK (length({_LARGE}) > 0))"),
    ],
)  # fmt: skip
def test_only_the_tables_that_hpcd_makes_are_read(
    database: Path, tmp_path: Path, statements: tuple[str, ...]
) -> None:
    lying = copy_of(database, tmp_path / "db")
    change_tables(lying, *statements)
    for verb in ("check", "report"):
        assert "is not one of a database" in refused(verb, lying)


def test_a_statement_takes_steps_in_proportion_to_the_file(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query without end is interrupted; every statement has all of its steps."""
    monkeypatch.setattr(sqlite_reader, "_LEAST_STEPS", 1_000_000)
    monkeypatch.setattr(sqlite_reader, "_STEPS_A_BYTE", 0)
    with hpcd.analysis.open(database) as db:
        with pytest.raises(FormatError, match="interrupted"):
            db.rows(f"{_ENDLESS} SELECT count(x) FROM c WHERE x < 0")
        half = f"{_ENDLESS} SELECT count(*) FROM (SELECT x FROM c LIMIT 30000)"
        for _ in range(4):
            assert db.rows(half) == [(30_000,)]
            with db.sql() as tables:
                assert tables.execute(half).fetchall() == [(30_000,)]
                assert tables.cursor().execute(half).fetchall() == [(30_000,)]


def test_sorting_takes_bounded_memory_and_no_files(database: Path) -> None:
    rows = "WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 1000)"
    query = f"{rows} SELECT length(y) FROM (SELECT zeroblob(1000000) || x AS y FROM c ORDER BY y)"
    with hpcd.analysis.open(database) as db:
        assert db.rows("PRAGMA temp_store") == [(2,)]
        with pytest.raises(FormatError, match="needs more than 512 MiB"):
            db.rows(query)
        assert len(db.rows(query.replace("1000)", "100)"))) == 100


def test_a_text_longer_than_any_is_refused(database: Path) -> None:
    with hpcd.analysis.open(database) as db, pytest.raises(FormatError, match="too big"):
        db.rows("SELECT zeroblob(100000000)")


# --- files that are none ---

_PLACES = [
    "manifest.json", "hpcd.sqlite", "cct/parent.npy", "lines/process.npy", "trace/event_start.npy",
    "metrics/*.npy", "cct/symbols.archive", "trace/*.part",
]  # fmt: skip


def _file(database: Path, name: str) -> Path:
    """Return a file of the database, the first of those that ``name`` matches."""
    matches = sorted(database.glob(name))
    return matches[0] if matches else pytest.skip(f"no {name} here")


@pytest.mark.parametrize("name", _PLACES)
@pytest.mark.parametrize("kind", ["pipe", "link", "socket", "folder"])
def test_what_is_no_file_is_never_waited_for(
    database: Path, tmp_path: Path, name: str, kind: str
) -> None:
    lying = copy_of(database, tmp_path / "db")
    place = _file(lying, name)
    if kind == "link":
        place.rename(tmp_path / "elsewhere")
        place.symlink_to(tmp_path / "elsewhere")
    else:
        place.unlink()
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "socket":
        here = Path.cwd()
        os.chdir(place.parent)  # an address has at most 107 bytes
        try:
            with socket.socket(socket.AF_UNIX) as bound:
                bound.bind(place.name)
        finally:
            os.chdir(here)
    elif kind == "folder":
        place.mkdir()
    for verb in ("check", "report"):
        done = ask(verb, lying)
        assert "internal error" not in done.stderr
        # Symbols are not read by a report.
        assert done.returncode == FormatError.exit_code or verb == "report", done.stdout


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_a_segment_that_is_no_file_is_never_waited_for(
    measurement: Path, tmp_path: Path, kind: str
) -> None:
    lying = copy_of(measurement, tmp_path / "m")
    place = sorted(lying.glob("segment-*"))[-1]
    place.rename(tmp_path / "elsewhere")
    if kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to(tmp_path / "elsewhere")
    for arguments in (("check", lying), ("merge", lying, "-o", tmp_path / "db")):
        done = ask(*arguments)
        assert done.returncode
        assert "internal error" not in done.stderr


def test_a_sparse_segment_is_read_as_far_as_one_may_be(measurement: Path, tmp_path: Path) -> None:
    lying = copy_of(measurement, tmp_path / "m")
    os.truncate(sorted(lying.glob("segment-*"))[-1], 200 << 30)
    assert measurement_size(lying) <= MAX_SEGMENT
    with open_measurement(lying) as opened:
        assert opened.size <= MAX_SEGMENT
    assert "of a torn chunk" in refused("merge", lying, "-o", tmp_path / "db")
    assert check_database(tmp_path / "db") == []


def test_a_sparse_file_of_a_database_is_not_read(database: Path, tmp_path: Path) -> None:
    lying = copy_of(database, tmp_path / "db")
    names = ("cct/parent.npy", "hpcd.sqlite", "trace/*.part", "manifest.json")
    for name in names[:-1]:
        os.truncate(_file(lying, name), 200 << 30)
    text = refused("check", lying)
    assert text.count(f"{200 << 30} bytes, should be") == len(names) - 1
    os.truncate(lying / names[-1], 200 << 30)
    assert "too big to be a manifest" in refused("check", lying)


# --- texts ---

_CONTROL = "a' || char(27) || ']0;owned' || char(7, 8, 0x202e, 0xfffe, 0x4e2d, 10) || '$x$ <b"


@pytest.mark.parametrize("view", VIEWS)
def test_a_picture_is_xml_and_writes_nothing_to_the_terminal(
    database: Path, tmp_path: Path, view: str
) -> None:
    lying = copy_of(database, tmp_path / "db")
    change_tables(
        lying,
        f"UPDATE procedure SET name = '{_CONTROL}' || id",
        f"UPDATE scope SET name = '{_CONTROL}' || id",
        f"UPDATE thread SET name = '{_CONTROL}' || trace_line",
        f"UPDATE shared_text SET text = '{_CONTROL}' || id WHERE text NOT LIKE '[%'",
        f"UPDATE host SET hostname = '{_CONTROL}'",
        f"UPDATE metric SET unit = '{_CONTROL}'",
    )
    for suffix in ("svg", "png"):
        done = ask("render", lying, "--view", view, "-o", tmp_path / f"picture.{suffix}")
        assert done.returncode == 0, done.stderr
        output = done.stdout + done.stderr
        assert "Warning" not in output
        assert {letter for letter in output if not letter.isprintable()} <= {"\n"}
    ElementTree.parse(tmp_path / "picture.svg")


# --- numbers ---


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("lines/process.npy", 3),
        ("lines/process.npy", (1 << 31) - 1),
        ("lines/start.npy", -(1 << 63)),
        ("lines/rank.npy", 1 << 27),
        ("lines/rank.npy", -2),
        ("trace/event.npy", 9),
        ("lines/end.npy", (1 << 63) - 1),
        ("metrics/total-0.npy", np.nan),
        ("metrics/total-1.npy", np.inf),
        ("metrics/total-1.npy", -1),
        ("metrics/total-1.npy", 5e-324),
        ("metrics/scale.npy", 1e300),
        ("metrics/scale.npy", 5e-324),
    ],
)
def test_columns_out_of_range_are_refused(
    database: Path, tmp_path: Path, column: str, value: float
) -> None:
    lying = copy_of(database, tmp_path / "db")
    values = np.load(lying / column)
    values[1] = value
    np.save(lying / column, values)
    mend(lying)
    refused("check", lying)
    refused("report", lying, *(("--metric", "cpu_time") if "total-1" in column else ()))


@pytest.mark.parametrize(
    ("column", "value", "question"),
    [
        ("waits/time.npy", (1 << 63) - 1, "--waits-for"),
        ("waits/node.npy", 1 << 30, "--waits-for"),
        ("waits/value-1.npy", 60, "--waits-for"),
        ("interference/duration.npy", -1, "--by interferer"),
        ("interference/value-0.npy", 9, "--by interferer"),
        ("interference/value-2.npy", 9, "--by interferer"),
    ],
)
def test_waits_out_of_range_are_refused(
    tmp_path: Path, column: str, value: int, question: str
) -> None:
    steps: dict[int, list[Step]] = {
        0: [("main/solve", "runnable by stress 4711", 0.1), ("main/k_wait", "blocked by 1", 0.1)],
        1: [("main/solve", "runnable by 0", 0.1), ("main/solve", "cpu", 0.1)],
    }
    lying = make(tmp_path / "db", steps, size=0, threads=True)
    assert ask("check", lying).returncode == 0
    values = np.load(lying / column)
    values[0] = value
    np.save(lying / column, values)
    mend(lying)
    refused("check", lying)
    refused("report", lying, *question.split())


def test_records_of_a_part_without_events_are_refused(database: Path, tmp_path: Path) -> None:
    lying = copy_of(database, tmp_path / "db")
    write_measurement(tmp_path / "m")
    merge([tmp_path / "m"], lying, add=True)
    start = np.load(lying / "trace/event_start.npy")
    assert len(start) == 3
    start[1] = start[2]
    np.save(lying / "trace/event_start.npy", start)
    mend(lying)
    refused("check", lying)
    refused("compare", lying, lying)


def test_a_tree_that_is_not_numbered_by_levels_is_refused(database: Path, tmp_path: Path) -> None:
    lying = copy_of(database, tmp_path / "db")
    parent = np.load(lying / "cct/parent.npy")
    assert parent[-1] > 0
    parent[-1] = 0
    np.save(lying / "cct/parent.npy", parent)
    mend(lying)
    for verb in ("check", "report"):
        assert "not numbered by levels" in refused(verb, lying)


def test_names_of_called_objects_are_texts(tmp_path: Path) -> None:
    lying = ranks_that_call(tmp_path, ranks=2, rounds=1)
    change_tables(lying, "UPDATE called_object SET name = x'ff00'")
    for verb in ("check", "calls"):
        assert "called_object: a value of name" in refused(verb, lying)


@pytest.mark.parametrize(
    ("statement", "opens"),
    [
        ("UPDATE event SET scale = 9e999", False),
        ("UPDATE event SET scale = 'x'", False),
        ("UPDATE event SET id = 4000000000 WHERE id = 1", False),
        ("UPDATE event SET id = -7 WHERE id = 1", False),
        ("UPDATE event SET frequency = 'often'", False),
        ("UPDATE event SET interval = NULL", False),
        ("DELETE FROM event WHERE id = 0", False),
        ("UPDATE module SET id = 256 WHERE id = 1", False),
        ("UPDATE trace_line_total SET trace_line = 99 WHERE trace_line = 1", True),
        ("UPDATE trace_line_total SET total_1 = 5e-324", True),
        ("DELETE FROM trace_line_total", True),
        ("UPDATE process_row SET name = 99", True),
        ("UPDATE procedure SET module = 77", False),
        ("UPDATE procedure SET source_line = -9223372036854775808", False),
        ("UPDATE host SET cpus = -9223372036854775808", False),
        ("UPDATE process_row SET uid = 'x'", True),
        ("UPDATE thread SET tid = 'x'", True),
        ("UPDATE measurement SET clock_offset_ns = 'x'", True),
        ("UPDATE measurement SET damage = '0'", False),
        ("UPDATE measurement SET damage = '[0]'", False),
        ("UPDATE measurement SET options = '[]'", False),
    ],
)
def test_numbers_of_tables_that_are_none_are_said(
    database: Path, tmp_path: Path, statement: str, opens: bool
) -> None:
    lying = copy_of(database, tmp_path / "db")
    change_tables(lying, statement)
    assert check_database(lying)
    if opens:
        assert ask("report", lying).returncode in (0, FormatError.exit_code)
    else:
        refused("report", lying)


def test_an_interval_that_no_time_can_say_is_exported(tmp_path: Path) -> None:
    """Numbers are cut to what a column holds, without a warning."""
    lying = copy_of(eight_ranks(tmp_path), tmp_path / "lying")
    change_tables(lying, "UPDATE event SET scale = 4294967296.0")
    done = ask("export", lying, "--format", "speedscope", "-o", tmp_path / "out")
    assert (done.returncode, done.stderr) == (0, "")


_TEXTS = """
    SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c
    WHERE t.type = 'table' AND c.type = 'TEXT' AND c.name <> 'kind'
    AND t.name NOT IN ('measurement', 'metric', 'event')
"""
_QUESTIONS = (
    "report", "report --view flat", "report --by thread", "report --by module", "report --csv",
    "report --hot-path", "imbalance", "stacks --at 0.1", "calls", "messages", "memory", "check",
    "report --waits-for", "report --by interferer", "critical-path", "what-if",
)  # fmt: skip


def test_texts_of_every_column_are_harmless(database: Path, tmp_path: Path) -> None:
    """On standard output and standard error, whatever the answer."""
    copy = copy_of(database, tmp_path / "db\x1b[2J")
    with closing(sqlite3.connect(copy / directory.SQLITE)) as connection:
        texts = connection.execute(_TEXTS).fetchall()
    assert len(texts) > 10
    change_tables(
        copy,
        *(
            f"UPDATE OR IGNORE {table} SET {column} = {column} || char(27) || '[2J' || char(10)"
            for table, column in texts
        ),
    )
    answered = 0
    for question in _QUESTIONS:
        verb, *options = question.split()
        done = ask(verb, copy, *options)
        text = done.stdout + done.stderr
        assert "internal error" not in text, question
        assert "\x1b" not in text, question
        answered += done.returncode == 0
    assert answered > 5


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_files_that_are_cut_short_end_no_reader(database: Path, tmp_path: Path) -> None:
    """Files of another user's are copied: their mappings stay whole."""
    copy = copy_of(database, tmp_path / "db")
    columns = sorted([*copy.glob("*/*.npy"), *copy.glob("trace/*.part")])
    for path in columns:
        os.chown(path, 65534, 65534)
    with hpcd.analysis.open(copy) as db, hpcd.analysis.open(database) as whole:
        _ = db.cct, db.lines.start, db.metrics.names, db.records(0)
        for path in columns:
            os.truncate(path, 100)
        # SIGBUS otherwise, wherever a page has not been read before.
        assert np.array_equal(db.cct.frame, whole.cct.frame)
        for line in range(len(whole.lines)):
            assert np.array_equal(db.records(line).time, whole.records(line).time)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize(
    "command",
    ["export --format speedscope -o", "render -o", "report --html"],
)
def test_links_of_others_are_not_followed(database: Path, tmp_path: Path, command: str) -> None:
    """Also those whose target the command itself would replace."""
    verb, *options = command.split()
    kept, link = tmp_path / "kept.svg", tmp_path / "out.svg"
    assert ask(verb, database, *options, kept).returncode == 0
    kept.write_bytes(kept.read_bytes() + b" ")
    content = kept.read_bytes()
    link.symlink_to(kept)
    os.chown(link, 65534, 65534, follow_symlinks=False)
    done = ask(verb, database, *options, link)
    assert done.returncode != 0 and "internal error" not in done.stderr
    if verb == "export":
        ask(verb, database, *options, link, "--force")
    assert kept.read_bytes() == content


def test_offsets_of_loops_are_numbers(database: Path, tmp_path: Path) -> None:
    copy = copy_of(database, tmp_path / "db")
    change_tables(
        copy,
        "INSERT INTO scope (parent, kind, procedure, name) VALUES (NULL, 'loop', 1, 'far')",
    )
    for verb in ("check", "imbalance"):
        assert "scopes and contexts do not agree" in refused(verb, copy)
