"""A service whose user serves files, and does not answer what is asked of them.

Who asks such a file system anything that it has taken up cannot be killed, as long as it lives.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hpcd.measurement.check import check_measurement
from tests.service.conftest import RunningService
from tests.support import layered_fuse, stalling_fuse
from tests.support.clients import ALICE, MALLORY, ask

pytestmark = pytest.mark.root

Start = Callable[..., RunningService]


@pytest.fixture(autouse=True)
def _fuse() -> None:
    if not Path("/dev/fuse").exists():
        pytest.skip("no FUSE here")


def test_a_recording_of_all_goes_on_and_ends(service: Start, tmp_path: Path) -> None:
    running = service()
    folder = tmp_path / "files"
    folder.mkdir()
    with layered_fuse.target(folder, MALLORY, Path("/bin/sleep")) as (pid, server):
        stalling_fuse.take(server, "reads")
        begun = running.request({"verb": "attach", "all": True})
        waiting = "did not answer in time"
        for status in running.watch(begun["id"]):
            failures = status["summary"].get("unwind", {}).get("failures", {})
            if waiting in failures.get(f"names of code of process {pid}", ""):
                break
        seen = status["progress"]["samples"]
        while status["progress"]["samples"] <= seen:
            status = next(running.watch(begun["id"]))
        ended = running.request({"verb": "detach", "id": begun["id"]})
        failures = ended["summary"]["unwind"]["failures"]
        assert waiting in failures["/tmp/file"]
        assert running.end() == 0
    assert check_measurement(Path(begun["measurement"])) == []


def test_a_control_group_is_no_way_into_other_file_systems(service: Start, tmp_path: Path) -> None:
    running = service()
    files, theirs = tmp_path / "files", tmp_path / "theirs"
    for folder in (files, theirs):
        folder.mkdir()
    with layered_fuse.target(files, MALLORY, Path("/bin/sleep")) as (pid, server):
        stalling_fuse.take(server, "opens")
        for path in (
            f"../../../../proc/{pid}/root/tmp/other",
            f"/sys/fs/cgroup/../../../proc/{pid}/root/tmp/other",
            f"/proc/{pid}/root/tmp/other",
            str(theirs.relative_to("/")),
            "../" * 9 + str(theirs.relative_to("/")),
            "/nosuch",
        ):
            answer = ask(running.socket, {"verb": "attach", "cgroups": [path]})
            # What exists and what does not are refused in the same words.
            assert answer["error"] == f"no control group {path}"
        assert_serves_and_ends(running)


# Hands over a directory of its file system's once it may, and prints the answer.
HAND_OVER = """
import json, os, socket, struct, sys
directory = os.open(sys.argv[2], os.O_RDONLY)
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
data = json.dumps({"verb": "attach", "names": ["none"], "output": sys.argv[2]}).encode()
s.sendall(struct.pack("<I", len(data)) + data)
head, fds, _, _ = socket.recv_fds(s, 4, 1)
s.recv(struct.unpack("<I", head)[0], socket.MSG_WAITALL)
print("ready", flush=True)
sys.stdin.readline()
socket.send_fds(socket.socket(fileno=fds[0]), [b"d"], [directory])
os.close(directory)
print("sent", flush=True)
(size,) = struct.unpack("<I", s.recv(4, socket.MSG_WAITALL))
print(s.recv(size, socket.MSG_WAITALL).decode(), flush=True)
"""


def test_a_directory_that_does_not_answer(service: Start, tmp_path: Path) -> None:
    """The recorder alone waits for it, and counts as one of its user's until it is gone."""
    running = service("recordings = 1\n")
    folder = tmp_path / "served"
    folder.mkdir()
    with (
        stalling_fuse.mounted(folder, MALLORY, Path("/bin/sleep")) as server,
        as_user(HAND_OVER, running.socket, folder) as client,
    ):
        assert client.stdin and client.stdout and client.stdout.readline() == "ready\n"
        stalling_fuse.take(server, "reads")  # and with it what the directory is
        print(file=client.stdin, flush=True)
        assert client.stdout.readline() == "sent\n"
        recorder = wait_for_stuck(running, "recorder_process")
        assert "recordings" in ask(running.socket, {"verb": "status"}, ALICE)
        assert json.loads(client.stdout.readline())["error"] == "the recorder does not start"
        # It was killed, which does not end it.
        assert wait_for_stuck(running, "recorder_process") == recorder
        another = ask(running.socket, {"verb": "attach", "names": ["none"]})
        assert another["error"] == "you have 1 recordings under way already"
        begun = ask(running.socket, {"verb": "attach", "names": ["none"]}, ALICE)
        assert "id" in begun
        assert_serves_and_ends(running)


# Sends, when it may, files that nobody asked for, each of which waits when it is closed last: what
# was sent through it is not received, and its user has set how long that is waited for.
UNASKED = """
import socket, struct, sys
listener = socket.create_server(("127.0.0.1", 0))
data = b'{"verb": "status"}'
request = struct.pack("<I", len(data)) + data
connections, files = [], []
for _ in range(int(sys.argv[2])):
    s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
    file = socket.create_connection(listener.getsockname())
    file.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 600))
    file.setblocking(False)
    try:
        while True:
            file.send(bytes(1 << 20))
    except BlockingIOError:
        pass
    connections.append(s)
    files.append(file)
print("ready", flush=True)
sys.stdin.readline()
for s, file in zip(connections, files):
    socket.send_fds(s, [request], [file.fileno()])
    file.close()
print("sent", flush=True)
sys.stdin.readline()
"""


def test_files_that_nobody_asked_for(service: Start) -> None:
    """The kernel keeps them with the connection; who reads or closes it closes them. The service
    itself never does."""
    running = service()
    count = 8  # as many connections as a user may have
    with as_user(UNASKED, running.socket, count) as client:
        assert client.stdin and client.stdout and client.stdout.readline() == "ready\n"
        connections = running.child("connection_process")
        os.kill(connections, signal.SIGSTOP)  # so that it is the last who closes them
        print(file=client.stdin, flush=True)
        assert client.stdout.readline() == "sent\n"
        os.kill(connections, signal.SIGCONT)
        while len(waiting(connections, "wait_woken")) < count:
            time.sleep(0.05)
        assert_serves_and_ends(running)


@contextmanager
def as_user(program: str, *words: object) -> Iterator[subprocess.Popen[str]]:
    """A program of MALLORY's, who serves files."""
    with subprocess.Popen(
        [sys.executable, "-c", program, *map(str, words)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/",
        user=MALLORY, group=MALLORY, extra_groups=[],
    ) as process:  # fmt: skip
        yield process
        process.kill()


def waiting(pid: int, place: str) -> list[Path]:
    """The threads of ``pid`` that wait at a ``place`` in the kernel."""
    threads = Path(f"/proc/{pid}/task").glob("*/wchan")
    return [thread for thread in threads if place in thread.read_text()]


def is_stuck(pid: int) -> bool:
    """Whether a thread of ``pid`` waits for a file server, uninterruptibly."""
    return bool(waiting(pid, "request_wait_answer"))


def wait_for_stuck(running: RunningService, module: str) -> int:
    """Wait until a process of the service that runs ``module`` cannot be killed; its pid."""
    while True:
        assert not is_stuck(running.process.pid)
        for pid in running.children(module):
            if is_stuck(pid):
                return pid
        time.sleep(0.05)


def assert_serves_and_ends(running: RunningService) -> None:
    """That others are answered and the service ends, as long as the files are not."""
    assert "recordings" in ask(running.socket, {"verb": "status"}, ALICE)
    assert "recordings" in running.request({"verb": "status"})
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(timeout=60) == 0
