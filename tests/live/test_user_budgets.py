"""Threads of one user that block at ever new, deep paths cost no other user a report."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hpcd.daemon.capture.paths.cct_builder import MOST_CONTEXTS
from hpcd.measurement.reader import Measurement, open_measurement
from hpcd.model.frame import marker_frame
from hpcd.model.unwind_status import UnwindStatus
from tests.support.waiting import Recorder

pytestmark = pytest.mark.root
_FLOODER, _HONEST = 61_001, 61_002


def as_user(uid: int, *command: object) -> subprocess.Popen[bytes]:
    user = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    return subprocess.Popen([*user, *map(str, command)], stdout=subprocess.DEVNULL)


def records_by_event(measurement: Measurement, uid: int) -> Counter[str]:
    """Records of each event of the threads of a user, from the first sample of them on."""
    users = {process.id: process.uid for process in measurement.processes.values()}
    lines = [t.line for t in measurement.threads.values() if users[t.process] == uid]
    events, times = [np.zeros(0, np.uint16)], [np.zeros(0, np.uint64)]
    for chunk in measurement.record_chunks():
        theirs = np.isin(np.repeat(chunk.line, np.diff(chunk.start)), lines)
        events.append(chunk.event[theirs])
        times.append(chunk.time_ns[theirs])
    event, time = np.concatenate(events), np.concatenate(times)
    samples = time[event == 0]
    counted = event[time >= samples.min()] if len(samples) else event[:0]
    return Counter(measurement.events[number].name for number in counted.tolist())


def test_a_flood_of_paths_is_its_users_own(tmp_path: Path, build: Callable[..., Path]) -> None:
    flood = build("new_paths.c", "-fno-optimize-sibling-calls")
    for folder in (flood, *flood.parents):  # the user must be able to run it
        if folder.stat().st_uid == 0 and folder not in (Path("/"), Path("/tmp")):
            folder.chmod(folder.stat().st_mode | 0o055)
    recorder = Recorder(tmp_path / "m", "--user", _FLOODER, "--user", _HONEST)
    flooder = as_user(_FLOODER, flood, 8, 900, 60_000)
    honest = as_user(_HONEST, "sh", "-c", "while :; do :; done")

    def is_under_way(measurement: Measurement) -> bool:
        over_budget = np.uint64(marker_frame(UnwindStatus.OVER_BUDGET))
        sampled = records_by_event(measurement, _HONEST)["cpu-clock"]
        return sampled > 1000 and bool((measurement.cct.frame == over_budget).any())

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
