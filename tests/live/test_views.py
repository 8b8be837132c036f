"""Real programs recorded: the hot loop and line are named, inlined as they are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.recorded import hpcd, record

SOURCE = Path(__file__).parents[1] / "programs/hot.cpp"


def line_of(comment: str) -> int:
    """The line of the program that has this comment."""
    lines = SOURCE.read_text().splitlines()
    (number,) = [n for n, line in enumerate(lines, 1) if line.endswith(f"// {comment}")]
    return number


@pytest.fixture(scope="module")
def database(build: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hot")
    record(folder / "m", [build("hot.cpp", "-g"), "60000"])
    hpcd("merge", folder / "m", "-o", folder / "db")
    return folder / "db"


def report(database: Path, *options: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(hpcd("report", "--json", *options, database).stdout)
    return told


@pytest.mark.root
def test_the_hot_path_ends_in_the_hot_loop(database: Path) -> None:
    node = report(database, "--hot-path")["tree"]
    path = []
    while node["children"]:
        (node,) = node["children"]
        path.append((node["kind"], node["name"], node["file"], node["line"]))
    assert [each[0] for each in path[-4:]] == ["procedure", "loop", "inlined", "loop"]
    assert path[-4][1] == "solve(Field&, int)"
    assert path[-3][2:] == (str(SOURCE), line_of("outer loop"))
    assert path[-2][1] == "Field::relax(double)"
    assert path[-1][2:] == (str(SOURCE), line_of("hot loop"))


@pytest.mark.root
def test_loops_lines_and_procedures_side_by_side(database: Path) -> None:
    loops = report(database, "--view", "loops")["tree"]["children"]
    assert {(each["file"], each["line"]) for each in loops} == {
        (str(SOURCE), line_of(each)) for each in ("outer loop", "hot loop")
    }
    hot = next(each for each in loops if each["line"] == line_of("hot loop"))
    total = report(database)["tree"]["inclusive"]["cpu_time"]
    assert hot["exclusive"]["cpu_time"] > 0.8 * total
    lines = report(database, "--view", "lines")["tree"]["children"]
    first = line_of("hot loop")
    inside = [each for each in lines if each["file"] == str(SOURCE)
              and first <= each["line"] <= line_of("hot line") + 1]  # fmt: skip
    assert sum(each["exclusive"]["cpu_time"] for each in inside) > 0.8 * total
    flat = report(database, "--view", "flat")["tree"]["children"]
    assert (flat[0]["kind"], flat[0]["name"]) == ("inlined", "Field::relax(double)")
    assert hpcd("check", database).returncode == 0


@pytest.mark.root
def test_inlined_procedures_can_be_filtered_for(database: Path) -> None:
    whole = report(database)["tree"]["inclusive"]["cpu_time"]
    only = report(database, "--filter", "procedure=Field::relax")["tree"]["inclusive"]["cpu_time"]
    assert 0.8 * whole < only <= whole
