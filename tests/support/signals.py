"""Signals of running processes, as the kernel has them."""

from __future__ import annotations

import signal
from pathlib import Path

# Has the command that follows begin with signals ignored, as nohup(1) and shells do.
IGNORING = ["env", "--ignore-signal=INT", "--ignore-signal=HUP"]


def ignored_signals(pid: int) -> set[signal.Signals]:
    """Which of SIGINT, SIGHUP and SIGTERM the process ignores."""
    status = Path(f"/proc/{pid}/status").read_text()
    (mask,) = [int(line.split()[1], 16) for line in status.splitlines() if line[:7] == "SigIgn:"]
    ending = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)
    return {number for number in ending if mask >> (number - 1) & 1}
