"""Attacks of users on a service to hurt others, run as two users that are not root."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcd.daemon.capture.paths.cct_builder import MOST_CONTEXTS
from hpcd.errors import HpcdError
from hpcd.measurement.check import check_measurement
from hpcd.measurement.reader import open_measurement
from tests.service.conftest import RunningService

pytestmark = pytest.mark.root

Start = Callable[..., RunningService]
Sleeper = Callable[..., int]
# Of no account of this machine.
ALICE, MALLORY = 48_001, 48_002


def as_user(uid: int, program: str, *words: object) -> subprocess.Popen[str]:
    """A Python program run by ``uid``; it says a line when it is ready."""
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, words)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/",
        user=uid, group=uid, extra_groups=[],
    )  # fmt: skip


ASK = """
import json, socket, struct, sys
s = socket.socket(socket.AF_UNIX); s.settimeout(30); s.connect(sys.argv[1])
data = sys.argv[2].encode()
s.sendall(struct.pack("<I", len(data)) + data)
size = struct.unpack("<I", s.recv(4, socket.MSG_WAITALL))[0]
answer = json.loads(s.recv(size, socket.MSG_WAITALL))
print(json.dumps(answer))
"""


def request_as(uid: int, path: str, content: dict[str, object]) -> dict[str, object]:
    """The answer to a user's request."""
    with as_user(uid, ASK, path, json.dumps(content)) as asking:
        out, _ = asking.communicate()
    answer: dict[str, object] = json.loads(out)
    return answer


SLOW = """
import resource, socket, sys, threading, time
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
held = []
for _ in range(int(sys.argv[2])):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(5)
    try:
        s.connect(sys.argv[1])
        s.sendall(b"\\x40")
    except OSError:
        continue
    held.append(s)
print("ready", flush=True)
while held:
    time.sleep(1)
    for s in list(held):
        try:
            s.sendall(b"\\0")
        except OSError:
            held.remove(s)
print("all closed", flush=True)
"""


@pytest.fixture
def slow(service: Start) -> Iterator[tuple[RunningService, subprocess.Popen[str]]]:
    """A service, and a user with 64 connections that each send a byte a second."""
    running = service()
    with as_user(MALLORY, SLOW, running.socket, 64) as hostile:
        assert hostile.stdout and hostile.stdout.readline() == "ready\n"
        yield running, hostile
        hostile.kill()


def test_slow_connections_keep_nobody_waiting(
    slow: tuple[RunningService, subprocess.Popen[str]],
) -> None:
    running, hostile = slow
    assert hostile.stdout
    assert "recordings" in running.request({"verb": "status"})
    assert "recordings" in request_as(ALICE, running.socket, {"verb": "status"})
    # Both were answered while his connections were open,
    assert not select.select([hostile.stdout], [], [], 0)[0]
    # which a byte now and then does not hold: the whole request has its time.
    assert hostile.stdout.readline() == "all closed\n"
    assert "recordings" in request_as(MALLORY, running.socket, {"verb": "status"})


@pytest.mark.parametrize("module", ["hpcd daemon", "connection_process"])
def test_no_descriptors_end_no_service(service: Start, module: str) -> None:
    """Accepting fails for a while, as when users hold all descriptors; it goes on after that."""
    running = service()
    pid = str(running.process.pid if module == "hpcd daemon" else running.child(module))
    assert "recordings" in running.request({"verb": "status"})  # it is all there
    subprocess.run(["prlimit", "--pid", pid, "--nofile=3:"], check=True)
    with as_user(MALLORY, ASK, running.socket, json.dumps({"verb": "status"})) as asking:
        running.wait_for_log("not accepted")
        subprocess.run(["prlimit", "--pid", pid, "--nofile=1024:"], check=True)
        assert json.loads(asking.communicate()[0])
    assert "recordings" in running.request({"verb": "status"})
    assert running.end() == 0


NEST = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
for _ in range(1_100):
    os.mkdir("d", dir_fd=fd)
    inner = os.open("d", os.O_RDONLY, dir_fd=fd)
    os.close(fd)
    fd = inner
os.utime(sys.argv[1] + "/segment-000000.hpcd", (1, 1))
with open(sys.argv[1] + "/segment-000001.hpcd", "wb") as file:
    file.truncate(1 << 40)
os.utime(sys.argv[1] + "/segment-000001.hpcd", (4e9, 4e9))
"""


def closed_measurement(running: RunningService, pid: int, uid: int) -> Path:
    """The path of a measurement in the store of a user's, who has ended it."""
    answer = request_as(uid, running.socket, {"verb": "attach", "pids": [pid]})
    request_as(uid, running.socket, {"verb": "detach", "id": answer["id"]})
    return Path(str(answer["measurement"]))


def test_a_users_own_measurement_hurts_no_others(service: Start, sleeper: Sleeper) -> None:
    """Directories too deep to recurse into, a size and times that are not true."""
    running = service()
    honest = closed_measurement(running, sleeper(ALICE), ALICE)
    hostile = closed_measurement(running, sleeper(MALLORY), MALLORY)
    try:
        with as_user(MALLORY, NEST, hostile) as nested:
            assert nested.wait(60) == 0
        # It is deeper than is looked at, and so the first to go.
        while hostile.exists() or list((running.store / ".removing").iterdir()):
            assert running.process.poll() is None
            time.sleep(0.1)
    finally:
        # Not by what cleans up after tests, which would recurse.
        subprocess.run(["rm", "-rf", hostile, running.store / ".removing"], check=True)
    assert honest.is_dir() and not hostile.exists()
    assert "recordings" in running.request({"verb": "status"})
    assert running.end() == 0
    assert not [line for line in running.log if "internal error" in line]


def test_users_reach_what_is_theirs_whatever_the_mask(service: Start, sleeper: Sleeper) -> None:
    before = os.umask(0o077)
    try:
        running = service()
    finally:
        os.umask(before)
    path = closed_measurement(running, sleeper(ALICE), ALICE)
    listed = subprocess.run(
        ["ls", path], user=ALICE, group=ALICE, extra_groups=[], capture_output=True, text=True,
        cwd="/",
    )  # fmt: skip
    assert "segment-000000.hpcd" in listed.stdout, listed.stderr
    refused = subprocess.run(
        ["ls", path], user=MALLORY, group=MALLORY, extra_groups=[], capture_output=True, cwd="/"
    )
    assert refused.returncode != 0


def test_names_of_users_do_not_reach_roots_terminal(service: Start) -> None:
    running = service()
    for name in ("[/x]", "\x1b]0;owned\x07", "[bold]\u202e"):
        request_as(MALLORY, running.socket, {"verb": "attach", "names": [name]})
    done = running.hpcd("status")
    assert done.returncode == 0, done.stderr
    assert "[/x]" in done.stdout
    assert not [letter for letter in done.stdout if not letter.isprintable() and letter != "\n"]


def test_recordings_at_a_time_hold_for_requests_at_a_time(service: Start) -> None:
    running = service("recordings = 2\n")
    content = json.dumps({"verb": "attach", "names": ["none-of-this-name"]})
    asking = [as_user(MALLORY, ASK, running.socket, content) for _ in range(6)]
    answers = [json.loads(user.communicate()[0]) for user in asking]
    assert sum("id" in answer for answer in answers) == 2


SLOW_FILES = """
import mmap, os, sys
kept = []
for number in range(int(sys.argv[2])):
    path = f"{sys.argv[1]}/slow{number}"
    with open(path, "wb") as file, open(sys.argv[1] + "/template", "rb") as template:
        file.write(template.read())
        file.truncate(200 << 20)
    with open(path, "rb") as file:
        kept.append(mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC))
print("ready", flush=True)
while True:
    sum(range(2000))
"""
# Each sample has a call path of its own, of a hundred calls.
ENDLESS_PATHS = """
static int left(unsigned, int), right(unsigned, int);
static int (*volatile const call[])(unsigned, int) = {left, right};
#define BODY { volatile int i = 0; if (!depth) { while (++i < 2000) ; return i; } \\
	seed = seed * 1103515245 + 12345; return call[seed >> 16 & 1](seed, depth - 1) + 1; }
__attribute__((noinline)) static int left(unsigned seed, int depth) BODY
__attribute__((noinline)) static int right(unsigned seed, int depth) BODY
int main(void) { for (unsigned seed = 1;; seed++) left(seed * 2654435761u, 100); }
"""
RUNNING = ("attached", "recording")
BUSY = "int main(void) { for (;;) ; }"


def modules_of(measurement: Path) -> set[str]:
    """Names of the load modules whose unwind tables are made; for those who ask again and again."""
    time.sleep(0.2)
    try:
        with open_measurement(measurement) as opened:
            return {Path(module.path).name for module in opened.modules.values()}
    except HpcdError:  # nothing is in it before the first flush
        return set()


def test_files_slow_to_decode_delay_their_user_alone(service: Start, tmp_path: Path) -> None:
    """The node's recorder has one decoder for all users."""
    files = tmp_path / "files"
    files.mkdir(mode=0o777)
    files.chmod(0o777)
    for name in ("template", "honest"):  # without a build id the contents are hashed
        subprocess.run(
            ["cc", "-xc", "-", "-Wl,--build-id=none", "-o", files / name],
            input=BUSY, text=True, check=True,
        )  # fmt: skip
    running = service(f'[monitor]\nenabled = true\nusers = ["{ALICE}", "{MALLORY}"]\n')
    running.wait_for_log("monitoring")
    (monitor,) = running.json("status")["recordings"]
    measurement = Path(monitor["measurement"])
    count = 60
    with as_user(MALLORY, SLOW_FILES, files, count) as hostile:
        try:
            assert hostile.stdout and hostile.stdout.readline() == "ready\n"
            while not any(name.startswith("slow") for name in modules_of(measurement)):
                assert running.process.poll() is None
            with subprocess.Popen(
                [files / "honest"], user=ALICE, group=ALICE, extra_groups=[], cwd="/"
            ) as honest:
                while "honest" not in (decoded := modules_of(measurement)):
                    assert running.process.poll() is None
                honest.kill()
        finally:
            hostile.kill()
    assert 0 < sum(name.startswith("slow") for name in decoded) < count
    assert running.end() == 0


def test_connections_are_taken_again_when_their_process_has_ended(service: Start) -> None:
    running = service()
    os.kill(running.child("connection_process"), signal.SIGKILL)
    running.wait_for_log("connections lost")
    while not running.children("connection_process"):
        assert running.process.poll() is None
    assert "recordings" in request_as(ALICE, running.socket, {"verb": "status"})
    assert running.end() == 0


CONNECT = """
import socket, sys
for number in range(int(sys.argv[2])):
    s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.close()
print("done", flush=True)
"""


def test_connections_without_requests_are_counted(service: Start) -> None:
    """Against their user's rate, and not each in a line of the journal."""
    running = service()
    count = 3_000
    with as_user(MALLORY, CONNECT, running.socket, count) as hostile:
        while hostile.poll() is None:
            assert "recordings" in request_as(ALICE, running.socket, {"verb": "status"})
    assert "recordings" in running.request({"verb": "status"})  # after all that connected before
    # A line has the latest reason: after two more bursts at once, that there are too many.
    for _ in range(2):
        with as_user(MALLORY, CONNECT, running.socket, 200) as hostile:
            assert hostile.wait() == 0
        assert "recordings" in running.request({"verb": "status"})
    assert running.end() == 0
    lines = [line for line in running.log if f" uid={MALLORY} " in line]
    assert not [line for line in running.log if f" uid={ALICE} " in line]
    numbers = [re.search(r" count=(\d+)", line) for line in lines]
    assert sum(int(number[1]) if number else 1 for number in numbers) >= count
    assert len(lines) < count / 10
    # 50 at once, and more than that as their time comes, not all.
    refused = [line for line in lines if "refused uid=" in line]
    assert [line for line in refused if 'why="too many requests"' in line]
    lost = [line for line in lines if 'why="the message is cut off"' in line]
    assert lost and not {*lost} & {*refused}


def test_many_requests_delay_their_user_alone(service: Start) -> None:
    running = service()
    with as_user(MALLORY, MANY_REQUESTS, running.socket, 100) as hostile:
        assert hostile.stdout and hostile.stdout.readline() == "ready\n"
        assert "recordings" in request_as(ALICE, running.socket, {"verb": "status"})
        # She was answered while he waits for his.
        assert not select.select([hostile.stdout], [], [], 0)[0]
        seconds = float(hostile.stdout.readline())
    # 50 at once, then 10 a second.
    assert seconds > 4


MANY_REQUESTS = """
import json, socket, struct, sys, time
data = json.dumps({"verb": "status"}).encode()
began = time.monotonic()
for number in range(int(sys.argv[2])):
    s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
    s.sendall(struct.pack("<I", len(data)) + data)
    size = struct.unpack("<I", s.recv(4, socket.MSG_WAITALL))[0]
    assert "recordings" in json.loads(s.recv(size, socket.MSG_WAITALL))
    s.close()
    if number == 0:
        print("ready", flush=True)
print(time.monotonic() - began, flush=True)
"""


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Callable[..., int]]:
    """Starts programs of users, given as C; their pids."""
    running: list[subprocess.Popen[bytes]] = []

    def start(source: str, uid: int) -> int:
        program = tmp_path / f"program{len(running)}"
        subprocess.run(
            ["cc", "-O1", "-fno-optimize-sibling-calls", "-xc", "-", "-o", program],
            input=source, text=True, check=True,
        )  # fmt: skip
        process = subprocess.Popen([program], user=uid, group=uid, extra_groups=[], cwd="/")
        running.append(process)
        return process.pid

    yield start
    for process in running:
        process.kill()
        process.wait()


def attached(running: RunningService, uid: int, pid: int, **more: object) -> int:
    """The number of a recording that ``uid`` has asked for."""
    answer = request_as(uid, running.socket, {"verb": "attach", "pids": [pid], **more})
    assert "id" in answer, answer
    number = answer["id"]
    assert isinstance(number, int)
    return number


def assert_whole(summary: dict[str, Any]) -> None:
    """That an honest user's recording has lost nothing and followed what it met."""
    assert summary["samples"]["dropped"] == {} and "limit" not in summary
    assert summary["samples"]["recorded"] > 0 and summary["unwind"]["failures"] == {}


def test_contexts_are_each_users_own(service: Start, programs: Callable[..., int]) -> None:
    """A program whose every sample is another call path takes a bounded number of contexts."""
    running = service('memory = "150M"\ncpu = "100%"\n')
    honest = attached(running, ALICE, programs(BUSY, ALICE))
    hostile = attached(running, MALLORY, programs(ENDLESS_PATHS, MALLORY), frequency=10_000)
    for it in running.watch(hostile):
        assert it["state"] in RUNNING, it
        if it["summary"] and it["summary"]["unwind"]["failures"]:
            break
    assert it["summary"]["unwind"]["failures"] == {
        f"call paths of user {MALLORY}": f"more than {MOST_CONTEXTS:,}"
    }
    ended = running.json("detach", hostile)
    assert "limit" not in ended
    assert_whole(running.json("detach", honest))
    assert running.end() == 0


def test_memory_is_each_recordings_own(service: Start, programs: Callable[..., int]) -> None:
    """A recorder that takes more memory than it may ends properly, below the bound of contexts."""
    running = service('memory = "100M"\ncpu = "100%"\n')
    honest = attached(running, ALICE, programs(BUSY, ALICE))
    hostile = attached(running, MALLORY, programs(ENDLESS_PATHS, MALLORY), frequency=10_000)
    it = running.wait_for_state(hostile, "ended", "failed")
    assert it["state"] == "ended", it
    assert it["summary"]["limit"] == "ended: the recorder takes more than 100 MB"
    assert check_measurement(Path(it["measurement"])) == []
    assert_whole(running.json("detach", honest))
    assert running.end() == 0
    assert [line for line in running.log if line[3:].startswith("limit")]


def test_cpu_time_is_each_recordings_own(service: Start, programs: Callable[..., int]) -> None:
    """A recorder that takes more than it may samples less, then loses samples: its own."""
    running = service('cpu = "2%"\n')
    honest = attached(running, ALICE, programs(BUSY, ALICE), frequency=99)
    hostile = attached(running, MALLORY, programs(ENDLESS_PATHS, MALLORY), frequency=10_000)
    for it in running.watch(hostile):
        if it["state"] not in RUNNING:
            break
        if it["summary"] and it["summary"]["rates"][-1]["frequency"] < 10_000:
            break
    assert it["state"] in RUNNING, it
    running.json("detach", hostile)
    assert_whole(running.json("detach", honest))
    assert running.end() == 0
