"""Figures for Prometheus, and users who must not read them or keep others from them."""

from __future__ import annotations

import grp
import http.client
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.service.conftest import RunningService
from tests.support.clients import ALICE, MALLORY, ask

pytestmark = pytest.mark.root

Start = Callable[..., RunningService]
Sleeper = Callable[..., int]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def get(port: int, path: str = "/metrics", token: str = "") -> tuple[int, str]:
    """The status and the body that are answered."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


@pytest.fixture
def serving(service: Start) -> tuple[RunningService, int, str]:
    """A service, the port of its figures, and their token."""
    port = free_port()
    running = service(metrics=f'listen = "127.0.0.1:{port}"')
    return running, port, (running.folder / "metrics.token").read_text().strip()


def test_figures_are_for_who_has_the_token(
    serving: tuple[RunningService, int, str], sleeper: Sleeper
) -> None:
    running, port, token = serving
    ask(running.socket, {"verb": "attach", "pids": [sleeper(ALICE)]}, ALICE)
    status, text = get(port, token=token)
    assert status == 200 and "hpcd_recordings 1.0" in text
    for path, wrong in (("/metrics", ""), ("/metrics", "x" * 64), ("/metrics", token[:-1])):
        assert get(port, path, wrong) == (401, "")
    assert get(port, "/", token)[0] == 404
    # The file is root's, and not read by all; nor are figures answered over the control socket.
    assert (running.folder / "metrics.token").stat().st_mode & 0o7 == 0
    answer = ask(running.socket, {"verb": "metrics"})
    assert answer["error"] == "only root and the service's group may see all figures"
    assert running.end() == 0


def test_the_services_group_may_read_the_token(service: Start, tmp_path: Path) -> None:
    group = grp.getgrall()[-1]
    running = service(f'group = "{group.gr_name}"', metrics=f'listen = "127.0.0.1:{free_port()}"')
    status = (tmp_path / "metrics.token").stat()
    assert (status.st_gid, status.st_mode & 0o777) == (group.gr_gid, 0o640)
    assert running.end() == 0


def test_a_token_is_kept_and_one_that_all_may_read_is_refused(
    serving: tuple[RunningService, int, str], service: Start
) -> None:
    running, port, token = serving
    assert running.end() == 0
    again = service(metrics=f'listen = "127.0.0.1:{port}"')
    assert get(port, token=token)[0] == 200
    assert again.end() == 0
    (again.folder / "metrics.token").chmod(0o644)
    refused = subprocess.run(
        [sys.executable, "-m", "hpcd", "daemon", "--config", again.folder / "hpcd.toml"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert refused.returncode == 2
    assert "may be read by all users" in refused.stderr and refused.stderr.count("\n") == 1


# Processes that sleep, each of a job of its own.
BOGUS = """
import subprocess, sys
for number in range(int(sys.argv[1])):
    subprocess.Popen(["/bin/sleep", "600"], env={"SLURM_JOB_ID": f"bogus{number}"})
print("ready", flush=True)
sys.stdin.readline()
"""
COMPUTING = """
print("ready", flush=True)
while True:
    sum(range(1000))
"""


def test_jobs_that_only_sleep_push_out_none_that_computes(service: Start) -> None:
    """More of one user's than are shown, which have waited for longer than another's computes."""
    port = free_port()
    running = service(
        f'[monitor]\nenabled = true\nusers = ["{ALICE}", "{MALLORY}"]\n',
        metrics=f'listen = "127.0.0.1:{port}"',
    )
    token = (running.folder / "metrics.token").read_text().strip()
    running.wait_for_log("monitoring")
    (monitor,) = running.request({"verb": "status"})["recordings"]
    with run_as(MALLORY, BOGUS, {}, 110), run_as(ALICE, COMPUTING, {"SLURM_JOB_ID": "honest"}):
        for status in running.watch(monitor["id"]):
            assert running.process.poll() is None
            jobs = status["summary"].get("jobs", {})
            if len(jobs) == 100 and next(iter(jobs)) == "honest":
                break
        assert status["summary"]["jobs_left_out"] > 0
        assert 'hpcd_job_cpu_seconds_total{job="honest"}' in get(port, token=token)[1]
    assert running.end() == 0


@contextmanager
def run_as(uid: int, program: str, environment: dict[str, str], *words: object) -> Iterator[None]:
    """Run a Python program and what it starts, from when it says that it is ready."""
    with subprocess.Popen(
        [sys.executable, "-c", program, *map(str, words)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/", env=environment,
        user=uid, group=uid, extra_groups=[], start_new_session=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout and process.stdout.readline() == "ready\n"
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)


# Holds connections and sends a byte to each of them now and then, until all are closed.
FLOOD = """
import select, socket, sys
held = {}
for _ in range(int(sys.argv[2])):
    connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    held[connection.fileno()] = connection
print("ready", flush=True)
poll = select.poll()
for fd in held:
    poll.register(fd, select.POLLIN)
while held:
    closed = poll.poll(200)
    for fd, _ in closed:
        poll.unregister(fd)
        held.pop(fd).close()
    for connection in held.values():
        try:
            connection.send(b"G")
        except OSError:
            pass
print("all closed", flush=True)
"""


@pytest.fixture
def flood(
    serving: tuple[RunningService, int, str],
) -> Iterator[subprocess.Popen[str]]:
    """A user with 200 connections that never send a whole request."""
    with subprocess.Popen(
        [sys.executable, "-c", FLOOD, str(serving[1]), "200"],
        stdout=subprocess.PIPE, text=True, cwd="/", user=MALLORY, group=MALLORY, extra_groups=[],
    ) as process:  # fmt: skip
        yield process
        process.kill()


def test_a_flood_takes_few_threads_and_ends(
    serving: tuple[RunningService, int, str], flood: subprocess.Popen[str]
) -> None:
    running, port, token = serving
    connections = running.child("connection_process")
    assert flood.stdout and flood.stdout.readline() == "ready\n"
    assert "recordings" in running.request({"verb": "status"})
    assert "recordings" in ask(running.socket, {"verb": "status"}, ALICE)
    threads = [len(os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208
               for pid in (connections, running.process.pid)]  # fmt: skip
    assert max(threads) < 20
    # Those that no worker takes are closed at once, the others when their time is over.
    assert flood.stdout.readline() == "all closed\n"
    assert get(port, token=token)[0] == 200
    assert running.end() == 0


def test_requests_that_are_no_http(serving: tuple[RunningService, int, str]) -> None:
    running, port, token = serving
    for request in (
        b"\r\n\r\n", b"\0" * 9000, b"GET\r\n\r\n", b"GET /metrics\r\nAuthorization\r\n\r\n",
        b"POST /metrics HTTP/1.1\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nAuthorization: Bearer \r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nAuthorization: Bearer \xff\r\n\r\n",
    ):  # fmt: skip
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(request)
            select.select([connection], [], [])
            try:
                answer = connection.recv(1 << 16)
            except ConnectionResetError:
                answer = b""
        assert answer.split(b" ", 2)[1:2] in ([], [b"404"], [b"401"]), (request, answer)
    assert get(port, token=token)[0] == 200
    assert running.end() == 0
    assert not [line for line in running.log if "internal error" in line]
