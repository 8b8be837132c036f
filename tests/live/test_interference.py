"""Recordings name the interferers of threads that waited for a CPU, for all of that time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hpcd.analysis.database import Database
from hpcd.analysis.profile.interferers import InterfererKind
from tests.support.limited_group import MOVES, limited
from tests.support.recorded import hpcd, record

pytestmark = pytest.mark.root

_WORKS = "import time\nwhile time.process_time() < 0.5: pass"
# Beside them other programs of the same group get a hundredth of a CPU.
_URGENT = -20


def _cpu() -> int:
    return max(os.sched_getaffinity(0))


@contextmanager
def _hog(cpu: int) -> Iterator[int]:
    """A process that wants all of a CPU; its pid."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            os.sched_setaffinity(process.pid, {cpu})
            os.setpriority(os.PRIO_PROCESS, process.pid, _URGENT)
            yield process.pid
        finally:
            process.kill()


def _on_cpu(cpu: int, *command: object) -> list[object]:
    return ["nice", "-n", str(_URGENT), "taskset", "-c", str(cpu), *command]


def _interferers(
    folder: Path, command: list[object], *filters: str
) -> dict[tuple[str, str], float]:
    """Record a command: seconds by kind and name of who ran while it waited for a CPU, which are
    those that it waited."""
    record(folder / "m", command)
    hpcd("merge", folder / "m", "-o", folder / "db")
    given = [word for text in filters for word in ("--filter", text)]
    by: dict[str, Any] = json.loads(
        hpcd("report", folder / "db", "--by", "interferer", "--json", *given).stdout
    )
    seconds = {
        (group["kind"], group["interferer"]): group["cost"]["runnable_time"]
        for group in by["groups"]
    }
    threads = json.loads(hpcd("report", folder / "db", "--by", "thread", "--json", *given).stdout)
    waited = sum(group["cost"]["runnable_time"] for group in threads["groups"])
    assert sum(seconds.values()) == pytest.approx(waited, abs=1e-6)
    return seconds


def test_a_process_on_the_same_cpu_is_named(tmp_path: Path) -> None:
    cpu = _cpu()
    with _hog(cpu) as pid:
        seconds = _interferers(tmp_path, _on_cpu(cpu, sys.executable, "-c", _WORKS))
        used = int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    named = sum(
        ran for (kind, name), ran in seconds.items()
        if kind == InterfererKind.PROCESS and name.endswith(f" {pid}")
    )  # fmt: skip
    assert 0.25 < named <= used


def test_threads_of_one_process_wait_for_each_other(
    tmp_path: Path, build: Callable[..., Path]
) -> None:
    cpu = _cpu()
    seconds = _interferers(tmp_path, _on_cpu(cpu, build("threads.c"), 1))
    # Of four threads on one CPU three wait.
    assert seconds[InterfererKind.OWN, ""] > 0.25
    with Database(tmp_path / "db") as db:
        (measurement,) = db.measurements
    (bound,) = measurement.summary.bound
    assert bound.cpus == (cpu,) and len(bound.lines) > 4
    assert [one.number for one in measurement.summary.cpus] == [*range(os.cpu_count() or 0)]
    report = hpcd("report", "--by", "interferer", tmp_path / "db").stdout
    assert f" bound to CPU {cpu}" in report


def test_a_thread_that_binds_itself_is_seen_to_be_bound(tmp_path: Path) -> None:
    cpu = _cpu()
    binds = f"import os, time\nos.sched_setaffinity(0, {{{cpu}}})\n{_WORKS}\ntime.sleep(2)"
    summary = record(tmp_path / "m", [sys.executable, "-c", binds])
    assert [row["cpus"] for row in summary["bound"]] == [[cpu]]


def test_processes_that_are_recorded_wait_for_each_other(tmp_path: Path) -> None:
    both = '"$0" -c "$1" & "$0" -c "$1"; wait'
    seconds = _interferers(tmp_path, _on_cpu(_cpu(), "sh", "-c", both, sys.executable, _WORKS))
    # Each has run for half a second, most of it while the other one wanted to.
    recorded = sum(ran for (kind, _), ran in seconds.items() if kind == InterfererKind.RECORDED)
    assert 0.5 < recorded < 1.5


def test_a_limit_is_what_threads_wait_for(tmp_path: Path) -> None:
    with limited("hpcd-interference") as group:
        command: list[object] = ["sh", "-c", MOVES, group, sys.executable, _WORKS]
        seconds = _interferers(tmp_path, ["nice", "-n", str(_URGENT), *command])
    assert seconds[InterfererKind.LIMIT, ""] >= 0.8 * sum(seconds.values())


def test_without_wakers_waits_are_recorded_alone(
    tmp_path: Path, build: Callable[..., Path]
) -> None:
    command = _on_cpu(_cpu(), build("threads.c"), 0.3)
    summary = record(tmp_path / "m", command, "--no-wakers")
    assert summary["time"]["runnable"] > 0.1
    hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    with Database(tmp_path / "db") as db:
        assert not len(db.waits)
        assert not len(db.interference)


def test_a_filter_leaves_what_fits(tmp_path: Path) -> None:
    cpu = _cpu()
    with _hog(cpu):
        _interferers(
            tmp_path, _on_cpu(cpu, sys.executable, "-c", _WORKS), "procedure=main", "time=0.2-0.5"
        )
