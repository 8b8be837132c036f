"""Real MPI programs compared: iterations of a run, runs of a program, an edited program."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs import PROGRAMS
from tests.support.recorded import hpcd
from tests.support.waiting import Recorder, started

RANKS = 2
MPIRUN = ["mpirun.openmpi", "--oversubscribe", "--allow-run-as-root", "-n", str(RANKS)]


# The clock fires as if at random: at this rate steps of some ms are seldom missed.
RATE = 4999


def recorded(output: Path, *command: object) -> Path:
    hpcd("run", "-F", RATE, "-o", f"{output}.m", "--", *MPIRUN, *command)
    hpcd("merge", f"{output}.m", "-o", output)
    return output


def compared(*arguments: object) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(hpcd("compare", "--json", *arguments).stdout)
    return result


def regions(comparison: dict[str, Any]) -> dict[str, list[str]]:
    """Regions that differ by more than chance, and how.

    Three standard deviations, which the comparison asks for, chance alone exceeds once in 400
    differences, five once in two million.
    """
    changes = {}
    for region in comparison["regions"]:
        cost = region["cost"]
        beyond = (
            abs(after - before) > 5 * ((before + after) / RATE / RANKS) ** 0.5
            for before, after in pairwise(cost)
        )
        if region["path"] and any(beyond):
            changes[region["path"][-1]] = region["change"]
    return changes


@pytest.fixture(scope="module")
def timesteps(tmp_path_factory: pytest.TempPathFactory, build: Callable[..., Path]) -> Path:
    program = build("timesteps.c", compiler="mpicc.openmpi")
    return recorded(tmp_path_factory.mktemp("timesteps") / "db", program)


@pytest.mark.root
def test_iterations_of_one_run(timesteps: Path) -> None:
    (database_phases,) = json.loads(hpcd("compare", "--json", "--phases", timesteps).stdout)
    pattern = database_phases["patterns"][0]
    assert pattern["path"][-1] == "main"
    assert len(pattern["begin_s"]) == 20
    assert pattern["calls"][:2] == ["assemble", "solve"]
    names = [phase["name"] for phase in database_phases["phases"]]
    assert [name for name in names if name in ("set_up", "20 iterations", "output")] == [
        "set_up", "20 iterations", "output",
    ]  # fmt: skip
    selected = [word for number in (8, 12, 16) for word in ("--iteration", number)]
    comparison = compared(*selected, timesteps)
    changes = regions(comparison)
    changes.pop("main", None)  # how long it polls for the other rank is the machine's affair
    assert changes == {"solve": ["more", "less"], "checkpoint": ["absent", "new"]}, comparison
    longest = compared("--phase", "solve", timesteps)
    assert longest["sides"][-1]["label"].endswith("solve 12")


@pytest.mark.root
def test_identical_runs_differ_nowhere(
    tmp_path: Path, timesteps: Path, build: Callable[..., Path]
) -> None:
    again = recorded(tmp_path / "db", build("timesteps.c", compiler="mpicc.openmpi"))
    # How long main polls for the other rank is the machine's affair, and so is how much of set_up,
    # the first thing it does, ran before the ranks' code was known.
    assert set(regions(compared(timesteps, again))) <= {"main", "set_up"}
    within = compared("--within", "solve", timesteps, again)
    assert regions(within) == {}
    # By the thread's own clock, whoever else has its CPU in between.
    error = 4 * (1.05 / RATE) ** 0.5
    assert within["sides"][0]["cost"] == pytest.approx(1.05, abs=0.02 + error)


@pytest.mark.root
def test_the_loop_that_changed_in_an_edited_program(tmp_path: Path) -> None:
    source = (PROGRAMS / "nested.cpp").read_text()
    lines = source.splitlines()
    (loop,) = [n for n, text in enumerate(lines, 1) if "the loop that is entered more" in text]
    databases = []
    for name, text, rounds in (("old", source, 1), ("new", "\n\n" + source, 3)):
        (tmp_path / f"{name}.cpp").write_text(text)
        program = tmp_path / name
        subprocess.run(["g++", "-O2", "-g", "-o", program, tmp_path / f"{name}.cpp"], check=True)
        # Attached to before it begins: all of its paths are whole, however busy the machine is.
        process = started(program, rounds)
        recorder = Recorder(Path(f"{program}.m"), "-p", process.pid)
        process.communicate()
        recorder.wait()
        hpcd("merge", f"{program}.m", "-o", f"{program}.db")
        databases.append(f"{program}.db")
    differing = compared("--scopes", *databases)["regions"]
    assert differing[0]["path"][-2:] == ["scale [inlined]", f"loop at old.cpp:{loop}"]
    assert differing[0]["change"] == ["more"]
    # 80 times 5 ms, and 240 times.
    for cost, planted in zip(differing[0]["cost"], (0.4, 1.2), strict=True):
        assert cost == pytest.approx(planted, abs=4 * (planted / 997) ** 0.5)
    # What was not edited takes what it took.
    changed = [region["cost"][1] - region["cost"][0] for region in differing]
    for region, change in zip(differing, changed, strict=True):
        assert abs(change) < changed[0] / 10 or "product [inlined]" not in region["path"]
