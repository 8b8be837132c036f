"""The live view of real programs."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import termios
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.support.recorded import HPCD, hpcd
from tests.support.waiting import Recorder, started

pytestmark = pytest.mark.root


def test_a_window_of_a_running_program(tmp_path: Path, build: Callable[..., Path]) -> None:
    """Computing and waiting are found by name, and hpcd's own cost is shown."""
    process = started(build("waits.c"), 1000, 25, tmp_path / "file")
    try:
        assert process.stdin
        process.stdin.close()
        now = json.loads(hpcd("top", "--json", "-w", 2, "-p", process.pid).stdout)
        text = hpcd("top", "-w", 1, "-p", process.pid).stdout
    finally:
        process.kill()
        process.wait()
    # The window ends with what has been written by then, which is less where the recorder waits.
    assert 0 < now["seconds"] <= 2
    hottest, waits = (
        {name for path in now[kind][:8] for name in path["path"]} for kind in ("hottest", "waits")
    )
    assert "in_compute" in hottest
    assert {"in_sleep", "hold_mutex", "write_pipe"} <= waits
    (busy,) = now["busiest"]
    assert (busy["pid"], busy["threads"]) == (process.pid, 3)
    # Three threads, each somewhere at any moment.
    lived = busy["cpu_s"] + busy["blocked_s"] + busy["runnable_s"]
    assert lived == pytest.approx(3 * now["seconds"], rel=0.15)
    assert now["overhead_cpu"] > 0
    assert now["overhead_bpf"] > 0
    assert "in_compute < main" in text
    assert "hpcd overhead" in text


def test_what_calls_of_a_running_program_did(tmp_path: Path, build: Callable[..., Path]) -> None:
    """Its file by bytes and calls, a probed function by calls and duration."""
    program = build("waits.c")
    process = started(program, 1000, 5, tmp_path / "file")
    try:
        assert process.stdin
        process.stdin.close()
        probe = f"{program.name}:in_sleep"
        options = ["--io", "--probe", probe, "-w", 2, "-p", process.pid]
        now = json.loads(hpcd("top", "--json", *options).stdout)["calls"]
    finally:
        process.kill()
        process.wait()
    files = {use["name"]: use for use in now["files"]}
    read = files[str(tmp_path / "file")]
    assert read["read"] == 65536 * read["calls"] > 0
    assert (read["written"], read["errors"]) == (0, 0)
    (probed,) = now["functions"]
    assert probed["name"] == "in_sleep"
    assert 1 <= probed["calls"] <= now["seconds"] / 0.005 + 1
    assert 0.005 <= probed["mean_s"] <= now["seconds"]
    assert now["ranks"] == []


def test_following_a_measurement(tmp_path: Path, build: Callable[..., Path]) -> None:
    """While it is written and afterwards; nothing of it is changed."""
    process = started(build("waits.c"), 20, 25, tmp_path / "file")
    recorder = Recorder(tmp_path / "m", "-p", process.pid)
    process.communicate()
    summary = recorder.wait()
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "m").iterdir()}
    now = json.loads(hpcd("top", "--json", "-w", 60, tmp_path / "m").stdout)
    assert before == {path.name: path.stat().st_mtime_ns for path in (tmp_path / "m").iterdir()}
    assert now["cpu_s"] > 0.4
    # A thread may still be sampled when it has reported its end: that is counted, and shown.
    dropped = summary["samples"]["dropped"]
    assert set(dropped) <= {"thread exiting"}
    assert now["dropped"] == sum(dropped.values())


def test_the_screen_ends_with_its_targets(tmp_path: Path, build: Callable[..., Path]) -> None:
    """On a terminal it redraws until nothing is left to show."""
    process = started(build("waits.c"), 15, 25, tmp_path / "file")
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    environment = {**os.environ, "TERM": "xterm", "TMPDIR": str(tmp_path)}
    top = subprocess.Popen(
        [*HPCD, "top", "-p", str(process.pid)], stdin=theirs, stdout=theirs, env=environment
    )
    os.close(theirs)
    assert process.stdin
    shown = b""
    while chunk := _read(ours):
        # The first screen is drawn when the recorder has attached.
        if not shown:
            process.stdin.close()
        shown += chunk
    assert top.wait() == 0
    process.wait()
    assert b"in_compute" in shown
    assert not list(tmp_path.glob("hpcd-top-*"))


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # EIO: the other side is closed
        return b""


def test_a_killed_top_ends_its_recorder(tmp_path: Path, build: Callable[..., Path]) -> None:
    process = started(build("waits.c"), 1000, 25, tmp_path / "file")
    ours, theirs = pty.openpty()
    try:
        top = subprocess.Popen(
            [*HPCD, "top", "--socket", str(tmp_path / "none"), "-p", str(process.pid)],
            stdin=theirs, stdout=theirs, env={**os.environ, "TMPDIR": str(tmp_path)},
        )  # fmt: skip
        os.close(theirs)
        # The first screen is drawn when the recorder has attached.
        assert _read(ours)
        (recorder,) = psutil.Process(top.pid).children()
        top.kill()
        top.wait()
        _, left = psutil.wait_procs([recorder], timeout=20)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert not left


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path, build: Callable[..., Path]) -> None:
    process = started(build("waits.c"), 1000, 25, tmp_path / "file")
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    try:
        top = subprocess.Popen(
            [*HPCD, "top", "-w", "600", "-p", str(process.pid)],
            env=environment, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        # By its name: what is asked for first is a recording of the service's, whose folder goes.
        first = "measurement/segment-000000.hpcd"
        while not any((path / first).exists() for path in tmp_path.glob("hpcd-top-*")):
            assert top.poll() is None
        top.send_signal(signal.SIGINT)
        top.communicate()
        assert top.returncode == 0
    finally:
        process.kill()
        process.wait()
    assert not list(tmp_path.glob("hpcd-top-*"))


def test_errors_are_the_recorders_own(tmp_path: Path) -> None:
    done = hpcd("top", "--pid", 2**22 + 1, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert "no process" in done.stderr
    assert hpcd("top", check=False).returncode == 2
    assert hpcd("top", tmp_path / "none", check=False).returncode == 8
    assert hpcd("top", tmp_path, "--all", check=False).returncode == 2
