"""The number of samples is what the targets' time on CPUs makes one expect."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcd.bpf.kernel import syscalls
from tests.support.waiting import Recorder

pytestmark = pytest.mark.root
RATE = 997


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
