"""kill -9 of the recorder at any moment: the measurement is sound and lacks a second at most.

Every fourth time it is the target that is killed instead, and the recorder ends by itself.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from hpcd.measurement.check import check_measurement
from hpcd.measurement.reader import open_measurement

ROUNDS = 1000
# The way from the flush to the disk, on a machine that is busy with other rounds.
_LATE = 0.25
_WORKERS = 3
SPIN = "import os\nwhile True: sum(range(2000)); os.getppid()"


def run(rounds: int, seed: int) -> list[str]:
    """Run the test; return what was wrong."""
    choice = random.Random(seed)
    plans = [(number, choice.uniform(0, 4), number % 4 == 3) for number in range(rounds)]
    lost: list[float] = []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(_WORKERS) as pool:
        findings = []
        for problems, loss in pool.map(lambda plan: _round(Path(folder), *plan), plans):
            findings += problems
            for finding in problems:
                print(f"  {finding}", flush=True)
            lost += [] if loss is None else [loss]
            if loss is not None and len(lost) % 100 == 0:
                print(f"  {len(lost)} killed, most lost {max(lost):.2f} s", flush=True)
    if lost:
        print(f"  seconds lost: median {np.median(lost):.2f}, most {max(lost):.2f}")
    return findings


def _round(
    folder: Path, number: int, moment: float, kill_target: bool
) -> tuple[list[str], float | None]:
    path = folder / f"m{number}"
    target = subprocess.Popen([sys.executable, "-c", SPIN])
    recorder = subprocess.Popen(
        [sys.executable, "-m", "hpcd", "attach", "-p", str(target.pid), "-o", str(path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert recorder.stderr
        attached = recorder.stderr.readline() == "hpcd: attached\n"
        began = time.monotonic()
        # Not a wait for anything: the moment is what varies.
        time.sleep(moment)
        killed = time.monotonic()
        if kill_target:
            target.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                recorder.wait(30)
            if recorder.returncode != 0:
                return [f"round {number}: recorder ended with {recorder.returncode}"], None
        else:
            recorder.kill()
        recorder.wait()
    finally:
        for process in (target, recorder):
            process.kill()
            process.wait()
    if not attached:
        return [f"round {number}: did not attach"], None
    fatal = [str(finding) for finding in check_measurement(path) if finding.fatal]
    findings = [f"round {number}: {finding}" for finding in fatal]
    with open_measurement(path) as measurement:
        last = began * 1e9
        for part in measurement.record_chunks():
            if len(part):
                last = max(last, float(part.time_ns.max()))
        # All there was has been written when the clock was, also of a target that did not run.
        last = max(last, float(measurement.clock_pairs[:, 0].max(initial=0)))
    loss = killed - last / 1e9
    if loss > 1 + _LATE:
        findings.append(f"round {number}: the last {loss:.2f} s are missing")
    for file in path.iterdir():
        file.unlink()
    path.rmdir()
    return findings, None if kill_target else loss
