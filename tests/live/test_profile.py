"""From a command or running processes to a report in one step; results kept by name."""

from __future__ import annotations

import json
import os
import pwd
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
    assert "cpu_time, top-down" in done.stdout and "main" in done.stdout
    assert "kept as first" in done.stdout
    again = hpcd_in(tmp_path, "profile", "--name", "first", "--", program)
    assert (again.returncode, "there is a result first" in again.stderr) == (6, True)

    # The command's exit code is the verb's; the summary goes where it is asked for.
    summary = tmp_path / "summary.json"
    done = hpcd_in(
        tmp_path, "profile", "--json-file", summary, "--name", "second", "--", "sh", "-c",
        "echo its own output; exit 3",
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "its own output\n")
    assert json.loads(summary.read_text())["database"] == str(tmp_path / "second")

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
