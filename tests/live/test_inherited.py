"""A command that hpcd starts inherits the same as without hpcd."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.recorded import HPCD

pytestmark = pytest.mark.root

# Callers that give a command something other than the usual; each executes its arguments.
CALLERS = {
    "usual": ["env"],
    "ignored signals": ["env", "--ignore-signal=INT,TERM,HUP,QUIT,USR1,TSTP,CHLD"],
    "a shell's ignored signals": ["bash", "-c", 'trap "" PIPE XFSZ; "$@"; exit $?', "-"],
    "blocked signals": ["env", "--block-signal=INT,TERM,USR1,PIPE"],
    "limits": ["bash", "-c", 'ulimit -Sn 256; ulimit -Ss 4096; ulimit -Sc 0; exec "$@"', "-"],
    "priority": ["nice", "-n", "5", "chrt", "-b", "0", "taskset", "-c", "0"],
    "descriptors": ["bash", "-c", 'exec 0<&- 7</dev/null; exec "$@"', "-"],
    "no environment": ["env", "-i"],
    "C locale": ["env", "-i", "LANG=C", "EMPTY="],
    "mask and folder": ["bash", "-c", 'umask 077; cd /usr; exec "$@"', "-"],
    "out of memory": ["choom", "-n", "300", "--"],
    "personality": ["setarch", "-R"],
}


def run(output: Path) -> list[str]:
    """The command that records another into ``output``."""
    return [*HPCD, "-v", "run", "-o", str(output), "--"]


def inherited(program: Path, caller: str, recorder: list[str]) -> list[str]:
    """Return what ``program`` inherits from ``caller``, a line each; ``recorder`` starts it."""
    done = subprocess.run(
        [*CALLERS[caller], *recorder, program], stdout=subprocess.PIPE, text=True, check=True
    )
    # Shells name the command there that they start, which is hpcd.
    return [line for line in done.stdout.splitlines() if not line.startswith("environment _=")]


@pytest.mark.parametrize("caller", CALLERS)
def test_a_recorded_command_inherits_what_it_does_without_hpcd(
    caller: str, tmp_path: Path, build: Callable[..., Path]
) -> None:
    program = build("inherited.c")
    assert inherited(program, caller, run(tmp_path / "m")) == inherited(program, caller, [])


def test_sudo_passes_on_what_a_shell_ignores(tmp_path: Path) -> None:
    """A shell of that name starts its arguments as sudo does."""
    sudo = tmp_path / "sudo"
    shutil.copy("/bin/dash", sudo)

    def ignored(*recorder: str) -> int:
        started = ["-c", '"$@"; exit $?', "-", *recorder, "grep", "SigIgn", "/proc/self/status"]
        command = ["bash", "-c", 'trap "" PIPE; "$@"; exit $?', "-", str(sudo), *started]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        return int(done.stdout.split()[1], 16)

    assert ignored(*run(tmp_path / "m")) == ignored()
    assert ignored() & 1 << (signal.SIGPIPE - 1)


def test_a_profiled_command_inherits_what_it_does_without_hpcd(
    tmp_path: Path, build: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCD_RESULTS", str(tmp_path))
    program = build("inherited.c")
    assert inherited(program, "usual", [*HPCD, "profile", "--"]) == inherited(program, "usual", [])


def test_a_pipeline_ends_where_its_reader_does(tmp_path: Path) -> None:
    done = subprocess.run(
        [*run(tmp_path / "m"), "bash", "-c", "yes | head -1; echo ${PIPESTATUS[0]}"],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "y\n141\n")


def test_a_command_is_found_on_the_callers_path(tmp_path: Path) -> None:
    program = tmp_path / "found"
    program.write_text("#!/bin/sh\necho from the path\n")
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        [*run(tmp_path / "m"), "found"], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert (done.returncode, done.stdout) == (0, "from the path\n")
