"""Blocks: how trace records are stored in a database, up to 2,048 of one line together.

A block is one zstd frame of byte planes: eight planes of a byte each per record, four of the time
since the record before (in ticks), four of the node. High planes are nearly constant and cost
nothing compressed; that every block is laid out alike lets thousands be decoded in one go. Where a
measurement has several events or values other than 1, a second frame holds them: two planes of the
event and eight of the value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import zstandard

from hpcd.errors import FormatError

U8 = npt.NDArray[np.uint8]
U16 = npt.NDArray[np.uint16]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]

# Long enough that a frame's fixed cost is little (1,024: 3 % more bytes and a third more time),
# short enough that a deep zoom, which decodes at least one per line, stays fast.
BLOCK_RECORDS = 2048
# Steps within a block are 32-bit; a wait of over 71 minutes begins a new one.
MAX_STEP = (1 << 32) - 1

_PLACE_PLANES = 8
_WEIGHT_PLANES = 10
# Levels above 1 save 1 % and cost half as much again.
_LEVEL = 1


@dataclass(frozen=True, slots=True)
class Frames:
    """Encoded blocks: ``data`` their frames in order, ``place`` and ``weight`` ``uint32[n]``: the
    bytes of each block's first frame (times, nodes) and second one (events, values; or 0).
    """

    data: list[bytes]
    place: U32
    weight: U32


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


def encode(cuts: I64, time: I64, node: U32, event: U16 | None, value: U64 | None) -> Frames:
    """Blocks of the records between ``cuts``; ``event`` and ``value`` both or neither.

    A block's first time is not in it: the part's table has it.
    """
    step = np.empty(len(time), np.uint32)
    np.subtract(time[1:], time[:-1], out=step[1:], casting="unsafe")
    step[cuts[:-1]] = 0
    pack = zstandard.ZstdCompressor(level=_LEVEL).compress
    bounds = cuts.tolist()
    pairs = list(pairwise(bounds))
    planes = _planes(step, 4) + _planes(node, 4)
    place = [pack(b"".join([plane[a:b] for plane in planes])) for a, b in pairs]
    sizes = np.array([len(frame) for frame in place], np.uint32)
    if event is None or value is None:
        return Frames(place, sizes, np.zeros(len(place), np.uint32))
    planes = _planes(event, 2) + _planes(value, 8)
    weight = [pack(b"".join([plane[a:b] for plane in planes])) for a, b in pairs]
    both = [frame for pair in zip(place, weight, strict=True) for frame in pair]
    return Frames(both, sizes, np.array([len(frame) for frame in weight], np.uint32))


def decode_places(frames: Sequence[memoryview], base: I64, count: I64) -> tuple[I64, U32]:
    """Times in ticks ``int64[n, 2048]`` and nodes ``uint32[n, 2048]`` of ``n`` blocks.

    ``base`` are their first times, ``count`` their records. A block that is not full repeats its
    last record. Raises :class:`FormatError`.
    """
    planes = _decompress(frames, count, _PLACE_PLANES)
    # The first time is in the table; the sum begins there.
    step = _join(planes[:, :4], np.uint32)
    time = np.cumsum(step, axis=1, dtype=np.int64)
    time += base[:, None]
    return time, _join(planes[:, 4:], np.uint32)


def decode_weights(frames: Sequence[memoryview], count: I64) -> tuple[U16, U64]:
    """Events ``uint16[n, 2048]`` and values ``uint64[n, 2048]`` of ``n`` blocks.

    An empty frame stands for a block of event 0 whose values are all 1.
    """
    event = np.zeros((len(frames), BLOCK_RECORDS), np.uint16)
    value = np.ones((len(frames), BLOCK_RECORDS), np.uint64)
    given = [number for number, frame in enumerate(frames) if len(frame)]
    if given:
        planes = _decompress([frames[number] for number in given], count[given], _WEIGHT_PLANES)
        event[given] = _join(planes[:, :2], np.uint16)
        value[given] = _join(planes[:, 2:], np.uint64)
    return event, value


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


def _join(planes: U8, kind: npt.DTypeLike) -> npt.NDArray[np.unsignedinteger]:
    """Integers ``[n, records]`` of byte planes ``[n, width, records]``."""
    values: npt.NDArray[np.unsignedinteger] = planes[:, 0].astype(kind)
    for number in range(1, planes.shape[1]):
        plane = planes[:, number]
        if plane.any():
            values |= plane.astype(kind) << values.dtype.type(8 * number)
    return values


def _decompress(frames: Sequence[memoryview], count: I64, width: int) -> U8:
    """Planes ``uint8[n, width, 2048]``; a short block's last record fills it up."""
    unpack = zstandard.ZstdDecompressor().decompress
    size_of = zstandard.frame_content_size
    wanted = (count * width).tolist()
    parts = []
    try:
        for frame, size in zip(frames, wanted, strict=True):
            # A frame may claim any size and would get the memory for it.
            if size_of(frame) != size:
                raise FormatError("a block has another length than its table says")
            parts.append(unpack(frame))
    except zstandard.ZstdError as error:
        raise FormatError(f"a block does not decompress: {error}") from None
    for number in np.flatnonzero(count < BLOCK_RECORDS).tolist():
        parts[number] = _fill(parts[number], width)
    return np.frombuffer(b"".join(parts), np.uint8).reshape(len(parts), width, BLOCK_RECORDS)


def _fill(data: bytes, width: int) -> bytes:
    """A short block filled up with its last record; steps in time are 0."""
    planes = np.frombuffer(data, np.uint8).reshape(width, -1)
    full = np.empty((width, BLOCK_RECORDS), np.uint8)
    full[:, : planes.shape[1]] = planes
    full[:, planes.shape[1] :] = planes[:, -1:]
    full[:4, planes.shape[1] :] = 0
    return full.tobytes()
