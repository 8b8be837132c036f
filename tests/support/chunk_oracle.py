"""Payloads of RECORDS chunks read by numpy, column by column: an oracle for the kernels."""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Any

import numpy as np

from hpcd.errors import FormatError

_CONSTANT, _PLANES, _RANKED = 0, 1, 3


class _Columns:
    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def take(self, size: int) -> bytes:
        self.at += size
        if self.at > len(self.data):
            raise FormatError("cut off")
        return self.data[self.at - size : self.at]

    def column(self, count: int, bits: int) -> Any:
        coding, width, _, size = struct.unpack("<BBHI", self.take(8))
        data = self.take(size)
        if coding == _CONSTANT and size == 8:
            values = np.full(count, int.from_bytes(data, "little"), np.uint64)
        elif coding == _PLANES and width in (1, 2, 4, 8) and size == width * count:
            values = _united(data, width, count)
            if 8 * width > bits:
                raise FormatError("too wide")
        elif coding == _RANKED and size >= 8:
            entries, word, width = struct.unpack_from("<IBB", data)
            sound = word in (1, 2, 4) and width in (1, 2, 4) and 0 < entries <= count
            if not sound or size != 8 + word * entries + width * count:
                raise FormatError("dictionary")
            words = _united(data[8 : 8 + word * entries], word, entries)
            place = _united(data[8 + word * entries :], width, count)
            if (place >= entries).any():
                raise FormatError("dictionary")
            values = words[place]
        else:
            raise FormatError("coding")
        if (values >> np.uint64(bits - 1) > 1).any():
            raise FormatError("too large")
        return values


def _united(data: bytes, width: int, count: int) -> Any:
    planes = np.frombuffer(data, np.uint8, width * count).reshape(width, count)
    shifts = np.uint64(8) * np.arange(width, dtype=np.uint64)
    return (planes.astype(np.uint64) << shifts[:, None]).sum(axis=0, dtype=np.uint64)


def read_records(data: bytes) -> tuple[Any, ...]:
    """(line, start, time_ns, node, event, value) of a chunk. Raises :class:`FormatError`."""
    if len(data) < 20:
        raise FormatError("header")
    lines, records, base, unit = struct.unpack_from("<IIQI", data)
    if records > 1 << 20 or lines > records or not 1 <= unit <= 1_000_000:
        raise FormatError("header")
    columns = _Columns(data, 20)
    line, count = columns.column(lines, 32), columns.column(lines, 32).astype(np.int64)
    if count.sum() != records or (count < 1).any():
        raise FormatError("counts")
    start = np.concatenate(([0], np.cumsum(count)))
    step, node = columns.column(records, 64), columns.column(records, 32)
    kind = columns.column(records, 32)
    is_odd = (kind & np.uint64(1)).astype(bool)
    value = np.ones(records, np.uint64)
    value[is_odd] = columns.column(int(is_odd.sum()), 64)
    # What follows a record that lasts is counted from its end.
    lasted = np.where(kind >> np.uint64(1) & np.uint64(1), value, np.uint64(0))
    lasted[start[1:] - 1] = 0
    step[1:] += lasted[:-1]
    if any((column >= 1 << 44).any() for column in (step, lasted)) or (kind >> np.uint64(18)).any():
        raise FormatError("out of range")
    time = step.copy()
    for a, b in pairwise(start.tolist()):
        time[a:b] = np.cumsum(step[a:b], dtype=np.uint64)
    time = (time + np.uint64(base)) * np.uint64(unit)
    return line, start, time, node, kind >> np.uint64(2), value
