"""Reading ahead of many places in mapped files, where they are not in memory.

Touching missing pages one by one waits for the disk at every page; announcing all of them first
lets the kernel read them together, but costs a system call each. So a few are touched, and all are
announced only if one of these few had to be read.
"""

from __future__ import annotations

import mmap
import resource
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

_Item = TypeVar("_Item")

# If a twentieth of all pages is not in memory, this many probes miss that with probability 0.2;
# then reading costs little.
_PROBES = 32


@dataclass(frozen=True, slots=True)
class Span:
    """``size`` bytes of a mapped file from ``at``."""

    file: mmap.mmap
    at: int
    size: int

    def touch(self) -> None:
        """Read its first and its last byte."""
        _ = self.file[self.at], self.file[self.at + max(self.size, 1) - 1]

    def expect(self) -> None:
        """Let the kernel read it (madvise(2)), without waiting."""
        first = self.at // mmap.PAGESIZE * mmap.PAGESIZE
        self.file.madvise(mmap.MADV_WILLNEED, first, self.at + self.size - first)


def read_ahead(items: Sequence[_Item], spans: Callable[[_Item], Iterable[Span]]) -> None:
    """Let the kernel read the ``spans`` of all ``items`` together, unless they are in memory."""
    before = _faults()
    for item in items[:: max(len(items) // _PROBES, 1)]:
        for span in spans(item):
            span.touch()
    if _faults() == before:
        return
    for item in items:
        for span in spans(item):
            span.expect()


def _faults() -> int:
    """Pages this thread waited for."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_majflt
