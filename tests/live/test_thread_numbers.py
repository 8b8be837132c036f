"""Numbers of threads: there are 4 million a CPU, and a user may start that many. The kernel uses
their tids again."""

from __future__ import annotations

import json
import os
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hpcd.bpf.kernel.maps import possible_cpus
from hpcd.bpf.wire import THREADS_PER_CPU
from hpcd.daemon.capture.recording_options import Options
from hpcd.daemon.capture.start.recording import Recording
from hpcd.daemon.targets.selector import Selector
from hpcd.measurement.reader import open_measurement
from tests.support.waiting import Recorder, started

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


def test_threads_that_are_recorded_are_noted_by_tid(
    tmp_path: Path, build: Callable[..., Path]
) -> None:
    """Programs look no other thread up."""
    process = started(build("churn.c"), 1, 1, 1, 0, "-")
    recording = Recording(Options(selector=Selector(pids=(process.pid,)), output=tmp_path / "m"))
    noted: list[int] = []

    def note() -> None:
        session = recording._session
        assert session
        registered = session._parts.sampler.programs.maps.registered
        noted.extend((registered[process.pid], registered[os.getpid()]))
        process.communicate()

    recording.run(attached=note)
    assert noted == [1, 0]


def wave(process: subprocess.Popen[str]) -> tuple[int, int]:
    """Start the processes of ``waves``; return the first pid, and when the last ended (ns)."""
    assert process.stdin
    assert process.stdout
    process.stdin.write("\n")
    process.stdin.flush()
    first, ended = process.stdout.readline().split()
    return int(first), int(ended)


@pytest.mark.parametrize("options", [[], ["--no-blocked"]])
def test_another_process_with_a_tid_is_not_the_one_before(
    tmp_path: Path, build: Callable[..., Path], options: list[str]
) -> None:
    """Also where the kernel reported no end of that: Linux 6.18 leaves out some of a thousand."""
    program = [str(build("waves.c")), "1500"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(program, **pipes) as target, subprocess.Popen(program, **pipes) as other:
        recorder = Recorder(tmp_path / "m", "-p", target.pid, *options)
        first, ended = wave(target)
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(first - 1))
        again, _ = wave(other)
        assert first <= again < first + 1500
        recorder.stop()
        for process in (target, other):
            assert process.stdin
            process.stdin.close()
    with open_measurement(tmp_path / "m") as measurement:
        lines = {row.line: row for row in measurement.threads.values() if row.tid != target.pid}
        assert len(lines) > 1400
        for row in lines.values():
            assert row.end_ns
            assert row.end_ns < ended
        for part in measurement.record_chunks():
            late = part.time_ns > ended
            line = np.repeat(part.line, np.diff(part.start))
            assert not lines.keys() & set(line[late].tolist())
