"""Annotated code of real programs: the hot line, and without debug information its instruction."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcd.errors import UsageError
from tests.support.programs import HOT_LOOP, line_of
from tests.support.recorded import hpcd, record

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def program(build: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With its source beside it, not where tests are."""
    folder = tmp_path_factory.mktemp("annotate")
    shutil.copy(HOT_LOOP, folder)
    path = folder / "hot"
    subprocess.run(["g++", "-g", "-O2", "-o", str(path), str(folder / HOT_LOOP.name)], check=True)
    return path


@pytest.fixture(scope="module")
def database(program: Path) -> Path:
    record(program.with_name("m"), [program, "60000"])
    hpcd("merge", program.with_name("m"), "-o", program.with_name("db"))
    return program.with_name("db")


@pytest.mark.parametrize("name", ["solve", "Field::relax", "sol?e(*"])
def test_lines_of_the_hot_loop_have_its_cost(database: Path, name: str) -> None:
    reported = json.loads(hpcd("annotate", name, database, "--json").stdout)
    report = json.loads(hpcd("report", database, "--json").stdout)
    (file,) = [
        entry for entry in reported["files"] if entry["file"] == str(database.parent / "hot.cpp")
    ]
    source = HOT_LOOP.read_text().splitlines()
    inside = 0.0
    for line in file["lines"]:
        assert line["text"] == source[line["line"] - 1]
        if line_of("hot loop") <= line["line"] <= line_of("hot line") + 1:
            inside += line["exclusive"]["cpu_time"]
    assert inside > 0.8 * report["tree"]["inclusive"]["cpu_time"]


def test_text_shows_the_lines_around_and_says_what_is_missing(
    database: Path, tmp_path: Path
) -> None:
    text = hpcd("annotate", "solve", database, "--metric", "twice = cpu_time * 2").stdout
    (line,) = [text_line for text_line in text.splitlines() if text_line.endswith("// hot line")]
    assert line.lstrip()[0].isdigit() and f" {line_of('hot line')} " in line
    assert "double relax(double omega)" in text
    moved = tmp_path / "elsewhere"
    (database.parent / "hot.cpp").rename(moved)
    try:
        text = hpcd("annotate", "solve", database).stdout
        assert "not found here, see --source" in text
        (tmp_path / "hot.cpp").write_text("\x1b[31m\n" + "line\n" * 100)
        text = hpcd("annotate", "solve", database, "--source", tmp_path).stdout
        assert " line\n" in text and "\x1b" not in text
    finally:
        moved.rename(database.parent / "hot.cpp")


def test_instructions_are_those_objdump_shows(database: Path, program: Path) -> None:
    reported = json.loads(hpcd("annotate", "solve", database, "--assembly", "--json").stdout)
    (code,) = reported["code"]
    listing = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", str(program)],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    theirs = {}
    for line in listing.splitlines():
        address, _, text = line.partition(":\t")
        if text:
            theirs[int(address, 16)] = text.split()[0]
    assert code["instructions"]
    for instruction in code["instructions"]:
        assert instruction["text"].split()[0] == theirs[instruction["address"]]
    (whole,) = [
        listing for listing in reported["code"] if listing["procedure"] == "solve(Field&, int)"
    ]
    assert sum(instruction["exclusive"]["cpu_time"] for instruction in whole["instructions"]) > 0


def test_without_debug_information_there_are_instructions(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Lines are kept by build id, which is the same.
    monkeypatch.setenv("HPCD_CACHE", str(tmp_path / "cache"))
    plain = tmp_path / "plain"
    subprocess.run(["strip", "-g", "-o", str(plain), str(program)], check=True)
    record(tmp_path / "m", [plain, "20000"])
    hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    text = hpcd("annotate", "solve", tmp_path / "db").stdout
    assert "mulsd" in text and " ret" in text
    # Another program in its place is not what ran.
    shutil.copy("/bin/true", plain)
    text = hpcd("annotate", "solve", tmp_path / "db").stdout
    assert "has changed since it was recorded (build id" in text and "mulsd" not in text
    done = hpcd("annotate", "nobody", tmp_path / "db", check=False)
    assert done.returncode == UsageError.exit_code
    assert done.stderr.endswith("no procedure nobody\n") and done.stderr.count("\n") == 1
