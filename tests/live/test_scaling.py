"""Real MPI programs with one planted bottleneck each: it is found, and what it costs is right."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.recorded import HPCD, hpcd

MPIRUN = ["mpirun.openmpi", "--oversubscribe", "--allow-run-as-root"]
POINTS = 3

# Program, metric, planted procedure, its seconds per rank with so many units on so many ranks.
PLANTED: list[tuple[str, str, str, Callable[[int, int], float]]] = [
    ("serial_loop", "time", "write_output", lambda units, ranks: 0.4 * units),
    ("neighbours", "cpu_time", "exchange", lambda units, ranks: 0.1 * (ranks - 1)),
    ("replicated", "cpu_time", "initialise", lambda units, ranks: 0.1 * units),
]


def recorded(folder: Path, program: Path, mode: str, ranks: int) -> tuple[Path, dict[str, float]]:
    """A database of the program, and what it says it took: the mean over its ranks."""
    output = folder / f"{program.name}-{mode}-{ranks}"
    done = subprocess.run(
        [*HPCD, "run", "-o", f"{output}.m", "--", *MPIRUN, "-n", str(ranks), str(program), mode],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"rank"')]
    assert len(said) == ranks
    hpcd("merge", f"{output}.m", "-o", output)
    return output, {name: sum(each[name] for each in said) / ranks for name in said[0]}


@pytest.mark.root
@pytest.mark.parametrize(("name", "metric", "planted", "seconds"), PLANTED)
def test_the_planted_context_ranks_first_and_its_loss_is_true(
    tmp_path: Path,
    build: Callable[..., Path],
    name: str,
    metric: str,
    planted: str,
    seconds: Callable[[int, int], float],
) -> None:
    program = build(f"{name}.c", compiler="mpicc.openmpi")
    # On two ranks both modes are the same run.
    two, _ = recorded(tmp_path, program, "weak", 2)
    # Built anew: under another name, with its functions elsewhere.
    program = build(f"{name}.c", "-O1", "-no-pie", compiler="mpicc.openmpi")
    for mode, units, factor in (("weak", 4, 1), ("strong", 2, 2)):
        four, took = recorded(tmp_path, program, mode, 4)
        done = hpcd("scaling", f"--{mode}", "--metric", metric, "--json", two, four)
        found: dict[str, Any] = json.loads(done.stdout)
        excess = factor * seconds(units, 4) - seconds(2, 2)
        truth = 100 * excess / (factor * took[metric])
        first = found["contexts"][0]
        assert first["path"][-2:] == ["main", planted]
        assert first["loss"][0] == pytest.approx(truth, abs=POINTS)
        # By the paper's own views too: inclusive loss of the procedure, whoever is looked at.
        flat = json.loads(
            hpcd("scaling", f"--{mode}", "--metric", metric, "--view", "flat", "--json",
                 "--percent", "0", two, four).stdout
        )  # fmt: skip
        (row,) = [each for each in flat["tree"]["children"] if each["name"] == planted]
        assert row["inclusive"]["loss"][0] == pytest.approx(truth, abs=POINTS)
        print(f"{name} {mode}: {first['loss'][0]:.2f} % found, {truth:.2f} % true")
