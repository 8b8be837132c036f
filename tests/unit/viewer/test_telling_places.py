"""Places of findings: the line, moment and window that a click on a sentence leads to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import hpcd.analysis
from hpcd.analysis.findings.finding import Finding
from hpcd.viewer.server.find_api import telling_place
from tests.support.made import make

_FINDING = Finding("hot", "", 0.0, "s", 0.0, "")


@pytest.mark.parametrize(
    ("kind", "begin", "end"), [("hot", 0.0, 0.4), ("runnable", 0.4, 0.5), ("locks", 0.5, 0.7)]
)
def test_a_finding_leads_to_a_stretch_in_its_state(
    tmp_path: Path, kind: str, begin: float, end: float
) -> None:
    path = "main/work"
    steps = [(path, "cpu", 0.4), (path, "runnable", 0.1), (path, "blocked", 0.2)]
    with hpcd.analysis.open(make(tmp_path / "db", {0: steps})) as db:
        for procedure in ("work", ""):
            place = telling_place(db, replace(_FINDING, kind=kind, procedure=procedure))
            assert place is not None
            assert begin * 1e9 <= place["time"] <= end * 1e9
