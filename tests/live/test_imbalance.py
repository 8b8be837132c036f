"""A real MPI program of known imbalance: its work by rank, its waiting, and who is to blame."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.documents import documents
from tests.support.recorded import HPCD, hpcd

STEPS, MS, RATE = 10, 40, 997


def error(seconds: float) -> float:
    """Four standard errors of a sum of ``seconds``: the clock samples as if at random."""
    return 4 * (seconds / RATE) ** 0.5


@pytest.mark.root
def test_the_slowest_rank_is_found_and_blamed(tmp_path: Path, build: Callable[..., Path]) -> None:
    program = build("imbalance.c", compiler="mpicc.openmpi")
    launch = ["mpirun.openmpi", "--oversubscribe", "--allow-run-as-root", "-n", "4"]
    done = subprocess.run(
        [*HPCD, "run", "-o", str(tmp_path / "m"), "--", *launch, str(program),
         str(STEPS), str(MS)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
    )  # fmt: skip
    output = documents(done.stdout)
    hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    imbalance = json.loads(hpcd("imbalance", "--json", tmp_path / "db").stdout)
    contexts: dict[str, dict[str, Any]] = {}
    for context in imbalance["contexts"]:  # the costliest first: a path may be incomplete
        contexts.setdefault(context["path"][-1] if context["path"] else "", context)
    compute = contexts["compute"]
    assert imbalance["contexts"][0] == compute
    truth = [rank["cpu_s"] for rank in sorted(output, key=lambda rank: rank["rank"])]
    for seconds, sampled in zip(truth, compute["by_rank"], strict=True):
        assert sampled == pytest.approx(seconds, abs=error(seconds))
    assert compute["max_rank"] == 3
    longest, mean = max(truth), sum(truth) / 4
    assert compute["max_by_mean"] == pytest.approx(longest / mean, abs=error(longest) / mean)
    assert compute["imbalance"] == pytest.approx(longest - mean, abs=error(longest))
    waited = sum(rank["barrier_s"] for rank in output)
    assert contexts["meet"]["idle_s"] == pytest.approx(waited, rel=0.05)
    assert compute["blame_s"] > 0.9 * waited
    blame = imbalance["blame_of_rank_s"]
    # With more ranks than CPUs it is not always the last one that comes last.
    assert min(blame) == blame[0]
    assert blame[2] + blame[3] > 0.7 * sum(blame)
