"""Waits too short for records of their own, in pictures.

A recorder adds up waits below its threshold by call path, about once a second. A program that waits
20,000 times a second for 30 µs would seem to run all of that time. So a part has, for each chunk of
a line's records, the share of short waits in the time between its other waits, and a picture shows
waits in that share of its pixels there: the pixels are chosen by their time, not by actual waits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hpcd.array_types import I64, U32

F32 = npt.NDArray[np.float32]

SHORTEST_PIXEL_NS = 50_000
"""Shorter pixels show recorded waits only: below the usual threshold only sums are known."""


class ShortWaits(NamedTuple):
    """Short waits of ``n`` pieces of lines, by line and time.

    ``line`` ``int64[n]``; ``since`` and ``until`` ``int64[n]`` in ticks: between these ``share``
    ``float32[n]`` of the time in which the thread seems to run it waits, at ``word`` ``uint32[n]``
    (a node times four, plus the state).
    """

    line: I64
    since: I64
    until: I64
    word: U32
    share: F32

    @staticmethod
    def joined(pieces: list[ShortWaits]) -> ShortWaits:
        """Return all ``pieces`` by line and time."""
        empty = np.zeros(0, np.int64)
        none = ShortWaits(empty, empty, empty, np.zeros(0, np.uint32), np.zeros(0, np.float32))
        line, since, until, word, share = map(np.concatenate, zip(none, *pieces, strict=True))
        order = np.lexsort((until, line))
        return ShortWaits(line[order], since[order], until[order], word[order], share[order])
