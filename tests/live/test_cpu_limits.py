"""Limits of control groups: hpcd's count of the time withheld, beside the kernel's of a group."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hpcd.analysis.database import open as open_database
from hpcd.analysis.findings.facts import Facts
from hpcd.daemon.access.processes import control_groups
from hpcd.daemon.targets.cpu_limits import CpuLimits
from tests.support.limited_group import MOVES, limited
from tests.support.recorded import hpcd, record

pytestmark = pytest.mark.root

# Works for 3 s at least, of which each millisecond on a CPU is followed by nine without.
WORKS = "import time\nwhile time.process_time() < 0.3: pass"


def throttled(group: Path) -> float:
    """Seconds withheld, by the kernel."""
    rows = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
    return float(rows.get("throttled_time", 0)) / 1e9 + float(rows.get("throttled_usec", 0)) / 1e6


def test_a_recording_has_what_limits_withheld(tmp_path: Path) -> None:
    with limited("hpcd-limit") as group:
        command: list[object] = ["sh", "-c", MOVES, group, sys.executable, WORKS]
        summary = record(tmp_path / "m", command)
        withheld = throttled(group)
    # What it withheld before the exec was handled is not counted.
    assert 0 < summary["cpu"]["withheld_s"] <= withheld + 0.001
    hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    with open_database(tmp_path / "db") as db:
        demand = Facts(db).use.demand
    assert 0 < demand.withheld <= summary["cpu"]["withheld_s"]


def test_groups_of_processes_that_are_gone_withhold_nothing() -> None:
    limits = CpuLimits()
    limits.watch(2**22 + 1)
    assert limits.withheld() == 0.0
    assert control_groups(2**22 + 1) == {}
