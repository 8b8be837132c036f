"""Table memory in this process."""

from __future__ import annotations

import numpy as np

from hpcd.array_types import U32
from hpcd.bpf.wire import BLOCK_WORDS


class ArrayMemory:
    """Table memory in this process, for replaying saved stacks."""

    def __init__(self) -> None:
        self.words: U32 = np.zeros(BLOCK_WORDS, dtype=np.uint32)

    def write(self, block: int, words: U32) -> None:
        """Store whole blocks, growing the array as needed."""
        end = block * BLOCK_WORDS + len(words)
        if end > len(self.words):
            self.words = np.concatenate(
                [self.words, np.zeros(end - len(self.words), dtype=np.uint32)]
            )
        self.words[block * BLOCK_WORDS : end] = words
