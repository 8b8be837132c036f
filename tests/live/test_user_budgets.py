"""Paths of one user's threads, however many and deep, cost no other user a report."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hpcd.array_types import U64
from hpcd.bpf import sampler_options
from hpcd.daemon.capture.loop.session import Session
from hpcd.daemon.capture.paths.cct_builder import MOST_CONTEXTS
from hpcd.daemon.capture.recording_options import Options
from hpcd.daemon.capture.start.recording import Recording
from hpcd.daemon.targets.selector import Selector
from hpcd.measurement.call_codec import Calls
from hpcd.measurement.reader import Measurement, open_measurement
from hpcd.model.codes import UnwindStatus
from hpcd.model.frame import marker_frame
from tests.support.flood import (
    FLAGS,
    FLOODER,
    HONEST,
    PROGRAM,
    as_user,
    lines_of,
    open_to_all,
    seconds_by_event,
)
from tests.support.waiting import Recorder

pytestmark = pytest.mark.root
_CALLING = """import os, sys
zero = os.open("/dev/zero", os.O_RDONLY)
sys.stdin.readline()
for _ in range(int(sys.argv[1])): os.read(zero, 1)"""
OVER_BUDGET, NO_TABLE, NO_PROCESS = map(
    marker_frame, (UnwindStatus.OVER_BUDGET, UnwindStatus.NO_TABLE, UnwindStatus.NO_PROCESS)
)


@pytest.fixture
def flood(build: Callable[..., Path]) -> Path:
    """The program of ever new paths, where any user may run it."""
    program = build(PROGRAM, FLAGS)
    open_to_all(program)
    return program


def call_frames(measurement: Measurement, uid: int, begun: int = 0) -> U64:
    """The innermost frame, or the marker, of each recorded call of a user's threads ``u64[n]``
    that was made since ``begun``."""
    lines = lines_of(measurement, uid)
    calls = Calls.joined(list(measurement.call_chunks()))
    theirs = calls[np.isin(calls.line, lines) & (calls.time > begun)]
    return np.asarray(measurement.cct.frame[theirs.node])


def sampled_frames(measurement: Measurement, uid: int) -> set[int]:
    """The innermost frames, or markers, of all samples of a user's threads."""
    lines, result = lines_of(measurement, uid), set()
    for chunk in measurement.record_chunks():
        theirs = np.isin(np.repeat(chunk.line, np.diff(chunk.start)), lines) & (chunk.event == 0)
        result |= set(measurement.cct.frame[chunk.node[theirs]].tolist())
    return result


def test_a_flood_of_paths_is_its_users_own(tmp_path: Path, flood: Path) -> None:
    recorder = Recorder(tmp_path / "m", "--user", FLOODER, "--user", HONEST)
    flooder = as_user(FLOODER, flood, 8, 900, 60_000)
    honest = as_user(HONEST, "sh", "-c", "while :; do :; done")

    def is_under_way(measurement: Measurement) -> bool:
        return (
            seconds_by_event(measurement, HONEST)["cpu-clock"] > 1
            and OVER_BUDGET in measurement.cct.frame
        )

    try:
        recorder.wait_until(is_under_way)
        recorder.stop()
    finally:
        for process in (flooder, honest):
            process.kill()
            process.wait()
    with open_measurement(tmp_path / "m") as measurement:
        assert seconds_by_event(measurement, HONEST)["blocked"] == 0
        assert seconds_by_event(measurement, FLOODER)["cpu-clock"] > 0
        # The honest user's contexts, and those of processes whose user is not known, count apart.
        assert measurement.nodes < 2 * MOST_CONTEXTS


def test_paths_of_calls_are_within_their_users_budget(tmp_path: Path, flood: Path) -> None:
    recorder = Recorder(tmp_path / "m", "--user", FLOODER, "--user", HONEST, "--io")

    def is_ready(measurement: Measurement) -> bool:
        calls = call_frames(measurement, HONEST)
        return len(calls) - int(np.isin(calls, [OVER_BUDGET, NO_TABLE, NO_PROCESS]).sum()) > 1000

    def is_over_budget(measurement: Measurement) -> bool:
        return int((call_frames(measurement, FLOODER) == OVER_BUDGET).sum()) > 1000

    running = [as_user(HONEST, "dd", "if=/dev/zero", "of=/dev/null", "bs=1M")]
    try:
        recorder.wait_until(is_ready)
        # Until its tables were there its stacks were copied, which may count for 17 ms more.
        begun = time.monotonic_ns() + 2**24
        running.append(as_user(FLOODER, flood, 8, 900, 0))
        recorder.wait_until(is_over_budget)
        summary = recorder.stop()
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert not summary["samples"]["dropped"] and not summary["calls"]["dropped"]
    with open_measurement(tmp_path / "m") as measurement:
        later = call_frames(measurement, HONEST, begun)
        assert len(later) and OVER_BUDGET not in later


def test_recorded_calls_of_one_user_leave_room_for_anothers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ring of calls is not emptied before one user has made more than it has room for."""
    # Twenty calls in 17 ms once the ring is half full: the rest takes half a minute to fill.
    monkeypatch.setattr(sampler_options, "_RING_SHARE", 12)
    running = [
        subprocess.Popen(
            [sys.executable, "-c", _CALLING, str(count)], stdin=subprocess.PIPE, user=user,
            group=user, extra_groups=[], cwd="/",
        )
        for user, count in ((FLOODER, 120_000), (HONEST, 10))
    ]  # fmt: skip
    record, begun = Session.run, []

    def run_one_after_another(session: Session, progress: None) -> None:
        for process in running:
            begun.append(time.monotonic_ns())
            process.communicate(b"\n")
        recording.request_stop()
        record(session, progress)

    monkeypatch.setattr(Session, "run", run_one_after_another)
    selector = Selector(users=(FLOODER, HONEST))
    recording = Recording(Options(selector, tmp_path / "m", io=True))
    try:
        summary = recording.run()
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert summary.calls and summary.calls.dropped["beyond its user's share"] > 10_000
    assert "ring full" not in summary.calls.dropped
    with open_measurement(tmp_path / "m") as measurement:
        assert len(call_frames(measurement, HONEST, begun[1])) >= 10
