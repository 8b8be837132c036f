"""Table memory in the kernel (:mod:`hpcd.bpf.table_memory` has what lies there)."""

from __future__ import annotations

import struct
from contextlib import ExitStack
from typing import TYPE_CHECKING

from hpcd.bpf.map_sizes import BLOCK_BYTES, BLOCK_WORDS, MAX_SEGMENTS, SEGMENT_BLOCKS
from hpcd.bpf.maps import ARRAY, ARRAY_OF_MAPS, Map
from hpcd.errors import PlatformError

if TYPE_CHECKING:
    from hpcd.array_types import U32


class KernelMemory:
    """Table memory in the kernel: an array of maps; inner ones are made as they are needed."""

    def __init__(self) -> None:
        with ExitStack() as resources:
            first = self._segment(0)
            resources.callback(first.close)
            self.map = Map("memory", ARRAY_OF_MAPS, 4, 4, MAX_SEGMENTS, inner=first.fd)
            resources.callback(self.map.close)
            self._segments: list[Map] = [first]
            self._publish(0)
            resources.pop_all()

    @staticmethod
    def _segment(number: int) -> Map:
        return Map(f"segment{number}", ARRAY, 4, BLOCK_BYTES, SEGMENT_BLOCKS)

    def _publish(self, number: int) -> None:
        self.map.update(struct.pack("<I", number), struct.pack("<I", self._segments[number].fd))

    def write(self, block: int, words: U32) -> None:
        """Store whole blocks, making segments as needed."""
        count = len(words) // BLOCK_WORDS
        done = 0
        while done < count:
            segment, first = divmod(block + done, SEGMENT_BLOCKS)
            while segment >= len(self._segments):
                if segment >= MAX_SEGMENTS:
                    raise PlatformError("unwind tables exceed 4 GiB")
                self._segments.append(self._segment(len(self._segments)))
                self._publish(len(self._segments) - 1)
            part = min(count - done, SEGMENT_BLOCKS - first)
            some = words[done * BLOCK_WORDS : (done + part) * BLOCK_WORDS]
            if part == 1:  # of most processes' mappings: without what a batch takes to prepare
                self._segments[segment].update(struct.pack("<I", first), some.tobytes())
            else:
                self._segments[segment].update_range(first, some)
            done += part

    def close(self) -> None:
        """Drop the maps."""
        for segment in self._segments:
            segment.close()
        self.map.close()
