"""Threads that come to a CPU by a switch at which the kernel calls no program."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing

import numpy as np
import pytest

from hpcd.array_types import U16
from hpcd.bpf.kernel import syscalls
from hpcd.bpf.kernel.maps import possible_cpus
from hpcd.bpf.sampler import Sampler
from hpcd.bpf.sampler_options import SamplerOptions
from hpcd.bpf.sampler_programs import SamplerPrograms
from hpcd.bpf.wire import Sample, SwitchEvent

pytestmark = pytest.mark.root

_WAITS_TWICE = """import os, sys
for _ in range(2):
    sys.stdin.readline()
    print(flush=True)
os.set_blocking(0, False)
while True:
    try:
        os.read(0, 1)
        break
    except BlockingIOError:
        pass
"""


def test_a_thread_that_was_not_seen_to_come_to_its_cpu_came_before_it_leaves() -> None:
    clock = syscalls.PerfEvent(syscalls.PERF_TYPE_SOFTWARE, syscalls.SW_CPU_CLOCK, frequency=1)
    programs = SamplerPrograms([clock], range(possible_cpus()), SamplerOptions())
    command = [sys.executable, "-c", _WAITS_TWICE]
    with (
        closing(Sampler(programs)) as sampler,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process,
    ):
        assert process.stdin and process.stdout
        pid = process.pid
        programs.attach()
        sampler.targets.add_process(pid, None)
        number = sampler.targets.add_thread(pid)
        reports = np.empty(0, Sample.dtype())

        def take() -> U16:
            nonlocal reports
            new = sampler.take_samples()
            reports = np.append(reports, new[new["thread"] == number])
            events: U16 = reports["event"]
            return events

        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        while not (len(take()) and reports["event"][-1] == SwitchEvent.OUT_SLEEPING):
            pass
        asleep = int(reports["time"][-1])
        programs.maps.registered[pid] = 0
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        programs.maps.registered[pid] = 1
        process.stdin.write(b"\n")
        process.stdin.close()
        process.wait()
        programs.stop()
        events = take()
    comes = events == SwitchEvent.SWITCHED_IN
    leaves = (events >= SwitchEvent.OUT_RUNNABLE) & (events <= SwitchEvent.OUT_STOPPED)
    switches = reports[comes | leaves]
    came = switches["event"] == SwitchEvent.SWITCHED_IN
    assert not (came[1:] == came[:-1]).any()
    assert (switches["time"][1:] >= switches["time"][:-1]).all()
    at = np.flatnonzero(switches["time"] == asleep)[0]
    assert came[at + 1] and switches["value"][at + 1] == 0  # nor was it seen to be woken
