"""Sampling ends at once, before the tracepoints are detached."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing

import pytest

from hpcd.bpf.kernel import syscalls
from hpcd.bpf.kernel.maps import possible_cpus
from hpcd.bpf.sampler import Sampler
from hpcd.bpf.sampler_options import SamplerOptions
from hpcd.bpf.sampler_programs import SamplerPrograms

pytestmark = pytest.mark.root
BUSY = [sys.executable, "-c", "import time\nwhile time.process_time() < 0.2: time.sleep(1e-5)"]


def test_no_sample_is_taken_of_stopped_events_and_switches_are() -> None:
    clock = syscalls.PerfEvent(syscalls.PERF_TYPE_SOFTWARE, syscalls.SW_CPU_CLOCK, frequency=997)
    options = SamplerOptions(everything=True, waiting=True)
    with closing(Sampler(SamplerPrograms([clock], range(possible_cpus()), options))) as sampler:
        sampler.programs.attach()
        subprocess.run(BUSY, check=True)
        sampler.programs.stop_events()
        before = sampler.counters()[0]
        subprocess.run(BUSY, check=True)
        after = sampler.counters()[0]
        assert 0 < before["fired"] == after["fired"]
        assert before["switches"] < after["switches"]
        sampler.programs.stop()
