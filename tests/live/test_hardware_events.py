"""``--event``: counters of the processor, where it has some, against what the program counts."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import hpcd.analysis
from tests.support import recorded

pytestmark = pytest.mark.root

# Besides the work there is the program's start and end, of some million cycles.
STEPS, TOLERANCE = 30, 0.1


@pytest.mark.parametrize("event", ["cycles", "instructions"])
def test_weights_add_up_to_the_programs_own_count(
    tmp_path: Path, build: Callable[..., Path], event: str
) -> None:
    program = build("counted.c")
    if subprocess.run([program], capture_output=True, text=True, check=True).stdout == "none\n":
        pytest.skip("this processor counts no cycles")
    done = recorded.hpcd(
        "run", "-e", event, "-o", tmp_path / "m", "--", program, STEPS
    )  # fmt: skip
    expected = json.loads(done.stdout.splitlines()[0])[event]
    if not expected:
        pytest.skip(f"this processor counts no {event}")
    recorded.hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    with hpcd.analysis.open(tmp_path / "db") as db:
        counted = db.metrics.exclusive(event)
        names = [db.procedure_names[at] for at in db.procedure_of_node]
        deepest = [
            node for node in range(len(names))
            if sum(names[at] == "deeper" for at in db.cct.path(node)) == 21
        ]  # fmt: skip
        assert counted.sum() == pytest.approx(expected, rel=TOLERANCE)
        assert counted[deepest].sum() > (1 - TOLERANCE) * counted.sum()
