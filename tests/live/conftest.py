"""Every database that a live test makes is sound in its facts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hpcd.analysis.database import Database
from hpcd.analysis.findings.time_use import TimeUse
from hpcd.errors import HpcdError

# Of more cells it would take longer than the test.
_MOST_CELLS = 1_000_000


@pytest.fixture(autouse=True)
def facts_add_up(tmp_path: Path) -> Iterator[None]:
    """The uses of each thread's time add up to what was measured of it."""
    yield
    for path in tmp_path.glob("*/hpcd.sqlite"):
        try:
            db = Database(path.parent)
        except HpcdError:  # a test that damages it
            continue
        with db:
            names = [name for name in _TIMES if name in db.metrics.names]
            if "cpu_time" not in names or db.metrics.record_count > _MOST_CELLS:
                continue
            measured = sum((db.line_totals(name) for name in names), np.zeros(len(db.lines)))
            np.testing.assert_allclose(TimeUse(db).by_thread.sum(1), measured, rtol=1e-6, atol=1e-6)


_TIMES = ("cpu_time", "blocked_time", "runnable_time")
