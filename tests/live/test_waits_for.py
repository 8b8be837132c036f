"""Tests that real programs are found to wait for whom they say that they waited for."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.busy_loops import busy_loops
from tests.support.recorded import HPCD, hpcd

pytestmark = pytest.mark.root

# Of the planted waiting, and what anybody else may be given.
_NAMED, _OTHERS = 0.95, 0.02
_KINDS = ("mutexes", "condition", "pipes", "epoll", "join", "sleep", "child", "outside")


def waits_of(tmp_path: Path, executable: Path, kind: str) -> tuple[dict[str, Any], list[str]]:
    """The report of a recorded program, and the words that it printed."""
    command = [*HPCD, "run", "-o", str(tmp_path / "m"), "--", str(executable), kind]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout
        while process.stdout.readline() != "waits\n":
            pass
        time.sleep(0.5)  # what it waits for where that is outside: this process, no target
        out, _ = process.communicate("\n")
    assert process.returncode == 0
    hpcd("merge", "-o", tmp_path / "db", tmp_path / "m")
    report = json.loads(hpcd("report", "--waits-for", "--json", tmp_path / "db").stdout)
    planted = next(line for line in out.splitlines() if line.startswith("victim_waits"))
    return report, planted.split()


@pytest.mark.parametrize("loops", [0, 2])
@pytest.mark.parametrize("kind", _KINDS)
def test_the_planted_cause_is_named(
    kind: str, loops: int, tmp_path: Path, build: Callable[..., Path]
) -> None:
    with busy_loops(loops):
        report, (victim, cause, seconds) = waits_of(tmp_path, build("planted_waits.c"), kind)
    paths = [path for path in report["paths"] if victim in path["path"]]
    waited = sum(path["seconds"] for path in paths)
    assert 0 < waited <= float(seconds) * 1.001
    named = others = not_seen = 0.0
    for path in paths:
        assert sum(root["seconds"] for root in path["roots"]) == pytest.approx(path["seconds"])
        assert sum(end["seconds"] for end in path["ended_by"]) == pytest.approx(path["seconds"])
        for root in path["roots"]:
            if cause in (*root["path"], root["kind"]):
                named += root["seconds"]
            elif root["kind"] == "not-seen":
                not_seen += root["seconds"]
            else:
                others += root["seconds"]
    assert named >= _NAMED * waited, paths
    assert others <= _OTHERS * waited, paths
