"""A ring with the content of parts' frames, kept from one picture to the next.

Zooming in moves the view a little at a time: most frames were in the previous picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from hpcd.analysis.arrays.packed_frames import decompress_into, side_by_side
from hpcd.analysis.arrays.read_ahead import Span, read_ahead
from hpcd.analysis.trace.part import Part
from hpcd.array_types import U8
from hpcd.errors import FormatError
from hpcd.kernels.library import address_of, kernels, structure_dtype
from hpcd.processors import processor_count

TOGETHER_BYTES = 16 << 20
"""Bound on content decompressed together; the rest of the ring keeps earlier content."""

Structures = npt.NDArray[np.void]
"""Structures of ``kernels.h``: an array of :func:`~hpcd.kernels.library.structure_dtype`."""

# A picture of 1,200 rows record by record takes 35 MB.
_BYTES = 64 << 20
# Compressed bytes that are undone in one call: they stay in the cache.
_CALL_BYTES = 1 << 20
_WORTH_A_THREAD = 1 << 19
# Frames closer together are read together, where they are not in memory.
_GAP = 1 << 15
THREADS = min(processor_count(), 4)
"""As many as a picture's share of a small machine may be."""


class FrameRing:
    """Contents, written round and round. ``struct`` is one ``struct ring``."""

    def __init__(self) -> None:
        self._data: U8 = np.empty(0, np.uint8)

    @cached_property
    def struct(self) -> Structures:
        """The ring as kernels take it; makes its memory."""
        self._data = np.empty(_BYTES, np.uint8)
        struct = np.zeros(1, structure_dtype("ring"))
        struct["at"], struct["size"] = address_of(self._data, np.uint8), _BYTES
        return struct

    def fill(self, parts: Sequence[Part], addresses: Structures, frames: Structures) -> None:
        """Decompress ``frames`` of ``parts``. Unexpected content empties the ring and raises
        :class:`FormatError`."""
        _expect(parts, frames)
        packed = np.cumsum(frames["size"])
        pieces = max(1, min(THREADS, int(packed[-1]) // _WORTH_A_THREAD))
        bounds = np.searchsorted(packed, np.arange(1, pieces) * int(packed[-1]) // pieces)
        shares = np.split(frames, bounds)
        sound = [False] * pieces

        def undo(piece: int) -> None:
            sound[piece] = self._decompress(addresses, shares[piece])

        side_by_side(undo, pieces)
        for share, is_sound in zip(shares, sound, strict=True):
            if not is_sound:
                self.struct["head"] += _BYTES
                path = parts[int(share["part"][0])].path
                raise FormatError(f"{path}: a block has not the size in its table")

    def _decompress(self, addresses: Structures, frames: Structures) -> bool:
        size, to, content = frames["size"], frames["to"], frames["content"]
        call = (np.cumsum(size) - size) // _CALL_BYTES
        cuts = np.flatnonzero((np.diff(call) > 0) | (to[1:] != to[:-1] + content[:-1])) + 1
        for a, z in pairwise([0, *cuts.tolist(), len(frames)] if len(frames) else []):
            packed = np.empty(int(size[a:z].sum()), np.uint8)
            if not kernels.gather_frames(addresses, frames[a:z], z - a, packed):
                return False
            room = self._data[int(to[a]) : int(to[z - 1] + content[z - 1])].data
            if not decompress_into(packed.data, room):
                return False
        return True


def _expect(parts: Sequence[Part], frames: Structures) -> None:
    """Ask the kernel to read frames that are not in memory, adjacent ones together."""
    end = frames["offset"] + frames["size"]
    gap = frames["offset"][1:] - end[:-1]
    apart = (np.diff(frames["part"]) != 0) | (gap < 0) | (gap > _GAP)
    first = np.flatnonzero(np.append(True, apart))
    last = np.append(first[1:], len(frames)) - 1
    begin = frames["offset"][first]
    stretches = list(zip(frames["part"][first].tolist(), begin.tolist(),
                         (end[last] - begin).tolist(), strict=True))  # fmt: skip

    def spans(stretch: tuple[int, int, int]) -> list[Span]:
        number, at, size = stretch
        return [parts[number].body_span(at, size)]

    read_ahead(stretches, spans)
