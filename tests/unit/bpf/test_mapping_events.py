"""Records of perf's ring, taken in one piece."""

import mmap
import random

from hpcd.bpf.events.mapping_events import _PAGES, _pending


def test_records_around_the_end_of_the_ring_are_in_one_piece() -> None:
    size = _PAGES * mmap.PAGESIZE
    chance = random.Random(1)
    with mmap.mmap(-1, mmap.PAGESIZE + size) as ring:
        ring[mmap.PAGESIZE :] = data = chance.randbytes(size)
        for begin, length in ((0, 0), (8, 64), (size - 64, 64), (size - 64, 72), (size - 8, size)):
            tail = 7 * size + begin
            assert _pending(ring, tail, tail + length) == (data + data)[begin : begin + length]
