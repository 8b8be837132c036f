"""A hundred threads of a user that block for 60 µs, each time on another path of 900 calls, beside
another user's process that computes.

That process is never blocked, its CPU time is sampled as the scheduler counts it, and so is that of
the hundred threads; contexts are bounded.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from hpcd.daemon.capture.paths.cct_builder import MOST_CONTEXTS
from hpcd.measurement.reader import Measurement, open_measurement
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
from tests.support.programs import PROGRAMS
from tests.support.recorded import hpcd

ROUNDS = 10
_THREADS, _DEPTH, _BLOCKED_NS, _SECONDS = 100, 900, 60_000, 20
# Of the scheduler's count: what is left out is late, or walks; and standard errors.
_SAMPLED, _ERRORS, _RATE = 0.1, 4, 997


def run(rounds: int, seed: int) -> list[str]:
    """Record the attack; return what was wrong. There is nothing random: ``seed`` is not used."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "new_paths"
        source = PROGRAMS / PROGRAM
        subprocess.run(["gcc", "-O2", "-pthread", FLAGS, "-o", program, source], check=True)
        open_to_all(program)
        return [
            f"round {number}: {finding}"
            for number in range(rounds)
            for finding in _round(program, Path(folder) / f"m{number}")
        ]


def _round(program: Path, path: Path) -> list[str]:
    attack = (program, _THREADS, _DEPTH, _BLOCKED_NS)
    running = [as_user(FLOODER, *attack), as_user(HONEST, "sh", "-c", "while :; do :; done")]
    try:
        users = [word for uid in (FLOODER, HONEST) for word in ("--user", uid)]
        hpcd("attach", *users, "-d", _SECONDS, "-o", path)
    finally:
        for process in running:
            process.kill()
            process.wait()
    with open_measurement(path) as measurement:
        return _judge(measurement)


def _judge(measurement: Measurement) -> list[str]:
    summary = measurement.summary
    assert summary and summary.time
    findings, shares = [], {}
    for uid in (FLOODER, HONEST):
        seconds = seconds_by_event(measurement, uid)
        threads = [measurement.threads[line] for line in lines_of(measurement, uid)]
        counted = sum(thread.cpu_ns or 0 for thread in threads) / 1e9
        shares[uid] = f"{seconds['cpu-clock']:.2f} of {counted:.2f} s of CPU time"
        chance = _ERRORS * (counted / _RATE) ** 0.5
        if abs(seconds["cpu-clock"] - counted) > _SAMPLED * counted + chance:
            findings.append(f"user {uid} was sampled in {shares[uid]}")
        if uid == HONEST and seconds["blocked"]:
            findings.append(f"a process that computes was blocked {seconds['blocked']:.3f} s")
    if measurement.nodes > 2 * MOST_CONTEXTS:
        findings.append(f"{measurement.nodes:,} contexts")
    print(
        f"  {measurement.nodes:,} contexts, reports lost: {summary.samples.dropped or 0};"
        f" flooder: {shares[FLOODER]}; other: {shares[HONEST]};"
        f" {summary.time.lost:.2f} s of {summary.time.lifetime:.0f} s lost",
        flush=True,
    )
    return findings
