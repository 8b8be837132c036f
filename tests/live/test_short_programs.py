"""Programs shorter than a sampling period: their CPU time, and where they spent it."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcd.measurement.reader import open_measurement
from tests.support.recorded import call_paths, record
from tests.support.waiting import Recorder, seconds_by_function, started

pytestmark = pytest.mark.root

# Samples come as if at random: their number has the error of counting. One in 15,000 correct
# results lies further from the truth than this many standard errors.
ERRORS = 4.0
# How far a short program's own clock may be from the scheduler's, and a virtual machine's clock,
# which is late when the machine did not run, from both.
NEAR = 0.03


@dataclass(frozen=True)
class Outcome:
    """Seconds by the account of ``short`` itself, and by hpcd's."""

    first: float
    second: float
    kernel: float
    sampled: dict[str, float]
    samples: int
    counted: float
    summary: dict[str, Any]


def run(folder: Path, executable: Path, arguments: list[object], *options: object) -> Outcome:
    """Record ``short`` with these arguments. ``counted`` is of all but its first process."""
    process = started(executable, *arguments)
    recorder = Recorder(folder / "m", "-p", process.pid, *options)
    out, _ = process.communicate()
    summary = recorder.wait()
    functions = seconds_by_function(folder / "m", executable)
    with open_measurement(folder / "m") as measurement:
        lines = measurement.threads.values()
        # Usually line 0; under load a child may be reported before it.
        first_lines = [thread.line for thread in lines if thread.tid == process.pid]
        counted = sum(thread.cpu_ns or 0 for thread in lines if thread.line not in first_lines)
        counted /= 1e9
        short = 0
        for part in measurement.record_chunks():
            line = np.repeat(part.line, np.diff(part.start))
            of_children = ~np.isin(line, first_lines)
            short += int(part.value[(part.event == 0) & of_children].sum())
    sampled = {name: functions[name]["cpu_time"] for name in ("first", "second")}
    sampled["short"] = short * measurement.events[0].scale
    first, second, kernel = map(float, out.split())
    return Outcome(first, second, kernel, sampled, short, counted, summary)


@pytest.mark.parametrize(
    ("kind", "count", "first_us", "second_us", "options"),
    [
        ("fork", 3000, 150, 150, []),
        ("fork", 3000, 200, 400, ["--no-blocked"]),
        ("fork", 600, 4000, 1000, []),
        ("fork", 1500, 1500, 500, ["-F", 99]),
        ("thread", 3000, 300, 300, []),
    ],
)
def test_shares_of_procedures_are_true(
    kind: str,
    count: int,
    first_us: int,
    second_us: int,
    options: list[object],
    tmp_path: Path,
    build: Callable[..., Path],
) -> None:
    executable = build("short.c", "-lpthread")
    outcome = run(tmp_path, executable, [kind, count, first_us, second_us], *options)
    within = outcome.sampled["first"] + outcome.sampled["second"]
    samples = outcome.samples * within / outcome.sampled["short"]
    true = outcome.first / (outcome.first + outcome.second)
    error = (true * (1 - true) / samples) ** 0.5
    assert abs(outcome.sampled["first"] / within - true) <= ERRORS * error + 0.01
    # And neither too much nor too little of either, next to all else that the programs do.
    alone = (outcome.first + outcome.second) / outcome.counted
    error = (alone * (1 - alone) / outcome.samples) ** 0.5
    assert abs(within / outcome.sampled["short"] - alone) <= ERRORS * error + NEAR


@pytest.mark.parametrize("kind", ["fork", "spawn"])
def test_cpu_time_is_the_kernels_count(
    kind: str, tmp_path: Path, build: Callable[..., Path]
) -> None:
    """Programs that end before the scheduler's first tick are counted to the last instruction."""
    executable = build("short.c", "-lpthread")
    outcome = run(tmp_path, executable, [kind, 2000, 100, 100])
    assert outcome.counted == pytest.approx(outcome.kernel, rel=0.01)
    error = outcome.samples**-0.5
    assert outcome.sampled["short"] == pytest.approx(
        outcome.counted, rel=ERRORS * error + NEAR
    )  # fmt: skip
    cpu, samples = outcome.summary["cpu"], outcome.summary["samples"]
    assert cpu["sampled_s"] == pytest.approx(cpu["counted_s"], rel=ERRORS * error + NEAR)
    assert samples["unexplained"] == 0
    assert samples["taken"] == pytest.approx(samples["expected"], rel=ERRORS * error + NEAR)


def test_ending_on_a_busy_cpu_is_no_wait_for_something_else(
    tmp_path: Path, build: Callable[..., Path]
) -> None:
    """Threads that are displaced while they end have been ready, from when they left the CPU."""
    with subprocess.Popen([str(build("deep.c")), "60"]) as neighbour:
        process = started(build("short.c", "-lpthread"), "fork", 200, 500, 500)
        for pid in (neighbour.pid, process.pid):
            os.sched_setaffinity(pid, {min(os.sched_getaffinity(0))})
        recorder = Recorder(tmp_path / "m", "-p", process.pid)
        process.communicate()
        recorder.wait()
        neighbour.kill()
    waited: Counter[str] = Counter()
    with open_measurement(tmp_path / "m") as measurement:
        children = [t.line for t in measurement.threads.values() if t.tid != process.pid]
        for part in measurement.record_chunks():
            mine = np.isin(np.repeat(part.line, np.diff(part.start)), children)
            for number, event in measurement.events.items():
                value = part.value[mine & (part.event == number)]
                waited[event.metric or ""] += float(value.sum()) * event.scale
    assert waited["blocked_time"] < 0.05 * waited["runnable_time"]


def test_of_what_is_no_target_nothing_is_recorded(
    tmp_path: Path, build: Callable[..., Path]
) -> None:
    """The clock fires in all that runs on a CPU; only the target is in the measurement."""
    spinner = build("deep.c")
    with (
        subprocess.Popen([str(spinner), "60"]) as other,
        subprocess.Popen([str(spinner), "60"]) as target,
    ):
        summary = Recorder(tmp_path / "m", "-p", target.pid, "-d", 2).wait()
        for process in (other, target):
            process.kill()
    with open_measurement(tmp_path / "m") as measurement:
        assert {process.pid for process in measurement.processes.values()} == {target.pid}
        assert len(measurement.threads) == 1
    samples = summary["samples"]
    assert samples["recorded"] > 0 and not samples["dropped"]


def test_programs_that_are_gone_at_once_have_names(tmp_path: Path) -> None:
    """/proc shows nothing of them when hpcd comes to look; the kernel has said what they are."""
    record(tmp_path / "m", ["sh", "-c", "for i in $(seq 300); do /bin/true; done"])
    with open_measurement(tmp_path / "m") as measurement:
        processes = list(measurement.processes.values())
    names = Counter(process.name for process in processes)
    assert names["true"] == 300
    assert set(names) == {"sh", "true", "seq"}
    assert {process.uid for process in processes} == {0}


def test_on_a_whole_node_without_waits_programs_have_names_and_paths(
    tmp_path: Path, build: Callable[..., Path]
) -> None:
    """Mappings are read when a program is sampled, and who it is comes with its exec."""
    busy = build("deep.c")
    recorder = Recorder(tmp_path / "m", "--all", "--no-blocked", "-F", 997)
    environment = {**os.environ, "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}
    marks = [f"{tmp_path}{number}\n\x1b[31m" for number in range(60)]
    for mark in marks:  # most are over before the recorder looks at what has begun, some just then
        subprocess.run(["/bin/true", mark], check=True, env=environment)
    subprocess.run([busy, "0.3", "5"], check=True)
    recorder.stop()
    with open_measurement(tmp_path / "m") as measurement:
        processes = list(measurement.processes.values())
    marked = {process.command[1]: process for process in processes if len(process.command) == 2}
    for mark in marks:
        process = marked[mark]
        assert (process.name, Path(process.exe).name) == ("true", "true")
        assert (process.rank, process.size) == (3, 4)
    paths = call_paths(tmp_path / "m", busy)
    within = {path: number for path, number in paths.items() if "down" in path}
    assert sum(within.values()) > 100
    assert all("main" in path for path in within)
