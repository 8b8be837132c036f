"""Names of threads that have none of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

import hpcd.analysis
from tests.support.made import Step, make

_BEGIN = "clone3/start_thread"


def labels(path: Path) -> list[str]:
    with hpcd.analysis.open(path) as db:
        return db.lines.label


@pytest.mark.parametrize("kind", ["cpu", "blocked"])
def test_threads_of_a_team_are_counted(tmp_path: Path, kind: str) -> None:
    """The runtime library's own function has no name there, as in distributions' libgomp."""
    steps: dict[int, list[Step]] = {0: [("main/GOMP_parallel/region", "cpu", 0.01)]}
    for worker in (1, 2, 3):
        steps[worker] = [(f"{_BEGIN}/Worker/region", kind, 0.01)]
    path = make(tmp_path / "db", steps, threads=True, library="/usr/lib/libgomp.so.1.0.0")
    assert labels(path) == [
        "solver 100",
        "solver 100 · OpenMP thread 2 of 4",
        "solver 100 · OpenMP thread 3 of 4",
        "solver 100 · OpenMP thread 4 of 4",
    ]


def test_other_threads_are_called_by_the_outermost_function_of_the_program(tmp_path: Path) -> None:
    steps: dict[int, list[Step]] = {
        0: [("main/solve", "cpu", 0.01)],
        1: [(f"{_BEGIN}/k_sleep", "cpu", 0.002),
            (f"{_BEGIN}/pool::Reader::run(int)/parse", "cpu", 0.01)],
        2: [(f"{_BEGIN}/pool::Reader::run(int)/k_sleep", "blocked", 0.01)],
        3: [(f"{_BEGIN}/k_sleep", "blocked", 0.01)],
    }  # fmt: skip
    path = make(tmp_path / "db", steps, threads=True)
    assert labels(path) == [
        "solver 100",
        "solver 100 · Reader::run 101",
        "solver 100 · Reader::run 102",
        "solver 100 · 103",
    ]


def test_names_that_the_program_gave_stay(tmp_path: Path) -> None:
    path = make(tmp_path / "db", {0: [("main/solve", "cpu", 0.01)]}, helper=True, size=0)
    assert labels(path) == ["solver 100", "solver 100 · async 1000"]
