"""A little of what ``make soak`` does at length."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak import findings, storage


def test_a_disk_that_fails_at_random_loses_nothing_uncounted() -> None:
    assert storage.run(100, seed=1) == []


@pytest.mark.root
@pytest.mark.long
def test_killed_recorders_and_hostile_files_and_messages() -> None:
    from tests.soak import databases, imports, kills, measurements, messages

    assert kills.run(4, seed=2) == []
    assert measurements.run(10, seed=2) == []
    assert databases.run(10, seed=2) == []
    assert imports.run(20, seed=2) == []
    assert messages.run(100, seed=2) == []


@pytest.mark.root
@pytest.mark.long
def test_the_first_finding_names_a_planted_cause_and_none_accuses_a_healthy_program(
    tmp_path: Path,
) -> None:
    sample = ("chain_of_locks", "fdatasync_per_step", "short_children", "hot_leaf_of_two",
              "brief_threads", "stops_itself")  # fmt: skip
    healthy = ("healthy_serial", "healthy_with_idle_pool")
    causes = {name: findings.CAUSES[name] for name in sample}
    assert findings.try_cases(tmp_path, causes, healthy) == []
