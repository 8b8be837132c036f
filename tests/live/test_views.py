"""Real programs recorded: the hot loop and line are named, inlined as they are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs import HOT_LOOP, line_of
from tests.support.recorded import hpcd, record


@pytest.fixture(scope="module")
def database(build: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hot")
    record(folder / "m", [build("hot.cpp", "-g"), "60000"])
    hpcd("merge", folder / "m", "-o", folder / "db")
    return folder / "db"


def report(database: Path, *options: str) -> dict[str, Any]:
    reported: dict[str, Any] = json.loads(hpcd("report", "--json", *options, database).stdout)
    return reported


@pytest.mark.root
def test_the_hot_path_ends_in_the_hot_loop(database: Path) -> None:
    node = report(database, "--hot-path")["tree"]
    path = []
    while node["children"]:
        (node,) = node["children"]
        path.append((node["kind"], node["name"], node["file"], node["line"]))
    assert [step[0] for step in path[-4:]] == ["procedure", "loop", "inlined", "loop"]
    assert path[-4][1] == "solve(Field&, int)"
    assert path[-3][2:] == (str(HOT_LOOP), line_of("outer loop"))
    assert path[-2][1] == "Field::relax(double)"
    assert path[-1][2:] == (str(HOT_LOOP), line_of("hot loop"))


@pytest.mark.root
def test_loops_lines_and_procedures_side_by_side(database: Path) -> None:
    loops = report(database, "--view", "loops")["tree"]["children"]
    assert {loop["line"] for loop in loops if loop["file"] == str(HOT_LOOP)} == {
        line_of(comment) for comment in ("outer loop", "hot loop")
    }
    hot = next(loop for loop in loops if loop["line"] == line_of("hot loop"))
    total = report(database)["tree"]["inclusive"]["cpu_time"]
    assert hot["exclusive"]["cpu_time"] > 0.8 * total
    lines = report(database, "--view", "source-lines")["tree"]["children"]
    first = line_of("hot loop")
    inside = [line for line in lines if line["file"] == str(HOT_LOOP)
              and first <= line["line"] <= line_of("hot line") + 1]  # fmt: skip
    assert sum(line["exclusive"]["cpu_time"] for line in inside) > 0.8 * total
    flat = report(database, "--view", "flat")["tree"]["children"]
    assert (flat[0]["kind"], flat[0]["name"]) == ("inlined", "Field::relax(double)")
    assert hpcd("check", database).returncode == 0


@pytest.mark.root
def test_inlined_procedures_can_be_filtered_for(database: Path) -> None:
    whole = report(database)["tree"]["inclusive"]["cpu_time"]
    only = report(database, "--filter", "procedure=Field::relax")["tree"]["inclusive"]["cpu_time"]
    assert 0.8 * whole < only <= whole
