"""Trace records of a database: reading them by line and time.

The one place that knows how records are stored. Today: plain columns (time ``int64`` ns since the
origin, node ``uint32``, event and value where they are not all equal), lines one after another,
each in time order, so that a line is a contiguous range and time is found by binary search.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hpcd.analysis.columns import create_column, open_column
from hpcd.model.cct import NO_NODE

I64 = npt.NDArray[np.int64]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
U16 = npt.NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class Records:
    """Records of one line in time order: ``time`` ``int64[n]`` (ns since the origin), ``node``
    ``uint32[n]``, ``event`` ``uint16[n]``, ``value`` ``uint64[n]``.
    """

    time: I64
    node: U32
    event: U16
    value: U64

    def __len__(self) -> int:
        return len(self.time)


def create_trace(folder: Path, records: int, *, has_event: bool, has_value: bool) -> None:
    """Reserve the columns of ``records`` records. Raises :class:`StorageError`."""
    create_column(folder / "time.npy", np.int64, records)
    create_column(folder / "node.npy", np.uint32, records)
    if has_event:
        create_column(folder / "event.npy", np.uint16, records)
    if has_value:
        create_column(folder / "value.npy", np.uint64, records)


class TraceColumns:
    """The trace records of a database, memory-mapped: opening reads nothing."""

    def __init__(self, folder: Path, first: I64) -> None:
        """``first`` ``int64[lines + 1]``: where each line's records begin."""
        records = int(first[-1]) if len(first) else 0
        self._first = first
        self._time = open_column(folder / "time.npy", np.int64, records)
        self._node = open_column(folder / "node.npy", np.uint32, records)
        self._event = self._optional(folder / "event.npy", np.uint16, records)
        self._value = self._optional(folder / "value.npy", np.uint64, records)

    @staticmethod
    def _optional(
        path: Path, kind: npt.DTypeLike, records: int
    ) -> npt.NDArray[np.unsignedinteger] | None:
        return open_column(path, kind, records) if path.exists() else None

    def __len__(self) -> int:
        return len(self._time)

    def records(self, line: int, t0: int | None = None, t1: int | None = None) -> Records:
        """Records of ``line`` with ``t0 <= time < t1``; views of the file, not copies."""
        begin, end = int(self._first[line]), int(self._first[line + 1])
        time = self._time[begin:end]
        low = 0 if t0 is None else int(np.searchsorted(time, t0))
        high = len(time) if t1 is None else int(np.searchsorted(time, t1))
        part = slice(begin + low, begin + max(low, high))
        count = part.stop - part.start
        return Records(
            self._time[part],
            self._node[part],
            np.zeros(count, np.uint16) if self._event is None else self._event[part],
            np.ones(count, np.uint64) if self._value is None else self._value[part],
        )

    def nearest(self, line: int, times: I64) -> U32:
        """``uint32[len(times)]``: node of the record closest in time to each of ``times``.

        ``times`` must ascend. The earlier record wins a tie. NO_NODE where the line has no
        records. O(w · log t).
        """
        begin, end = int(self._first[line]), int(self._first[line + 1])
        if begin == end:
            return np.full(len(times), NO_NODE, np.uint32)
        # Only the records around the window are ever looked at.
        column = self._time[begin:end]
        low, high = np.searchsorted(column, times[[0, -1]] if len(times) else [0, 0]).tolist()
        low, high = max(low - 1, 0), min(high + 1, end - begin)
        column = column[low:high]
        if len(column) * 2 < len(times):
            # Few records, many pixels: place the records among the pixels instead.
            middle = column[:-1] + (column[1:] - column[:-1]) // 2
            steps = np.searchsorted(times, middle, side="right")
            at = np.cumsum(np.bincount(steps, minlength=len(times) + 1)[: len(times)])
        else:
            after = np.searchsorted(column, times)
            at = np.minimum(after, len(column) - 1)
            before = np.maximum(after - 1, 0)
            closer = times - column[before] <= column[at] - times
            at = np.where(closer | (after == len(column)), before, at)
            at = np.where(after == 0, 0, at)
        nodes: U32 = self._node[begin + low + at]
        return nodes
