"""Ranks of real MPI jobs, as the node shows them and as recordings name them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hpcd.measurement.reader import open_measurement
from tests.support.recorded import hpcd

MPI = {
    "openmpi": ["mpirun.openmpi", "--oversubscribe", "--allow-run-as-root"],
    "mpich": ["mpirun.mpich"],
}


@contextmanager
def job(launcher: list[str], *command: object) -> Iterator[subprocess.Popen[str]]:
    """A parallel program, and all it started ended with the block."""
    process = subprocess.Popen(
        [*launcher, "-n", "2", *map(str, command)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def listed(launcher: int) -> list[dict[str, Any]]:
    """What ``hpcd list`` says of the job of a launcher."""
    found: list[dict[str, Any]] = json.loads(hpcd("list", "--json").stdout)["processes"]
    (name,) = [each["job"] for each in found if each["pid"] == launcher]
    return [each for each in found if each["job"] == name]


@pytest.mark.parametrize("kind", sorted(MPI))
def test_ranks_launchers_and_wrappers_are_told_apart(build: Callable[..., Path], kind: str) -> None:
    program = build("imbalance.c", compiler=f"mpicc.{kind}")
    announcing = f"echo ready; {program} 1 100000; :"
    with job(MPI[kind], "sh", "-c", announcing) as process:
        assert process.stdout
        # Each wrapper has said so; the program itself takes a moment more to have been loaded.
        assert [process.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
        members = listed(process.pid)
        while len([each for each in members if each["name"].startswith("imbalance")]) < 2:
            assert process.poll() is None
            members = listed(process.pid)
    ranks = [each for each in members if each["role"] == "rank"]
    assert [each["rank"] for each in ranks] == [0, 1]
    assert {each["size"] for each in ranks} == {2}
    assert all(each["name"].startswith("imbalance") for each in ranks)
    helpers = [each for each in members if each["role"] == "helper"]
    assert sorted(each["rank"] for each in helpers) == [0, 1]
    assert {each["name"] for each in helpers} == {"sh"}
    launchers = [each for each in members if each["role"] == "launcher"]
    assert process.pid in [each["pid"] for each in launchers]
    assert all(each["rank"] is None for each in launchers)


@pytest.mark.root
@pytest.mark.parametrize("kind", sorted(MPI))
def test_recorded_lines_carry_job_and_rank(
    tmp_path: Path, build: Callable[..., Path], kind: str
) -> None:
    program = build("imbalance.c", compiler=f"mpicc.{kind}")
    hpcd("run", "-o", tmp_path / "m", "--", *MPI[kind], "-n", "2", program, "5", "10")
    with open_measurement(tmp_path / "m") as measurement:
        ranks = [p for p in measurement.processes.values() if p.rank is not None]
        assert sorted(p.rank for p in ranks if p.rank is not None) == [0, 1]
        assert {p.size for p in ranks} == {2}
        assert len({p.job for p in ranks}) == 1
        assert ranks[0].job
