"""The trace line of each thread, in a form that many are looked up in at a time."""

from __future__ import annotations

import numpy as np

from hpcd.array_types import U32

NO_LINE = 0xFFFFFFFF
"""In place of a trace line: the thread is unknown."""

# As in thread_reports.c: spreads consecutive numbers over the table.
_SPREAD = 0x9E3779B97F4A7C15


class ThreadLines:
    """Lines by the numbers that the BPF programs give threads, none of which is 0.

    ``table`` (u32[slots, 2], a power of two) has their numbers and lines with linear probing; 0 is
    a free slot. At most half of the slots are taken, those of threads that have ended included.
    """

    def __init__(self) -> None:
        self._resize(1024)

    def __setitem__(self, number: int, line: int) -> None:
        slot = self._slot(number)
        if not self.numbers[slot]:
            if 2 * self._taken >= len(self.numbers):
                self._drop_ended()
                slot = self._slot(number)
            self._taken += 1
        self.numbers[slot], self.lines[slot] = number, line

    def pop(self, number: int) -> int:
        """Forget a thread; return its line."""
        slot = self._slot(number)
        line, self.lines[slot] = int(self.lines[slot]), NO_LINE
        return line

    def _slot(self, number: int) -> int:
        mask = len(self.numbers) - 1
        slot = (number * _SPREAD >> 32) & mask
        while self.numbers[slot] not in (0, number):
            slot = slot + 1 & mask
        return slot

    def _drop_ended(self) -> None:
        """Move the threads that have not ended to a table of at least four slots each."""
        living = self.table[self.lines != NO_LINE].tolist()
        slots = len(self.numbers)
        while slots < 4 * (len(living) + 1):
            slots *= 2
        self._resize(slots)
        for number, line in living:
            self[number] = line

    def _resize(self, slots: int) -> None:
        self.table: U32 = np.zeros((slots, 2), np.uint32)
        self.numbers, self.lines = self.table[:, 0], self.table[:, 1]
        self.lines[:] = NO_LINE
        self._taken = 0
