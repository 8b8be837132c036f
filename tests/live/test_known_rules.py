"""Rules that walks keep lead to the paths that looking up each leads to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.switch_paths import build, compare

pytestmark = pytest.mark.root


def test_paths_are_those_of_rules_that_are_looked_up(tmp_path: Path) -> None:
    """``make soak`` compares ten million."""
    compared, findings = compare(tmp_path, build(tmp_path), turns=3000, seed=1)
    assert findings == []
    assert compared > 1000
