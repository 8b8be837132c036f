"""A recording, its merge and its picture execute what docs/architecture.md draws."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.executed import ExecutedFunctions
from tests.support.paths import ROOT
from tests.support.recorded import record, started
from tests.support.viewer import ask, served

pytestmark = pytest.mark.root


def journey() -> set[tuple[str, str]]:
    """Return (path, name) of all Python functions and classes that a sample's journey names.

    Kernels, programs in the kernel and the page's functions are no Python.
    """
    text = (ROOT / "docs/architecture.md").read_text()
    text = text.split("## One sample's journey")[1].split("\n## ")[0]
    # In the drawing "name: what it does    file", below it `file:name`.
    drawn = re.findall(r"([\w.]+): .* ([\w/]+\.py)$", text, re.M)
    return {*re.findall(r"`([\w/]+\.py):([\w.]+)`", text), *((path, name) for name, path in drawn)}


def test_the_journey_names_what_a_sample_goes_through(
    tmp_path: Path, build: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    executed = ExecutedFunctions(tmp_path)
    for name, value in executed.variables.items():
        monkeypatch.setenv(name, value)
    record(tmp_path / "m", [build("waits.c"), "1", "20", tmp_path / "file"], "--io")
    started("merge", tmp_path / "m", "-o", tmp_path / "db")
    with served(tmp_path / "db") as (url, _):
        status, _ = ask(url, "api/v1/db/db/grid?t0=0&t1=1000000&l0=0&l1=1&h=1&w=10")
        assert status == 200
    names = executed.names()
    named = journey()
    assert len(named) > 30
    missing = {
        f"{path}:{name}"
        for path, name in named
        # A class is named for its methods.
        if (path, name) not in names
        and not any(where == path and ran.startswith(f"{name}.") for where, ran in names)
    }
    assert not missing, f"named in the journey, but not executed: {', '.join(sorted(missing))}"
