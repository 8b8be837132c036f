"""Whether two databases answer every query alike."""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path

import numpy as np

import hpcd.analysis
from hpcd.analysis.database import directory as layout


def assert_alike(one: Path, other: Path, pictures: int = 40) -> None:
    """Tables, lines, records by line and by time, metrics and ``pictures`` random pictures of both
    databases are the same but for rounding, whatever the form their traces are stored in."""
    tables, other_tables = _tables(one), _tables(other)
    assert tables.keys() == other_tables.keys()
    for name, rows in tables.items():
        assert len(rows) == len(other_tables[name]), name
        for row, same in zip(rows, other_tables[name], strict=True):
            assert all(map(_equal, row, same)), (name, row, same)
    random = np.random.default_rng(0)
    with hpcd.analysis.open(one) as a, hpcd.analysis.open(other) as b:
        assert len(a.trace) == len(b.trace)
        assert np.array_equal(a.cct.parent, b.cct.parent)
        assert np.array_equal(a.cct.frame, b.cct.frame)
        for line in range(len(a.lines)):
            span = (None, None)
            if line % 2:
                span = tuple(np.sort(random.integers(0, a.duration_ns + 1, 2)).tolist())
            whole = [db.trace.records(line, *span) for db in (a, b)]
            for name in ("time", "node", "event", "value"):
                assert np.array_equal(getattr(whole[0], name), getattr(whole[1], name)), name
        for metric in a.metrics.names:
            values = [db.metrics.exclusive(metric) for db in (a, b)]
            assert np.allclose(*values, rtol=_ROUNDED, atol=0)
        for _ in range(pictures):
            width = int(random.integers(1, 700))
            span = int(10 ** random.uniform(3, np.log10(a.duration_ns)))
            t0 = int(random.integers(0, a.duration_ns - span + 1))
            grids = [db.sample_grid(None, t0, t0 + span, 60, width) for db in (a, b)]
            assert np.array_equal(grids[0], grids[1])


# Sums are added in another order where parts are others.
_ROUNDED = 1e-11


def _equal(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_ROUNDED, abs_tol=1e-12)
    return one == other


def _tables(database: Path) -> dict[str, list[tuple[object, ...]]]:
    connection = sqlite3.connect(database / layout.SQLITE)
    try:
        names = [
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")
        ]
        return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in names}
    finally:
        connection.close()
