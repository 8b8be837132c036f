"""``hpcd stacks`` through the service: one's own threads, and nothing of others'."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from tests.service.conftest import HPCD, RunningService
from tests.support.clients import ALICE, MALLORY, ask
from tests.support.paths import ROOT, let_all_users_reach

pytestmark = pytest.mark.root

Start = Callable[..., RunningService]
Sleeper = Callable[..., int]


def test_a_user_reads_his_own_and_nothing_of_others(service: Start, sleeper: Sleeper) -> None:
    running = service()
    mine, alices = sleeper(MALLORY), sleeper(ALICE)
    document = running.json("stacks", "--pid", mine, user=MALLORY)
    (thread,) = document["threads"]
    assert (thread["pid"], thread["activity"]) == (mine, "asleep")
    assert thread["wait"]["call"] == "clock_nanosleep"
    names = [frame["name"] for frame in thread["path"] if not frame["kernel"]]
    assert names[-1].startswith("clock_nanosleep")
    assert any(frame["kernel"] for frame in thread["path"])
    # By name: sleepers of both users have it.
    document = running.json("stacks", "--comm", "sleep", user=MALLORY)
    assert {process["pid"] for process in document["processes"]} == {mine}
    missing = running.hpcd("stacks", "--pid", 1 << 22, user=MALLORY)
    refused = running.hpcd("stacks", "--pid", alices, user=MALLORY)
    assert (missing.returncode, refused.returncode) == (3, 3)
    assert refused.stderr == f"hpcd: no process {alices} of yours\n"
    for words in (["--all"], ["--user", "root"]):
        done = running.hpcd("stacks", *words, user=MALLORY)
        assert done.returncode == 4 and "only" in done.stderr
    # Root reads both by the same means, without the service.
    both = running.json("stacks", "--comm", "sleep")
    assert {mine, alices} <= {process["pid"] for process in both["processes"]}
    assert running.end() == 0
    assert not [line for line in running.log if "internal error" in line]


def test_requests_that_lie_are_answered_in_a_line(service: Start, sleeper: Sleeper) -> None:
    running = service()
    pid = sleeper(MALLORY)
    lies: list[dict[str, Any]] = [
        {},
        {"pids": "all"},
        {"pids": [-1]},
        {"pids": [2**70]},
        {"pids": [pid], "children": 1},
        {"names": ["nosuch"]},
        {"all": True},
    ]
    for lie in lies:
        answer = ask(running.socket, {"verb": "stacks", **lie}, MALLORY)
        assert "error" in answer and "\n" not in answer["error"], lie
    assert running.end() == 0
    assert not [line for line in running.log if "internal error" in line]


def test_one_reading_of_a_user_at_a_time(service: Start, sleeper: Sleeper) -> None:
    running = service()
    pid = sleeper(MALLORY)
    answers: list[dict[str, Any]] = []
    threads = [
        threading.Thread(
            target=lambda: answers.append(
                ask(running.socket, {"verb": "stacks", "pids": [pid]}, MALLORY)
            )
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    read = [answer for answer in answers if "threads" in answer]
    refused = [answer for answer in answers if "error" in answer]
    assert read and len(read) + len(refused) == 4
    assert {answer["error"] for answer in refused} <= {"stacks are being read for you already"}
    assert running.end() == 0


def test_readings_have_the_share_of_cpu_time_a_recorder_has(
    service: Start, sleeper: Sleeper
) -> None:
    """A few readings use up the saved share; then the next is far away."""
    running = service('cpu = "1%"')
    pid = sleeper(MALLORY)
    for _ in range(60):
        answer = ask(running.socket, {"verb": "stacks", "pids": [pid]}, MALLORY)
        if "error" in answer:
            break
        assert len(answer["threads"]) == 1
    assert "so often that the next reading is in" in answer["error"]
    # Nobody else waits for it.
    assert "threads" in ask(running.socket, {"verb": "stacks", "pids": [sleeper(ALICE)]}, ALICE)
    assert running.end() == 0


def test_a_process_that_gains_rights_is_not_read(service: Start, tmp_path: Path) -> None:
    """A process that is Mallory's, and runs a set-group-ID program by now, is not."""
    running = service()
    let_all_users_reach(tmp_path)
    secret = tmp_path / "secret"
    shutil.copy("/bin/sleep", secret)
    os.chown(secret, -1, ALICE)
    secret.chmod(0o2755)
    program = "import os, sys; input(); os.execv(sys.argv[1], ['secret', '100'])"
    process = subprocess.Popen(
        [sys.executable, "-c", program, secret],
        user=MALLORY, group=MALLORY, extra_groups=[], cwd="/",
        stdin=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        asked = {"verb": "stacks", "pids": [process.pid]}
        assert len(ask(running.socket, asked, MALLORY)["threads"]) == 1
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
        comm = Path(f"/proc/{process.pid}/comm")
        while comm.read_text() != "secret\n":
            pass
        answer = ask(running.socket, asked, MALLORY)
        assert answer == {"error": f"no process {process.pid} of yours", "code": 3}
    finally:
        process.kill()
        process.communicate()


def test_json_is_the_same_by_the_service_and_by_root(service: Start, sleeper: Sleeper) -> None:
    running = service()
    pid = sleeper(MALLORY)
    own = running.json("stacks", "--pid", pid, user=MALLORY)
    roots = running.json("stacks", "--pid", pid)
    for document in (own, roots):
        document["threads"][0].pop("since_s")
        for key in ("time_ns", "read_s"):
            document.pop(key)
    for key, value in roots["threads"][0].items():
        assert own["threads"][0][key] == value, key
    assert json.dumps(own) == json.dumps(roots)


def test_pids_are_asked_for_as_the_users_namespace_has_them(service: Start) -> None:
    """Those in the answer are the service's, which a note says."""
    running = service()
    inside = (
        "sleep 60 & pid=$!; [ $pid -lt 20 ] || exit 9; "
        f"{' '.join(HPCD)} stacks --json -p $pid; kill $pid"
    )
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", "setpriv", f"--reuid={MALLORY}",
         f"--regid={MALLORY}", "--clear-groups", "sh", "-c", inside],
        capture_output=True, text=True, cwd=ROOT, env={**os.environ, "HPCD_SOCKET": running.socket},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    (thread,) = document["threads"]
    assert (thread["name"], thread["wait"]["call"]) == ("sleep", "clock_nanosleep")
    assert thread["pid"] > 20
    assert any("another PID namespace than you" in note for note in document["notes"])


def test_a_file_that_is_another_one_here_names_nothing(
    service: Start, tmp_path: Path, build: Callable[..., Path]
) -> None:
    """A container's program, of which the path is another program's outside."""
    running = service()
    folder = tmp_path / "bin"
    folder.mkdir()
    here, there = folder / "program", tmp_path / "there"
    shutil.copy(build("pace.c", "-Wl,--build-id=none"), here)
    shutil.copy(build("asleep.c", "-Wl,--build-id=none"), there)
    script = f"mount --bind {there} {here} && exec setpriv --reuid={MALLORY} --regid={MALLORY}"
    process = subprocess.Popen(
        ["unshare", "-m", "sh", "-c", f"{script} --clear-groups {here} many 2"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/",
    )  # fmt: skip
    try:
        assert process.stdout and process.stdout.readline() == "ready\n"
        own = running.json("stacks", "--pid", process.pid, user=MALLORY)
        roots = running.json("stacks", "--pid", process.pid)
    finally:
        process.kill()
        process.communicate()

    def functions(document: dict[str, Any]) -> set[str]:
        return {
            frame["name"]
            for thread in document["threads"]
            for frame in thread["path"]
            if frame["module"] == str(here)
        }

    # Root reads the file that is mapped; the user has but the path.
    assert {"waits_for_condition", "main"} <= functions(roots)
    assert functions(own) and all(name.startswith("[program") for name in functions(own))


@pytest.mark.parametrize("user", [MALLORY, 0])
def test_the_viewer_shows_where_a_followed_recordings_processes_stand(
    service: Start, sleeper: Sleeper, user: int
) -> None:
    """By the service for a user, by itself for root; when they have ended it says so."""
    running = service()
    pid = sleeper(user)
    recording = running.json("attach", "--pid", pid, "--background", user=user)
    viewer = subprocess.Popen(
        [*HPCD, "view", "--live", str(recording["id"]), "--no-browser"],
        cwd=ROOT, env={**os.environ, "HPCD_SOCKET": running.socket},
        user=user, group=user, extra_groups=[], stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert viewer.stdout
        url = urlsplit(viewer.stdout.readline().strip())
        token = parse_qs(url.fragment)["token"][0]

        def get(path: str) -> tuple[int, Any]:
            connection = http.client.HTTPConnection(url.netloc)
            connection.request("GET", f"/api/v1/{path}", headers={"x-hpcd-token": token})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

        name = quote(get("databases")[1]["databases"][0])
        while not get(f"db/{name}")[1]["lines"]:  # nothing of it has been written yet
            pass
        assert get(f"db/{name}")[1]["present"] is True
        status, answer = get(f"db/{name}/stacks?now=1")
        assert status == 200 and answer["threads"] == 1
        assert answer["processes"][0] == f"pid {pid}"
        assert answer["names"][1][0].startswith("waits for clock_nanosleep: a timer of 120 s")
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        status, answer = get(f"db/{name}/stacks?now=1")
        assert status == 200
        assert answer["names"][0][0].startswith("ended, waits for its parent")
        assert (str(os.getpid()) in answer["names"][0][0]) == (user == 0)
        # A wait that goes on is written in pieces: in the first revision there may be none.
        while not get(f"db/{name}/stacks?at=0")[1]["threads"]:
            time.sleep(0.05)
    finally:
        viewer.terminate()
        viewer.wait()
