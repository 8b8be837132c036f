"""Checking a database: every checksum, and every promise of ``docs/database.md``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hpcd.analysis.arrays.column_files import release
from hpcd.analysis.database import column_bounds, directory
from hpcd.analysis.database.database import Database
from hpcd.analysis.database.metrics import RECORDS
from hpcd.analysis.database.sqlite_reader import each_row
from hpcd.analysis.database.trace_check import check_trace
from hpcd.array_types import F64
from hpcd.errors import FormatError
from hpcd.measurement.check import Defect
from hpcd.model.calls import ValueKind
from hpcd.processors import processor_count
from hpcd.regular_file import regular_size

_THREADS = min(processor_count(), 4)
# 256 MiB of a file are one task.
_STRETCH_BLOCKS = 16
# Parts whose checksums are taken while one is decoded.
_PARTS_AHEAD = 2
# Rows of the largest table held at once, about 100 bytes each.
_BATCH_ROWS = 1 << 16


def check_database(path: Path) -> list[Defect]:
    """All findings of the database at ``path``, none when it is sound.

    Raises :class:`NotFoundError` or :class:`FormatError` when it is no database at all. Reads
    files through for their checksums and decodes them, on all processors; parts one after the
    other, so that each is read from the disk once. Memory is bounded but for what the tree and the
    names take.
    """
    manifest = directory.read_manifest(path)
    with ThreadPoolExecutor(_THREADS) as pool:
        checksums = _Checksums(pool, path, directory.manifest_files(path, manifest))
        in_content: list[Defect] = []
        try:
            with Database(path, native=True) as db:
                _release_tree(db)
                wrong = _check_tree(db)
                # The records of intervals have a second entry where they end.
                intervals = [row[0] for row in db.rows("SELECT id FROM event WHERE interval")]
                in_trace, ends = check_trace(
                    db, np.array(intervals, np.uint16), checksums.before_part
                )
                wrong += in_trace
                _release_tree(db)
                wrong += _check_metrics(db, len(db.trace) - ends)
                wrong += _check_tables(db)
                wrong += _check_calls(db)
                _ = db.waits, db.interference  # checked as they are opened
                in_content = [Defect(str(path), what) for what in wrong]
        except FormatError as error:
            in_content = [Defect(str(path), str(error))]
        return [*checksums.finish(), *checksums.unknown_files(), *in_content]


class _Checksums:
    """Sizes and checksums of the ``files`` that the manifest of ``root`` vouches for.

    Those of a part are taken just before it is decoded: then it is still in memory.
    """

    def __init__(
        self, pool: ThreadPoolExecutor, root: Path, files: dict[str, directory.FileEntry]
    ) -> None:
        self._pool = pool
        self._root = root
        self._files = files
        self._pending: dict[str, list[Future[directory.FileEntry]]] = {}

    def before_part(self, parts: Sequence[str], number: int) -> None:
        """Take the checksums of part ``number`` of ``parts`` (paths below the root), and begin
        those of the next."""
        for name in parts[number : number + 1 + _PARTS_AHEAD]:
            if name in self._files:
                self._begin(name)
        wait(self._pending.get(parts[number], []))

    def finish(self) -> list[Defect]:
        for name in self._files:
            self._begin(name)
        return [finding for name in self._files for finding in self._compare(name)]

    def unknown_files(self) -> list[Defect]:
        known = {*self._files, directory.MANIFEST}
        return [
            Defect(str(path), "not part of the database", fatal=False)
            for path in sorted(self._root.rglob("*"))
            if path.is_file() and str(path.relative_to(self._root)) not in known
        ]

    def _begin(self, name: str) -> None:
        """Take a file's checksums; of big ones by stretches, so that all threads have work.

        A file of another size is damaged anyway; a sparse one may claim any size.
        """
        path = self._root / name
        if name in self._pending:
            return
        self._pending[name] = []
        if regular_size(path) == self._files[name].bytes:
            blocks = self._files[name].bytes // directory.BLOCK_BYTES + 1
            self._pending[name] = [
                self._pool.submit(
                    directory.block_checksums, path, first, min(_STRETCH_BLOCKS, blocks - first)
                )
                for first in range(0, blocks, _STRETCH_BLOCKS)
            ]

    def _compare(self, name: str) -> list[Defect]:
        path, entry = str(self._root / name), self._files[name]
        if not self._pending[name]:
            size = regular_size(self._root / name)
            why = "missing, or no file" if size is None else f"{size} bytes"
            return [Defect(path, f"{why}, should be {entry.bytes} bytes")]
        try:
            stretches = [stretch.result() for stretch in self._pending[name]]
        except FormatError as error:
            return [Defect(path, str(error))]
        findings = []
        sums = [value for stretch in stretches for value in stretch.crc32]
        if len(sums) != len(entry.crc32):
            findings.append(Defect(path, f"{len(entry.crc32)} checksums, should be {len(sums)}"))
        for block, (have, want) in enumerate(zip(sums, entry.crc32, strict=False)):
            if have != want:
                at = block * directory.BLOCK_BYTES
                findings.append(Defect(path, f"damaged in the block at byte {at}"))
        return findings


def _release_tree(db: Database) -> None:
    """Give the columns of the tree back to the kernel, which looked through them."""
    for column in (db.cct.parent, db.cct.frame, db.procedure_of_node, db.scope_of_node):
        release(column)


def _check_tree(db: Database) -> list[str]:
    findings = []
    if int(db.procedure_of_node.max(initial=0)) >= len(db.procedures):
        findings.append("a node's procedure does not exist")
    scopes = db.scopes
    inside = np.flatnonzero(db.scope_of_node)
    if bool((scopes.procedure[db.scope_of_node[inside]] != db.procedure_of_node[inside]).any()):
        findings.append("a node's scope is in another procedure")
    nested = np.flatnonzero(scopes.parent)
    if bool((scopes.procedure[scopes.parent[nested]] != scopes.procedure[nested]).any()):
        findings.append("a scope is in another procedure than the one around it")
    return findings


def _check_metrics(db: Database, records: int) -> list[str]:
    """Cells agree with the totals of contexts and of lines, and with the trace's ``records``, ends
    of intervals not counted."""
    findings = []
    by_node, by_line = db.metrics.recounted()
    for number, name in enumerate(db.metrics.names):
        if not _alike(by_node[number], db.metrics.exclusive(number)):
            findings.append(f"metric {name}: cells and totals of contexts do not agree")
        if not _alike(by_line[number], db.line_totals(name)):
            findings.append(f"metric {name}: cells and totals of trace lines do not agree")
    if db.metrics.record_count != records:
        findings.append(f"metric {RECORDS} does not count the trace's records")
    return findings


def _check_calls(db: Database) -> list[str]:
    """Calls are in order, within the life of their line, and refer to what exists; their totals are
    those of the columns."""
    calls = db.calls
    if not len(calls):
        return []
    findings = []
    inside = np.diff(calls.line) == 0
    if bool((np.diff(calls.time)[inside] < 0).any()):
        findings.append("calls are not in time order")
    if bool((calls.time < db.lines.start[calls.line]).any()) or bool(
        (calls.time + calls.duration > db.lines.end[calls.line]).any()
    ):
        findings.append("calls begin before their trace line or end after it")
    objects = db.calls.objects
    for function in calls.functions:
        mine = np.flatnonzero(calls.function == function.id)
        for number, value in enumerate(function.values):
            if value.kind is ValueKind.OBJECT:
                used = np.unique(calls.value(number)[mine]).tolist()
                if any(id and id not in objects for id in used):
                    findings.append(f"calls of {function.name} refer to objects there are not")
    ((records, weight),) = db.rows("SELECT total(records), total(calls) FROM call_total")
    if records != len(calls) or weight != int(calls.weight.sum(dtype=np.int64)):
        findings.append("totals of calls and calls do not agree")
    return findings


def _alike(a: F64, b: F64) -> bool:
    # Sums in another order differ in their last bits.
    return bool(np.allclose(a, b, rtol=1e-9, atol=0))


def _check_tables(db: Database) -> list[str]:
    findings = []
    # Reading these checks what is in their texts.
    _ = db.measurements, db.losses, db.modules, db.scopes, db.calls.functions, db.calls.objects
    path = db.path / directory.SQLITE
    connection = db.sql()
    try:
        for (line,) in each_row(connection, path, "PRAGMA integrity_check(10)"):
            if line != "ok":
                findings.append(f"{directory.SQLITE}: {line}")
        if findings:
            # Pages that are used twice can make a table without end.
            return findings
        findings += [
            f"{directory.SQLITE}: {what}"
            for what in column_bounds.damaged_columns(partial(each_row, connection, path))
        ]
        query = "SELECT count(*) FROM process JOIN host ON host.id = process.host"
        ((processes,),) = each_row(connection, path, query)
        if len(db.lines) and processes <= int(db.lines.process.max()):
            findings.append(f"{directory.SQLITE}: a trace line's process does not exist")
        ((lines, records),) = each_row(
            connection, path, "SELECT count(*), total(records) FROM thread"
        )
        if (lines, records) != (len(db.lines), len(db.trace)):
            findings.append(f"{directory.SQLITE}: threads and trace lines do not agree")
        query = "SELECT parent, procedure, coalesce(scope, 0) FROM cct ORDER BY node"
        columns = (db.cct.parent, db.procedure_of_node, db.scope_of_node)
        if not _same_rows(each_row(connection, path, query), columns):
            findings.append(f"{directory.SQLITE}: the tree's table and columns do not agree")
    finally:
        connection.close()
    return findings


def _same_rows(
    rows: Iterator[tuple[Any, ...]], columns: Sequence[npt.NDArray[np.unsignedinteger]]
) -> bool:
    """Whether ``rows`` equal ``columns``; compared a batch at a time."""
    at = 0
    while batch := list(islice(rows, _BATCH_ROWS)):
        expected = zip(*(column[at : at + len(batch)].tolist() for column in columns), strict=True)
        if batch != list(expected):
            return False
        at += len(batch)
    return at == len(columns[0])
