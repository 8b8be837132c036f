"""A little of what ``make soak`` does at length."""

from __future__ import annotations

import pytest

from tests.soak import storage


def test_a_disk_that_fails_at_random_loses_nothing_uncounted() -> None:
    assert storage.run(100, seed=1) == []


@pytest.mark.root
def test_killed_recorders_and_hostile_files_and_messages() -> None:
    from tests.soak import files, kills, messages

    assert kills.run(4, seed=2) == []
    assert files.run(100, seed=2) == []
    assert messages.run(100, seed=2) == []
