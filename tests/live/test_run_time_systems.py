"""Programs in languages whose run-time systems share out work: their own code stands out."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import hpcd.analysis
from hpcd.analysis.findings.findings import findings
from tests.support.programs import PROGRAMS
from tests.support.recorded import hpcd as command
from tests.support.recorded import record

pytestmark = pytest.mark.root


@pytest.mark.skipif(not shutil.which("go"), reason="needs Go: apt install golang")
def test_goroutines_work_in_the_programs_procedures(tmp_path: Path) -> None:
    """Whichever of Go's threads they run on, and however long these have none to run."""
    program = tmp_path / "goroutines"
    source = PROGRAMS / "goroutines.go"
    subprocess.run(["go", "build", "-o", str(program), str(source)], check=True)
    record(tmp_path / "m", [program, "1"])
    command("merge", tmp_path / "m", "-o", tmp_path / "db")
    with hpcd.analysis.open(tmp_path / "db") as db:
        reported = findings(db)
    accusing = [
        one.text for one in reported if one.kind not in ("hot", "system", "outside", "runnable")
    ]
    assert not accusing
    (hot,) = (one for one in reported if one.kind == "hot")
    assert hot.procedure.startswith("main.")
