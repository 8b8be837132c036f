"""Records of blocks by compiled loops: what :mod:`hpcd.analysis.trace.blocks` does by numpy.

What the loops find wrong is left to numpy, which says what it is.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hpcd.array_types import I64, U16, U32, U64
from hpcd.native.native_library import array_of, declare, loops_in

Unsigned = npt.NDArray[np.unsignedinteger]

_I64 = ctypes.c_int64


class BlockLoops:
    """The loops of ``block_records.c``, for blocks of ``block`` records at most."""

    def __init__(self, library: ctypes.CDLL, block: int) -> None:
        self._block = block
        numbers, words, longs = (array_of(kind) for kind in (np.int64, np.uint32, np.uint64))
        halves = array_of(np.uint16)
        blocks = (numbers, numbers, numbers, halves)
        self._places = declare(library, "block_places", (*blocks, words, _I64, words, words), _I64)
        self._sums = declare(library, "step_sums", (words, _I64))
        self._long_sums = declare(library, "long_step_sums", (words, _I64, longs))
        self._weights = declare(
            library, "block_weights",
            (*blocks, _I64, words, longs, ctypes.c_bool, halves, longs), ctypes.c_bool,
        )  # fmt: skip

    def places(
        self, contents: Sequence[Any], sizes: I64, frame: I64, at: I64, count: I64, width: U16,
        least: U32, most: int,
    ) -> tuple[Unsigned, U32] | None:  # fmt: skip
        """Ticks and nodes of the blocks that begin ``at`` in the ``frame`` of ``contents``, as
        :func:`hpcd.analysis.trace.blocks.decode_places` gives them; None if something is wrong.
        ``most`` is the highest sum that 32 bits hold."""
        whole = _joined(contents)
        address, room = _addresses(whole, sizes, frame, at)
        if address is None or bool((address == 0).any()):
            return None
        shape = (len(frame), self._block)
        step, node = np.empty(shape, np.uint32), np.empty(shape, np.uint32)
        # Copies: what a file says of a block must not change under the loop.
        highest = self._places(
            address, room, np.array(count), np.array(width), np.array(least), len(frame), step, node
        )
        if highest < 0:
            return None
        if highest * self._block <= most:
            self._sums(step, len(step))
            return step, node
        since = np.empty(shape, np.uint64)
        self._long_sums(step, len(step), since)
        return since, node

    def weights(
        self, contents: Sequence[Any], sizes: I64, frame: I64, at: I64, count: I64, width: U16,
        ticks: Unsigned,
    ) -> tuple[U16, U64] | None:  # fmt: skip
        """Events and values of blocks, as :func:`hpcd.analysis.trace.blocks.decode_weights` gives
        them; None if something is wrong, or for parts of version 1."""
        whole = _joined(contents)
        address, room = _addresses(whole, sizes, frame, at)
        if address is None:
            return None
        shape = (len(frame), self._block)
        event, value = np.empty(shape, np.uint16), np.empty(shape, np.uint64)
        is_long = ticks.dtype == np.uint64
        none = np.zeros(0, np.uint32 if is_long else np.uint64)
        given = np.ascontiguousarray(ticks)
        if ticks.shape != shape or not (is_long or ticks.dtype == np.uint32):
            return None
        first, second = (none, given) if is_long else (given, none)
        whole_blocks = self._weights(
            address,
            room,
            np.array(count),
            np.array(width),
            len(frame),
            first,
            second,
            is_long,
            event,
            value,
        )
        return (event, value) if whole_blocks else None


def _joined(contents: Sequence[Any]) -> npt.NDArray[np.uint8]:
    data = contents[0] if len(contents) == 1 else b"".join(contents)
    return np.frombuffer(data, np.uint8) if len(data) else np.zeros(0, np.uint8)


def _addresses(
    whole: npt.NDArray[np.uint8], sizes: I64, frame: I64, at: I64
) -> tuple[I64 | None, I64]:
    """Where each block begins, 0 for one that nothing is stored of, and the bytes from there to the
    end of its frame; None if one lies outside."""
    none = frame < 0
    if bool(none.all()):
        return np.zeros(len(frame), np.int64), np.zeros(len(frame), np.int64)
    ends = np.cumsum(sizes)
    begin = (ends - sizes)[frame] + at
    room: I64 = ends[frame] - begin
    if bool((~none & ((at < 0) | (room < 0))).any()):
        return None, room
    return np.where(none, 0, begin + whole.__array_interface__["data"][0]), room


def block_loops(block: int) -> BlockLoops | None:
    """The loops, or None where they were not compiled."""
    return loops_in(BlockLoops, block)
