"""Benchmarks of files, as tests/benchmarks/test_running.py runs those of programs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.smallest import BY_THEMSELVES, OFFLINE, smallest

pytestmark = pytest.mark.root


@pytest.mark.parametrize("name", OFFLINE)
def test_it_makes_its_table(name: str) -> None:
    assert "│" in smallest("-m", "benchmarks", name)


@pytest.mark.parametrize("name", BY_THEMSELVES)
def test_it_prints_its_figures(name: str, build: Callable[..., Path]) -> None:
    program = str(build("hot.cpp", "-g"))
    arguments = [program if argument == "PROGRAM" else argument for argument in BY_THEMSELVES[name]]
    assert smallest("-m", f"benchmarks.{name}", *arguments)
