"""The service: recordings on request, of the host, and for other users."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpcd.measurement.check import check_measurement
from hpcd.measurement.reader import open_measurement
from tests.service.conftest import HPCD, NOBODY, RunningService
from tests.support.paths import ROOT
from tests.support.recorded import hpcd

pytestmark = pytest.mark.root

Start = Callable[..., RunningService]
Sleeper = Callable[..., int]


def owner(path: Path) -> tuple[int, int]:
    return path.stat().st_uid, path.stat().st_mode & 0o7777


def has_ended(process: psutil.Process) -> bool:
    """Whether it runs no more; the service may have reaped it or not."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def recorders_of(running: RunningService) -> list[psutil.Process]:
    """The processes of recordings, and the one that waits for the next."""
    recorders = []
    for child in psutil.Process(running.process.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended meanwhile
            if "recorder_process" in " ".join(child.cmdline()):
                recorders.append(child)
    return recorders


def ready_recorder(running: RunningService) -> psutil.Process:
    """The recorder that waits for the first request. One that has been forked is not known to be a
    recorder before it executes its program."""
    while not (recorders := recorders_of(running)):
        time.sleep(0.01)
    (ready,) = recorders
    return ready


def test_a_recorder_is_ready_until_the_service_ends(service: Start, sleeper: Sleeper) -> None:
    running = service()
    recorders = {ready_recorder(running)}
    for _ in range(2):
        begun = running.json("attach", "--background", "--pid", sleeper())
        assert begun["state"] in ("attached", "recording")
        further = next(
            further
            for _ in running.watch(begun["id"])
            if (further := set(recorders_of(running)) - recorders)
        )
        recorders |= further
        # One that has ended is not asked.
        for ready in further:
            ready.kill()
        next(None for _ in running.watch(begun["id"]) if all(map(has_ended, further)))
    assert running.end() == 0


def test_the_recorder_that_is_ready_ends_with_the_service(service: Start) -> None:
    running = service()
    ready = ready_recorder(running)
    assert running.end() == 0
    assert not psutil.pid_exists(ready.pid)


def test_a_recording_from_attach_to_detach(service: Start, sleeper: Sleeper) -> None:
    running = service()
    pid = sleeper()
    begun = running.json("attach", "--background", "--pid", pid)
    assert begun["state"] in ("attached", "recording")
    (shown,) = running.json("status")["recordings"]
    assert (shown["id"], shown["what"]) == (begun["id"], f"pid {pid}")
    summary = running.json("detach", begun["id"])
    assert summary["time"]["blocked"] == pytest.approx(summary["time"]["lifetime"], rel=0.05)
    path = Path(begun["measurement"])
    assert path.parent == running.store / "0"
    assert check_measurement(path) == []
    assert running.json("status", begun["id"])["recordings"][0]["state"] == "ended"
    assert running.end() == 0


def test_a_recording_has_the_options_that_were_requested(service: Start, sleeper: Sleeper) -> None:
    """All of them: what is recorded and how is the same as without the service."""
    running = service()
    pid = sleeper()
    begun = running.json(
        "attach", "--background", "--pid", pid, "--duration", 500, "--frequency", 100,
        "--overhead", "50%", "--no-blocked", "--no-wakers", "--blocked-threshold", 9,
        "--no-children", "--io", "--memory", "--heap", "--mpi", "--probe", "libc:puts",
        "--probes", "threads",
    )  # fmt: skip
    summary = running.json("detach", begun["id"])
    options = {
        "pids": [pid], "names": [], "users": [], "cgroups": [], "containers": [], "jobs": [],
        "all": False, "duration": 500.0, "events": [], "frequency": 100, "overhead": 0.5,
        "waits": False, "wakers": False, "threshold_ns": 9000, "children": False, "io": True,
        "memory": True, "heap": True, "mpi": True, "probes": ["libc:puts"],
        "probe_files": ["threads"], "loader": "auto",
    }  # fmt: skip
    assert summary["options"] == options
    with open_measurement(Path(begun["measurement"])) as measurement:
        assert measurement.options == options
        assert {event.metric for event in measurement.events.values()} >= {"heap_held"}
        functions = {function.name for function in measurement.functions.values()}
        assert functions >= {"read", "puts"}
    assert summary["rates"][0]["frequency"] == 100 and summary["time"] == {}
    done = running.hpcd("attach", "--pid", pid, "-e", "instructions", "--background")
    assert done.returncode == 2
    assert done.stderr.endswith(
        "the hpcd service does not take --event; record as root without it\n"
    )
    assert running.end() == 0


def test_users_record_what_they_own_and_own_what_they_record(
    service: Start, sleeper: Sleeper, tmp_path: Path
) -> None:
    running = service()
    pid = sleeper(NOBODY)
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    (recorder,) = recorders_of(running)  # it waits for a request
    kept = running.json("attach", "--pid", pid, "--background", user=NOBODY)
    # It comes after the service, which answers everybody, and takes nothing of the service's share.
    assert recorder.nice() == os.getpriority(os.PRIO_PROCESS, running.process.pid) + 5
    assert os.getsid(recorder.pid) == recorder.pid
    own = running.json("attach", "--pid", pid, "-d", 1, "-o", home / "m", user=NOBODY)
    assert own["measurement"] == str(home / "m")
    for path in (Path(kept["measurement"]), home / "m"):
        assert owner(path) == (NOBODY, 0o700)
        assert owner(path / "segment-000000.hpcd") == (NOBODY, 0o600)
    assert check_measurement(home / "m") == []
    assert running.json("detach", kept["id"], user=NOBODY)["duration_s"] > 0


def test_what_is_not_theirs_is_refused_in_a_line(
    service: Start, sleeper: Sleeper, tmp_path: Path
) -> None:
    running = service()
    mine, theirs = sleeper(), sleeper(NOBODY)
    root = running.json("attach", "--pid", mine, "--background")["id"]
    full = tmp_path / "full"
    full.mkdir()
    (full / "file").touch()
    link = tmp_path / "link"
    link.symlink_to("/root")
    # Its pid is taken, and its owner may be told nothing of it any more.
    zombie = subprocess.Popen(["/bin/true"], user=NOBODY, group=NOBODY, extra_groups=[], cwd="/")
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    attempts = [
        ("attach", "--pid", mine, "--background"),
        ("attach", "--pid", 1, "--background"),
        ("attach", "--pid", theirs, "--pid", mine, "--background"),
        ("attach", "--all", "--background"),
        ("attach", "--user", "root", "--background"),
        ("attach", "--pid", theirs, "-o", "/root/m"),
        ("attach", "--pid", theirs, "-o", "/etc/hpcd-m"),
        ("attach", "--pid", theirs, "-o", full),
        ("attach", "--pid", theirs, "-o", link / "m"),
        ("attach", "--pid", theirs, "-o", link),
        ("attach", "--pid", theirs, "-o", "/proc/1/root/root/m"),
        ("attach", "--pid", theirs, "-o", running.store / "0" / "m"),
        ("attach", "--pid", zombie.pid, "--background"),
        ("attach", "--job", "1", "--user", "root", "--background"),
        ("attach", "--cgroup", "/", "--all", "--background"),
        ("attach", "--pid", 2**30, "--background"),
        ("attach", "--pid", -1, "--background"),
        ("attach", "--comm", "x", "-F", 10**9, "--background"),
        ("detach", root),
        ("detach", 999),
        ("status", root),
        ("status", -5),
        ("snapshot",),
    ]
    for words in attempts:
        done = running.hpcd(*words, user=NOBODY)
        assert done.returncode not in (0, 70), (words, done)
        assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr, done
    seen = running.json("status", user=NOBODY)
    assert seen.keys() == {"recordings"}  # nor how many recordings others have
    assert {recording["state"] for recording in seen["recordings"]} <= {"failed"}
    assert not list((running.store / str(NOBODY)).glob("*"))
    running.end()
    refused = [line for line in running.log if line[3:].startswith("refused")]
    assert all("uid=65534" in line for line in refused)
    counts = [re.search(r" count=(\d+)", line) for line in refused]
    # What the client's own rights refuse is not asked.
    assert sum(int(count[1]) if count else 1 for count in counts) >= len(attempts) - 10


def test_raw_requests_that_lie(service: Start, sleeper: Sleeper, tmp_path: Path) -> None:
    """Requests that the command line would never send."""
    running = service()
    pid = sleeper(NOBODY)
    other = tmp_path / "rootdir"
    other.mkdir()
    plain = tmp_path / "plain"
    plain.touch()
    requests: list[tuple[dict[str, object], Path | None]] = [
        ({"verb": "attach", "pids": [pid]}, other),  # a directory that is root's
        ({"verb": "attach", "pids": [pid]}, plain),  # no directory
        ({"verb": "attach", "pids": [pid], "users": ["0"]}, None),
        ({"verb": "attach", "pids": [[pid]]}, None),
        ({"verb": "attach", "pids": [pid], "duration": "long"}, None),
        ({"verb": "attach", "pids": [pid], "threshold_ns": -1}, None),
        ({"verb": "attach", "all": "yes"}, None),
        ({"verb": "attach", "containers": ["../../etc"]}, None),
        ({"verb": "attach"}, None),
        ({"verb": "detach", "id": True}, None),
        ({"verb": ["attach"]}, None),
        ({}, None),
    ]
    for request, directory in requests:
        program = (
            "import json,os,socket,struct,sys\n"
            "request, path, name = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]\n"
            "directory = os.open(path, os.O_RDONLY) if path else None\n"
            f"os.setgid({NOBODY}); os.setuid({NOBODY})\n"
            "s = socket.socket(socket.AF_UNIX); s.connect(name)\n"
            "data = json.dumps(request | ({'output': path} if path else {})).encode()\n"
            "s.sendall(struct.pack('<I', len(data)) + data)\n"
            "head, fds, _, _ = socket.recv_fds(s, 4, 1)\n"
            "size = struct.unpack('<I', head)[0]\n"
            "if fds:\n"
            "    s.recv(size)\n"
            "    socket.send_fds(socket.socket(fileno=fds[0]), [b'd'], [directory])\n"
            "    size = struct.unpack('<I', s.recv(4))[0]\n"
            "print(s.recv(size).decode())\n"
        )
        done = subprocess.run(
            ["/usr/bin/python3", "-c", program, json.dumps(request), str(directory or ""),
             running.socket],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert json.loads(done.stdout)["error"], request
    assert list(other.iterdir()) == []
    recordings = running.json("status")["recordings"]
    # What is handed over is looked at by the recorder.
    assert [recording["state"] for recording in recordings] == ["failed", "failed"]


def test_pids_are_those_of_the_namespace_of_who_asks(service: Start, tmp_path: Path) -> None:
    running = service()
    inside = (
        "sleep 60 & pid=$!; [ $pid -lt 20 ] || exit 9; "
        f"{' '.join(HPCD)} attach --json -d 1 -p $pid; kill $pid"
    )
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", "setpriv", f"--reuid={NOBODY}",
         f"--regid={NOBODY}", "--clear-groups", "sh", "-c", inside],
        capture_output=True, text=True, cwd=ROOT, env={**os.environ, "HPCD_SOCKET": running.socket},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with open_measurement(
        Path(running.json("status", 1)["recordings"][0]["measurement"])
    ) as measurement:
        (process,) = measurement.processes.values()
    assert process.name == "sleep" and process.uid == NOBODY
    assert process.pid > 20  # as this namespace knows it


def test_a_process_that_gains_rights_is_let_go_of(service: Start, tmp_path: Path) -> None:
    """A set-user-ID program run by a target is root's, and nothing of it is recorded."""
    running = service()
    program = tmp_path / "suid-sleep"
    shutil.copy("/bin/sleep", program)
    program.chmod(0o4755)
    script = f"read line; {program} 2 & sleep 1; wait"
    target = subprocess.Popen(
        ["/bin/sh", "-c", script], stdin=subprocess.PIPE, user=NOBODY, group=NOBODY,
        extra_groups=[], cwd="/",
    )  # fmt: skip
    number = running.json("attach", "--pid", target.pid, "--background", user=NOBODY)["id"]
    assert target.stdin
    target.stdin.write(b"go\n")
    target.stdin.close()
    target.wait()
    ended = running.wait_for_state(number, "ended")  # with its target
    with open_measurement(Path(ended["measurement"])) as m:
        names = {process.exe for process in m.processes.values()}
        waits = {
            thread.name: sum(
                int(part.value[part.start[i] : part.start[i + 1]].sum())
                for part in m.record_chunks()
                for i in np.flatnonzero(part.line == line).tolist()
            )
            for line, thread in m.threads.items()
        }
    assert "/usr/bin/sleep" in names or "/bin/sleep" in names
    assert str(program) not in names
    assert not any(name.startswith("suid") for name in waits)


def ask_raw(path: str, data: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(path)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            return connection.recv(1 << 16)
        return b""


def test_messages_that_are_none(service: Start) -> None:
    running = service()

    @settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        st.one_of(
            st.binary(max_size=200),
            st.tuples(st.integers(0, 2**32 - 1), st.binary(max_size=100)).map(
                lambda pair: struct.pack("<I", pair[0]) + pair[1]
            ),
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.text(max_size=20),
                lambda inner: st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(["verb", "id", "pids", "all"]), inner),
                max_leaves=6,
            ).map(lambda value: (lambda raw: struct.pack("<I", len(raw)) + raw)(
                json.dumps(value).encode())),
        )
    )  # fmt: skip
    def hostile(data: bytes) -> None:
        answer = ask_raw(running.socket, data)
        if answer:
            assert b'"error"' in answer or b'"recordings"' in answer

    hostile()
    deep = b'{"verb":' + b"[" * 30_000
    assert b"error" in ask_raw(running.socket, struct.pack("<I", len(deep)) + deep)
    assert running.json("status")["recordings"] == []
    assert running.end() == 0
    assert not [line for line in running.log if "internal error" in line]


def test_the_node_is_monitored_and_its_measurement_rotated(service: Start) -> None:
    running = service("[monitor]\nenabled = true\n")
    running.wait_for_log("monitoring")
    monitor = running.wait_for_state(1, "attached", "recording")
    assert monitor["what"] == "all processes"
    ended = Path(running.json("snapshot")["measurement"])
    with open_measurement(ended) as measurement:
        assert measurement.closed
    assert check_measurement(ended) == []
    (still,) = [
        recording
        for recording in running.json("status")["recordings"]
        if recording["state"] != "ended"
    ]
    assert still["monitor"] and still["measurement"] != str(ended)
    assert running.end() == 0
    assert check_measurement(Path(still["measurement"])) == []


def worker(user: int = 0) -> subprocess.Popen[bytes]:
    """Start a program that works now and then: others need the CPUs, too."""
    return subprocess.Popen(
        ["/usr/bin/python3", "-c", "import time\nwhile 1: time.sleep(0.02), sum(range(2 << 17))"],
        user=user, group=user, extra_groups=[], cwd="/",
    )  # fmt: skip


def test_top_through_the_service(service: Start) -> None:
    """Users see what they own, live; root what it names, or what is monitored."""
    running = service("[monitor]\nenabled = true\n")
    running.wait_for_log("monitoring")
    with worker(NOBODY) as theirs, worker() as mine:
        try:
            now = running.json("top", "-w", 1, user=NOBODY)
            # Nobody may have other processes: decoders are, for one.
            seen = [process["pid"] for process in now["busiest"]]
            assert theirs.pid in seen and mine.pid not in seen
            assert now["cpu_s"] > 0 and now["hottest"]
            named = running.json("top", "-w", 1, "-p", theirs.pid, user=NOBODY)
            assert [process["pid"] for process in named["busiest"]] == [theirs.pid]
            root = running.json("top", "-w", 1, "-p", mine.pid)
            assert [process["pid"] for process in root["busiest"]] == [mine.pid]
            everything = running.json("top", "-w", 1)
            assert {mine.pid, theirs.pid} <= {process["pid"] for process in everything["busiest"]}
            recordings = running.json("status")["recordings"]
            assert [recording["state"] for recording in recordings if not recording["monitor"]] == [
                "ended"
            ] * 3
            monitor = next(recording["id"] for recording in recordings if recording["monitor"])
            assert running.json("top", "--recording", monitor)["threads"] >= 2
            # What follows needs them to be there, and the processors.
            for process in (theirs, mine):
                process.send_signal(signal.SIGSTOP)
            for words in (
                ("-p", mine.pid), ("--all",), ("--user", "root"), ("--recording", monitor),
                ("--recording", 999),
            ):  # fmt: skip
                done = running.hpcd("top", *words, user=NOBODY)
                assert done.returncode not in (0, 70), (words, done)
                assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr, done
            # The viewer follows what one may see: the only recording that runs, or the one named.
            for words, code in (((), 3), ((monitor,), 3), ((999,), 3)):
                done = running.hpcd("view", "--live", "--no-browser", *words, user=NOBODY)
                assert done.returncode == code and done.stderr.count("\n") == 1, (words, done)
            viewer = subprocess.Popen(
                [*HPCD, "view", "--live", "--no-browser"], stdout=subprocess.PIPE, text=True,
                env={**os.environ, "HPCD_SOCKET": running.socket},
            )  # fmt: skip
            assert viewer.stdout and viewer.stdout.readline().startswith("http://127.0.0.1:")
            viewer.send_signal(signal.SIGINT)
            viewer.communicate()
        finally:
            theirs.kill()
            mine.kill()
    assert running.end() == 0


@pytest.mark.parametrize("verb", [["top", "-w", "600", "--json"], ["attach"]])
def test_a_recording_ends_with_the_connection_it_is_held_by(
    service: Start, sleeper: Sleeper, verb: list[str]
) -> None:
    """A top or an attach that is killed leaves nothing running."""
    running = service()
    pid = sleeper(NOBODY)
    asking = subprocess.Popen(
        [*HPCD, *verb, "-p", str(pid)],
        stdout=subprocess.DEVNULL, cwd=ROOT, env={**os.environ, "HPCD_SOCKET": running.socket},
        user=NOBODY, group=NOBODY, extra_groups=[],
    )  # fmt: skip
    running.wait_for_log("attached")
    running.wait_for_state(1, "attached", "recording")
    asking.kill()
    asking.wait()
    state = ""
    while state not in ("ended", "failed"):
        state = running.json("status", 1)["recordings"][0]["state"]
    assert state == "ended"
    assert running.end() == 0


def test_a_module_that_is_not_decoded_is_said(service: Start, tmp_path: Path) -> None:
    """In the summary and the journal, and the rest of the recording is what it would be."""
    running = service()
    crooked = tmp_path / "crooked\n<3>line"
    crooked.write_bytes(b"\x7fELF" + bytes(8192))
    script = (
        "import mmap, sys; file = open(sys.argv[1], 'rb');"
        " kept = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_EXEC);"
        " print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        ["/usr/bin/python3", "-c", script, str(crooked)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as target:  # fmt: skip
        assert target.stdout and target.stdin
        target.stdout.readline()
        number = running.json("attach", "--background", "-p", target.pid)["id"]
        summary = running.json("detach", number)
        target.stdin.close()
    failures = summary["unwind"]["failures"]
    assert len(failures) == 1 and next(iter(failures)).startswith(str(crooked)[:20])
    assert running.end() == 0
    (line,) = [line for line in running.log if line[3:].startswith("not decoded")]
    assert str(crooked)[:20] in line


def test_reload_keeps_what_runs_and_refuses_what_is_wrong(service: Start, sleeper: Sleeper) -> None:
    running = service()
    number = running.json("attach", "--pid", sleeper(), "--background")["id"]
    configuration = running.folder / "hpcd.toml"
    good = configuration.read_text()
    configuration.write_text(good + "recordngs = 1\n")
    running.process.send_signal(signal.SIGHUP)
    assert "did you mean control.recordings" in running.wait_for_log("configuration kept")
    configuration.write_text(good + "recordings = 0\n")
    running.process.send_signal(signal.SIGHUP)
    running.wait_for_log("reloaded")
    assert "0 recordings" in running.hpcd("attach", "--comm", "x", "-d", 1, user=NOBODY).stderr
    assert running.json("detach", number)["threads"] == 1


def test_a_full_disk_pauses_and_goes_on(service: Start, sleeper: Sleeper, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], check=True)
    try:
        running = service(metrics='listen = "127.0.0.1:19923"\n', store=disk)
        configuration = running.folder / "hpcd.toml"
        configuration.write_text(configuration.read_text().replace('free = "1K"', 'free = "2M"'))
        running.process.send_signal(signal.SIGHUP)
        running.wait_for_log("reloaded")
        number = running.json("attach", "--pid", sleeper(), "--background")["id"]
        filler = disk / "filler"
        filler.write_bytes(bytes(3 << 20))
        running.wait_for_log("paused")
        running.wait_for_state(number, "ended")
        token = (running.folder / "metrics.token").read_text().strip()
        request = urllib.request.Request(
            "http://127.0.0.1:19923/metrics", headers={"Authorization": f"Bearer {token}"}
        )
        with urllib.request.urlopen(request) as answer:
            assert "hpcd_pauses_total 1.0" in answer.read().decode()
        filler.unlink()
        running.wait_for_log("resumed")
        assert running.end() == 0
        (kept,) = (disk / "0").iterdir()
        assert check_measurement(kept) == []
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_service_that_is_killed_loses_no_measurement(service: Start, sleeper: Sleeper) -> None:
    running = service()
    begun = running.json("attach", "--pid", sleeper(), "--background")
    running.process.kill()
    running.process.wait()
    path = Path(begun["measurement"])
    # The recorder ends as soon as nobody listens; its lock on the segment goes with it.
    with open_measurement(path) as measurement:
        while measurement.being_written:
            measurement.refresh()
    assert not [finding for finding in check_measurement(path) if finding.fatal]


def test_without_a_service_there_is_a_clear_error(tmp_path: Path) -> None:
    done = hpcd("status", "--socket", tmp_path / "none", check=False)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "no hpcd service answers" in done.stderr


def test_events_of_the_service_as_json(tmp_path: Path) -> None:
    configuration = tmp_path / "hpcd.toml"
    control = str(tmp_path / "control.sock")
    configuration.write_text(
        f'[store]\ndirectory = "{tmp_path / "store"}"\n[control]\nsocket = "{control}"\n'
    )
    command = [*HPCD, "daemon", "--json", "--config", str(configuration)]
    printed = subprocess.run([*command, "--print-config"], capture_output=True, check=True).stdout
    assert json.loads(printed)["control"]["socket"] == control
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as daemon:
        assert daemon.stdout
        ready = json.loads(daemon.stdout.readline())
        daemon.terminate()
        events = [ready, *map(json.loads, daemon.stdout)]
    assert ready["socket"] == control and daemon.returncode == 0
    assert [event["event"] for event in events] == ["ready", "stopped"]


def test_without_capabilities_the_missing_ones_are_said(tmp_path: Path) -> None:
    command = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all", *HPCD, "daemon"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 4
    assert done.stderr.startswith(
        "hpcd: the service may not load BPF programs (without CAP_PERFMON, CAP_BPF): give"
    )
