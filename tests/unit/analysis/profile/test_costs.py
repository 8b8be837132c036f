"""Times of contexts, from the records of a trace."""

from __future__ import annotations

from pathlib import Path

import pytest

import hpcd.analysis
from hpcd.analysis.profile.state_times import RecordStates
from tests.support.made import Step, make


def test_a_thread_that_often_waits_runs_all_of_the_time_between(tmp_path: Path) -> None:
    step: list[Step] = [
        ("main/solve", "cpu", 0.003), ("main/MPI_Wait/k_sched", "blocked", 0.005),
    ]  # fmt: skip
    with hpcd.analysis.open(make(tmp_path / "db", {0: step * 20})) as db:
        seconds = RecordStates(db).occupancy([0], 0, db.duration_ns).sum(axis=0)
        waiting = [name.startswith("k_") for name in db.procedure_names]
        of_waits = seconds[[waiting[procedure] for procedure in db.procedure_of_node]].sum()
    # The first 0.5 ms pass before the first sample, where the line begins.
    assert of_waits == pytest.approx(20 * 0.005, abs=1e-6)
    assert seconds.sum() == pytest.approx(20 * 0.008, abs=1e-3)
