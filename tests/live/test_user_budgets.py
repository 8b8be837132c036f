"""Paths of one user's threads, however many and deep, cost no other user a report."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
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
from tests.support.waiting import Recorder

pytestmark = pytest.mark.root
_FLOODER, _HONEST = 61_001, 61_002
_CALLING = """import os, sys
zero = os.open("/dev/zero", os.O_RDONLY)
sys.stdin.readline()
for _ in range(int(sys.argv[1])): os.read(zero, 1)"""
OVER_BUDGET, NO_TABLE, NO_PROCESS = map(
    marker_frame, (UnwindStatus.OVER_BUDGET, UnwindStatus.NO_TABLE, UnwindStatus.NO_PROCESS)
)


def as_user(uid: int, *command: object) -> subprocess.Popen[bytes]:
    user = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    return subprocess.Popen([*user, *map(str, command)], stdout=subprocess.DEVNULL)


@pytest.fixture
def flood(build: Callable[..., Path]) -> Path:
    """The program of ever new paths, where any user may run it."""
    program = build("new_paths.c", "-fno-optimize-sibling-calls")
    open_to_all(program)
    return program


def open_to_all(program: Path) -> None:
    for path in (program, *program.parents):
        if path.stat().st_uid == 0 and path not in (Path("/"), Path("/tmp")):
            path.chmod(path.stat().st_mode | 0o055)


def lines_of(measurement: Measurement, uid: int) -> list[int]:
    """The trace lines of a user's threads."""
    users = {process.id: process.uid for process in measurement.processes.values()}
    return [t.line for t in measurement.threads.values() if users[t.process] == uid]


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


def records_by_event(measurement: Measurement, uid: int) -> Counter[str]:
    """Records of each event of the threads of a user, from the first sample of them on."""
    lines = lines_of(measurement, uid)
    events, times = [np.zeros(0, np.uint16)], [np.zeros(0, np.uint64)]
    for chunk in measurement.record_chunks():
        theirs = np.isin(np.repeat(chunk.line, np.diff(chunk.start)), lines)
        events.append(chunk.event[theirs])
        times.append(chunk.time_ns[theirs])
    event, time = np.concatenate(events), np.concatenate(times)
    samples = time[event == 0]
    counted = event[time >= samples.min()] if len(samples) else event[:0]
    return Counter(measurement.events[number].name for number in counted.tolist())


def test_a_flood_of_paths_is_its_users_own(tmp_path: Path, flood: Path) -> None:
    recorder = Recorder(tmp_path / "m", "--user", _FLOODER, "--user", _HONEST)
    flooder = as_user(_FLOODER, flood, 8, 900, 60_000)
    honest = as_user(_HONEST, "sh", "-c", "while :; do :; done")

    def is_under_way(measurement: Measurement) -> bool:
        sampled = records_by_event(measurement, _HONEST)["cpu-clock"]
        return sampled > 1000 and OVER_BUDGET in measurement.cct.frame

    try:
        recorder.wait_until(is_under_way)
        recorder.stop()
    finally:
        for process in (flooder, honest):
            process.kill()
            process.wait()
    with open_measurement(tmp_path / "m") as measurement:
        assert records_by_event(measurement, _HONEST)["blocked"] == 0
        assert records_by_event(measurement, _FLOODER)["cpu-clock"] > 0
        # The honest user's contexts, and those of processes whose user is not known, count apart.
        assert measurement.nodes < 2 * MOST_CONTEXTS


def test_paths_of_calls_are_within_their_users_budget(tmp_path: Path, flood: Path) -> None:
    recorder = Recorder(tmp_path / "m", "--user", _FLOODER, "--user", _HONEST, "--io")

    def is_ready(measurement: Measurement) -> bool:
        calls = call_frames(measurement, _HONEST)
        return len(calls) - int(np.isin(calls, [OVER_BUDGET, NO_TABLE, NO_PROCESS]).sum()) > 1000

    def is_over_budget(measurement: Measurement) -> bool:
        return int((call_frames(measurement, _FLOODER) == OVER_BUDGET).sum()) > 1000

    running = [as_user(_HONEST, "dd", "if=/dev/zero", "of=/dev/null", "bs=1M")]
    try:
        recorder.wait_until(is_ready)
        # Until its tables were there its stacks were copied, which may count for 17 ms more.
        begun = time.monotonic_ns() + 2**24
        running.append(as_user(_FLOODER, flood, 8, 900, 0))
        recorder.wait_until(is_over_budget)
        summary = recorder.stop()
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert not summary["samples"]["dropped"] and not summary["calls"]["dropped"]
    with open_measurement(tmp_path / "m") as measurement:
        later = call_frames(measurement, _HONEST, begun)
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
        for user, count in ((_FLOODER, 120_000), (_HONEST, 10))
    ]  # fmt: skip
    record, begun = Session.run, []

    def run_one_after_another(session: Session, progress: None) -> None:
        for process in running:
            begun.append(time.monotonic_ns())
            process.communicate(b"\n")
        recording.request_stop()
        record(session, progress)

    monkeypatch.setattr(Session, "run", run_one_after_another)
    selector = Selector(users=(_FLOODER, _HONEST))
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
        assert len(call_frames(measurement, _HONEST, begun[1])) >= 10
