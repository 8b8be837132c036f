"""Signals of running processes, as the kernel has them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

# Has the command that follows begin with signals ignored, as nohup(1) and shells do.
IGNORING = ["env", "--ignore-signal=INT", "--ignore-signal=HUP"]


def ignored_signals(pid: int) -> set[signal.Signals]:
    """Which of SIGINT, SIGHUP and SIGTERM the process ignores."""
    status = Path(f"/proc/{pid}/status").read_text()
    (mask,) = [int(line.split()[1], 16) for line in status.splitlines() if line[:7] == "SigIgn:"]
    ending = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)
    return {number for number in ending if mask >> (number - 1) & 1}


def signalled_until(process: subprocess.Popen[str], number: signal.Signals, result: Path) -> str:
    """Send ``number`` to the session of ``hpcd profile``, as a terminal does, again and again until
    ``result`` is there; returns what it writes to standard error after its first line."""
    assert process.stderr
    assert process.stderr.readline() == "hpcd: attached\n"
    while not result.exists():
        os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.1)
            raise AssertionError(process.stderr.read())
    return process.communicate()[1]
