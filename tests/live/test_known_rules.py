"""Rules that walks keep lead to the paths that looking up each leads to."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.switch_paths import compare

pytestmark = pytest.mark.root


def test_paths_are_those_of_rules_that_are_looked_up(tmp_path: Path) -> None:
    """``make soak`` compares ten million."""
    program = tmp_path / "changing"
    source = str(ROOT / "tests/programs/changing.cpp")
    flags = ["-O2", "-fomit-frame-pointer", "-pthread"]
    subprocess.run(["g++", *flags, "-o", str(program), source], check=True)
    compared, findings = compare(tmp_path, program, turns=3000, seed=1)
    assert findings == []
    assert compared > 3000
