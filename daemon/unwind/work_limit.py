"""Limit of the time that the table of one file may take."""

from __future__ import annotations

import os
import time

from hpcd.errors import FormatError

# Of real time: how long one user's file may keep others waiting.
SECONDS = 20.0
# Of a bigger file for each MB, four times what takes longest here: chromium, 0.09 s.
_SECONDS_A_MB = 0.4
MOST_SECONDS = 180.0
# Of that in CPU time. What takes more is too much work for any machine; what has less of the
# processor in its time may be done when that is less busy.
_CPU_SHARE = 0.8


def seconds_for(fd: int) -> float:
    """Seconds of real time for the file open at ``fd``, by what of it is there: :data:`SECONDS`,
    and more for one of over 50 MB. Raises :class:`OSError`."""
    status = os.fstat(fd)
    stored = min(status.st_size, 512 * status.st_blocks)
    return max(SECONDS, min(MOST_SECONDS, stored * _SECONDS_A_MB / 1e6))


class WorkLimit:
    """The CPU time that what ``seconds`` of real time are given to may take in this process."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds * _CPU_SHARE
        self._end = time.process_time() + self._seconds

    def check(self) -> None:
        """Raises :class:`FormatError` when it is used up."""
        if time.process_time() > self._end:
            raise FormatError(f"its unwind table takes over {self._seconds:.0f} s of CPU time")


UNLIMITED = WorkLimit(float("inf"))
