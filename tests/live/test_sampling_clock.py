"""The number of samples is what the targets' time on CPUs makes one expect."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcd.bpf.kernel import syscalls
from tests.support.recorded import record
from tests.support.waiting import Recorder, seconds_by_function

pytestmark = pytest.mark.root
RATE = 997
# Standard errors, and what remains of late interrupts.
ERRORS, NEAR = 4, 0.01


def test_samples_of_many_switches_are_those_of_the_time_on_cpus(
    tmp_path: Path, build: Callable[..., Path]
) -> None:
    """The scheduler counts some microseconds more, or less, of each turn on a CPU."""
    executable = build("pingpong.c")
    summary = record(tmp_path / "m", [executable, 60_000])
    samples, on_cpus = summary["samples"], summary["time"]["cpu"] * RATE
    assert summary["switches"]["recorded"] > 100_000
    assert samples["expected"] == pytest.approx(on_cpus, abs=2)
    chance = ERRORS * samples["expected"] ** 0.5 + NEAR * samples["expected"]
    left_out = samples["late"] + samples["walking"]
    most = max(samples["expected"], summary["cpu"]["counted_s"] * RATE)
    assert samples["expected"] - left_out - chance <= samples["taken"] <= most + chance
    beyond = samples["expected"] - summary["cpu"]["counted_s"] * RATE
    assert samples["uncounted"] in (0, pytest.approx(beyond, abs=2))
    functions = seconds_by_function(tmp_path / "m", executable)
    first, second = (functions[name]["cpu_time"] for name in ("first", "second"))
    # An interrupt comes some microseconds late: where a thread begins it sees less.
    assert 0.5 < first / (first + second) < 0.85


def test_events_that_others_open_leave_no_firing_out(
    tmp_path: Path, build: Callable[..., Path]
) -> None:
    """The kernel stops and starts all events of a CPU then, and they go on at other times."""
    cpu = min(os.sched_getaffinity(0))
    process = subprocess.Popen([build("deep.c"), "2", "5"])
    os.sched_setaffinity(process.pid, {cpu})
    recorder = Recorder(tmp_path / "m", "-p", process.pid)
    event = syscalls.PerfEvent(
        syscalls.PERF_TYPE_SOFTWARE, syscalls.SW_CPU_CLOCK, period=50_000_000
    )
    opened = 0
    while process.poll() is None:
        os.close(syscalls.perf_event_open(event, -1, cpu))
        opened += 1
    summary = recorder.wait()
    assert opened > 100
    stolen = RATE * (summary["machine"]["stolen_s"] + 0.05)
    assert summary["samples"]["late"] <= stolen


def test_samples_of_a_node_with_thousands_of_short_threads_are_as_expected(
    tmp_path: Path, build: Callable[..., Path]
) -> None:
    """Each thread counts for the time that it was seen on CPUs, not for what it had used before."""
    program = build("causes.c", "-fopenmp")
    recorder = Recorder(tmp_path / "m", "--all")
    for _ in range(8):  # 500 threads of a millisecond each
        subprocess.run([program, "brief_threads"], stdout=subprocess.DEVNULL, check=True)
    summary = recorder.stop()
    samples = summary["samples"]
    missing = sum(samples["dropped"].values()) + samples["late"] + samples["walking"]
    chance = ERRORS * samples["expected"] ** 0.5 + NEAR * samples["expected"]
    # Of threads whose announcement was lost, as happens on a busy machine, no time is known.
    if samples["dropped"].keys() <= {"thread exiting"}:
        assert summary["threads"] > 4000
        assert -chance <= samples["expected"] - samples["taken"] <= missing + chance
