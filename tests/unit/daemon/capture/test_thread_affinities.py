"""Tests for the CPUs that threads may run on."""

from __future__ import annotations

import os
import subprocess

import pytest

from hpcd.daemon.capture.threads.thread_affinities import ThreadAffinities
from hpcd.measurement.summary import BoundThreads
from hpcd.model.identity import Thread


def test_a_thread_that_has_ended_was_bound_as_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = min(os.sched_getaffinity(0))
    monkeypatch.setattr(os, "sysconf", lambda name: 1024)
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            affinities = ThreadAffinities()
            os.sched_setaffinity(process.pid, {cpu})
            affinities.begin(Thread(0, 1, process.pid, "sleep", 0))
        finally:
            process.kill()
    for line, of_process in (1, 1), (2, 2):
        affinities.begin(Thread(line, of_process, process.pid, "ended", 0))
    assert affinities.bound() == (BoundThreads((cpu,), (0, 1)),)
    # A thread that is registered ends without a word on its CPUs.
    affinities.read_some({0: Thread(0, 1, process.pid, "sleep", 0)})
    assert affinities.bound() == (BoundThreads((cpu,), (0, 1)),)
