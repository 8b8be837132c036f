"""Firefox Profiler's own code, which Mozilla publishes on npm as a command: what it makes of an
export."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hpcd.analysis
from hpcd.__main__ import main
from hpcd.analysis.database import Database
from tests.support.made import make
from tests.support.waiting_threads import threads_that_wait

VERSION = "0.10.0"


class Profiler:
    """Its session with a profile loaded."""

    def __init__(self, script: Path, folder: Path) -> None:
        self._script = script
        self._log = folder / "test.log"
        self._environment = {**os.environ, "PROFILER_CLI_SESSION_DIR": str(folder)}

    def load(self, profile: Path) -> subprocess.Popen[bytes]:
        """Return the process that serves the profile, once it answers."""
        server = subprocess.Popen(
            ["node", str(self._script), "--daemon", str(profile), "--session", "test"],
            env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        # Not by its status: who asks too early removes the session as one that ended.
        while not (self._log.exists() and "Profile loaded" in self._log.read_text()):
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(timeout=0.1)
                raise AssertionError(server.communicate()[1].decode())
        return server

    def ask(self, *words: str) -> dict[str, Any]:
        """The answer to a question."""
        done = self._run(*words, "--json")
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["node", str(self._script), *words, "--session", "test"],
            env=self._environment, capture_output=True, text=True, check=False,
        )  # fmt: skip


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Database:
    """Two ranks that compute and wait."""
    ranks = {
        0: [("main/solve/dot", "cpu", 0.3), ("main/MPI_Wait/k_sched", "blocked", 0.1),
            ("main/solve", "cpu", 0.05)],
        1: [("main/solve/dot", "cpu", 0.1), ("main/größe/dot", "cpu", 0.05),
            ("main/MPI_Wait/k_sched", "blocked", 0.3)],
    }  # fmt: skip
    return hpcd.analysis.open(make(tmp_path_factory.mktemp("db") / "db", ranks, weight=2))


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The profiler's program."""
    folder = tmp_path_factory.mktemp("profiler")
    subprocess.run(
        ["npm", "pack", "--silent", f"@firefox-devtools/profiler-cli@{VERSION}"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    (archive,) = folder.glob("*.tgz")
    subprocess.run(["tar", "-xzf", archive.name], cwd=folder, check=True)
    return folder / "package/dist/profiler-cli.js"


@contextlib.contextmanager
def session(script: Path, database: Path, folder: Path) -> Iterator[Profiler]:
    """A session with the export of a database loaded."""
    exported = folder / "run.firefox.json"
    assert main(["export", str(database), "--format", "firefox", "-o", str(exported)]) == 0
    loaded = Profiler(script, folder / "sessions")
    server = loaded.load(exported)
    yield loaded
    server.terminate()
    server.wait()


@pytest.fixture(scope="module")
def profiler(
    script: Path, db: Database, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Profiler]:
    with session(script, db.path, tmp_path_factory.mktemp("session")) as loaded:
        yield loaded


def test_functions_of_every_thread_have_their_costs(profiler: Profiler, db: Database) -> None:
    shown: set[str] = set()
    for number in range(len(db.lines)):
        thread = f"t-{number}"
        answer = profiler.ask("thread", "functions", "--thread", thread, "--include-idle")
        name = answer["friendlyThreadName"]
        shown.add(name)
        (line,) = (n for n, label in enumerate(db.lines.label) if label == name)
        own: Counter[str] = Counter()
        for metric in ("cpu_time", "blocked_time"):
            for node, cost in zip(*db.metrics.by_line(metric, line), strict=True):
                procedure = db.procedure_names[db.procedure_of_node[node]]
                own[procedure if metric == "cpu_time" else f"[{metric}]"] += 1e3 * float(cost)
        activity = profiler.ask("thread", "info", "--thread", thread)["cpuActivity"]
        cpu_ms = sum(one["cpuMs"] for one in activity if one["depthLevel"] == 0)
        # The first sample ends no period of time.
        assert cpu_ms == pytest.approx(
            1e3 * float(db.metrics.by_line("cpu_time", line)[1].sum()), abs=3
        )
        costs = {one["name"]: one["selfSamples"] for one in answer["functions"]}
        assert {name: cost for name, cost in costs.items() if cost} == pytest.approx(+own)
        whole = sum(own.values())
        totals = {one["name"]: one["totalSamples"] for one in answer["functions"]}
        assert totals["main"] == pytest.approx(whole)
    assert shown == set(db.lines.label)


def test_its_sum_is_that_of_the_report(profiler: Profiler, db: Database) -> None:
    sums: Counter[str] = Counter()
    for number in range(len(db.lines)):
        thread = profiler.ask("thread", "functions", "--thread", f"t-{number}", "--include-idle")
        for one in thread["functions"]:
            metric = "blocked_time" if one["name"] == "[blocked_time]" else "cpu_time"
            sums[metric] += one["selfSamples"] / 1e3
    for metric, total in sums.items():
        assert total == pytest.approx(float(np.sum(db.metrics.exclusive(metric))))


def test_waits_are_markers_with_the_stack_of_the_waker(script: Path, tmp_path: Path) -> None:
    with session(script, threads_that_wait(tmp_path), tmp_path) as profiler:
        (markers,) = profiler.ask("thread", "markers", "--thread", "t-0")["byType"]
        (marker,) = markers["topMarkers"]
        assert (markers["markerName"], marker["start"], marker["duration"]) == ("wait", 20, 60)
        assert marker["label"] == "ended by app 100 · holder 101"
        shown = profiler.ask("marker", "info", marker["handle"])
        assert [frame["name"] for frame in shown["stack"]["frames"]] == ["unlock", "main"]
