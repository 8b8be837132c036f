"""A real MPI program of known imbalance: its work by rank, its waiting, and who is to blame."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.recorded import HPCD, hpcd

STEPS, MS = 10, 40


@pytest.mark.root
def test_the_slowest_rank_is_found_and_blamed(tmp_path: Path, build: Callable[..., Path]) -> None:
    program = build("imbalance.c", compiler="mpicc.openmpi")
    launch = ["mpirun.openmpi", "--oversubscribe", "--allow-run-as-root", "-n", "4"]
    done = subprocess.run(
        [*HPCD, "run", "-o", str(tmp_path / "m"), "--", *launch, str(program), str(STEPS), str(MS)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
    )  # fmt: skip
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"rank"')]
    hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    found = json.loads(hpcd("imbalance", "--json", tmp_path / "db").stdout)
    contexts = {each["path"][-1]: each for each in found["contexts"] if each["path"]}
    compute = contexts["compute"]
    assert found["contexts"][0] == compute
    truth = [each["cpu_s"] for each in sorted(said, key=lambda each: each["rank"])]
    # Where each step begins and ends is known to a sample's period.
    assert compute["by_rank"] == pytest.approx(truth, rel=0.03, abs=STEPS / 997)
    assert compute["max_rank"] == 3
    assert compute["max_by_mean"] == pytest.approx(1.6, rel=0.03)
    assert compute["imbalance"] == pytest.approx(max(truth) - sum(truth) / 4, rel=0.05)
    waited = sum(each["barrier_s"] for each in said)
    assert contexts["meet"]["idle_s"] == pytest.approx(waited, rel=0.05)
    assert compute["blame_s"] > 0.9 * waited
    blame = found["blame_of_rank_s"]
    # With more ranks than CPUs it is not always the last one that comes last.
    assert min(blame) == blame[0]
    assert blame[2] + blame[3] > 0.7 * sum(blame)
