"""Which trace lines did the work."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hpcd.analysis
from hpcd.analysis.profile.working_lines import working_lines
from hpcd.errors import UsageError
from tests.support.made import make


def test_helpers_that_sleep_are_left_out(tmp_path: Path) -> None:
    steps = {
        0: [("main/solve", "cpu", 2.0)],
        1: [("main/MPI_Recv", "blocked", 2.0), ("main/solve", "cpu", 0.001)],
        2: [("main/solve", "cpu", 1.9)],
    }
    path = make(tmp_path / "db", steps, helper=True)
    with hpcd.analysis.open(path) as db:
        cost = db.line_totals("cpu_time")
        assert np.allclose(cost, db.metrics.over_lines("cpu_time", 0))
        working = working_lines(db)
        assert (len(db.lines), int(working.sum())) == (6, 3)
        assert cost[~working].sum() <= 0.005 * cost.sum()
        for rank in np.unique(db.lines.rank[db.lines.rank >= 0]):
            mine = np.flatnonzero(db.lines.rank == rank)
            assert working[mine[cost[mine].argmax()]]
        with pytest.raises(UsageError, match="no metric"):
            db.line_totals("luck")
