"""Checking a database: every checksum, and every promise of ``docs/database.md``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from hpcd.analysis import layout
from hpcd.analysis.database import Database
from hpcd.analysis.schema import each_row
from hpcd.errors import FormatError
from hpcd.measurement.check import Finding
from hpcd.model.cct import CCT

_BLOCK = 1 << 22


def check_database(path: Path) -> list[Finding]:
    """All findings of the database at ``path``, none when it is sound.

    Raises :class:`NotFoundError` or :class:`FormatError` when it is no database at all. Reads
    everything once, in bounded memory.
    """
    manifest = layout.read_manifest(path)
    findings = _check_files(path, layout.manifest_files(path, manifest))
    try:
        with Database(path) as db:
            for check in (_check_tree, _check_trace, _check_metrics, _check_tables):
                findings += [Finding(str(path), what) for what in check(db)]
    except FormatError as error:
        findings.append(Finding(str(path), str(error)))
    return findings


def _check_files(root: Path, files: dict[str, layout.FileEntry]) -> list[Finding]:
    """Sizes and checksums of all files, and whether the manifest knows them all."""
    findings = []
    for name, entry in files.items():
        path = root / name
        if not path.is_file():
            findings.append(Finding(str(path), "missing"))
            continue
        found = layout.block_checksums(path)
        if found.bytes != entry.bytes:
            findings.append(Finding(str(path), f"{found.bytes} bytes, should be {entry.bytes}"))
        for block, (have, want) in enumerate(zip(found.crc32, entry.crc32, strict=False)):
            if have != want:
                at = block * layout.BLOCK_BYTES
                findings.append(Finding(str(path), f"damaged in the block at byte {at}"))
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_file() and name not in files and name != layout.MANIFEST:
            findings.append(Finding(str(path), "not part of the database", fatal=False))
    return findings


def _check_tree(db: Database) -> list[str]:
    findings = []
    try:
        db.cct.validate("calling context tree")
    except FormatError as error:
        return [str(error)]
    if bool((db.cct.parent[1:-1] > db.cct.parent[2:]).any()):
        findings.append("calling context tree is not numbered by levels")
    if int(db.procedure_of_node.max(initial=0)) >= len(db.procedures):
        findings.append("a node's procedure does not exist")
    if int(db.procedures.module.max(initial=0)) > len(db.modules):
        findings.append("a procedure's module does not exist")
    scopes = db.scopes
    inside = np.flatnonzero(db.scope_of_node)
    if bool((scopes.procedure[db.scope_of_node[inside]] != db.procedure_of_node[inside]).any()):
        findings.append("a node's scope is in another procedure")
    nested = np.flatnonzero(scopes.parent)
    if bool((scopes.procedure[scopes.parent[nested]] != scopes.procedure[nested]).any()):
        findings.append("a scope is in another procedure than the one around it")
    return findings


def _check_trace(db: Database) -> list[str]:
    """Nodes exist; times ascend within each line, and lie within its life."""
    findings = []
    nodes = len(db.cct)
    for line in range(len(db.lines)):
        records = db.records(line)
        last = int(db.lines.start[line])
        for at in range(0, len(records), _BLOCK):
            time, node = records.time[at : at + _BLOCK], records.node[at : at + _BLOCK]
            if int(node.max()) >= nodes:
                findings.append(f"trace line {line} has records of nodes that do not exist")
            if int(time[0]) < last or bool((time[1:] < time[:-1]).any()):
                findings.append(f"trace line {line} is not in time order or begins too late")
            last = int(time[-1])
        if last > int(db.lines.end[line]):
            findings.append(f"trace line {line} has records after its end")
    return findings


def _check_metrics(db: Database) -> list[str]:
    """Both sparse forms agree with each other, with the totals, and with the trace."""
    findings = []
    for number, name in enumerate(db.metrics.names):
        by_line = db.metrics.line_sums(number)
        if not _alike(by_line, db.metrics.exclusive(number)):
            findings.append(f"metric {name}: lines and totals do not agree")
        if not _alike(by_line, db.metrics.node_sums(number)):
            findings.append(f"metric {name}: lines and contexts do not agree")
    if int(db.metrics.exclusive("samples").sum()) != len(db.trace) - _interval_ends(db):
        findings.append("metric samples does not count the trace's records")
    return findings


def _interval_ends(db: Database) -> int:
    """Entries of the trace that only mark where an interval ends."""
    connection = db.sql()
    try:
        query = "SELECT id FROM event WHERE interval"
        rows = list(each_row(connection, db.path / layout.SQLITE, query))
    finally:
        connection.close()
    intervals = np.array([row[0] for row in rows], np.uint16)
    if not len(intervals):
        return 0
    ends = 0
    for line in range(len(db.lines)):
        records = db.records(line)
        ends += int((np.isin(records.event, intervals) & (records.value == 0)).sum())
    return ends


def _alike(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> bool:
    # Sums in another order differ in their last bits.
    return bool(np.allclose(a, b, rtol=1e-9, atol=0))


def _check_tables(db: Database) -> list[str]:
    findings = []
    path = db.path / layout.SQLITE
    connection = db.sql()
    try:
        for (line,) in each_row(connection, path, "PRAGMA integrity_check(10)"):
            if line != "ok":
                findings.append(f"{layout.SQLITE}: {line}")
        ((lines, records),) = each_row(
            connection, path, "SELECT count(*), total(records) FROM thread"
        )
        if (lines, records) != (len(db.lines), len(db.trace)):
            findings.append(f"{layout.SQLITE}: threads and trace lines do not agree")
        query = "SELECT parent, procedure, coalesce(scope, 0) FROM cct ORDER BY node"
        rows = list(each_row(connection, path, query))
        table = CCT(
            np.array([row[0] for row in rows], np.uint32),
            np.array([row[1] for row in rows], np.uint64),
        )
        if (
            not np.array_equal(table.parent, db.cct.parent)
            or not np.array_equal(table.frame, db.procedure_of_node)
            or [row[2] for row in rows] != db.scope_of_node.tolist()
        ):
            findings.append(f"{layout.SQLITE}: the tree's table and columns do not agree")
    finally:
        connection.close()
    return findings
