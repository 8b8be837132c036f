"""Records as columns: making room for them, joining them, and putting them in order."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from hpcd.array_types import I64, U8, U16, U32, U64, Array
from hpcd.kernels.library import CStructure, kernels, structure

Columns = tuple[U32, U64, U32, U16, U64]
"""Columns of records: lines, times (ns), nodes, events, values."""

_KEPT_BYTES = 4 << 20


def empty_columns(n: int) -> Columns:
    """Columns with room for ``n`` records."""
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


def join_columns(parts: Sequence[Columns]) -> Columns:
    """The records of ``parts``, concatenated and contiguous."""
    line, time_ns, node, event, value = zip(*parts, strict=True)
    return _join(line), _join(time_ns), _join(node), _join(event), _join(value)


def _join(parts: Sequence[Array]) -> Array:
    return np.concatenate(parts) if len(parts) > 1 else np.ascontiguousarray(parts[0])


def in_order(columns: Columns) -> Columns:
    """Records sorted by line and time, equal ones in the order they came in."""
    n = len(columns[0])
    if kernels.are_in_order(columns[0], columns[1], n):
        return columns
    result = empty_columns(n)
    memory = scratch(kernels.order_bytes(n))
    kernels.sort_records(as_structure(columns), memory, as_structure(result))
    return result


def by_line_and_time(line: U32, time_ns: U64) -> I64:
    """``int64[n]``: the order by line and time, equal ones in the order they came in."""
    n = len(line)
    order = np.empty(n, np.int64)
    kernels.order_lines(
        np.ascontiguousarray(line), np.ascontiguousarray(time_ns), n, order,
        scratch(kernels.order_bytes(n)),
    )  # fmt: skip
    return order


def as_structure(columns: Columns) -> CStructure:
    """``columns``, contiguous, as a ``struct record_columns``."""
    line, time, node, event, value = columns
    return structure(
        "record_columns", line=line, time=time, node=node, event=event, value=value, n=len(line)
    )


class _Scratch(threading.local):
    """Memory for a running kernel: allocating it would cost more than the work of most kernels."""

    def __init__(self) -> None:
        self.held = np.empty(1 << 16, np.uint8)


_scratch = _Scratch()


def scratch(size: int) -> U8:
    """``size`` bytes or more with undefined content, until this thread calls it again."""
    if size > len(_scratch.held):
        room = np.empty(2 * size, np.uint8)
        if len(room) > _KEPT_BYTES:
            return room
        _scratch.held = room
    return _scratch.held
