"""Tests that the time of OpenMP's regions is what a program measured itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT
from tests.support.recorded import HPCD, hpcd

pytestmark = pytest.mark.root
SOURCE = ROOT / "tests/programs/regions.c"

# Shares of a region's elapsed time times threads. The program reads its clock beside the probes; in
# between a thread may lose its CPU. Handing out an iteration has traps, parts of which are in work.
_NEAR, _MANY_TRAPS = 0.05, 0.1


def recorded(folder: Path, program: Path, **environment: str) -> dict[str, Any]:
    """Record a run of the program into ``folder / "db"``; what it measured itself."""
    done = subprocess.run(
        [*HPCD, "run", "--probes", "openmp", "-o", str(folder / "m"), "--", str(program), "5"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True,
        env={**os.environ, **environment},
    )  # fmt: skip
    hpcd("merge", "-o", folder / "db", folder / "m")
    truth: dict[str, Any] = json.loads(done.stdout)
    return truth


_needs_clang = pytest.mark.skipif(not shutil.which("clang"), reason="needs clang and libomp-dev")


@pytest.mark.parametrize("policy", ["active", "passive"])
@pytest.mark.parametrize("compiler", ["gcc", pytest.param("clang", marks=_needs_clang)])
def test_regions_have_the_times_that_the_program_measured(
    compiler: str, policy: str, tmp_path: Path, build: Callable[..., Path]
) -> None:
    """Threads that wait spin, or sleep: it is the same wait."""
    program = build("regions.c", "-g", "-fopenmp", compiler=compiler)
    truth = recorded(tmp_path, program, OMP_WAIT_POLICY=policy)
    report = json.loads(hpcd("openmp", tmp_path / "db", "--json").stdout)
    regions = {region["place"]["procedure"]: region for region in report["regions"]}
    assert regions.keys() == truth.keys() - {"serial_s"}
    assert not report["notes"]
    source = SOURCE.read_text().splitlines()
    for name, region in regions.items():
        seen, whole = truth[name], region["thread_s"]
        assert "#pragma omp parallel" in source[region["place"]["line"] - 1]
        heads = [
            line for line in source[: region["place"]["line"]] if line.startswith("__attribute__")
        ]
        assert f" {name}(" in heads[-1]
        assert region["executions"] == 5 and region["threads"] == 2
        assert whole == pytest.approx(2 * region["elapsed_s"])
        parts = [region[f"{kind}_s"] for kind in ("work", "imbalance", "lock", "scheduling")]
        assert sum(parts) == pytest.approx(whole) and min(parts) >= 0
        assert region["elapsed_s"] == pytest.approx(seen["elapsed_s"], abs=_NEAR * whole)
        near = (_MANY_TRAPS if name == "region_dynamic" else _NEAR) * whole
        assert region["work_s"] == pytest.approx(seen["work_s"], abs=near)
        assert region["lock_s"] == pytest.approx(seen["lock_s"], abs=_NEAR * whole)
        if name in ("region_uneven", "region_barrier", "region_critical"):
            assert region["imbalance_s"] == pytest.approx(seen["imbalance_s"], abs=_NEAR * whole)
    constructs = report["constructs"]
    for number, region in enumerate(report["regions"]):
        for use in ("imbalance", "lock", "scheduling"):
            parts = [one["seconds"] for one in constructs
                     if (one["region"], one["use"]) == (number, use)]  # fmt: skip
            assert sum(parts) == pytest.approx(region[f"{use}_s"])
    for name, times, directive in (
        ("critical section", 100, "critical"), ("barrier", 10, "barrier"), ("task", 40, "task"),
    ):  # fmt: skip
        (construct,) = (one for one in constructs if one["construct"] == name)
        assert construct["times"] == times
        assert source[construct["place"]["line"] - 1].strip() == f"#pragma omp {directive}"
        around = report["regions"][construct["region"]]["place"]["procedure"]
        # The name that LLVM gives to a task's body says nothing of its procedure.
        assert construct["place"]["procedure"] in (around, "" if name == "task" else around)
        if name == "task":
            work = truth["region_tasks"]["work_s"]
            assert construct["seconds"] == pytest.approx(work, rel=_NEAR)
    in_regions = sum(region["elapsed_s"] for region in regions.values())
    assert report["serial_s"] == pytest.approx(report["lived_s"] - in_regions)
    # A region begins for the program before its call is seen to.
    assert report["serial_s"] > 0.98 * truth["serial_s"]
    uneven = max(report["regions"], key=lambda region: region["imbalance_s"])["place"]
    sentences = hpcd("report", tmp_path / "db", "--width", 300).stdout
    assert f"{uneven['procedure']} (regions.c:{uneven['line']})" in sentences
    text = hpcd("openmp", tmp_path / "db", "--width", 80).stdout
    assert "serial time" in text and max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("compiler", ["g++", pytest.param("clang++", marks=_needs_clang)])
def test_exceptions_and_deep_tasks_are_not_disturbed(
    compiler: str, tmp_path: Path, build: Callable[..., Path]
) -> None:
    program = build("throwing_regions.cpp", "-fopenmp", compiler=compiler)
    alone = subprocess.run([program], stdout=subprocess.PIPE, text=True, check=True).stdout
    done = subprocess.run(
        [*HPCD, "run", "--probes", "openmp", "-o", str(tmp_path / "m"), "--", str(program)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == alone
    hpcd("merge", "-o", tmp_path / "db", tmp_path / "m")
    report = json.loads(hpcd("openmp", tmp_path / "db", "--json").stdout)
    assert [region["executions"] for region in report["regions"]].count(20) == 1
    for region in report["regions"]:
        parts = [region[f"{kind}_s"] for kind in ("work", "imbalance", "lock", "scheduling")]
        assert sum(parts) == pytest.approx(region["thread_s"])


def test_a_program_without_symbols_has_the_elapsed_times(
    tmp_path: Path, build: Callable[..., Path]
) -> None:
    truth = recorded(tmp_path, build("regions.c", "-s", "-fopenmp"))
    report = json.loads(hpcd("openmp", tmp_path / "db", "--json").stdout)
    assert [note for note in report["notes"] if "no symbols" in note]
    elapsed = sum(region["elapsed_s"] for region in report["regions"])
    planted = sum(seen["elapsed_s"] for name, seen in truth.items() if name != "serial_s")
    assert elapsed == pytest.approx(planted, rel=_NEAR)


def test_a_recording_without_regions_says_how_they_are_recorded(tmp_path: Path) -> None:
    hpcd("run", "-o", tmp_path / "m", "--", "true")
    hpcd("merge", "-o", tmp_path / "db", tmp_path / "m")
    done = hpcd("openmp", tmp_path / "db", check=False)
    assert "--probes openmp" in done.stderr and done.returncode
