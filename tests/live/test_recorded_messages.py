"""Calls of MPI recorded by ``hpcd run --mpi``, compared with what a library between program and MPI
counts in the same run, and with the waits that the program times itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hpcd.analysis
from hpcd.analysis.merge.stages import merge
from hpcd.analysis.messages.caveats import caveats
from hpcd.analysis.messages.communication import Communication
from hpcd.analysis.messages.database_calls import communication, delays_of
from hpcd.analysis.messages.wait_states import WaitKind
from hpcd.array_types import F64
from tests.support.mpi_truth import LAUNCH, PROGRAM, Truth, build, members_of, read, vector_truth
from tests.support.waiting import Recorder

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]
HPCD = [sys.executable, "-m", "hpcd"]


@pytest.fixture(scope="module", params=LAUNCH)
def flavour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def built(flavour: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(tmp_path_factory.mktemp(flavour), flavour)


def recorded(
    built: tuple[Path, Path], folder: Path, flavour: str, names: Sequence[str], ranks: int,
    *options: str,
) -> tuple[Truth, Path]:  # fmt: skip
    """Record the program's parts ``names`` on ``ranks``; their truth, and the database."""
    library, program = built
    truth = folder / "truth"
    truth.mkdir()
    launch = [*LAUNCH[flavour], "-n", str(ranks)]
    command = ["env", f"LD_PRELOAD={library}", f"TRUTH={truth}", "LINGER=1", str(program), *names]
    verb = ["run", "--mpi", "-o", str(folder / "m"), *options]
    done = subprocess.run(
        [*HPCD, *verb, "--", *launch, *command], check=True, capture_output=True, timeout=600
    )
    merge([folder / "m"], folder / "db", workers=1)
    return read(truth, flavour, ranks, done.stdout.decode()), folder / "db"


def matrix_is_true(traffic: Communication, truth: Truth) -> None:
    messages, volume = traffic.point_to_point.dense(truth.ranks)
    np.testing.assert_array_equal(messages, truth.sent[:, :, 0])
    np.testing.assert_array_equal(volume, truth.sent[:, :, 1])
    assert len(traffic.messages) == truth.sent[:, :, 0].sum()


@pytest.mark.timeout(900)  # emulated processors
@pytest.mark.parametrize("ranks", [2, 3])
def test_traffic(built: tuple[Path, Path], tmp_path: Path, flavour: str, ranks: int) -> None:
    """Parts of one run, so that handles of communicators and requests are used again."""
    names = ("halo", "subcommunicators", "two_groups", "wildcards", "probed", "persistent")
    truth, path = recorded(built, tmp_path, flavour, names, ranks)
    with hpcd.analysis.open(path) as db:
        traffic = communication(db)
        matrix_is_true(traffic, truth)
        assert traffic.collectives.complete.all()
        groups = {members_of(one) for one in traffic.communicators.all if one.parent >= 0}
        assert groups == truth.communicators
    top_is_true(tmp_path / "m", truth)


def top_is_true(measurement: Path, truth: Truth) -> None:
    """The live view has the same messages, when its window has all of them."""
    shown = ["top", "--json", "-w", "3600", "-n", "1000", str(measurement)]
    done = subprocess.run([*HPCD, *shown], check=True, capture_output=True, text=True)
    now = json.loads(done.stdout)["calls"]
    sent = np.zeros_like(truth.sent)
    for use in now["peers"]:
        sent[use["source"], use["target"]] = use["messages"], use["bytes"]
    np.testing.assert_array_equal(sent, truth.sent)
    functions = {use["name"]: use for use in now["mpi"]}
    assert functions["MPI_Intercomm_create"]["calls"] == 2 * truth.ranks
    for figure in ("calls", "bytes", "seconds"):
        total = sum(use[figure] for use in now["mpi"])
        assert total == pytest.approx(sum(use[figure] for use in now["ranks"]))


def test_polls_and_counts_for_each_rank(
    built: tuple[Path, Path], tmp_path: Path, flavour: str
) -> None:
    options = ["--overhead", "20%", "--json-file", str(tmp_path / "s")]
    truth, path = recorded(built, tmp_path, flavour, ["polling"], 3, *options)
    (output,) = truth.claims
    functions = json.loads((tmp_path / "s").read_text())["probes"]["functions"]
    polls = [row for row in functions if row["name"].startswith(("MPI_Test", "MPI_Iprobe"))]
    let_go = any(row["let_go"] for row in polls)
    with hpcd.analysis.open(path) as db:
        traffic = communication(db)
        matrix_is_true(traffic, truth)
        selected = [db.calls.find(row["name"]) for row in polls if "/" not in row["name"]]
        calls = db.calls.select(functions=selected)
        names = [db.procedure_names[at] for at in db.procedure_of_node.tolist()]
        for node in np.unique(calls["node"]).tolist():
            path_of = [names[at] for at in db.cct.path(node).tolist()]
            assert path_of[-1].lstrip("P").startswith(("MPI_Test", "MPI_Iprobe"))
            assert "polling" in path_of
        flow = traffic.collective_flow
        pairs = zip(flow.source.tolist(), flow.target.tolist(), strict=True)
        # How often polls found something is reduced: 16 bytes of each rank.
        expected = {
            (source, target): volume + 16 * (target == 0)
            for (source, target), volume in vector_truth(3).items()
        }
        assert dict(zip(pairs, flow.bytes.tolist(), strict=True)) == expected
    if not let_go:
        assert len(calls) == output["successful"]
        assert sum(row["unsuccessful"] for row in polls) == output["unsuccessful"]


def waited_as_claimed(seconds: F64, output: dict[str, Any]) -> None:
    """Most rounds have the wait that the program's own clock showed: not those in which a rank lost
    its CPU between its reading of the clock and the call."""
    claimed = np.array(output["waits"])
    nearest = np.abs(claimed[:, None] - seconds).min(axis=1)
    assert np.count_nonzero(nearest < 0.02 * claimed) > 0.7 * np.count_nonzero(claimed > 0.01)


def test_waits_and_what_caused_them(built: tuple[Path, Path], tmp_path: Path, flavour: str) -> None:
    truth, path = recorded(built, tmp_path, flavour, ["late_broadcast"], 2)
    with hpcd.analysis.open(path) as db:
        traffic = communication(db)
        waits = traffic.waits
        late = waits.kind == WaitKind.LATE_BROADCAST
        (output,) = truth.claims
        seconds = waits.severity[late].sum() / 1e9
        waited_as_claimed(waits.severity[late] / 1e9, output)
        delays = delays_of(db, traffic)
        names = [db.procedure_names[at] for at in db.procedure_of_node.tolist()]
        delay = [
            float(seconds)
            for rank, node, seconds in zip(
                delays.rank.tolist(), delays.node.tolist(), delays.seconds.tolist(), strict=True
            )
            if rank == 1 and "delay" in [names[at] for at in db.cct.path(node).tolist()]
        ]
        assert sum(delay) > 0.9 * seconds
        # The call path that waited is that of the broadcast.
        node = int(traffic.operations.node[waits.operation[late][0]])
        assert "late_broadcast" in [names[at] for at in db.cct.path(node).tolist()]
    done = subprocess.run(
        [*HPCD, "messages", str(path), "--json", "--picture", str(tmp_path / "matrix.svg")],
        check=True, capture_output=True,
    )  # fmt: skip
    answer = json.loads(done.stdout)
    assert answer["ranks"] == [0, 1]
    assert answer["waiting"]["late broadcast"] == pytest.approx(seconds)
    assert (tmp_path / "matrix.svg").stat().st_size > 1000


def test_attached_while_a_rank_waits(
    built: tuple[Path, Path], tmp_path: Path, flavour: str
) -> None:
    """The call that is under way has a partner in the recording, and is not in it itself."""
    to_end = flavour == "mpich"
    name = "awaited_collective" if to_end else "awaited_sender"
    held, end = tmp_path / "held", tmp_path / "end"
    environment = {**os.environ, "HELD": str(held), "HELD_END": str(end)}
    launch = [*LAUNCH[flavour], "-n", "2", str(built[1]), name]
    with subprocess.Popen(launch, stdout=subprocess.PIPE, text=True, env=environment) as job:
        try:
            assert job.stdout and job.stdout.readline() == "ready\n"
            recorder = Recorder(tmp_path / "m", "--mpi", "--pid", job.pid)
            held.touch()
            output = json.loads(job.stdout.readline())
            if not to_end:
                recorder.stop()
            end.touch()
            if to_end:
                recorder.wait()
        finally:
            held.touch()
            end.touch()
    merge([tmp_path / "m"], tmp_path / "db", workers=1)
    with hpcd.analysis.open(tmp_path / "db") as db:
        traffic = communication(db)
        waits = traffic.waits
        mine = traffic.operations.rank[waits.operation] == 0
        kind = WaitKind.WAIT_AT_NXN if name == "awaited_collective" else WaitKind.LATE_SENDER
        waited_as_claimed(waits.severity[mine & (waits.kind == kind)] / 1e9, output)
        assert "2 of 2 ranks were in MPI before" in "".join(caveats(db, traffic))


def test_fortran(tmp_path: Path, flavour: str) -> None:
    """Fortran's entry points call C's: each call is recorded once, below that of Fortran."""
    program = tmp_path / "ring"
    compiler = [f"mpifort.{flavour}", "-w", "-o", str(program), str(PROGRAM.with_name("ring.f90"))]
    subprocess.run(compiler, check=True)
    options = ["run", "--mpi", "-o", str(tmp_path / "m")]
    launch = [*LAUNCH[flavour], "-n", "3", str(program)]
    subprocess.run([*HPCD, *options, "--", *launch], check=True, capture_output=True, timeout=200)
    merge([tmp_path / "m"], tmp_path / "db", workers=1)
    with hpcd.analysis.open(tmp_path / "db") as db:
        traffic = communication(db)
        messages, volume = traffic.point_to_point.dense(3)
        expected = np.roll(np.eye(3), 1, axis=1)
        np.testing.assert_array_equal(messages, 20 * expected)
        np.testing.assert_array_equal(volume, 8400 * expected)
        assert len(traffic.collectives) == 20
        sends = traffic.recorded.node[traffic.sends.operation]
        path = [db.procedure_names[db.procedure_of_node[at]] for at in db.cct.path(int(sends[0]))]
        assert path[-1] in ("MPI_Send", "PMPI_Send")
        assert path[-2].lower().strip("_") in ("mpi_send", "pmpi_send")
