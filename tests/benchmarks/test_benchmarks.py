"""Every benchmark still works: each is run at its smallest size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.__main__ import NAMES
from tests.support.paths import ROOT
from tests.support.smallest import BY_THEMSELVES, OFFLINE, smallest

# Modules that are no benchmark of their own.
SHARED = {"__init__", "__main__", "otlp_sink", "shapes", "workloads"}
ONLY_RUN = {"attach"}

pytestmark = pytest.mark.root


def test_every_benchmark_is_run() -> None:
    modules = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
    modules |= {path.parent.name for path in (ROOT / "benchmarks").glob("*/__init__.py")}
    assert modules - SHARED == {*NAMES, *BY_THEMSELVES, *ONLY_RUN}
    assert {*OFFLINE} <= {*NAMES}


@pytest.mark.parametrize("name", OFFLINE)
def test_those_of_files_make_their_tables(name: str) -> None:
    assert "│" in smallest("-m", "benchmarks", name)


@pytest.mark.parametrize("name", [*sorted({*NAMES} - {*OFFLINE}), *ONLY_RUN])
def test_those_of_programs_make_their_tables(name: str) -> None:
    assert "│" in smallest("-m", "benchmarks", name)


@pytest.mark.parametrize("name", BY_THEMSELVES)
def test_those_with_arguments_print_their_figures(name: str, build: Callable[..., Path]) -> None:
    program = str(build("hot.cpp", "-g"))
    arguments = [program if argument == "PROGRAM" else argument for argument in BY_THEMSELVES[name]]
    assert smallest("-m", f"benchmarks.{name}", *arguments)
