"""The SQLite side of a database: tables for people who query.

Written once, in one transaction, from the same data as the columns. Everything numeric that a
program needs in bulk is in the columns; the tables are documented in ``docs/database.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# One meaning per word: `host` is a machine and `node` a CCT node, `trace_line` a thread's line of
# the trace and `source_line` a line of source code. Foreign keys are declared for readers and query
# planners; rows are written consistent.
SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE host (
    id INTEGER PRIMARY KEY, hostname TEXT, boot_id TEXT, kernel TEXT, machine TEXT, cpus INTEGER);
CREATE TABLE measurement (
    id INTEGER PRIMARY KEY, uid TEXT UNIQUE, name TEXT, host INTEGER REFERENCES host,
    start_ns INTEGER, end_ns INTEGER, clock_offset_ns INTEGER, records INTEGER,
    cct_nodes INTEGER, closed INTEGER, damage TEXT, options TEXT, summary TEXT);
CREATE TABLE event (
    id INTEGER PRIMARY KEY, name TEXT, unit TEXT, scale REAL, metric TEXT, frequency INTEGER,
    interval INTEGER);
CREATE TABLE shared_text (id INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE process_row (
    id INTEGER PRIMARY KEY, measurement INTEGER REFERENCES measurement, pid INTEGER,
    parent_pid INTEGER, name INTEGER REFERENCES shared_text, exe INTEGER REFERENCES shared_text,
    command INTEGER REFERENCES shared_text, uid INTEGER, start_ns INTEGER,
    job INTEGER REFERENCES shared_text, rank INTEGER, size INTEGER,
    end_ns INTEGER, cpu_before_ns INTEGER, cpu_ns INTEGER);
CREATE VIEW process AS SELECT
    row.id AS id, row.measurement AS measurement, measurement.host AS host, row.pid AS pid,
    row.parent_pid AS parent_pid, name.text AS name, exe.text AS exe, command.text AS command,
    row.uid AS uid, row.start_ns AS start_ns, job.text AS job, row.rank AS rank, row.size AS size,
    row.end_ns AS end_ns, row.cpu_before_ns AS cpu_before_ns, row.cpu_ns AS cpu_ns
FROM process_row AS row
    LEFT JOIN measurement ON measurement.id = row.measurement
    LEFT JOIN shared_text AS name ON name.id = row.name
    LEFT JOIN shared_text AS exe ON exe.id = row.exe
    LEFT JOIN shared_text AS command ON command.id = row.command
    LEFT JOIN shared_text AS job ON job.id = row.job;
CREATE TABLE thread (
    trace_line INTEGER PRIMARY KEY, process INTEGER REFERENCES process, tid INTEGER, name TEXT,
    start_ns INTEGER, end_ns INTEGER, first_record INTEGER, records INTEGER,
    measurement_line INTEGER, attached_ns INTEGER, asleep_since_ns INTEGER);
CREATE TABLE module (
    id INTEGER PRIMARY KEY, kind TEXT, path TEXT, build_id TEXT, symbols TEXT);
CREATE TABLE procedure (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, module INTEGER REFERENCES module,
    address INTEGER, size INTEGER, source_file TEXT, source_line INTEGER,
    linkage_name TEXT);
CREATE TABLE scope (
    id INTEGER PRIMARY KEY, parent INTEGER REFERENCES scope, kind TEXT NOT NULL,
    procedure INTEGER REFERENCES procedure, name TEXT, source_file TEXT,
    source_line INTEGER);
CREATE TABLE cct (
    node INTEGER PRIMARY KEY, parent INTEGER, depth INTEGER,
    procedure INTEGER REFERENCES procedure, module INTEGER, offset INTEGER,
    scope INTEGER REFERENCES scope);
CREATE TABLE metric (id INTEGER PRIMARY KEY, name TEXT UNIQUE, unit TEXT);
CREATE TABLE node_metric (
    metric INTEGER REFERENCES metric, node INTEGER REFERENCES cct,
    exclusive REAL, inclusive REAL, PRIMARY KEY (metric, node)) WITHOUT ROWID;
CREATE TABLE node_statistic (
    metric INTEGER REFERENCES metric, node INTEGER REFERENCES cct, trace_lines INTEGER,
    mean REAL, min REAL, max REAL, stddev REAL, cv REAL,
    min_trace_line INTEGER REFERENCES thread, max_trace_line INTEGER REFERENCES thread,
    PRIMARY KEY (metric, node)) WITHOUT ROWID;
CREATE TABLE called_function (
    id INTEGER PRIMARY KEY, name TEXT, library TEXT, call_group TEXT);
CREATE TABLE called_value (
    function INTEGER REFERENCES called_function, number INTEGER, name TEXT, kind TEXT, unit TEXT,
    PRIMARY KEY (function, number)) WITHOUT ROWID;
CREATE TABLE called_object (
    id INTEGER PRIMARY KEY, measurement INTEGER REFERENCES measurement, kind TEXT, name TEXT,
    file_system TEXT, mount TEXT, peer TEXT, details TEXT);
CREATE TABLE call_total (
    id INTEGER PRIMARY KEY, function INTEGER REFERENCES called_function,
    node INTEGER REFERENCES cct, object INTEGER REFERENCES called_object,
    trace_line INTEGER REFERENCES thread, calls INTEGER, records INTEGER, duration_ns INTEGER,
    min_ns INTEGER, max_ns INTEGER);
CREATE TABLE call_value_total (
    call_total INTEGER REFERENCES call_total, number INTEGER, sum INTEGER, min INTEGER,
    max INTEGER, PRIMARY KEY (call_total, number)) WITHOUT ROWID;
"""

# Small tables are searched by these; the bulky ones by their keys and the columns.
INDEXES = """
CREATE INDEX procedure_name ON procedure (name);
CREATE INDEX cct_procedure ON cct (procedure);
CREATE INDEX cct_parent ON cct (parent);
CREATE INDEX process_rank ON process_row (job, rank);
"""

Row = Sequence[Any]

# Metrics that are columns of one table; SQLite has a limit of terms that a view may have.
MOST_COLUMNS = 64


def by_column(metrics: int) -> bool:
    """Whether totals by trace line have a column for each of ``metrics`` metrics: a row for each
    takes twice the room."""
    return 0 < metrics <= MOST_COLUMNS


def line_totals_schema(metrics: int) -> str:
    """Return the SQL that makes ``trace_line_metric``: a view of the table ``trace_line_total``, or
    a table.
    """
    if not by_column(metrics):
        return """
CREATE TABLE trace_line_metric (
    metric INTEGER REFERENCES metric, trace_line INTEGER REFERENCES thread,
    total REAL, PRIMARY KEY (metric, trace_line)) WITHOUT ROWID;
"""
    columns = ", ".join(f"total_{metric} REAL" for metric in range(metrics))
    terms = " UNION ALL ".join(
        f"SELECT {metric} AS metric, trace_line, total_{metric} AS total FROM trace_line_total"
        for metric in range(metrics)
    )
    return f"""
CREATE TABLE trace_line_total (trace_line INTEGER PRIMARY KEY REFERENCES thread, {columns});
CREATE VIEW trace_line_metric AS {terms};
"""
