"""Limit of the time that the table of one file may take."""

from __future__ import annotations

import os
import time

from hpcd.errors import FormatError

# Real time: how long one user's file may delay other users.
SECONDS = 20.0
# Per MB of a bigger file: four times the slowest file measured, chromium with 0.09 s.
_SECONDS_A_MB = 0.4
MOST_SECONDS = 180.0
# Share of real time that may be CPU time. A file that takes more is too much work for any machine;
# a worker that got less of the CPU may succeed when the machine is less busy.
_CPU_SHARE = 0.8


def seconds_for(fd: int) -> float:
    """Seconds of real time for the file open at ``fd``, by its stored size: :data:`SECONDS`, and
    more above 50 MB. Raises :class:`OSError`."""
    status = os.fstat(fd)
    stored = min(status.st_size, 512 * status.st_blocks)
    return max(SECONDS, min(MOST_SECONDS, stored * _SECONDS_A_MB / 1e6))


class WorkLimit:
    """Limit of CPU time in this process for work with ``seconds`` of real time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds * _CPU_SHARE
        self._end = time.process_time() + self._seconds

    def check(self) -> None:
        """Raises :class:`FormatError` when it is used up."""
        if time.process_time() > self._end:
            raise FormatError(f"its unwind table takes over {self._seconds:.0f} s of CPU time")


UNLIMITED = WorkLimit(float("inf"))
