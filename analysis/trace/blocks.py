"""Blocks: how trace records are stored in a database, up to 1,024 of one line together.

What a block has of times and nodes are byte planes, a byte of each record together: first of the
times since the record before (in ticks, less the block's least step), then of the nodes; as many
planes of each as its greatest number needs. Blocks of the same widths are decoded in one go,
however many. A node is 0 where it is that of the record before it, which then has a number, else
one more than it is: the end of an interval is always of its beginning's node. (That no two in a row
are 0 costs few bytes, and nodes are read in one step.)

For records that are not all of event 0 and value 1, each has a *code*: its event times four, and
what its value is.

==== ===============================================================================
0    1: a sample
1    0: the end of an interval
2    the ticks until the next record: an interval, whose end follows
3    something else: the values of these stand behind the codes, in planes
==== ===============================================================================

Blocks that follow one another are compressed together, as one zstd frame: some 2,000 records' times
and nodes (of more a deep zoom, which needs one block of each line, would decompress much for
nothing), and eight times as many codes, which no picture needs. Short lines share frames.

Until version 3 of parts every block had frames of its own, nodes stood for themselves and values
behind the codes took 8 bytes. Until version 2 the second frame had two planes of the event and
eight of the value.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard

from hpcd.analysis.arrays.packed_frames import decompress_into, side_by_side
from hpcd.analysis.trace.block_loops import block_loops
from hpcd.array_types import I64, U8, U16, U32, U64
from hpcd.errors import FormatError
from hpcd.measurement.planes import from_planes
from hpcd.measurement.zstd_contexts import compressor

# Long enough that what a block costs in a table is little, short enough that a deep zoom, which
# decodes at least one per line, stays fast (2,048: half as long again).
BLOCK_RECORDS = 1024
# Steps within a block are 32-bit; a wait of over 71 minutes begins a new one.
MAX_STEP = (1 << 32) - 1
# Blocks that begin within so many records share a frame: of times and nodes few, for a deep zoom
# decompresses all to draw one (4,096: 1 % fewer bytes, a fifth more time).
_PLACES_TOGETHER = 2048
_CODES_TOGETHER = 16384

_BYTE_LIMITS = np.array([1 << 8, 1 << 16, 1 << 24], np.uint32)
# Of a second frame as it was until version 2.
_WEIGHT_PLANES = 10
_ONE, _ZERO, _STEP, _OTHER = range(4)
_OTHER_BYTES = 8
# Bytes that are worth a thread.
_WORTH_A_THREAD = 1 << 20
# More than any frame holds: places take 8 bytes a record, codes 11.
MOST_CONTENT = 1 << 18
# As many as a picture's share of a small machine may be.
_THREADS = min(len(os.sched_getaffinity(0)), 4)
# Of the width of a block: nodes are 0 where they repeat; where the planes of other values stand.
_CHAINED = np.uint16(1 << 14)
_OTHER_SHIFT = np.uint16(10)
# What level 1 does, with matches from 6 bytes on and a small hash table: levels above 1 save 1 %
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
    ``frame`` and ``at`` ``int64[n]``: the frame of each block's times and nodes, and where in it
    they begin; ``code_frame`` and ``code_at`` the same of its codes, -1 where it has none.
    ``least`` ``uint32[n]`` their least step in ticks; ``width`` ``uint16[n]`` the planes of times
    (bits 0 to 3), of nodes (bits 4 to 7), of codes (bits 8 and 9) and of other values (bits 10 to
    13), and whether nodes that repeat are 0 (bit 14).
    """

    data: list[bytes]
    content: I64
    frame: I64
    at: I64
    code_frame: I64
    code_at: I64
    least: U32
    width: U16


class Stored:
    """Blocks to decode together: where each begins in which frame. Of one part or of several."""

    def __init__(self) -> None:
        self._frames: list[memoryview] = []
        self._content: list[int] = []
        self._number: dict[tuple[int, int], int] = {}
        self._blocks: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._blocks)

    def add(self, owner: int, frame: int, at: int, data: memoryview, content: int) -> None:
        """A block at ``at`` in frame number ``frame`` of ``owner``, which is ``data`` and
        decompresses to ``content`` bytes (0: what it says of itself)."""
        number = self._number.setdefault((owner, frame), len(self._frames))
        if number == len(self._frames):
            self._frames.append(data)
            self._content.append(content)
        self._blocks.append((number, at))

    def add_none(self) -> None:
        """A block that nothing is stored of."""
        self._blocks.append((-1, 0))

    def unpacked(self) -> tuple[list[Any], I64, I64, I64]:
        """The frames' contents (buffers) and sizes ``int64[f]``; ``frame`` and ``at`` ``int64[n]``
        of the blocks. Raises :class:`FormatError`."""
        sizes = np.array(self._content, np.int64)
        contents = unpacked(self._frames, sizes)
        place = np.array(self._blocks, np.int64).reshape(-1, 2)
        return contents, sizes, place[:, 0], place[:, 1]


def unpacked(frames: Sequence[memoryview], sizes: I64) -> list[Any]:
    """The contents (buffers) of ``frames``, which have ``sizes`` bytes; a 0 in it becomes what the
    frame says of itself. Raises :class:`FormatError`."""
    whole = unpacked_together(frames, sizes).data
    return [whole[a:b] for a, b in pairwise(np.append(0, np.cumsum(sizes)).tolist())]


def unpacked_together(frames: Sequence[memoryview], sizes: I64) -> U8:
    """The same, one behind the other."""
    size_of = zstandard.frame_content_size
    try:
        for number, (frame, wanted) in enumerate(zip(frames, sizes.tolist(), strict=True)):
            # A frame may claim any size and would get the memory for it.
            size = size_of(frame)
            if size != wanted if wanted else not 0 < size <= MOST_CONTENT:
                raise FormatError("a block has another length than its table says")
            sizes[number] = size
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
    """``int64[n + 1]``: where blocks begin in records that lie line by line, and their end.

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
    cuts: I64, time: I64, node: U32, event: U16 | None, value: U64 | None, loops: Any = None,
    parts: I64 | None = None,
) -> Encoded:  # fmt: skip
    """Blocks of the records between ``cuts``; ``event`` and ``value`` both or neither.

    ``parts`` are cuts at which the records of another part begin (the first one too): no frame has
    blocks of two.

    Nodes are below 2^32 - 1. A block's first time is not in it: the part's table has it.
    ``loops`` are :class:`MergeLoops`; without them the same is done by numpy.
    """
    make = _place_planes if loops is None else loops.place_planes
    data, begin, least, times, nodes = make(cuts, time, node)
    width = times | nodes << np.uint16(4) | _CHAINED
    start, owner = _starts(cuts, parts)
    group = start // _PLACES_TOGETHER + owner
    frames, content, frame, at = _packed(data, begin, group, _PLACE_PARAMETERS)
    none = np.full(len(frame), -1, np.int64)
    if event is None or value is None:
        return Encoded(frames, content, frame, at, none, np.zeros_like(none), least, width)
    weigh = _code_planes if loops is None else loops.code_planes
    data, begin, codes, others = weigh(cuts, time, event, value)
    more, code_content, code_frame, code_at = _packed(
        data, begin, start // _CODES_TOGETHER + owner, _CODE_PARAMETERS
    )
    return Encoded(
        frames + more,
        np.concatenate((content, code_content)),
        frame,
        at,
        code_frame + len(frames),
        code_at,
        least,
        width | codes << np.uint16(8) | others << _OTHER_SHIFT,
    )


def _compressed(
    data: U8, bounds: I64, parameters: zstandard.ZstdCompressionParameters
) -> list[bytes]:
    """``data`` between ``bounds`` as frames."""
    pack = compressor(parameters).compress
    view = data.data
    return [pack(view[a:b]) for a, b in pairwise(bounds.tolist())]


def _starts(cuts: I64, parts: I64 | None) -> tuple[I64, I64]:
    """Where each block begins in its part, and a number of that part, far from all others."""
    if len(cuts) < 2:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    begin = cuts[:1] if parts is None else parts
    owner = np.searchsorted(begin, cuts[:-1], side="right") - 1
    return cuts[:-1] - begin[owner], owner << 40


def _packed(
    data: U8, begin: I64, group: I64, parameters: zstandard.ZstdCompressionParameters
) -> tuple[list[bytes], I64, I64, I64]:
    """Frames of the blocks between each ``begin`` and the next, those of a ``group`` together;
    their contents' sizes, the frame of each block, and where in it the block begins."""
    first = np.flatnonzero(np.diff(group, prepend=-1))
    bounds = np.append(begin[first], begin[-1])
    frames = _compressed(data, bounds, parameters)
    frame = np.searchsorted(first, np.arange(len(group)), side="right") - 1
    return frames, np.diff(bounds), frame, begin[:-1] - bounds[frame]


def _place_planes(cuts: I64, time: I64, node: U32) -> tuple[U8, I64, U32, U16, U16]:
    """Times and nodes of blocks before they are compressed: their bytes, where each block begins
    and the last ends, least steps, planes of times and of nodes."""
    if len(cuts) < 2:
        none = np.zeros(0, np.uint16)
        return np.zeros(0, np.uint8), np.zeros(1, np.int64), np.zeros(0, np.uint32), none, none
    step = np.empty(len(time), np.uint32)
    np.subtract(time[1:], time[:-1], out=step[1:], casting="unsafe")
    # A block's first time is in the table; regular sampling leaves a byte of the other steps.
    step[cuts[:-1]] = MAX_STEP
    least = np.minimum.reduceat(step, cuts[:-1])
    step[cuts[:-1]] = least
    step -= np.repeat(least, np.diff(cuts))
    chained = node + np.uint32(1)
    fresh = np.ones(len(node), bool)
    np.not_equal(node[1:], node[:-1], out=fresh[1:])
    fresh[cuts[:-1]] = True
    begin = np.flatnonzero(fresh)
    within = np.arange(len(node)) - np.repeat(begin, np.diff(begin, append=len(node)))
    chained[within & 1 == 1] = 0
    times, nodes = _width(step, cuts), _width(chained, cuts)
    return *_blocks(cuts, [(step, times), (chained, nodes)]), least, times, nodes


def _code_planes(cuts: I64, time: I64, event: U16, value: U64) -> tuple[U8, I64, U16, U16]:
    """Codes of blocks before they are compressed: their bytes, where each block begins and the last
    ends, planes of codes and of other values."""
    code = np.full(len(value), _OTHER, np.uint32)
    following = np.flatnonzero(value[:-1] == np.diff(time).view(np.uint64))
    code[following] = _STEP
    # What follows the last of a block is not known where it is decoded.
    code[cuts[1:] - 1] = _OTHER
    code[value == 0] = _ZERO
    code[value == 1] = _ONE
    other = np.flatnonzero(code == _OTHER)
    code |= event.astype(np.uint32) << np.uint32(2)
    rest = value[other]
    bounds = np.searchsorted(other, cuts)
    top = np.zeros(len(rest) + 1, np.uint64)
    top[:-1] = rest
    filled = np.flatnonzero(np.diff(bounds))
    wide = np.zeros(len(cuts) - 1, np.uint16)
    if len(filled):
        greatest = np.maximum.reduceat(top, bounds[:-1][filled])
        limits = np.uint64(1) << (np.arange(1, 8, dtype=np.uint64) * np.uint64(8))
        wide[filled] = np.searchsorted(limits, greatest, side="right") + 1
    planes = _width(code, cuts)
    data, begin = _blocks(cuts, [(code, planes)], (rest, bounds, wide))
    return data, begin, planes, wide


def _blocks(
    cuts: I64, columns: list[tuple[U32, U16]], tail: tuple[U64, I64, U16] | None = None
) -> tuple[U8, I64]:
    """The planes of ``columns`` between ``cuts``, block by block, and where each begins; ``tail``
    are values, where those of each block begin, and how many planes they have."""
    split = [_planes(values, int(width.max(initial=1))) for values, width in columns]
    widths = [width.tolist() for _, width in columns]
    parts: list[Any] = []
    sizes = np.diff(cuts) * sum(width.astype(np.int64) for _, width in columns)
    for block, (a, b) in enumerate(pairwise(cuts.tolist())):
        for planes, width in zip(split, widths, strict=True):
            parts += [plane[a:b] for plane in planes[: width[block]]]
        if tail is not None and tail[2][block]:
            rest = tail[0][tail[1][block] : tail[1][block + 1]]
            parts += _planes(rest, int(tail[2][block]))
    if tail is not None:
        sizes += np.diff(tail[1]) * tail[2]
    begin = np.concatenate(([0], np.cumsum(sizes)))
    return np.frombuffer(b"".join(parts), np.uint8), begin


def decode_places(
    stored: Stored, width: U16, least: U32, count: I64
) -> tuple[npt.NDArray[np.unsignedinteger], U32]:
    """Ticks since each block's first record and nodes (``uint32``), both ``[n, 1024]``.

    ``width`` and ``least`` are those of :class:`Encoded`, ``count`` the blocks' records. Ticks are
    ``uint32`` where they all fit, else ``uint64``. A block that is not full repeats its last
    record. Raises :class:`FormatError`.
    """
    contents, sizes, frame, at = stored.unpacked()
    loops = block_loops(BLOCK_RECORDS)
    if loops is not None and len(stored):
        found = loops.places(contents, sizes, frame, at, count, width, least, MAX_STEP)
        if found is not None:
            return found
    shape = (len(stored), BLOCK_RECORDS)
    step, node = np.empty(shape, np.uint32), np.empty(shape, np.uint32)
    kinds = width & np.uint16(_CHAINED | 255)
    for kind in np.unique(kinds).tolist():
        mine = np.flatnonzero(kinds == kind)
        times, nodes = kind & 15, kind >> 4 & 15
        if not (1 <= times <= 4 and 1 <= nodes <= 4):
            raise FormatError("a block has planes of no number")
        planes = _cut_out(contents, sizes, frame[mine], at[mine], count[mine], times + nodes)
        every = slice(None) if len(mine) == len(stored) else mine
        step[every] = from_planes(planes[:, :times], np.uint32)
        code = from_planes(planes[:, times:], np.uint32)
        node[every] = _unchained(code) if kind & _CHAINED else code
    step += least[:, None]
    step[:, 0] = 0
    for number in np.flatnonzero(count < BLOCK_RECORDS).tolist():
        filled = int(count[number])
        step[number, filled:] = 0
        node[number, filled:] = node[number, filled - 1]
    # Sums of half the size where no block can be longer than they hold.
    highest = int(step.max(initial=0)) if len(stored) else 0
    ticks: type[np.uint32] | type[np.uint64]
    ticks = np.uint32 if highest * BLOCK_RECORDS <= MAX_STEP else np.uint64
    return np.cumsum(step, axis=1, dtype=ticks), node


def _unchained(code: U32) -> U32:
    """Nodes ``[n, 1024]`` of their codes: 0 is the node before, others one more than it is."""
    np.copyto(code[:, 1:], code[:, :-1], where=code[:, 1:] == 0)
    # What is still 0 comes to a node that there is not.
    code -= np.uint32(1)
    return code


def decode_weights(
    stored: Stored, count: I64, width: U16, ticks: npt.NDArray[np.unsignedinteger]
) -> tuple[U16, U64]:
    """Events ``uint16[n, 1024]`` and values ``uint64[n, 1024]`` of ``n`` blocks.

    ``width`` is that of :class:`Encoded`, ``ticks`` what :func:`decode_places` gives. A block that
    nothing is stored of has events 0 and values 1. What lies behind the records of a block that is
    not full is of no meaning. Raises :class:`FormatError`.
    """
    contents, sizes, frame, at = stored.unpacked()
    loops = block_loops(BLOCK_RECORDS)
    if loops is not None and len(stored):
        found = loops.weights(contents, sizes, frame, at, count, width, ticks)
        if found is not None:
            return found
    event = np.zeros((len(stored), BLOCK_RECORDS), np.uint16)
    value = np.ones((len(stored), BLOCK_RECORDS), np.uint64)
    given = frame >= 0
    planes = width >> np.uint16(8) & np.uint16(3)
    old = np.flatnonzero(given & (planes == 0))
    if len(old):
        data = _cut_out(contents, sizes, frame[old], at[old], count[old], _WEIGHT_PLANES)
        event[old] = from_planes(data[:, :2], np.uint16)
        value[old] = from_planes(data[:, 2:], np.uint64)
    whole = np.frombuffer(b"".join(contents), np.uint8)
    ends = np.cumsum(sizes)
    for number in np.unique(planes[given & (planes > 0)]).tolist():
        mine = np.flatnonzero(given & (planes == number))
        begin = (ends - sizes)[frame[mine]] + at[mine]
        code, other = _codes(whole, begin, ends[frame[mine]], count[mine], number, width[mine])
        event[mine] = code >> np.uint32(2)
        kind = code & np.uint32(3)
        values = value[mine]
        values[kind == _ZERO] = 0
        steps = np.zeros((len(mine), BLOCK_RECORDS), np.uint64)
        np.subtract(ticks[mine, 1:], ticks[mine, :-1], out=steps[:, :-1])
        values = np.where(kind == _STEP, steps, values)
        values[(kind == _OTHER) & (np.arange(BLOCK_RECORDS) < count[mine, None])] = other
        value[mine] = values
    return event, value


def _codes(data: U8, begin: I64, end: I64, count: I64, planes: int, width: U16) -> tuple[U32, U64]:
    """Codes ``uint32[n, 1024]`` of blocks with as many ``planes`` that begin at ``begin`` in
    ``data``, in frames that end at ``end``; and the values that stand behind them, in order."""
    # Until version 3 of parts 8 bytes each, one value after another.
    early = width & _CHAINED == 0
    wide = np.where(early, _OTHER_BYTES, width >> _OTHER_SHIFT & np.uint16(15)).astype(np.int64)
    if bool((count < 1).any() or (begin < 0).any() or (begin + count * planes > end).any()):
        raise FormatError("a block has another length than its table says")
    column = np.minimum(np.arange(BLOCK_RECORDS), count[:, None] - 1) + begin[:, None]
    code: U32 = data[column].astype(np.uint32)
    for plane in range(1, planes):
        column += count[:, None]
        code |= data[column].astype(np.uint32) << np.uint32(8 * plane)
    real = np.arange(BLOCK_RECORDS) < count[:, None]
    others = ((code & np.uint32(3) == _OTHER) & real).sum(axis=1)
    first = begin + count * planes
    if bool((first + others * wide > end).any() or (wide > _OTHER_BYTES).any()):
        raise FormatError("a block has another number of values than its codes say")
    within = np.arange(int(others.sum())) - np.repeat(np.cumsum(others) - others, others)
    values = np.zeros(len(within), np.uint64)
    stride, step = np.where(early, 1, others), np.where(early, _OTHER_BYTES, 1)
    where = np.repeat(first, others) + within * np.repeat(step, others)
    stride, many = np.repeat(stride, others), np.repeat(wide, others)
    for plane in range(int(wide.max(initial=0))):
        there = np.flatnonzero(many > plane)
        byte = data[where[there] + plane * stride[there]].astype(np.uint64)
        values[there] |= byte << np.uint64(8 * plane)
    return code, values


def _width(values: U32, cuts: I64) -> U16:
    """Bytes that the greatest of the values between ``cuts`` needs, at least 1."""
    if len(cuts) < 2:
        return np.zeros(0, np.uint16)
    top = np.maximum.reduceat(values, cuts[:-1])
    return np.searchsorted(_BYTE_LIMITS, top, side="right").astype(np.uint16) + np.uint16(1)


def _planes(values: npt.NDArray[np.unsignedinteger], width: int) -> list[memoryview]:
    """``width`` byte planes of ``values``, the lowest first."""
    top = int(values.max(initial=0))
    zeros: U8 | None = None
    planes = []
    for number in range(width):
        if top >> (8 * number):
            shifted = values >> values.dtype.type(8 * number) if number else values
            planes.append(shifted.astype(np.uint8).data)
            continue
        zeros = np.zeros(len(values), np.uint8) if zeros is None else zeros
        planes.append(zeros.data)
    return planes


def _cut_out(contents: list[Any], sizes: I64, frame: I64, at: I64, count: I64, width: int) -> U8:
    """Planes ``uint8[n, width, 1024]`` of blocks in ``contents``; a short block's last record fills
    it up."""
    size = count * width
    if bool((count < 1).any() or (at < 0).any() or (at + size > sizes[frame]).any()):
        raise FormatError("a block has another length than its table says")
    views = [memoryview(content) for content in contents]
    parts: list[Any] = [
        views[number][a:b]
        for number, a, b in zip(frame.tolist(), at.tolist(), (at + size).tolist(), strict=True)
    ]
    for number in np.flatnonzero(count < BLOCK_RECORDS).tolist():
        parts[number] = _fill(parts[number], width)
    return np.frombuffer(b"".join(parts), np.uint8).reshape(len(parts), width, BLOCK_RECORDS)


def _fill(data: Any, width: int) -> bytes:
    """A short block filled up with its last record."""
    planes = np.frombuffer(data, np.uint8).reshape(width, -1)
    full = np.empty((width, BLOCK_RECORDS), np.uint8)
    full[:, : planes.shape[1]] = planes
    full[:, planes.shape[1] :] = planes[:, -1:]
    return full.tobytes()
