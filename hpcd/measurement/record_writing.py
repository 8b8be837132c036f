"""Putting records in order and encoding them by compiled loops: what
:mod:`hpcd.measurement.writer` and :mod:`hpcd.measurement.codec` do by numpy.

Arrays have the types and shapes that the callers document, and are contiguous.
"""

from __future__ import annotations

import ctypes
import threading
from functools import cache

import numpy as np

from hpcd.array_types import I64, U8, U16, U32, U64
from hpcd.native.native_library import array_of, declare, loops_in

_I64 = ctypes.c_int64
ITEM_BYTES = 16
"""``struct item`` of ``sorting.h``."""
_KEPT_BYTES = 4 << 20

Columns = tuple[U32, U64, U32, U16, U64]
"""Of records: lines, times (ns), nodes, events, values."""


def empty_columns(n: int) -> Columns:
    """Room for ``n`` records."""
    return (
        np.empty(n, np.uint32), np.empty(n, np.uint64), np.empty(n, np.uint32),
        np.empty(n, np.uint16), np.empty(n, np.uint64),
    )  # fmt: skip


def first_rows(columns: Columns, count: int) -> Columns:
    """The first ``count`` records."""
    line, time_ns, node, event, value = columns
    return line[:count], time_ns[:count], node[:count], event[:count], value[:count]


def last_rows(columns: Columns, begin: int) -> Columns:
    """The records from ``begin`` on."""
    line, time_ns, node, event, value = columns
    return line[begin:], time_ns[begin:], node[begin:], event[begin:], value[begin:]


class _Scratch(threading.local):
    """Memory that a loop needs while it runs: new memory costs more than what most do in it."""

    def __init__(self) -> None:
        self.held = np.empty(1 << 16, np.uint8)


_scratch = _Scratch()


def scratch(size: int) -> U8:
    """``size`` bytes or more, with anything in them, until this thread asks again."""
    if size > len(_scratch.held):
        room = np.empty(2 * size, np.uint8)
        if len(room) > _KEPT_BYTES:
            return room
        _scratch.held = room
    return _scratch.held


class RecordWriting:
    """The loops of ``record_columns.c``."""

    def __init__(self, library: ctypes.CDLL) -> None:
        lines, wide, kinds = array_of(np.uint32), array_of(np.uint64), array_of(np.uint16)
        places, data = array_of(np.int64), array_of(np.uint8)
        columns = (lines, wide, lines, kinds, wide)
        self._order_bytes = declare(library, "order_bytes", (_I64,), _I64)
        self._line_order = declare(library, "line_order", (lines, wide, _I64, places, data))
        self._are_in_order = declare(library, "are_in_order", (lines, wide, _I64), ctypes.c_bool)
        self._sort_records = declare(library, "sort_records", (*columns, _I64, data, *columns))
        self._encode_bytes = declare(library, "encode_bytes", (_I64,), _I64)
        self._encode_chunk = declare(
            library, "encode_chunk",
            (*columns, _I64, data, ctypes.c_uint32, data, data), _I64,
        )  # fmt: skip

    def order(self, line: U32, time: U64) -> I64:
        """The order by line and time; those alike as they come."""
        n = len(line)
        order = np.empty(n, np.int64)
        self._line_order(line, time, n, order, scratch(self._order_bytes(n)))
        return order

    def in_order(self, columns: Columns) -> Columns:
        """The records in this order."""
        n = len(columns[0])
        if self._are_in_order(columns[0], columns[1], n):
            return columns
        result = empty_columns(n)
        self._sort_records(*columns, n, scratch(self._order_bytes(n)), *result)
        return result

    def encode(self, columns: Columns, lasts: U8, form: int) -> bytes:
        """The payload of a chunk of these records, at least one, sorted by line and time; ``lasts``
        uint8[65536] says of each event whether it lasts."""
        n = len(columns[0])
        most = 40 * n + 256
        room = scratch(self._encode_bytes(n) + most)
        out = room[-most:]
        length: int = self._encode_chunk(*columns, n, lasts, form, room, out)
        return bytes(out[:length].data)


@cache
def record_writing() -> RecordWriting | None:
    """The loops, or None where they were not compiled."""
    return loops_in(RecordWriting)
