"""Real MPI programs compared: iterations of a run, runs of a program, HPL at two block sizes."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PROGRAMS
from tests.support.recorded import hpcd

MPIRUN = ["mpirun.openmpi", "--oversubscribe", "--allow-run-as-root", "-n", "2"]
ROOT = Path(__file__).parents[2]


def recorded(output: Path, *command: object) -> Path:
    hpcd("run", "-o", f"{output}.m", "--", *MPIRUN, *command)
    hpcd("merge", f"{output}.m", "-o", output)
    return output


def compared(*arguments: object) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(hpcd("compare", "--json", *arguments).stdout)
    return result


def regions(found: dict[str, Any]) -> dict[str, list[str]]:
    return {each["path"][-1]: each["change"] for each in found["regions"] if each["path"]}


@pytest.fixture(scope="module")
def timesteps(tmp_path_factory: pytest.TempPathFactory, build: Callable[..., Path]) -> Path:
    program = build("timesteps.c", compiler="mpicc.openmpi")
    return recorded(tmp_path_factory.mktemp("timesteps") / "db", program)


@pytest.mark.root
def test_iterations_of_one_run(timesteps: Path) -> None:
    (found,) = json.loads(hpcd("compare", "--json", "--phases", timesteps).stdout)
    pattern = found["patterns"][0]
    assert pattern["path"][-1] == "main"
    assert len(pattern["begin_s"]) == 20
    assert pattern["calls"][:2] == ["assemble", "solve"]
    names = [phase["name"] for phase in found["phases"]]
    assert [name for name in names if name in ("set_up", "20 iterations", "output")] == [
        "set_up", "20 iterations", "output",
    ]  # fmt: skip
    chosen = [word for number in (8, 12, 16) for word in ("--iteration", number)]
    assert regions(compared(*chosen, timesteps)) == {
        "solve": ["more", "less"],
        "checkpoint": ["absent", "new"],
    }
    longest = compared("--phase", "solve", timesteps)
    assert longest["sides"][-1]["label"].endswith("solve 12")


@pytest.mark.root
def test_identical_runs_differ_nowhere(
    tmp_path: Path, timesteps: Path, build: Callable[..., Path]
) -> None:
    again = recorded(tmp_path / "db", build("timesteps.c", compiler="mpicc.openmpi"))
    # How long main polls for the other rank is the machine's affair.
    assert set(regions(compared(timesteps, again))) <= {"main"}
    within = compared("--within", "solve", timesteps, again)
    assert within["regions"] == []
    # By the thread's own clock, whoever else has its CPU in between.
    assert within["sides"][0]["cost"] == pytest.approx(1.05, rel=0.02)


@pytest.mark.root
def test_the_loop_that_changed_in_an_edited_program(tmp_path: Path) -> None:
    source = (PROGRAMS / "nested.cpp").read_text()
    databases = []
    for name, text, rounds in (("old", source, 1), ("new", "\n\n" + source, 3)):
        (tmp_path / f"{name}.cpp").write_text(text)
        program = tmp_path / name
        subprocess.run(["g++", "-O2", "-g", "-o", program, tmp_path / f"{name}.cpp"], check=True)
        hpcd("run", "-o", f"{program}.m", "--", program, rounds)
        hpcd("merge", f"{program}.m", "-o", f"{program}.db")
        databases.append(f"{program}.db")
    found = compared("--scopes", *databases)["regions"]
    assert found[0]["path"][-2:] == ["scale [inlined]", "loop at old.cpp:16"]
    assert found[0]["change"] == ["more"]
    assert found[0]["cost"][1] / found[0]["cost"][0] == pytest.approx(3, rel=0.5)
    # What was not edited may differ a little: it really takes longer while others use its core.
    changed = [each["cost"][1] - each["cost"][0] for each in found]
    for each, change in zip(found, changed, strict=True):
        assert abs(change) < changed[0] / 10 or not any("product" in name for name in each["path"])


def hpl(folder: Path, block: int) -> Path:
    """HPC Challenge with HPL on a matrix of 2500 rows in blocks of so many."""
    demo = (ROOT / "setup" / "demo.sh").read_text()
    text = demo.split("<<'INPUT'\n")[1].split("\nINPUT\n")[0] + "\n"
    text = re.sub(r"^3500 (.*Ns)$", r"2500 \1", text, flags=re.M)
    text = re.sub(r"^128 (.*NBs)$", rf"{block} \1", text, flags=re.M)
    folder.mkdir()
    (folder / "hpccinf.txt").write_text(text)
    return recorded(folder / "db", "sh", "-c", f"cd {folder} && exec hpcc")


@pytest.mark.root
def test_hpl_at_two_block_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "OPENBLAS_NUM_THREADS", "1")
    coarse, fine = hpl(tmp_path / "coarse", 128), hpl(tmp_path / "fine", 4)
    whole = compared(coarse, fine)
    # Debian's program has no names; HPL alone solves triangular systems.
    above = next(path for path, name in paths(whole["tree"]) if "dtrsm" in name)
    start = [name for name in above if name.startswith("[hpcc")][2]
    found = compared("--within", start, coarse, fine)
    assert found["regions"], "blocks of 4 cost as much as blocks of 128"
    first = found["regions"][0]
    assert first["change"] == ["more"]
    assert start in first["path"]
    # It is the update of the trailing matrix: what calls dgemm.
    updates = [path for path, name in paths(found["tree"]) if "dgemm_kernel" in name]
    assert any(first["path"][-1] in path for path in updates)


def paths(tree: dict[str, Any]) -> list[tuple[list[str], str]]:
    """(names on the way, name) of each node with children below it."""
    result = []
    waiting: list[tuple[list[str], dict[str, Any]]] = [([], tree)]
    while waiting:
        above, node = waiting.pop()
        result.append((above, node["name"]))
        waiting += [([*above, node["name"]], child) for child in node["children"]]
    return result
