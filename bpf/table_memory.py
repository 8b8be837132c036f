"""Table memory: packing unwind rows and address spaces into what the walker reads.

``stack/table.h`` describes the layout. The memory lives in the kernel
(:class:`~hpcd.bpf.sampler_maps.KernelMemory`) or, for replaying saved stacks, in a plain array
(:class:`ArrayMemory`).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from hpcd.array_types import U32
from hpcd.bpf.wire import BLOCK_WORDS, MAPPINGS_PER_BLOCK, MAX_SPACE_BLOCKS, PAGE_BITS, Mapping

MAX_MAPPINGS = MAX_SPACE_BLOCKS * MAPPINGS_PER_BLOCK
_ROWS = 1 << 15  # packed at a time: what it takes on the way is more than the rows themselves

MAPPING = Mapping.dtype()
"""``struct mapping``: one executable mapping of a process."""


class Memory(Protocol):
    """Memory of blocks."""

    def write(self, block: int, words: U32) -> None:
        """Store whole blocks (``words`` is a multiple of 1024) from block number ``block``."""


class Blocks:
    """Hands out runs of blocks, first fit. Block 0 is never given: address 0 means "none"."""

    def __init__(self) -> None:
        self._free: list[tuple[int, int]] = []
        self._end = 1

    def take(self, count: int) -> int:
        """The first block of a run of ``count``. O(free runs)."""
        for index, (start, length) in enumerate(self._free):
            if length >= count:
                if length == count:
                    del self._free[index]
                else:
                    self._free[index] = (start + count, length - count)
                return start
        start = self._end
        self._end += count
        return start

    def give(self, start: int, count: int) -> None:
        """Return a run; neighbours are joined."""
        self._free.append((start, count))
        self._free.sort()
        joined: list[tuple[int, int]] = []
        for run in self._free:
            if joined and joined[-1][0] + joined[-1][1] == run[0]:
                joined[-1] = (joined[-1][0], joined[-1][1] + run[1])
            else:
                joined.append(run)
        if joined and sum(joined[-1]) == self._end:
            self._end = joined.pop()[0]
        self._free = joined


class PackedRows(NamedTuple):
    """Rows of one module as the walker reads them, wherever they will lie."""

    words: U32
    """Groups of words: how many there are and the rule their page begins with, then rows."""
    group: U32
    """The index in ``words`` of each page's group."""

    @property
    def blocks(self) -> int:
        """Blocks that they take."""
        return -(-(len(self.words) + len(self.group)) // BLOCK_WORDS)


def pack_rows(pc: U32, rule: npt.NDArray[np.uint16], pages: int, before: int = 0) -> PackedRows:
    """Rows of one module, packed.

    ``pc`` is strictly increasing, relative to the module's base; a rule holds to the next pc, rule
    ``before`` to the first. ``pages`` KiB pages are covered. No group straddles a block; pages that
    one rule covers wholly share a group. O(rows + pages), all in numpy but for one step per block.
    """
    covered = np.searchsorted(pc, pages << PAGE_BITS)
    pc, rule = pc[:covered], rule[:covered]
    starts = np.arange(pages, dtype=np.int64) << PAGE_BITS
    first = np.searchsorted(pc, starts, "right")
    end = np.searchsorted(pc, starts + (1 << PAGE_BITS), "left")
    padded = np.concatenate([np.array([before], np.uint32), rule.astype(np.uint32)])
    opening = padded[first]  # the row in force where the page begins
    count = 1 + (end - first)

    plain = count == 1
    shared, share_of = np.unique(opening[plain], return_inverse=True)
    mixed = np.flatnonzero(~plain)
    sizes = np.concatenate([np.ones(len(shared), np.int64), count[mixed]])
    places = _place(sizes)

    group = np.empty(pages, dtype=np.uint32)
    group[plain] = places[: len(shared)][share_of]
    group[mixed] = places[len(shared) :]
    total = int(places[-1] + sizes[-1]) if len(places) else 0
    words = np.zeros(total, dtype=np.uint32)
    words[group] = opening << 16 | count.astype(np.uint32)
    # A row lies as far behind its page's opening row as it does in pc.
    behind = group + 1 - first
    for low in range(0, len(pc), _ROWS):
        some = pc[low : low + _ROWS]
        within = some & np.uint32((1 << PAGE_BITS) - 1)
        inner = np.flatnonzero(within)  # other rows open their page
        at = behind[some[inner] >> PAGE_BITS] + low + inner
        words[at] = rule[low + inner].astype(np.uint32) << 16 | within[inner]
    return PackedRows(words, group)


def _place(sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Positions for groups of ``sizes`` words, in order, none across a block boundary."""
    ends = np.cumsum(sizes)
    places = ends - sizes
    shift = 0
    index = 0
    while index < len(sizes):
        block_end = ((int(places[index]) + shift) // BLOCK_WORDS + 1) * BLOCK_WORDS
        over = int(np.searchsorted(ends, block_end - shift, "right"))
        places[index:over] += shift
        if over < len(sizes):
            shift = block_end - int(ends[over] - sizes[over])
        index = over
    return places


def space_blocks(mappings: int) -> int:
    """Return the number of blocks that a process with ``mappings`` mappings takes."""
    return max(1, -(-min(mappings, MAX_MAPPINGS) // MAPPINGS_PER_BLOCK))


class UnwindTables:
    """The tables of all modules and processes, in one table memory."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._spaces = 0
        self.blocks = Blocks()

    def add_module(self, rows: PackedRows, rules: npt.NDArray[np.uint16]) -> ModuleTables:
        """Store a module's rows, whose rule ``n`` is the walker's rule ``rules[n]``."""
        words, group = rows
        count, pages = rows.blocks, len(group)
        start = self.blocks.take(count)
        image = np.zeros(count * BLOCK_WORDS, dtype=np.uint32)
        for low in range(0, len(words), _ROWS):
            some = words[low : low + _ROWS]
            image[low : low + len(some)] = some & np.uint32(0xFFFF)
            image[low : low + len(some)] |= rules[some >> 16].astype(np.uint32) << 16
        image[len(words) : len(words) + pages] = group + np.uint32(start * BLOCK_WORDS)
        self._memory.write(start, image)
        return ModuleTables(start, count, start * BLOCK_WORDS + len(words))

    def add_space(self, mappings: npt.NDArray[np.void]) -> Space:
        """Store a process' executable mappings: :data:`MAPPING` rows sorted by start.

        Beyond :data:`MAX_MAPPINGS` the rest is left out (those addresses end as "no mapping").
        """
        mappings = mappings[:MAX_MAPPINGS]
        count = space_blocks(len(mappings))
        start = self.blocks.take(count)
        image = mappings.tobytes().ljust(count * MAPPINGS_PER_BLOCK * MAPPING.itemsize, b"\0")
        self._memory.write(start, np.frombuffer(image, np.uint32))
        self._spaces += 1
        return Space(start, count, len(mappings), self._spaces)


class ModuleTables:
    """The place of a module's rows: blocks taken, and the address of its page directory."""

    def __init__(self, start: int, count: int, directory: int) -> None:
        self.start = start
        self.count = count
        self.directory = directory


class Space:
    """The place of a process's mappings."""

    def __init__(self, start: int, blocks: int, count: int, number: int) -> None:
        self.start = start
        self.blocks = blocks
        self.count = count
        self.number = number
        """A number that no other space ever has: the programs keep what they find in a space."""

    @property
    def address(self) -> int:
        """Word address of its first block."""
        return self.start * BLOCK_WORDS
