"""Rules that walks keep lead to the paths that looking up each leads to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.switch_paths import build, compare

pytestmark = pytest.mark.root


def test_paths_are_those_of_rules_that_are_looked_up(tmp_path: Path) -> None:
    """``make soak`` compares ten million."""
    program, compared = build(tmp_path), 0
    # Until the program's files are analysed nothing is walked at once: on a slow machine the
    # program has ended by then, and a longer one is run.
    for seed, turns in enumerate((3000, 30_000, 100_000)):
        more, findings = compare(tmp_path, program, turns, seed)
        assert findings == []
        compared += more
        if compared > 1000:
            break
    assert compared > 1000
