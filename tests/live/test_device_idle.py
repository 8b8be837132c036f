"""The host's activity while its device is idle, with a stub for a device's runtime."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcd.analysis.database import open as open_database
from hpcd.analysis.profile.filters import Filter
from hpcd.analysis.profile.marked_phases import MarkedPhases
from tests.support.paths import ROOT
from tests.support.recorded import HPCD, hpcd

pytestmark = pytest.mark.root
SOURCE = ROOT / "tests/programs/cudart.c"


@pytest.mark.parametrize(
    ("runtime", "name"), [("cuda", "libcudart.so.12"), ("hip", "libamdhip64.so.6")]
)
def test_idle_time_is_what_the_program_knows_of(
    tmp_path: Path, build: Callable[..., Path], runtime: str, name: str
) -> None:
    """From the return of what waited for the device to the next launch; and the host's call paths
    in that time."""
    library, selected = tmp_path / name, f"-D{runtime.upper()}"
    subprocess.run(
        ["gcc", "-O1", "-g", "-shared", "-fPIC", selected, "-o", str(library), str(SOURCE)],
        check=True,
    )
    flags = (selected, "-Wl,--no-as-needed", str(library), f"-Wl,-rpath,{tmp_path}")
    program = build("device.c", *flags)
    with (tmp_path / "said").open("wb") as output:
        options = ["--probes", runtime, "-o", tmp_path / "m", "--json-file", "/dev/null"]
        command = [*HPCD, "run", *options]
        subprocess.run([*map(str, command), "--", str(program)], stdout=output, check=True)
    truth = json.loads((tmp_path / "said").read_text())
    hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    with open_database(tmp_path / "db") as db:
        phases = MarkedPhases(db, "device_idle")
        (line,) = phases.lines.tolist()
        seconds = float(phases.segments(line).lengths(len(phases))[1]) / 1e9
        # Between a call and the program's look at the clock it may have had no CPU.
        assert 0.98 * truth["known"] < seconds < truth["idle"]
        assert not phases.notes
        row = db.metrics.names.index("cpu_time")
        cost = Filter.parse(["phase=device_idle"]).exclusive(db)[row]
        within = {
            name: sum(
                float(cost[node])
                for node in cost.nonzero()[0].tolist()
                if name
                in [db.procedure_names[at] for at in db.procedure_of_node[db.cct.path(node)]]
            )
            for name in ("after", "beside", "unnoticed")
        }
        assert within["after"] > 0.9 * float(cost.sum()) > 0
        assert within["beside"] + within["unnoticed"] < 0.05 * float(cost.sum())
    report = hpcd("report", tmp_path / "db", "--by", "phase=device_idle")
    assert "device_idle" in report.stdout
