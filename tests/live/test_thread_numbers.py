"""Numbers of threads: there are 4 million a CPU, and a user may start that many."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcd.bpf.map_sizes import THREADS_PER_CPU
from hpcd.bpf.maps import possible_cpus
from hpcd.daemon.capture.recording import Recording
from hpcd.daemon.capture.recording_options import Options
from hpcd.daemon.targets.selector import Selector
from hpcd.measurement.reader import open_measurement
from tests.support.waiting import started

pytestmark = pytest.mark.root

LEFT = 5


def test_a_number_is_never_given_again(tmp_path: Path, build: Callable[..., Path]) -> None:
    """Samples without a number are counted as lost; reused numbers would mix up threads."""
    process = started(build("churn.c"), 3, 4, 100, 0, "-")
    recording = Recording(Options(selector=Selector(pids=(process.pid,)), output=tmp_path / "m"))
    outputs: list[str] = []

    def use_up() -> None:
        session = recording._session
        assert session
        values = struct.pack("<Q", THREADS_PER_CPU - LEFT) * possible_cpus()
        maps = session._parts.sampler.programs.maps
        maps._maps["next_thread"].update(struct.pack("<I", 0), values)
        outputs.append(process.communicate()[0])

    summary = recording.run(attached=use_up)
    truth = json.loads(outputs[0])
    with open_measurement(tmp_path / "m") as measurement:
        threads = len(measurement.threads)
    assert threads <= truth["threads"] + 2 + LEFT * possible_cpus()
    # Each of the others was lost when it was born, and when it was sampled.
    assert summary.samples.dropped["thread table full"] >= truth["forks"] - LEFT * possible_cpus()
