"""Ranks of real MPI jobs, as the node shows them and as recordings name them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hpcd.daemon.targets.jobs import JobPlace
from hpcd.measurement.reader import open_measurement
from tests.support.documents import documents
from tests.support.recorded import hpcd
from tests.support.slurm import cluster

MPI = {
    "openmpi": ["mpirun.openmpi", "--oversubscribe", "--allow-run-as-root"],
    "mpich": ["mpirun.mpich"],
}


@contextmanager
def job(launcher: list[str], *command: object) -> Iterator[subprocess.Popen[str]]:
    """A parallel program, and all it started ended with the block."""
    process = subprocess.Popen(
        [*launcher, "-n", "2", *map(str, command)],
        stdin=subprocess.DEVNULL,
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
    """Return the rows of ``hpcd list`` for the job of a launcher."""
    processes: list[dict[str, Any]] = json.loads(hpcd("list", "--json").stdout)["processes"]
    (name,) = [member["job"] for member in processes if member["pid"] == launcher]
    return [member for member in processes if member["job"] == name]


def ranks_of(job_prefix: str, name_prefix: str) -> list[dict[str, Any]]:
    """The ranks ``hpcd list`` shows of such a job and program."""
    processes: list[dict[str, Any]] = json.loads(hpcd("list", "--json").stdout)["processes"]
    return [
        member
        for member in processes
        if (member["job"] or "").startswith(job_prefix)
        and member["name"].startswith(name_prefix)
        and member["role"] == "rank"
    ]


@pytest.mark.parametrize("kind", sorted(MPI))
def test_ranks_launchers_and_wrappers_are_told_apart(build: Callable[..., Path], kind: str) -> None:
    program = build("imbalance.c", compiler=f"mpicc.{kind}")
    announcing = f"echo ready; {program} 1 100000; :"
    with job(MPI[kind], "sh", "-c", announcing) as process:
        assert process.stdout
        # Each wrapper has said so, perhaps on one line; the program takes a moment more to have
        # been loaded.
        output = ""
        while output.count("ready") < 2:
            output += (line := process.stdout.readline())
            assert line, output
        members = listed(process.pid)
        while len([member for member in members if member["name"].startswith("imbalance")]) < 2:
            assert process.poll() is None
            members = listed(process.pid)
    ranks = [member for member in members if member["role"] == "rank"]
    assert [rank["rank"] for rank in ranks] == [0, 1]
    assert {rank["size"] for rank in ranks} == {2}
    assert all(rank["name"].startswith("imbalance") for rank in ranks)
    helpers = [member for member in members if member["role"] == "helper"]
    assert sorted(helper["rank"] for helper in helpers) == [0, 1]
    assert {helper["name"] for helper in helpers} == {"sh"}
    launchers = [member for member in members if member["role"] == "launcher"]
    assert process.pid in [launcher["pid"] for launcher in launchers]
    assert all(launcher["rank"] is None for launcher in launchers)


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


PLACE = """\
import dataclasses, json, os
from hpcd.daemon.targets.process_identity import place_of
print(json.dumps(dataclasses.asdict(place_of(os.getpid()))))
"""


@pytest.mark.root
def test_slurms_jobs_and_steps(tmp_path: Path, build: Callable[..., Path]) -> None:
    """A real one-node Slurm: srun with and without PMI, both mpiruns inside sbatch, --job."""
    asking = tmp_path / "place.py"
    asking.write_text(PLACE)
    program = build("imbalance.c", compiler="mpicc.openmpi")
    with cluster(tmp_path / "slurm") as environment:
        environment["PYTHONPATH"] = os.pathsep.join(sys.path)

        def run(*command: object) -> str:
            return subprocess.run(
                [str(part) for part in command],
                env=environment, check=True, capture_output=True, text=True, timeout=60,
            ).stdout  # fmt: skip

        def places(text: str) -> list[JobPlace]:
            return sorted(
                (JobPlace(**document) for document in documents(text)),
                key=lambda place: (place.job, -1 if place.rank is None else place.rank),
            )

        for number, kind in enumerate(("none", "pmi2", "pmix"), 2):
            text = run("srun", f"--mpi={kind}", "-n2", sys.executable, asking)
            assert places(text) == [JobPlace(f"{number}.0", str(number), r, 2) for r in (0, 1)]

        script = tmp_path / "job.sh"
        ask = f"{sys.executable} {asking}"
        script.write_text(
            f"#!/bin/sh\n{ask}\n"
            + "".join(f"{' '.join(MPI[kind])} -n 2 {ask}\n" for kind in sorted(MPI))
            + f"{' '.join(MPI['openmpi'])} -n 2 {program} 1000000 1\n"
        )
        output = tmp_path / "out"
        run("sbatch", "-n2", "-o", output, script)
        # The last program's ranks are the only ones of their name.
        while not ranks_of("5/", "imbalance"):
            assert run("squeue", "-h", "-o", "%i")
        summary = json.loads(
            hpcd("attach", "--json", "--job", "5", "-d", "2", "-o", tmp_path / "m").stdout
        )
        batch, *ranks = places(output.read_text())
        assert batch == JobPlace("5", "5")
        assert [(place.batch, place.rank, place.size) for place in ranks] == [
            ("5", rank, 2) for _ in MPI for rank in (0, 1)
        ]
        first, second = ranks[0].job, ranks[2].job
        assert first == ranks[1].job != second == ranks[3].job
        assert all(job.startswith("5/") for job in (first, second))
    assert summary["samples"]["recorded"] > 0
    with open_measurement(tmp_path / "m") as measurement:
        recorded = [p for p in measurement.processes.values() if p.rank is not None]
        assert sorted(p.rank for p in recorded if p.rank is not None) == [0, 1]
        assert len({p.job for p in recorded}) == 1
        assert recorded[0].job.startswith("5/")
        assert any(p.job == "5" and p.rank is None for p in measurement.processes.values())
