"""Real programs recorded: the hot loop and line are named, inlined as they are."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT
from tests.support.programs import HOT_LOOP, line_of
from tests.support.recorded import hpcd, record


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


@pytest.mark.root
def test_hpc_challenge_names_module_and_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian's program is stripped: its functions have addresses for names, OpenBLAS's names."""
    monkeypatch.setitem(os.environ, "OPENBLAS_NUM_THREADS", "1")
    text = (ROOT / "tests/data/hpccinf.txt").read_text()
    text = re.sub(r"^3500 (.*Ns)$", r"2000 \1", text, flags=re.M)
    text = re.sub(r"^2 (.*Qs)$", r"1 \1", text, flags=re.M)
    (tmp_path / "hpccinf.txt").write_text(text)
    record(tmp_path / "m", ["sh", "-c", f"cd {tmp_path} && exec hpcc"])
    hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    flat = report(tmp_path / "db", "--view", "flat", "--percent", "2")["tree"]["children"]
    programs = [row for row in flat if row["module"].endswith("/hpcc")]
    assert programs and all(
        re.fullmatch(r"\[hpcc\+0x\w+\]", program["name"]) for program in programs
    )
    (kernel,) = [row for row in flat if re.match(r"dgemm_kernel", row["name"])]
    assert "blas" in kernel["module"]
    # No lines: its machine code.
    told = json.loads(hpcd("annotate", programs[0]["name"], tmp_path / "db", "--json").stdout)
    (code,) = told["code"]
    assert code["module"] == programs[0]["module"]
    assert all(instruction["text"] for instruction in code["instructions"])
    whole = sum(instruction["exclusive"]["cpu_time"] for instruction in code["instructions"])
    assert whole == pytest.approx(programs[0]["exclusive"]["cpu_time"])
