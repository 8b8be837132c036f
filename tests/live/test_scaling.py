"""Real MPI programs with one planted bottleneck each: it is found, and what it costs is right."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.documents import documents
from tests.support.recorded import HPCD, hpcd
from tests.support.tables import libraries_of, prepare_tables

MPIRUN = ["mpirun.openmpi", "--oversubscribe", "--allow-run-as-root"]
POINTS, RATE = 3, 997

# Program, metric, planted procedure.
PLANTED = [
    ("serial_loop", "time", "write_output"),
    ("neighbours", "cpu_time", "exchange"),
    pytest.param("replicated", "cpu_time", "initialise", marks=pytest.mark.long),
]


def recorded(folder: Path, program: Path, mode: str, ranks: int) -> tuple[Path, dict[str, float]]:
    """A database of the program, and what it says it took: the mean over its ranks."""
    output = folder / f"{program.name}-{mode}-{ranks}"
    prepare_tables(program, *libraries_of(program))
    done = subprocess.run(
        [*HPCD, "run", "-o", f"{output}.m", "--", *MPIRUN, "-n", str(ranks), str(program), mode],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    text = documents(done.stdout)
    assert sorted(document["rank"] for document in text) == list(range(ranks))
    hpcd("merge", f"{output}.m", "-o", output)
    return output, {name: sum(document[name] for document in text) / ranks for name in text[0]}


@pytest.mark.root
@pytest.mark.parametrize(("name", "metric", "planted"), PLANTED)
def test_the_planted_context_ranks_first_and_its_loss_is_true(
    tmp_path: Path,
    build: Callable[..., Path],
    name: str,
    metric: str,
    planted: str,
) -> None:
    program = build(f"{name}.c", compiler="mpicc.openmpi")
    # On two ranks both modes are the same run.
    two, base = recorded(tmp_path, program, "weak", 2)
    # Built anew: under another name, with its functions elsewhere.
    program = build(f"{name}.c", "-O1", "-no-pie", compiler="mpicc.openmpi")
    for mode, factor in (("weak", 1), ("strong", 2)):
        four, took = recorded(tmp_path, program, mode, 4)
        done = hpcd("scaling", f"--{mode}", "--metric", metric, "--json", two, four)
        scaling: dict[str, Any] = json.loads(done.stdout)
        excess = factor * took[f"planted_{metric}"] - base[f"planted_{metric}"]
        truth = 100 * excess / (factor * took[metric])
        points: float = POINTS
        if metric == "cpu_time":
            # Sampled as if at random: four standard errors of what the planted procedure took.
            errors = (
                weight * (took_by[f"planted_{metric}"] / ranks / RATE) ** 0.5
                for weight, took_by, ranks in ((factor, took, 4), (1, base, 2))
            )
            points += 4 * 100 * sum(error**2 for error in errors) ** 0.5 / (factor * took[metric])
        # How long MPI takes to start and to end is the machine's affair.
        first = next(
            context
            for context in scaling["contexts"]
            if not {"MPI_Init", "MPI_Finalize"} & set(context["path"])
        )
        assert first["path"][-2:] == ["main", planted]
        assert first["loss"][0] == pytest.approx(truth, abs=points)
        # By the paper's own views too: inclusive loss of the procedure, whoever is looked at.
        flat = json.loads(
            hpcd("scaling", f"--{mode}", "--metric", metric, "--view", "flat", "--json",
                 "--percent", "0", two, four).stdout
        )  # fmt: skip
        (row,) = [child for child in flat["tree"]["children"] if child["name"] == planted]
        assert row["inclusive"]["loss"][0] == pytest.approx(truth, abs=points)
        print(f"{name} {mode}: {first['loss'][0]:.2f} % found, {truth:.2f} % true")
