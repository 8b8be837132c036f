"""Tests that the critical path of a program is what it measured itself."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.busy_loops import busy_loops
from tests.support.recorded import HPCD, hpcd

pytestmark = pytest.mark.root

# Samples of 997 Hz in 0.3 s: one standard error is below 2 ms by the jittered clock.
_NEAR = 0.02


@pytest.mark.parametrize("loops", [0, 2])
def test_the_planted_path_is_found(loops: int, tmp_path: Path, build: Callable[..., Path]) -> None:
    executable = build("critical_path.c")
    with busy_loops(loops):
        printed = subprocess.run(
            [*HPCD, "run", "-o", str(tmp_path / "m"), "--", str(executable)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True,
        ).stdout.split()  # fmt: skip
    planted = dict(zip(printed[::2], map(float, printed[1::2]), strict=True))
    hpcd("merge", "-o", tmp_path / "db", tmp_path / "m")
    report = json.loads(hpcd("critical-path", "--json", tmp_path / "db").stdout)
    assert sum(report["kinds"].values()) == pytest.approx(report["seconds"])
    assert sum(seconds for _, seconds in report["lines"]) == pytest.approx(report["seconds"])
    assert report["end_s"] - report["begin_s"] == pytest.approx(report["seconds"])
    on_path: Counter[tuple[str, str]] = Counter()
    for part in report["parts"]:
        for name in set(part["path"]) & {*planted, "off_path"}:
            on_path[name, part["kind"]] += part["seconds"]
    assert sum(part["seconds"] for part in report["parts"]) == pytest.approx(report["seconds"])
    for name in ("on_path_worker", "on_path_main"):
        assert on_path[name, "thread"] == pytest.approx(planted[name], abs=_NEAR)
    # What its own clock has in addition is the time until it was on a CPU again.
    assert 0.2 <= on_path["on_path_sleep", "timer"] <= planted["on_path_sleep"]
    assert not any(name == "off_path" for name, _ in on_path)
    text = hpcd("critical-path", tmp_path / "db", "--width", 80).stdout
    assert "on_path_worker" in text and "running" in text
    half = json.loads(hpcd("critical-path", tmp_path / "db", "--json", "--to", 0.01).stdout)
    assert half["seconds"] == pytest.approx(0.01 - half["begin_s"])
