"""Ctrl-C, hang-ups and ignored signals: a recording ends as asked, and nothing recorded is lost."""

from __future__ import annotations

import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hpcd.analysis
from hpcd.measurement.check import check_measurement
from tests.support.recorded import HPCD
from tests.support.signals import IGNORING, ignored_signals, signalled_until
from tests.support.waiting import Recorder

pytestmark = pytest.mark.root

BOTH = {signal.SIGINT, signal.SIGHUP}

# hpcd run, with a Ctrl-C that its process group gets before it has attached to the command.
INTERRUPTED_EARLY = """
import os, signal, sys
from hpcd.cli.verbs import run
record = run.record
def interrupted(*arguments, **options):
    os.killpg(os.getpgrp(), signal.SIGINT)
    return record(*arguments, **options)
run.record = interrupted
os.setpgid(0, 0)
from hpcd.__main__ import main
sys.exit(main())
"""


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


def profile(name: str, results: Path, spinning: int) -> list[str]:
    """The command that profiles a process, its result being ``name`` in the folder ``results``."""
    return [
        "env", f"HPCD_RESULTS={results}", *HPCD, "profile", "--name", name, "-p", str(spinning)
    ]  # fmt: skip


def trace_lines_of(database: Path) -> int:
    """The number of trace lines of a result."""
    with hpcd.analysis.open(database) as db:
        return len(db.lines)


def test_a_profile_is_kept_when_its_terminal_goes(tmp_path: Path, spinning: int) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        command = profile("kept", tmp_path, spinning)
        os.execvp(command[0], command)
    shown = b""
    while b" samples " not in shown:
        shown += os.read(terminal, 4096)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert trace_lines_of(tmp_path / "kept") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_profile_is_kept_however_often_it_is_told_to_end(
    number: signal.Signals, tmp_path: Path, spinning: int
) -> None:
    with subprocess.Popen(
        profile("kept", tmp_path, spinning),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        messages = signalled_until(process, number, tmp_path / "kept")
    own = [line for line in messages.splitlines() if line.startswith("hpcd: ")]
    assert own == ["hpcd: the recording has ended; its result is kept as kept"]
    assert (process.returncode, "Traceback" in messages) == (0, False)
    assert trace_lines_of(tmp_path / "kept") == 1


def test_what_cannot_be_merged_is_kept_as_it_was_recorded(tmp_path: Path, spinning: int) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", tmp_path], check=True)
    try:
        command = profile("lost", tmp_path, spinning)
        done = subprocess.run([*command, "-d", "0.5"], capture_output=True, text=True)
    finally:
        subprocess.run(["umount", tmp_path], check=True)
    (kept,) = re.findall("hpcd: what was recorded is kept: (.*)\n", done.stderr)
    assert (done.returncode, check_measurement(Path(kept))) == (6, [])
    shutil.rmtree(Path(kept).parent)


def test_a_profile_that_ends_before_it_records_leaves_nothing(
    tmp_path: Path, spinning: int
) -> None:
    """In a mount namespace, where the folder for large temporary files is the test's own."""
    folder, results = tmp_path / "large", tmp_path / "results"
    folder.mkdir()
    enter = ["unshare", "--mount", "sh", "-c", f'mount --bind {folder} /var/tmp && exec "$@"', "-"]
    with subprocess.Popen([*enter, *profile("kept", results, spinning)]) as process:
        while not list(folder.iterdir()):
            assert process.poll() is None
        process.terminate()
    assert not list(folder.iterdir())


def test_ctrl_c_before_a_command_begins_is_silent(tmp_path: Path) -> None:
    """The command waits until its unwind tables are made, as none are kept."""
    (tmp_path / "cache").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_EARLY, "run", "-o", tmp_path / "m", "--", "true"],
        env={**os.environ, "HPCD_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
    assert not (tmp_path / "m").exists()
