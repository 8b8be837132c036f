"""A command that was recorded before begins before the recorder is imported, and loses nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcd.daemon.unwind.kept_tables import KnownCommands
from hpcd.measurement.reader import open_measurement
from tests.support.interpreters import interpreters
from tests.support.paths import ROOT
from tests.support.python_pairs import count_pairs
from tests.support.recorded import call_paths

pytestmark = pytest.mark.root

DIVISION = ROOT / "tests/programs/python_division.py"
# Those that are executed themselves, not by a loader. What 3.9 has is good for one recording.
PYTHONS = {
    version: command[0]
    for version, command in interpreters().items()
    if len(command) == 1 and version != "3.9"
}
# The recorder is imported when the command has ended, as if that took long.
LATE_RECORDER = """
import os, sys
from hpcd.daemon.capture.start import sampler_loading
from hpcd.cli.verbs.run import HeldChild
children = []
begin, imports = HeldChild.__init__, sampler_loading.fast_imports
HeldChild.__init__ = lambda self, command: (begin(self, command), children.append(self.pid))[0]
def late():
    os.waitid(os.P_PID, children[0], os.WEXITED | os.WNOWAIT)
    return imports()
sampler_loading.fast_imports = late
from hpcd.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def run(output: Path, *words: object, script: str = "") -> dict[str, Any]:
    """Record a command by ``hpcd run``, or a ``script`` around it; its summary."""
    begin = ["-c", script] if script else ["-m", "hpcd"]
    done = subprocess.run(
        [sys.executable, *begin, "run", "-o", output, "--json", "--", *map(str, words)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
    )  # fmt: skip
    summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return summary


def test_what_runs_before_the_recorder_is_there_is_recorded(
    tmp_path: Path, build: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    executable = build("short.c")
    command = (executable, "fork", 40, 2000, 1000)
    run(tmp_path / "first", *command)
    summary = run(tmp_path / "again", *command, script=LATE_RECORDER)
    samples, unwind = summary["samples"], summary["unwind"]
    assert samples["taken"] == samples["recorded"] > 0 == samples["unexplained"]
    assert unwind["complete"] >= 0.99 * unwind["paths"]
    assert unwind["deferred"]["walked"] > 0.5 * unwind["paths"]
    paths = call_paths(tmp_path / "again", executable)
    assert {"main", "first", "second"} <= {name for path in paths for name in path}


@pytest.mark.parametrize("version", PYTHONS)
def test_an_interpreter_that_is_known_has_python_frames_from_its_exec_on(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it has ended before the recorder is there, which can read no names any more: they
    are sent with the first path."""
    monkeypatch.setenv("HPCD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    command = ("sh", "-c", f"{PYTHONS[version]} {DIVISION} 0.3; :")
    run(tmp_path / "first", *command)
    run(tmp_path / "again", *command, script=LATE_RECORDER)
    counts = count_pairs(tmp_path / "again")
    assert counts.with_python > 0.5 * counts.records > 0
    assert counts.gone == 0


@pytest.mark.parametrize("begun_before", [False, True])
def test_cpu_time_before_its_exec_is_not_the_commands(
    begun_before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    if begun_before:
        run(tmp_path / "first", "true")
    # The held process tries to execute the command in all of these.
    monkeypatch.setenv("PATH", "".join(f"/{n:x}:" for n in range(10_000)) + os.environ["PATH"])
    samples = run(tmp_path / "m", "true")["samples"]
    with open_measurement(tmp_path / "m") as measurement:
        (thread,) = measurement.threads.values()
    assert thread.cpu_before_ns is not None and thread.cpu_ns is not None
    assert thread.cpu_before_ns > 5 * thread.cpu_ns > 0
    assert samples["expected"] == pytest.approx(997 * thread.cpu_ns / 1e9, abs=1)


def test_a_command_begins_early_only_where_its_tables_are_kept(
    tmp_path: Path, build: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setenv("HPCD_CACHE", str(cache))
    executable = build("short.c")
    command = [str(executable), "fork", "1", "1000", "0"]
    assert not KnownCommands().knows(command)
    run(tmp_path / "first", *command)
    assert KnownCommands().knows(command)
    assert not KnownCommands().knows(["env", f"LD_PRELOAD={executable}", *command])
    for table in (cache / "unwind").glob("*.rows"):
        table.unlink()
    assert not KnownCommands().knows(command)
