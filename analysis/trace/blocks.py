"""Blocks: how trace records are stored in a database, up to 1,024 of one line together.

A block's times and nodes are byte planes, a byte of each record together: first of the times since
the previous record (in ticks, less the block's least step), then of the nodes; as many planes of
each as its greatest number needs. In blocks with waits states follow, four in a byte, the first in
its lowest bits (:class:`hpcd.analysis.trace.states.State`). A node equal to the previous record's
is 0 unless that one is 0, and any other node is stored plus one: the end of an interval mostly has
its beginning's node. (That no two in a row are 0 costs few bytes; nodes are read in one step.)

For records that are not all of event 0 and value 1, each has a *code*: its event times four, and
its kind of value.

==== ===============================================================================
0    1: a sample
1    0: the end of an interval
2    the ticks until the next record: an interval, whose end follows
3    something else: these values are behind the codes, in planes
==== ===============================================================================

Consecutive blocks are compressed together, as one zstd frame: some 2,000 records' times
and nodes (a deep zoom, which needs one block of each line, would decompress more in
vain), and eight times as many codes, which no picture needs. Short lines share frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import zstandard

from hpcd.analysis.arrays.packed_frames import decompress_into, side_by_side
from hpcd.array_types import I64, U8, U16, U32, U64, Array
from hpcd.errors import FormatError
from hpcd.kernels.library import CStructure, kernels, structure
from hpcd.measurement.zstd_contexts import compressor
from hpcd.processors import processor_count

Unsigned = npt.NDArray[np.unsignedinteger]

# Long enough for a small share of table bytes, short enough that a deep zoom, which
# decodes at least one per line, stays fast (2,048: half as long again).
BLOCK_RECORDS = 1024
# Steps within a block are 32-bit; a wait of over 71 minutes begins a new one.
MAX_STEP = (1 << 32) - 1
# Blocks that begin within this number of records share a frame: of times and nodes few, for a deep
# zoom decompresses all to draw one (4,096: 1 % fewer bytes, a fifth more time).
_PLACES_TOGETHER = 2048
_CODES_TOGETHER = 16384

# Bytes that are worth a thread.
_WORTH_A_THREAD = 1 << 20
MOST_CONTENT = 1 << 18
"""More bytes than any frame holds."""
# As many as a picture's share of a small machine may be.
_THREADS = min(processor_count(), 4)
# Bits of a block's width with planes of nodes, of codes and of other values, and states.
_NODE_SHIFT, _CODE_SHIFT, _OTHER_SHIFT, _STATE_SHIFT = np.array([4, 8, 10, 14], np.uint16)
# Bound on a record's bytes before compression: times, nodes and states; codes and values.
_PLACE_BYTES, _CODE_BYTES = 9, 11
# Level 1's parameters, with matches from 6 bytes on and a small hash table: higher levels save 1 %
# and cost a fifth more, shorter matches save 0.3 % at best and cost a tenth. Codes repeat in longer
# stretches: there two tables find a tenth more, for nothing.
_FAST, _TWO_TABLES = 1, 2
_PLACE_PARAMETERS = zstandard.ZstdCompressionParameters(
    window_log=17, chain_log=6, hash_log=10, search_log=1, min_match=6, target_length=0,
    strategy=_FAST, write_content_size=True,
)  # fmt: skip
_CODE_PARAMETERS = zstandard.ZstdCompressionParameters(
    window_log=17, chain_log=10, hash_log=11, search_log=1, min_match=4, target_length=0,
    strategy=_TWO_TABLES, write_content_size=True,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Encoded:
    """``n`` encoded blocks in ``f`` frames.

    ``data`` the frames in order, ``content`` ``int64[f]`` the bytes each decompresses to;
    ``frame`` and ``at`` ``int64[n]``: the frame of each block's times and nodes, and their offset
    in it; ``code_frame`` and ``code_at`` the same of its codes, -1 without.
    ``least`` ``uint32[n]`` their least step in ticks; ``width`` ``uint16[n]`` the planes of times
    (bits 0 to 3), of nodes (bits 4 to 7), of codes (bits 8 and 9) and of other values (bits 10 to
    13), and whether it has states (bit 14).
    """

    data: list[bytes]
    content: I64
    frame: I64
    at: I64
    code_frame: I64
    code_at: I64
    least: U32
    width: U16


@dataclass(frozen=True, slots=True)
class StoredBlocks:
    """``n`` blocks to decode together: times and nodes, or codes.

    ``data`` ``uint8`` is the content of their frames; ``begin`` and ``end`` ``int64[n]``: each
    block's start in it, -1 if nothing is stored, and the end of its frame. ``count``
    ``int64[n]`` and ``width`` ``uint16[n]`` are from the part's table.
    """

    data: U8
    begin: I64
    end: I64
    count: I64
    width: U16

    def __len__(self) -> int:
        return len(self.begin)

    def as_structure(self) -> CStructure:
        """A ``struct stored_blocks``. Copies the table: a mapped file may change while a kernel
        runs."""
        return structure(
            "stored_blocks", data=self.data, size=len(self.data), begin=self.begin, end=self.end,
            count=np.array(self.count), width=np.array(self.width), n=len(self),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredFrames:
    """The frames of a part: ``body`` has the frames from ``offset`` ``int64[f]`` on, of ``size``
    bytes, which decompress to ``content`` bytes (both ``[f]``)."""

    body: memoryview
    offset: I64
    size: Array
    content: Array

    def blocks(
        self, frame: Array, at: Array, records: Array, width: U16,
        none: int = -1,
    ) -> StoredBlocks:  # fmt: skip
        """Return the blocks at offsets ``at`` in their ``frame``, which is ``none`` for no block;
        other columns are the table's. Raises :class:`FormatError`."""
        stored = frame != none
        used, number = np.unique(frame[stored], return_inverse=True)
        size = self.content[used].astype(np.int64)
        begin = self.offset[used]
        stop = begin + self.size[used]
        data = decompress(
            [self.body[a:z] for a, z in zip(begin.tolist(), stop.tolist(), strict=True)], size
        )
        ends = np.cumsum(size)
        first, last = np.full(len(frame), -1), np.full(len(frame), -1)
        first[stored] = (ends - size)[number] + at[stored]
        last[stored] = ends[number]
        return StoredBlocks(data, first, last, records.astype(np.int64), width)


def decompress(frames: Sequence[memoryview], sizes: I64) -> U8:
    """The contents of ``frames``, which have ``sizes`` ``int64[f]`` bytes, one behind the other.
    Raises :class:`FormatError`."""
    size_of = zstandard.frame_content_size
    try:
        for frame, size in zip(frames, sizes.tolist(), strict=True):
            # A frame may claim any size and would get the memory for it.
            if size_of(frame) != size:
                raise FormatError("a block has another length than its table says")
    except zstandard.ZstdError as error:
        raise FormatError(f"a block does not decompress: {error}") from None
    ends = np.cumsum(sizes)
    whole = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    pieces = max(1, min(_THREADS, len(whole) // _WORTH_A_THREAD))
    bounds = [len(frames) * piece // pieces for piece in range(pieces + 1)]
    filled = [False] * pieces

    def fill(piece: int) -> None:
        low, high = bounds[piece : piece + 2]
        a, b = (int(ends[at - 1]) if at else 0 for at in (low, high))
        filled[piece] = decompress_into(b"".join(frames[low:high]), whole[a:b].data)

    side_by_side(fill, pieces)
    if not all(filled):
        raise FormatError("a block does not decompress")
    return whole


def cut(start: I64, time: I64) -> I64:
    """``int64[n + 1]``: the first record of each block in records sorted by line, and their end.

    ``start`` ``int64[k + 1]`` is where lines begin, none of them empty; ``time`` ``int64[records]``
    in ticks ascends within each.
    """
    count = np.diff(start)
    blocks = -(-count // BLOCK_RECORDS)
    first = np.repeat(start[:-1], blocks)
    number = np.arange(len(first)) - np.repeat(np.cumsum(blocks) - blocks, blocks)
    cuts = first + number * BLOCK_RECORDS
    # Unsigned, so that a step back is a long one: a line out of order is put in order later.
    far = np.flatnonzero(np.diff(time).view(np.uint64) > MAX_STEP) + 1
    if len(far):
        cuts = np.union1d(cuts, far)
    return np.append(cuts, start[-1])


def encode(
    cuts: I64, time: I64, node: U32, state: U8 | None, event: U16 | None, value: U64 | None
) -> Encoded:
    """Blocks of the records between ``cuts``; ``event`` and ``value`` both or neither.

    Nodes are below 2^32 - 1. A block's first time is not in it: the part's table has it. Raises
    :class:`IndexError` for cuts that are not blocks of the records.
    """
    count, n = max(len(cuts) - 1, 0), len(time)
    entries = structure(
        "block_entries", cuts=cuts, blocks=count, time=time, node=node, state=state, event=event,
        value=value, n=n,
    )  # fmt: skip
    data, begin = np.empty(_PLACE_BYTES * n, np.uint8), np.zeros(count + 1, np.int64)
    least = np.empty(count, np.uint32)
    times, nodes, states = np.empty((3, count), np.uint16)
    _check(kernels.encode_places(entries, data, begin, least, times, nodes, states))
    width = times | nodes << _NODE_SHIFT | states << _STATE_SHIFT
    start = cuts[:-1] - cuts[:1]
    group = start // _PLACES_TOGETHER
    frames, content, frame, at = _packed(data, begin, group, _PLACE_PARAMETERS)
    if event is None or value is None:
        none = np.full(len(frame), -1, np.int64)
        return Encoded(frames, content, frame, at, none, np.zeros_like(none), least, width)
    data, codes, others = np.empty(_CODE_BYTES * n, np.uint8), times, nodes
    _check(kernels.encode_codes(entries, data, begin, codes, others))
    more, code_content, code_frame, code_at = _packed(
        data, begin, start // _CODES_TOGETHER, _CODE_PARAMETERS
    )
    return Encoded(
        frames + more,
        np.concatenate((content, code_content)),
        frame,
        at,
        code_frame + len(frames),
        code_at,
        least,
        width | codes << _CODE_SHIFT | others << _OTHER_SHIFT,
    )


def _check(are_blocks: bool) -> None:
    if not are_blocks:
        raise IndexError("blocks of records that do not exist")


def _compressed(
    data: U8, bounds: I64, parameters: zstandard.ZstdCompressionParameters
) -> list[bytes]:
    """``data`` between ``bounds`` as frames."""
    pack = compressor(parameters).compress
    view = data.data
    return [pack(view[a:b]) for a, b in pairwise(bounds.tolist())]


def _packed(
    data: U8, begin: I64, group: I64, parameters: zstandard.ZstdCompressionParameters
) -> tuple[list[bytes], I64, I64, I64]:
    """Return frames of the blocks between each ``begin`` and the next, with a ``group`` in one
    frame; their contents' sizes, the frame of each block, and its offset in the content."""
    first = np.flatnonzero(np.diff(group, prepend=-1))
    bounds = np.append(begin[first], begin[-1])
    frames = _compressed(data, bounds, parameters)
    frame = np.searchsorted(first, np.arange(len(group)), side="right") - 1
    return frames, np.diff(bounds), frame, begin[:-1] - bounds[frame]


def decode_places(
    stored: StoredBlocks, least: U32, state: U8 | None = None
) -> tuple[Unsigned, U32]:
    """Ticks since each block's first record and nodes (``uint32``), both ``[n, 1024]``.

    States are written into ``state``, of the same shape, if there is one. ``least`` is as in
    :class:`Encoded`. Ticks are ``uint32`` where they all fit, else ``uint64``.
    A block that is not full repeats its last record. Raises :class:`FormatError`.
    """
    shape = (len(stored), BLOCK_RECORDS)
    step, node = np.empty(shape, np.uint32), np.empty(shape, np.uint32)
    highest = kernels.decode_places(stored.as_structure(), np.array(least), step, node, state)
    if highest < 0:
        raise damaged_block()
    if highest * BLOCK_RECORDS <= MAX_STEP:
        kernels.sum_steps32(step, len(step))
        return step, node
    since = np.empty(shape, np.uint64)
    kernels.sum_steps64(step, len(step), since)
    return since, node


def decode_codes(stored: StoredBlocks, ticks: Unsigned) -> tuple[U16, U64]:
    """Events ``uint16[n, 1024]`` and values ``uint64[n, 1024]`` of ``n`` blocks.

    ``ticks`` are the result of :func:`decode_places`. A block without stored codes has events 0 and
    values 1. Entries behind the records of a block that is not full are meaningless. Raises
    :class:`FormatError`.
    """
    shape = (len(stored), BLOCK_RECORDS)
    event, value = np.empty(shape, np.uint16), np.empty(shape, np.uint64)
    narrow, wide = (None, ticks) if ticks.dtype == np.uint64 else (ticks, None)
    if not kernels.decode_codes(stored.as_structure(), narrow, wide, event, value):
        raise damaged_block()
    return event, value


def damaged_block() -> FormatError:
    """The error of a block whose bytes differ from its table."""
    return FormatError("a block has another length than its table says")
