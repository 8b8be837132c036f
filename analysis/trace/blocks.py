"""Blocks: how trace records are stored in a database, up to 1,024 of one line together.

A block is one zstd frame of byte planes, a byte of each record together: first of the times since
the record before (in ticks, less the block's least step), then of the nodes; as many planes of each
as its greatest number needs. Blocks of the same widths are decoded in one go, however many.

A second frame, for records that are not all of event 0 and value 1, has a *code* for each: its
event times four, and what its value is.

==== ===============================================================================
0    1: a sample
1    0: the end of an interval
2    the ticks until the next record: an interval, whose end follows
3    something else: the values of these stand behind the codes, 8 bytes each
==== ===============================================================================

Until version 2 of parts the second frame had two planes of the event and eight of the value.
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

from hpcd.array_types import I64, U8, U16, U32, U64
from hpcd.errors import FormatError
from hpcd.measurement.planes import from_planes

# Long enough that a frame's fixed cost is little (2,048: 1 % fewer bytes), short enough that a deep
# zoom, which decodes at least one per line, stays fast (2,048: half as long again).
BLOCK_RECORDS = 1024
# Steps within a block are 32-bit; a wait of over 71 minutes begins a new one.
MAX_STEP = (1 << 32) - 1

_BYTE_LIMITS = np.array([1 << 8, 1 << 16, 1 << 24], np.uint32)
# Of a second frame as it was until version 2.
_WEIGHT_PLANES = 10
_ONE, _ZERO, _STEP, _OTHER = range(4)
_OTHER_BYTES = 8
_FEW_FRAMES = 8
# As many as a picture's share of a small machine may be.
_THREADS = min(len(os.sched_getaffinity(0)), 4)
# What level 1 does, with matches from 4 bytes on and a hash table for the few kB that a block is:
# 1.5 % fewer bytes, and a third less time for second frames. Levels above 1 save 1 % and cost half
# as much again.
_FAST = 1
_PARAMETERS = zstandard.ZstdCompressionParameters(
    window_log=14, chain_log=6, hash_log=11, search_log=1, min_match=4, target_length=0,
    strategy=_FAST, write_content_size=True,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Frames:
    """Encoded blocks: ``data`` their frames in order, ``place`` and ``weight`` ``uint32[n]``: the
    bytes of each block's first frame (times, nodes) and second one (events, values; or 0);
    ``least`` ``uint32[n]`` their least step in ticks; ``width`` ``uint16[n]`` the planes of times
    (bits 0 to 3), of nodes (bits 4 to 7) and of codes (bits 8 and 9; 0 in parts of version 1).
    """

    data: list[bytes]
    place: U32
    weight: U32
    least: U32
    width: U16


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
    cuts: I64, time: I64, node: U32, event: U16 | None, value: U64 | None, kernels: Any = None
) -> Frames:
    """Blocks of the records between ``cuts``; ``event`` and ``value`` both or neither.

    A block's first time is not in it: the part's table has it. ``kernels`` are
    :mod:`hpcd.analysis.trace.kernels`; without them the same is done by numpy.
    """
    if kernels is not None:
        return _encode_compiled(kernels, cuts, time, node, event, value)
    step = np.empty(len(time), np.uint32)
    np.subtract(time[1:], time[:-1], out=step[1:], casting="unsafe")
    # A block's first time is in the table; regular sampling leaves a byte of the other steps.
    step[cuts[:-1]] = MAX_STEP
    least = np.minimum.reduceat(step, cuts[:-1]) if len(cuts) > 1 else np.zeros(0, np.uint32)
    step[cuts[:-1]] = least
    bounds = cuts.tolist()
    pairs = list(pairwise(bounds))
    for (a, b), smallest in zip(pairs, least, strict=True):
        step[a:b] -= smallest
    pack = zstandard.ZstdCompressor(compression_params=_PARAMETERS).compress
    times, nodes = _width(step, cuts), _width(node, cuts)
    step_planes, node_planes = _planes(step, 4), _planes(node, 4)
    place = [
        pack(b"".join([plane[a:b] for plane in step_planes[:t] + node_planes[:n]]))
        for (a, b), t, n in zip(pairs, times.tolist(), nodes.tolist(), strict=True)
    ]
    sizes = np.array([len(frame) for frame in place], np.uint32)
    width = times | nodes << np.uint16(4)
    if event is None or value is None:
        return Frames(place, sizes, np.zeros(len(place), np.uint32), least, width)
    weight, planes = _encode_weights(cuts, time, event, value)
    both = [frame for pair in zip(place, weight, strict=True) for frame in pair]
    weights = np.array([len(frame) for frame in weight], np.uint32)
    return Frames(both, sizes, weights, least, width | planes << np.uint16(8))


def _encode_compiled(
    kernels: Any, cuts: I64, time: I64, node: U32, event: U16 | None, value: U64 | None
) -> Frames:
    data, begin, least, times, nodes = kernels.place_planes(cuts, time, node)
    place = _pack(data, begin)
    sizes = np.array([len(frame) for frame in place], np.uint32)
    width = times | nodes << np.uint16(4)
    if event is None or value is None:
        return Frames(place, sizes, np.zeros(len(place), np.uint32), least, width)
    data, begin, codes = kernels.code_planes(cuts, time, event, value)
    weight = _pack(data, begin)
    both = [frame for pair in zip(place, weight, strict=True) for frame in pair]
    weights = np.array([len(frame) for frame in weight], np.uint32)
    return Frames(both, sizes, weights, least, width | codes << np.uint16(8))


def _pack(data: U8, begin: I64) -> list[bytes]:
    """Frames of ``data`` between each ``begin`` and the next; of nothing, nothing."""
    pack = zstandard.ZstdCompressor(compression_params=_PARAMETERS).compress
    view = data.data
    return [pack(view[a:b]) if b > a else b"" for a, b in pairwise(begin.tolist())]


def _encode_weights(cuts: I64, time: I64, event: U16, value: U64) -> tuple[list[bytes], U16]:
    """The second frames, empty where all records are samples of event 0; their planes of codes."""
    code = np.full(len(value), _OTHER, np.uint32)
    following = np.flatnonzero(value[:-1] == np.diff(time).view(np.uint64))
    code[following] = _STEP
    # What follows the last of a block is not known where it is decoded.
    code[cuts[1:] - 1] = _OTHER
    code[value == 0] = _ZERO
    code[value == 1] = _ONE
    other = np.flatnonzero(code == _OTHER)
    code |= event.astype(np.uint32) << np.uint32(2)
    planes = _width(code, cuts)
    code_planes = _planes(code, int(planes.max(initial=0)))
    rest = value[other].astype("<u8").tobytes()
    bounds = (_OTHER_BYTES * np.searchsorted(other, cuts)).tolist()
    plain = np.maximum.reduceat(code, cuts[:-1]) == 0 if len(cuts) > 1 else np.zeros(0, bool)
    pack = zstandard.ZstdCompressor(compression_params=_PARAMETERS).compress
    frames = []
    for (a, b), n, (low, high), empty in zip(
        pairwise(cuts.tolist()), planes.tolist(), pairwise(bounds), plain.tolist(), strict=True
    ):
        parts = [plane[a:b] for plane in code_planes[:n]]
        frames.append(b"" if empty else pack(b"".join([*parts, rest[low:high]])))
    return frames, planes


def decode_places(
    frames: Sequence[memoryview], width: U16, least: U32, count: I64
) -> tuple[npt.NDArray[np.unsignedinteger], U32]:
    """Ticks since each block's first record and nodes (``uint32``), both ``[n, 1024]``.

    ``width`` and ``least`` are those of :class:`Frames`, ``count`` the blocks' records. Ticks are
    ``uint32`` where they all fit, else ``uint64``. A block that is not full repeats its last
    record. Raises :class:`FormatError`.
    """
    shape = (len(frames), BLOCK_RECORDS)
    step, node = np.empty(shape, np.uint32), np.empty(shape, np.uint32)
    kinds = width & np.uint16(255)
    for kind in np.unique(kinds).tolist():
        mine = np.flatnonzero(kinds == kind)
        times, nodes = kind & 15, kind >> 4 & 15
        if not (1 <= times <= 4 and 1 <= nodes <= 4):
            raise FormatError("a block has planes of no number")
        chosen = frames if len(mine) == len(frames) else [frames[n] for n in mine.tolist()]
        planes = _decompress(chosen, count[mine], times + nodes)
        every = slice(None) if len(mine) == len(frames) else mine
        step[every] = from_planes(planes[:, :times], np.uint32)
        node[every] = from_planes(planes[:, times:], np.uint32)
    step += least[:, None]
    step[:, 0] = 0
    for number in np.flatnonzero(count < BLOCK_RECORDS).tolist():
        step[number, count[number] :] = 0
    # Sums of half the size where no block can be longer than they hold.
    highest = int(step.max(initial=0)) if len(frames) else 0
    ticks: type[np.uint32] | type[np.uint64]
    ticks = np.uint32 if highest * BLOCK_RECORDS <= MAX_STEP else np.uint64
    return np.cumsum(step, axis=1, dtype=ticks), node


def decode_weights(
    frames: Sequence[memoryview], count: I64, width: U16, ticks: npt.NDArray[np.unsignedinteger]
) -> tuple[U16, U64]:
    """Events ``uint16[n, 1024]`` and values ``uint64[n, 1024]`` of ``n`` blocks.

    ``width`` is that of :class:`Frames`, ``ticks`` what :func:`decode_places` gives. An empty frame
    stands for a block of event 0 whose values are all 1. What lies behind the records of a block
    that is not full is of no meaning. Raises :class:`FormatError`.
    """
    event = np.zeros((len(frames), BLOCK_RECORDS), np.uint16)
    value = np.ones((len(frames), BLOCK_RECORDS), np.uint64)
    given = np.array([len(frame) > 0 for frame in frames], bool)
    planes = width >> np.uint16(8)
    old = np.flatnonzero(given & (planes == 0))
    if len(old):
        data = _decompress([frames[number] for number in old.tolist()], count[old], _WEIGHT_PLANES)
        event[old] = from_planes(data[:, :2], np.uint16)
        value[old] = from_planes(data[:, 2:], np.uint64)
    for number in np.unique(planes[given & (planes > 0)]).tolist():
        mine = np.flatnonzero(given & (planes == number))
        code, other = _codes([frames[block] for block in mine.tolist()], count[mine], number)
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


def _codes(frames: Sequence[memoryview], count: I64, planes: int) -> tuple[U32, U64]:
    """Codes ``uint32[n, 1024]`` of second frames with as many ``planes``, and the values that stand
    behind them, in order."""
    size_of = zstandard.frame_content_size
    try:
        size = np.array([size_of(frame) for frame in frames], np.int64)
        if bool(
            (count < 1).any()
            or (size < count * planes).any()
            or (size > count * (planes + _OTHER_BYTES)).any()
        ):
            raise FormatError("a block has another length than its table says")
        parts = _unpack(frames, size)
    except zstandard.ZstdError as error:
        raise FormatError(f"a block does not decompress: {error}") from None
    data = np.frombuffer(b"".join(parts), np.uint8)
    begin = np.cumsum(size) - size
    column = np.minimum(np.arange(BLOCK_RECORDS), count[:, None] - 1) + begin[:, None]
    code: U32 = data[column].astype(np.uint32)
    for plane in range(1, planes):
        column += count[:, None]
        code |= data[column].astype(np.uint32) << np.uint32(8 * plane)
    real = np.arange(BLOCK_RECORDS) < count[:, None]
    others = ((code & np.uint32(3) == _OTHER) & real).sum(axis=1)
    if bool((size != count * planes + _OTHER_BYTES * others).any()):
        raise FormatError("a block has another number of values than its codes say")
    rest = np.repeat(begin + count * planes, _OTHER_BYTES * others)
    within = np.arange(len(rest)) - np.repeat(
        np.cumsum(others) * _OTHER_BYTES - others * _OTHER_BYTES, _OTHER_BYTES * others
    )
    values: U64 = data[rest + within].view("<u8").astype(np.uint64)
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


def _decompress(frames: Sequence[memoryview], count: I64, width: int) -> U8:
    """Planes ``uint8[n, width, 1024]``; a short block's last record fills it up."""
    size_of = zstandard.frame_content_size
    wanted = count * width
    try:
        for frame, size in zip(frames, wanted.tolist(), strict=True):
            # A frame may claim any size and would get the memory for it.
            if size_of(frame) != size:
                raise FormatError("a block has another length than its table says")
        parts = _unpack(frames, wanted)
    except zstandard.ZstdError as error:
        raise FormatError(f"a block does not decompress: {error}") from None
    for number in np.flatnonzero(count < BLOCK_RECORDS).tolist():
        parts[number] = _fill(parts[number], width)
    return np.frombuffer(b"".join(parts), np.uint8).reshape(len(parts), width, BLOCK_RECORDS)


def _unpack(frames: Sequence[memoryview], sizes: I64) -> list[Any]:
    """The contents of ``frames``, as objects with the buffer protocol."""
    decompressor = zstandard.ZstdDecompressor()
    if len(frames) < _FEW_FRAMES or not hasattr(decompressor, "multi_decompress_to_buffer"):
        return [decompressor.decompress(frame) for frame in frames]
    # Many at once, on several cores: half of what drawing a picture record by record takes.
    # zstandard calls this experimental; without it all is as above.
    contents = decompressor.multi_decompress_to_buffer(
        list(frames), decompressed_sizes=sizes.astype("<u8").tobytes(), threads=_THREADS
    )
    return [contents[number] for number in range(len(contents))]


def _fill(data: Any, width: int) -> bytes:
    """A short block filled up with its last record."""
    planes = np.frombuffer(data, np.uint8).reshape(width, -1)
    full = np.empty((width, BLOCK_RECORDS), np.uint8)
    full[:, : planes.shape[1]] = planes
    full[:, planes.shape[1] :] = planes[:, -1:]
    return full.tobytes()
