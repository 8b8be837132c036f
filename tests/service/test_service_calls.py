"""Calls recorded through the service: a user's own, every one, and nothing of or for others."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcd.measurement.call_codec import Calls
from hpcd.measurement.reader import open_measurement
from tests.service.conftest import RunningService
from tests.support.clients import ALICE, MALLORY, ask
from tests.support.mpi_truth import LAUNCH
from tests.support.probed_server import ProbedServer
from tests.support.programs import PROGRAMS

pytestmark = pytest.mark.root

Start = Callable[..., RunningService]
Serve = Callable[[int], ProbedServer]


@pytest.fixture
def program(public_folder: Path) -> Path:
    path = public_folder / "probed"
    source = PROGRAMS / "probed.cpp"
    subprocess.run(["g++", "-O1", "-o", str(path), str(source)], check=True)
    return path


@pytest.fixture
def serve(program: Path) -> Iterator[Serve]:
    """Starts ``probed serve`` for a user."""
    servers: list[ProbedServer] = []

    def start(uid: int) -> ProbedServer:
        servers.append(ProbedServer(program, uid))
        return servers[-1]

    yield start
    for server in servers:
        server.process.kill()
        server.process.wait()


def calls_in(summary: dict[str, Any]) -> tuple[dict[str, Calls], set[int]]:
    """Calls by function, and the pids of the processes that were recorded."""
    with open_measurement(Path(summary["measurement"])) as measurement:
        calls = Calls.joined(list(measurement.call_chunks()))
        return {
            function.name: calls[np.flatnonzero(calls.function == number)]
            for number, function in measurement.functions.items()
        }, {process.pid for process in measurement.processes.values()}


def freed(server: ProbedServer) -> None:
    """Wait until its probe is gone: a recording ends before the kernel has detached it."""
    while server.trapped:
        server.call(1)


def test_users_probe_their_own_processes_and_trap_nobody_else(service: Start, serve: Serve) -> None:
    running = service("probes = 16")
    first, second, mallorys = serve(ALICE), serve(ALICE), serve(MALLORY)
    work = ["--probe", "probed:work(int n) -> int"]
    thrown = ["--probe", "probed:middle", "--probe", "probed:thrower"]
    # By name: all three processes have it.
    by_name = ["attach", "--comm", "probed", "--background"]
    number = running.json(*by_name, *work, *thrown, user=ALICE)["id"]
    assert (first.trapped, second.trapped, mallorys.trapped) == (True, True, False)
    first.call(20)
    second.call(5)
    mallorys.call(7)
    assert not mallorys.trapped  # nor when it has run what is probed
    # Exceptions pass where another process of the program is probed, too.
    first.call(3, b"x")
    # Another user's probes of the same function, at the same time.
    theirs = running.json(*by_name, *work, user=MALLORY)["id"]
    assert mallorys.trapped
    first.call(10)
    mallorys.call(8)
    summary = running.json("detach", theirs, user=MALLORY)
    freed(mallorys)
    seen, pids = calls_in(summary)
    assert pids == {mallorys.pid}
    assert (len(seen["work"]), summary["probes"]["functions"][0]["hits"]) == (8, 8)
    first.call(1)
    summary = running.json("detach", number, user=ALICE)
    freed(first)
    freed(second)
    seen, pids = calls_in(summary)
    assert pids == {first.pid, second.pid}
    assert (seen["work"].value[:, 1].astype(np.int64) == -ord("a")).all()
    counted = {row["name"]: row["hits"] for row in summary["probes"]["functions"]}
    assert counted == {"work": 36, "middle": 3, "thrower": 3}
    assert len(seen["work"]) == 36
    assert summary["probes"]["problems"] == []
    assert [server.end() for server in (first, second, mallorys)] == [0, 0, 0]


def test_probes_are_gone_when_the_service_is_killed(service: Start, serve: Serve) -> None:
    running = service("probes = 16")
    server = serve(ALICE)
    running.json("attach", "-p", server.pid, "--background", "--probe", "probed:work", user=ALICE)
    assert server.trapped
    running.process.kill()
    freed(server)
    assert server.end() == 0


def test_what_is_not_allowed_is_refused_in_a_line(
    service: Start, serve: Serve, public_folder: Path, program: Path
) -> None:
    running = service()
    server = serve(ALICE)
    attach = ("attach", "-p", server.pid)
    for words in (("--probe", "probed:work"), ("--probes", "malloc"), ("--mpi",)):
        done = running.hpcd(*attach, *words, user=ALICE)
        assert (done.returncode, done.stderr.count("\n")) == (4, 1), done
        assert "control.probes" in done.stderr
    configuration = running.folder / "hpcd.toml"
    configuration.write_text(configuration.read_text() + "\nprobes = 2\n")
    running.process.send_signal(signal.SIGHUP)
    running.wait_for_log("reloaded")
    done = running.hpcd(*attach, "--probe", "probed:work(nonsense n)", user=ALICE)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done
    lies: list[dict[str, Any]] = [
        {"probes": "probed:work"},
        {"probes": [["probed:work"]]},
        {"probes": ["probed:work"] * 65},
        {"probe_files": [["a"]]},
        {"probe_files": [["a", "[[probe]]\nfunction = 3"]]},
        {"probe_files": [["a", "x" * 30_000]]},
        {"probe_files": [["a", "x = " + "[" * 30_000]]},
        {"mpi": 1},
    ]
    for lie in lies:
        answer = ask(running.socket, {"verb": "attach", "pids": [server.pid], **lie}, ALICE)
        assert "error" in answer and "\n" not in answer["error"], lie
    # A file that its user may not read, but has mapped: root has handed it over.
    secret = public_folder / "secret"
    secret.write_bytes(program.read_bytes())
    secret.chmod(0o700)
    script = (
        "import ctypes; libc = ctypes.CDLL(None); libc.mmap(None, 1 << 14, 5, 2, 0, 0);"
        "print(flush=True); libc.pause()"
    )
    with (
        secret.open("rb") as file,
        subprocess.Popen(
            ["/usr/bin/python3", "-c", script], stdin=file, stdout=subprocess.PIPE, cwd="/",
            user=ALICE, group=ALICE, extra_groups=[],
        ) as holder,
    ):  # fmt: skip
        assert holder.stdout and holder.stdout.readline()
        limited = ["--probe", "probed:*er", "--probe", "secret:work", "-p", holder.pid]
        summary = running.json(*attach, *limited, "-d", 0.5, user=ALICE)
        holder.kill()
    assert len(summary["probes"]["functions"]) == 2
    problems = set(summary["probes"]["problems"])
    assert f"{secret} is not probed: its user may not read it" in problems
    (more,) = (line for line in problems if line.endswith("more than 2 functions"))
    assert more.startswith(f"{program}: ")
    assert server.end() == 0
    assert running.end() == 0
    assert not [line for line in running.log if "internal error" in line]


def test_a_process_that_gains_rights_is_probed_no_longer(
    service: Start, program: Path, public_folder: Path
) -> None:
    """A set-user-ID program that a target executes has its probes for a moment at most."""
    running = service("probes = 16")
    privileged = public_folder / "probed-as-root"
    privileged.write_bytes(program.read_bytes())
    privileged.chmod(0o4755)
    with subprocess.Popen(
        ["/bin/sh", "-c", f"read line; exec {privileged} serve"], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, user=ALICE, group=ALICE, extra_groups=[], cwd="/",
    ) as target:  # fmt: skip
        assert target.stdin and target.stdout
        number = running.json(
            "attach", "-p", target.pid, "--background", "--probe", "probed*:work", user=ALICE
        )["id"]
        os.write(target.stdin.fileno(), b"go\n")
        for _ in range(10):
            os.write(target.stdin.fileno(), b"a")
            assert target.stdout.read(1) == b"a"
        running.wait_for_state(number, "ended")  # its only target is one no longer
        target.stdin.close()
        assert target.wait() == 0
    (recording,) = running.json("status", number, user=ALICE)["recordings"]
    seen, _ = calls_in({"measurement": recording["measurement"]})
    assert not any(map(len, seen.values()))


def test_io_and_memory_are_of_ones_own_processes(
    service: Start, build: Callable[..., Path], public_folder: Path
) -> None:
    running = service()
    touches = public_folder / "touches"
    touches.write_bytes(build("touches.c").read_bytes())
    touches.chmod(0o755)
    targets = []
    for user in (ALICE, MALLORY):
        folder = public_folder / str(user)
        folder.mkdir()
        os.chown(folder, user, user)
        script = f"read line; dd if=/dev/zero of={folder}/data bs=1000 count=50; {touches} 8; :"
        targets.append(
            subprocess.Popen(
                ["/bin/sh", "-c", script], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL,
                user=user, group=user, extra_groups=[], cwd="/",
            )
        )  # fmt: skip
    number = running.json("attach", "--comm", "sh", "--io", "--memory", "--background", user=ALICE)[
        "id"
    ]
    for target in targets:
        target.communicate(b"go\n")
        assert target.returncode == 0
    summary = running.json("detach", number, user=ALICE)
    assert summary["calls"]["dropped"] == {}
    seen, _ = calls_in(summary)
    with open_measurement(Path(summary["measurement"])) as measurement:
        objects = {entry.name: number for number, entry in measurement.objects.items()}
        processes = measurement.processes
        assert {process.uid for process in processes.values()} == {ALICE}
        place = {f.name: f.value for f in measurement.functions.values()}
        of_touches = [
            line
            for line, thread in measurement.threads.items()
            if processes[thread.process].name == "touches"
        ]
    written = seen["write"]
    mine = written.value[:, 0] == objects[f"{public_folder}/{ALICE}/data"]
    assert written.value[mine, place["write"]("written") or 0].tolist() == [1000] * 50
    assert not any(str(MALLORY) in name for name in objects)
    touched = seen["page_touch"].value[:, place["page_touch"]("touched") or 0]
    touched = touched[np.isin(seen["page_touch"].line, of_touches)].sum()
    # And the C library's own; the kernel misses some faults on a busy machine.
    assert (10 << 20) * 0.99 <= touched <= 12 << 20


def test_mpi_of_ones_own_ranks(service: Start, public_folder: Path) -> None:
    running = service("probes = 256")
    program = public_folder / "messages"
    compiler = ["mpicc.openmpi", "-o", str(program), str(PROGRAMS / "messages.c")]
    subprocess.run(compiler, check=True)
    launch = [word for word in LAUNCH["openmpi"] if word != "--allow-run-as-root"]
    gate = public_folder / "gate"
    jobs = [
        subprocess.Popen(
            [*launch, "-n", "2", str(program), "ring"], stdout=subprocess.PIPE, cwd="/",
            user=user, group=user, extra_groups=[],
            env={**os.environ, "HOME": str(public_folder), "TMPDIR": "/tmp", "GATE": str(gate)},
        )
        for user in (MALLORY, ALICE)
    ]  # fmt: skip
    try:
        for job in jobs:
            assert job.stdout and job.stdout.readline() == b"ready\n"
        by_name = ["--comm", "messages", "--mpi", "--overhead", "100%"]
        number = running.json("attach", *by_name, "--background", user=ALICE)["id"]
    finally:
        gate.touch()
        for job in jobs:
            job.communicate()
    assert [job.returncode for job in jobs] == [0, 0]
    summary = running.json("detach", number, user=ALICE)
    seen, pids = calls_in(summary)
    assert len(pids) == 2
    # Twenty rounds of two ranks: rank 0 sends synchronously.
    counts = {name: len(seen[name]) for name in ("MPI_Ssend", "MPI_Send", "MPI_Recv")}
    assert counts == {"MPI_Ssend": 20, "MPI_Send": 20, "MPI_Recv": 40}
    assert len(seen["MPI_Finalize"]) == 2
