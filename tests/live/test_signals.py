"""Ctrl-C, hang-ups and ignored signals: a recording ends as asked, and nothing recorded is lost."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.recorded import HPCD
from tests.support.signals import IGNORING, ignored_signals
from tests.support.waiting import Recorder

pytestmark = pytest.mark.root

BOTH = {signal.SIGINT, signal.SIGHUP}


@pytest.fixture
def spinning(build: Callable[..., Path]) -> Iterator[int]:
    """The pid of a program that uses CPU time until the test ends."""
    with subprocess.Popen([build("paths.c"), "600"]) as process:
        yield process.pid
        process.kill()


def test_a_recording_that_nohup_started_outlives_the_terminal(
    tmp_path: Path, spinning: int
) -> None:
    recorder = Recorder(tmp_path / "m", "-p", spinning, command=[*IGNORING, *HPCD])
    assert ignored_signals(recorder.pid) == BOTH
    for number in BOTH:
        recorder.send(number)
    recorder.send(signal.SIGTERM)
    assert recorder.wait()["seen"]["processes"] == 1


def test_a_followed_process_is_read_on_where_ctrl_c_is_ignored(spinning: int) -> None:
    command = [*IGNORING, *HPCD, "stacks", "--json", "--watch", "0.1", "-p", str(spinning)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline().startswith("{")
        assert ignored_signals(process.pid) == BOTH
        process.terminate()
    assert process.returncode == 0


def test_top_ends_its_recorder_where_ctrl_c_is_ignored(tmp_path: Path, spinning: int) -> None:
    top = subprocess.Popen(
        [*IGNORING, *HPCD, "top", "-w", "600", "-p", str(spinning)],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
    )
    while not list(tmp_path.glob("hpcd-top-*/measurement/segment-000000.hpcd")):
        assert top.poll() is None
    assert ignored_signals(top.pid) == BOTH
    top.terminate()
    assert top.wait() == 0
    assert not list(tmp_path.glob("hpcd-top-*"))


def test_an_exit_code_is_kept_where_nobody_reads_messages(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [*HPCD, "run", "-o", str(tmp_path / "m"), "--", "sh", "-c", "exit 3"]
    done = subprocess.run(command, stderr=writer)
    os.close(writer)
    assert done.returncode == 3
