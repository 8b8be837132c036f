"""Threads that are bound to CPUs which have too much to do, in made recordings."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hpcd.analysis.database import Database
from hpcd.analysis.findings.findings import findings
from hpcd.analysis.profile.bound_threads import cpu_notes, crowded_cpus
from hpcd.measurement.summary import BoundThreads, CpuSeconds, Summary
from tests.support.hostile_databases import change_tables
from tests.support.made import Step, make

_SHARED: dict[int, list[Step]] = {
    line: [("main/work", "cpu", 1.0), ("main/work", "runnable by 0", 1.0)] for line in range(3)
}
_HELPER: list[Step] = [("main/idle", "cpu", 0.001), ("main/idle", "blocked", 1.9)]


def made(path: Path, bound: BoundThreads, idle: dict[int, float]) -> Path:
    """2 s of three threads that had half a CPU each, and a thread that hardly ran."""
    make(path, {**_SHARED, 3: _HELPER}, size=0, threads=True)
    cpus = tuple(
        CpuSeconds(number, seconds, interrupts_s=0.5, stolen_s=0.0)
        for number, seconds in idle.items()
    )
    summary = json.dumps(Summary(cpus=cpus, bound=(bound,), duration_s=2.0).to_json())
    change_tables(path, f"UPDATE measurement SET summary = '{summary}'")
    return path


@pytest.mark.parametrize(
    ("idle", "said"),
    [
        ({0: 1.94, 1: 0.0, 2: 0.1}, "3 threads are bound to CPU 1, CPU 0 idled for 97 %"),
        ({0: 1.6, 1: 0.0, 2: 1.2}, "3 threads are bound to CPU 1, 2 others idled for 70 %"),
        ({0: 0.2, 1: 0.0, 2: 0.1}, "3 threads are bound to CPU 1"),
    ],
)  # fmt: skip
def test_where_bound_threads_wait_and_which_cpus_are_idle(
    tmp_path: Path, idle: dict[int, float], said: str
) -> None:
    path = made(tmp_path / "db", BoundThreads((1,), (0, 1, 2, 3)), idle)
    with Database(path) as db:
        crowded = crowded_cpus(db, np.ones(len(db.lines), bool))
        assert crowded is not None and crowded.sentence == said
        assert crowded.waited == pytest.approx(3.0)
        (waits,) = (one for one in findings(db) if one.kind == "runnable")
        assert waits.text.endswith(f": {said}.") == ("idled" in said)
        (note,) = cpu_notes(db)
    assert note.startswith(
        "interrupts and softirqs had the machine's CPUs for 1.50 s, known by CPU"
    )


def test_threads_that_wait_for_any_cpu_are_not_said_to_be_bound(tmp_path: Path) -> None:
    path = made(tmp_path / "db", BoundThreads((1,), (2, 3)), {0: 1.9, 1: 0.0})
    with Database(path) as db:
        assert crowded_cpus(db, np.ones(len(db.lines), bool)) is None


def test_lines_that_do_not_exist_are_passed_over(tmp_path: Path) -> None:
    path = made(tmp_path / "db", BoundThreads((1,), (-7, 1 << 80, 0, 1, 2)), {})
    with Database(path) as db:
        crowded = crowded_cpus(db, np.ones(len(db.lines), bool))
    assert crowded is not None and crowded.threads == 3
