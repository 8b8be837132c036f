"""From a command or running processes to a report in one step; results kept by name."""

from __future__ import annotations

import json
import os
import pwd
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.paths import let_all_users_reach
from tests.support.recorded import HPCD

pytestmark = pytest.mark.root


def hpcd_in(folder: Path, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command with its results in ``folder``."""
    environment = {**os.environ, "HPCD_RESULTS": str(folder), **variables}
    return subprocess.run(
        [*HPCD, *map(str, arguments)], env=environment, capture_output=True, text=True
    )


def test_a_command_to_a_report(tmp_path: Path, build: Callable[..., Path]) -> None:
    program = build("hot.cpp")
    done = hpcd_in(tmp_path, "profile", "--name", "first", "--", program)
    assert done.returncode == 0, done.stderr
    # Standard output is the program's own.
    assert "cpu_time, top-down" in done.stderr and "main" in done.stderr
    assert "kept as first" in done.stderr
    assert done.stdout == subprocess.run([program], capture_output=True, text=True).stdout
    again = hpcd_in(tmp_path, "profile", "--name", "first", "--", program)
    assert (again.returncode, "there is a result first" in again.stderr) == (6, True)

    # The command's exit code is the verb's; the summary goes where it is asked for.
    summary = tmp_path / "summary.json"
    done = hpcd_in(
        tmp_path, "profile", "--json-file", summary, "--name", "second", "--", "sh", "-c",
        "echo its own output; exit 3",
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "its own output\n")
    assert "hpcd: sh ended with exit code 3\n" in done.stderr
    assert json.loads(summary.read_text())["database"] == str(tmp_path / "second")
    # A report that has a file of its own is written, too.
    hpcd_in(
        tmp_path, "profile", "--json-file", summary, "-o", tmp_path / "text", "--name", "third",
        "--", "true",
    )  # fmt: skip
    assert "kept as third" in (tmp_path / "text").read_text()
    assert json.loads(summary.read_text())["database"] == str(tmp_path / "third")
    hpcd_in(tmp_path, "results", "--delete", "third")

    listed = json.loads(hpcd_in(tmp_path, "results", "--json").stdout)["results"]
    assert [result["name"] for result in listed] == ["second", "first"]
    assert all(result["damage"] is None and result["bytes"] > 0 for result in listed)
    # The latest by default, each by its name.
    tables = [
        json.loads(hpcd_in(tmp_path, "report", *name, "--json").stdout)
        for name in ([], ["second"], ["first"])
    ]
    assert [table["database"] for table in tables] == [
        str(tmp_path / name) for name in ("second", "second", "first")
    ]
    assert "deleted 1 result" in hpcd_in(tmp_path, "results", "--keep", "1").stdout
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["second"]


def test_what_was_asked_for_and_not_recorded_is_said(tmp_path: Path) -> None:
    report = tmp_path / "report"
    done = hpcd_in(
        tmp_path / "results", "profile", "--probe", "libc:mallok", "-o", report, "--",
        "sh", "-c", "kill -SEGV $$",
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (128 + signal.SIGSEGV, "")
    assert "hpcd: sh was ended by SIGSEGV\n" in done.stderr
    text = report.read_text()
    assert "cpu_time, top-down" in text and "kept as sh-" in text
    assert "has no function mallok; did you mean malloc" in text


def test_a_program_that_hangs(tmp_path: Path, build: Callable[..., Path]) -> None:
    program = build("asleep.c", "-pthread")
    # Long enough that waits for a CPU at the begin are a small part, on a busy machine too.
    command = [*HPCD, "profile", "-d", "3", "--", program, "deadlock", "3"]
    environment = {**os.environ, "HPCD_RESULTS": str(tmp_path)}
    with subprocess.Popen(
        command,
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr
        line = next(line for line in process.stderr if "goes on" in line)
        shown = re.search(r"hpcd stacks --pid (\d+) shows", line)
        assert shown
        os.kill(int(shown[1]), signal.SIGKILL)
        rest = process.stderr.read()
    assert "was ended by SIGKILL" in rest
    assert "if that hangs, hpcd stacks --pid PID shows" in rest


def test_many_processes_are_one_screen_led_by_what_they_work_on(tmp_path: Path) -> None:
    """Processes of one program are told apart by the words that they do not share."""
    work = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"
    start = " ".join(f"dash -e -u -c '{work}; exit 0' -q file{number}.c &" for number in range(12))
    done = hpcd_in(tmp_path, "profile", "--", "dash", "-c", f"{start} wait", COLUMNS="80")
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    processes = lines[next(at for at, line in enumerate(lines) if line.endswith(" process")) :]
    assert len(lines) < 60
    assert sum("dash … file" in line for line in processes[1:9]) >= 7
    assert all(len(line) <= 80 for line in processes if line[:1] == " ")


@pytest.mark.parametrize("folder", ["/proc/none", "/sys/none"])
def test_a_folder_that_cannot_be_written_is_told_before_anything_runs(folder: str) -> None:
    done = hpcd_in(Path(folder), "profile", "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (6, "")
    assert done.stderr == (
        f"hpcd: {folder}: results cannot be written there; HPCD_RESULTS names another folder\n"
    )


def test_a_running_process(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        done = hpcd_in(tmp_path, "profile", "--pid", process.pid, "-d", "0.5")
        process.kill()
    assert done.returncode == 0, done.stderr
    (name,) = [path.name for path in tmp_path.iterdir()]
    assert name.startswith("python") and f"kept as {name}" in done.stdout


@pytest.fixture
def somebody(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """A user other than root: number and home directory."""
    name = f"hpcd-sudo-{os.getpid()}"
    home = tmp_path / "home"
    let_all_users_reach(tmp_path)
    subprocess.run(["useradd", "-m", "-d", str(home), name], check=True, capture_output=True)
    try:
        yield pwd.getpwnam(name).pw_uid, home
    finally:
        subprocess.run(["userdel", name], check=True, capture_output=True)


def test_under_sudo_the_result_is_the_users(somebody: tuple[int, Path], tmp_path: Path) -> None:
    uid, home = somebody
    done = hpcd_in(tmp_path / "roots", "profile", "--name", "mine", "--", "true", SUDO_UID=str(uid))
    assert done.returncode == 0, done.stderr
    database = home / ".local/share/hpcd/results/mine"
    owners = {path.stat().st_uid for path in (database, *database.rglob("*"))}
    assert owners == {uid}
    assert not (tmp_path / "roots").exists()


def test_where_nothing_matches(tmp_path: Path) -> None:
    done = hpcd_in(
        tmp_path, "attach", "--comm", "no-such-program", "-d", "0.2", "-o", tmp_path / "m"
    )
    assert done.returncode == 3
    _, waiting, nothing = done.stderr.splitlines()
    assert waiting == "hpcd: nothing matches yet: waiting for processes to start"
    assert nothing.startswith("hpcd: nothing matched in 0.")
