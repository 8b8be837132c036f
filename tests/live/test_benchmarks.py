"""Every benchmark still works: each is run at its smallest size."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.__main__ import NAMES
from benchmarks.workloads import SMALLEST

ROOT = Path(__file__).parents[2]
# Modules that are no benchmark of their own.
SHARED = {"__init__", "__main__", "workloads"}
# Those with arguments of their own; PROGRAM is a small program with debug information.
BY_THEMSELVES = {
    "fuzz_elf": ["--files", "20"],
    "module_memory": ["3"],
    "structure": ["--program", "PROGRAM"],
    "symbols": ["--program", "PROGRAM", "20000"],
    "unwind_tables": [],
}
ONLY_RUN = {"attach"}

pytestmark = pytest.mark.root


def test_every_benchmark_is_run_here() -> None:
    modules = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
    assert modules - SHARED == {*NAMES, *BY_THEMSELVES, *ONLY_RUN}


def smallest(*arguments: str) -> str:
    """What a benchmark prints."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, SMALLEST: "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", [*NAMES, *ONLY_RUN])
def test_it_makes_its_table(name: str) -> None:
    assert "│" in smallest("-m", "benchmarks", name)


@pytest.mark.parametrize("name", BY_THEMSELVES)
def test_it_prints_its_figures(name: str, build: Callable[..., Path]) -> None:
    program = str(build("hot.cpp", "-g"))
    arguments = [program if argument == "PROGRAM" else argument for argument in BY_THEMSELVES[name]]
    assert smallest("-m", f"benchmarks.{name}", *arguments)
