"""Tests that ranks which spin are found to wait for the ranks that they waited for."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.mpi_truth import LAUNCH
from tests.support.paths import ROOT
from tests.support.recorded import hpcd, record

pytestmark = pytest.mark.root

# Samples of 997 Hz in 0.1 to 0.4 s: one standard error is some 2 ms by the jittered clock.
_NEAR = 0.02
# Ranks, and seconds of CPU time that procedures have on the path: where ranks take turns, at any
# load; elsewhere the last one is late, as it begins when all others are about to wait.
_TURNS = {
    "ping_pong": (2, {"asks": 0.1, "answers": 0.4}),
    "probed": (2, {"asks": 0.1, "answers": 0.4}),
    "ring": (4, {"passes": 0.15, "keeps": 0.25}),
}
_LATE = {
    "meeting": (3, "slow_part", "fast_part", "MPI_Barrier"),
    "sums": (3, "slow_part", "fast_part", "MPI_Allreduce"),
    "chain": (4, "late", "early", "MPI_Recv"),
    "halo": (3, "slow_inner", "inner", "MPI_Waitall"),
}


def recorded(folder: Path, program: Path, flavour: str, ranks: int, *arguments: str) -> Path:
    """Record a program and return the database."""
    record(folder / "m", [*LAUNCH[flavour], "-n", ranks, program, *arguments], "--mpi")
    hpcd("merge", "-o", folder / "db", folder / "m")
    return folder / "db"


def on_path(database: Path, names: set[str]) -> Counter[str]:
    """Seconds that procedures ran on the critical path, which adds up to its window."""
    report = json.loads(hpcd("critical-path", "--json", database).stdout)
    for parts in (report["parts"], [{"seconds": one} for one in report["kinds"].values()]):
        assert sum(part["seconds"] for part in parts) == pytest.approx(report["seconds"])
    assert report["end_s"] - report["begin_s"] == pytest.approx(report["seconds"])
    assert report["thread"].startswith("rank ")
    seconds: Counter[str] = Counter()
    for part in report["parts"]:
        for name in names & {*part["path"]} if part["kind"] == "thread" else ():
            seconds[name] += part["seconds"]
    return seconds


def gains(database: Path, *names: str) -> dict[str, Any]:
    """Gains from 30 % less in procedures; the replay without a change is the run."""
    faster = [argument for name in names for argument in ("--faster", f"{name}=30")]
    report = json.loads(hpcd("what-if", "--json", *faster, database).stdout)
    assert report["seconds"] == pytest.approx(report["replayed"], rel=1e-9)
    return {" ".join(gain["procedures"]): gain for gain in report["gains"]}


@pytest.mark.parametrize("flavour", LAUNCH)
@pytest.mark.parametrize("kind", _TURNS)
def test_ranks_that_take_turns_are_all_on_the_path(
    kind: str, flavour: str, tmp_path: Path, build: Callable[..., Path]
) -> None:
    ranks, planted = _TURNS[kind]
    program = build("message_waits.c", compiler=f"mpicc.{flavour}")
    database = recorded(tmp_path, program, flavour, ranks, kind)
    seconds = on_path(database, {*planted})
    gain = gains(database, *planted)
    for name, expected in planted.items():
        assert seconds[name] == pytest.approx(expected, abs=_NEAR)
        assert gain[name]["on_path"] == pytest.approx(expected, abs=_NEAR)
        assert gain[name]["seconds"] == pytest.approx(0.3 * expected, abs=_NEAR)


@pytest.mark.parametrize(("messages", "call"), [("bytes", "MPI_Recv"), ("objects", "MPI_Mprobe")])
def test_ranks_in_python_take_turns(messages: str, call: str, tmp_path: Path) -> None:
    program = ROOT / "tests/programs/python_ranks.py"
    launched = [*LAUNCH["openmpi"], "-n", 2, sys.executable, program, messages]
    record(tmp_path / "m", launched, "--mpi")
    hpcd("merge", "-o", tmp_path / "db", tmp_path / "m")
    planted = {"asks": 0.1, "answers": 0.4}
    seconds, gain = on_path(tmp_path / "db", {*planted}), gains(tmp_path / "db", *planted)
    for name, expected in planted.items():
        assert seconds[name] == pytest.approx(expected, abs=_NEAR)
        assert gain[name]["seconds"] == pytest.approx(0.3 * expected, abs=_NEAR)
    report = json.loads(hpcd("report", "--waits-for", "--json", tmp_path / "db").stdout)
    paths = [path for path in report["paths"] if call in path["path"]]
    ended = [one for path in paths for one in path["ended_by"] if one["kind"] == "message"]
    assert sum(one["seconds"] for one in ended) >= 0.9 * sum(path["seconds"] for path in paths)
    for name, expected in planted.items():
        roots = [one for path in paths for one in path["roots"] if name in one["path"]]
        assert sum(one["seconds"] for one in roots) >= expected - _NEAR


def test_perfect_balance_is_a_candidate_of_ranks_that_meet(
    tmp_path: Path, build: Callable[..., Path]
) -> None:
    """Two barriers around 20, and the end of MPI."""
    program = build("message_waits.c", compiler="mpicc.openmpi")
    database = recorded(tmp_path, program, "openmpi", 2, "balance")
    report = json.loads(hpcd("what-if", "--json", "--limit", 1, database).stdout)
    (balance,) = (gain for gain in report["gains"] if gain["balanced"])
    assert balance["balanced"] == 23
    assert balance["procedures"] == [] and balance["on_path"] == report["running"]
    asked = json.loads(hpcd("what-if", "--json", "--faster", "turn_part", database).stdout)
    assert not any(gain["balanced"] for gain in asked["gains"])
    shown = "perfect balance of ranks before 23" in hpcd("what-if", database).stdout
    assert shown == (balance["seconds"] > 0)


@pytest.mark.parametrize("kind", _LATE)
def test_who_is_late_is_on_the_path_and_waited_for(
    kind: str, tmp_path: Path, build: Callable[..., Path]
) -> None:
    ranks, slow, fast, call = _LATE[kind]
    program = build("message_waits.c", compiler="mpicc.openmpi")
    database = recorded(tmp_path, program, "openmpi", ranks, kind, "last")
    seconds = on_path(database, {slow, fast})
    assert seconds[slow] >= 3 * seconds[fast]
    gain = gains(database, slow, fast)
    assert gain[slow]["seconds"] >= 3 * gain[fast]["seconds"]
    assert 0 < gain[slow]["seconds"] <= 0.3 * gain[slow]["on_path"] + 1e-6
    report = json.loads(hpcd("report", "--waits-for", "--json", database).stdout)
    assert 0 < report["by_message"] <= report["waits"]
    waited = Counter[str]()
    for path in report["paths"]:
        assert sum(root["seconds"] for root in path["roots"]) == pytest.approx(path["seconds"])
        assert sum(end["seconds"] for end in path["ended_by"]) == pytest.approx(path["seconds"])
        if {kind, "steps"} & {*path["path"]} and call in path["path"]:
            for root in path["roots"]:
                for name in {slow, fast} & {*root["path"]}:
                    waited[name] += root["seconds"]
            ended = [end for end in path["ended_by"] if end["kind"] == "message"]
            assert sum(end["seconds"] for end in ended) >= 0.9 * path["seconds"]
    assert waited[slow] >= 3 * waited[fast]
