"""The trace line of each thread, in a form that many are looked up in at a time."""

from __future__ import annotations

import numpy as np

from hpcd.array_types import U32

NO_LINE = 0xFFFFFFFF
"""In place of a trace line: the thread is unknown."""

# As in thread_reports.c: consecutive numbers come to lie apart.
_SPREAD = 0x9E3779B97F4A7C15


class ThreadLines:
    """Lines by the numbers that the BPF programs give threads, none of which is 0.

    ``table`` (u32[slots, 2], a power of two) has their numbers and lines with linear probing; 0 is
    a free slot. At most half of the slots are taken, those of threads that have ended included.
    """

    def __init__(self) -> None:
        self._line: dict[int, int] = {}
        self._make(1024)

    def __setitem__(self, number: int, line: int) -> None:
        self._line[number] = line
        if 2 * self._taken >= len(self.numbers):
            self._make_again()
        else:
            self._enter(number, line)

    def pop(self, number: int) -> int:
        """Forget a thread; its line."""
        self.lines[self._slot(number)] = NO_LINE
        return self._line.pop(number)

    def of(self, numbers: list[int]) -> U32:
        """Trace lines u32[n] of threads, :data:`NO_LINE` for those unknown."""
        return np.array([self._line.get(number, NO_LINE) for number in numbers], np.uint32)

    def _slot(self, number: int) -> int:
        mask = len(self.numbers) - 1
        slot = (number * _SPREAD >> 32) & mask
        while self.numbers[slot] not in (0, number):
            slot = slot + 1 & mask
        return slot

    def _enter(self, number: int, line: int) -> None:
        slot = self._slot(number)
        self._taken += int(self.numbers[slot] == 0)
        self.numbers[slot], self.lines[slot] = number, line

    def _make_again(self) -> None:
        """Without those that have ended, in a table four times as large as there are threads."""
        size = len(self.numbers)
        while size < 4 * len(self._line):
            size *= 2
        self._make(size)
        for number, line in self._line.items():
            self._enter(number, line)

    def _make(self, size: int) -> None:
        self.table: U32 = np.zeros((size, 2), np.uint32)
        self.numbers, self.lines = self.table[:, 0], self.table[:, 1]
        self.lines[:] = NO_LINE
        self._taken = 0
