"""Reading ahead of files that are needed soon.

A worker that reads a measurement that is not cached waits for the disk, and then the disk waits
for it. A single process that knows the next reads of all workers keeps the disk busy instead.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hpcd.closing import closing_fd
from hpcd.measurement.chunk import MAX_SEGMENT

# Bytes requested ahead of the current read: some seconds of work for a worker, little enough to be
# still in memory when its turn comes.
_AHEAD_BYTES = 96 << 20
# One request to the kernel. Of a larger one it reads no more than the disk's read-ahead, by default
# 128 KiB (mm/readahead.c, force_page_cache_ra()).
_REQUEST_BYTES = 128 << 10


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bytes ``begin`` to ``end`` of a measurement's segments, counted over all of them."""

    measurement: Path
    begin: int
    end: int


class Prefetch:
    """Asks the kernel for stretches of measurements in the order in which they will be read.

    A file that cannot be opened is left to its reader, which reports the reason.
    """

    def __init__(self, stretches: Iterable[Stretch]) -> None:
        self._stretches = iter(stretches)
        self._asked = 0

    def keep_up(self, read: int) -> None:
        """Request the next stretches, now that ``read`` bytes were read."""
        while self._asked < read + _AHEAD_BYTES:
            stretch = next(self._stretches, None)
            if stretch is None:
                return
            self._asked += stretch.end - stretch.begin
            with contextlib.suppress(OSError):
                _ask(stretch)


def _ask(stretch: Stretch) -> None:
    at = number = 0
    while at < stretch.end:
        # A pipe in place of a segment would be waited for.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
        with closing_fd(os.open(f"{stretch.measurement}/segment-{number:06d}.hpcd", flags)) as file:
            size = min(os.fstat(file).st_size, MAX_SEGMENT)
            # Recorders write no holes: bytes behind a hole are not read.
            written = os.lseek(file, 0, os.SEEK_HOLE)
            begin, end = max(stretch.begin - at, 0), min(stretch.end - at, size, written)
            for place in range(begin, end, _REQUEST_BYTES):
                length = min(_REQUEST_BYTES, end - place)
                os.posix_fadvise(file, place, length, os.POSIX_FADV_WILLNEED)
        at += size
        number += 1
