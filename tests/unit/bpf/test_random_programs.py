"""Random programs stopped at random instructions: the walk finds what gdb finds.

``make soak`` runs many more of the same.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.random_programs import check
from tests.support.replay import Replay

EXECUTABLES = 7
PROGRAMS = 20
STOPS = 200


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Replay:
    return Replay(tmp_path_factory.mktemp("replay"))


@pytest.mark.parametrize("seed", range(EXECUTABLES))
def test_walk_finds_what_gdb_finds(tmp_path: Path, replay: Replay, seed: int) -> None:
    """Every path is whole and gdb's, by call frame information; by machine code alone a path may
    be cut short with its reason, but no whole one is another than gdb's."""
    reported, followed = check(tmp_path, replay, seed, PROGRAMS, STOPS)
    assert reported.stops > 40
    assert reported.wrong == reported.ends == []
    assert followed.wrong == []
    assert followed.whole > 0.5 * followed.stops
