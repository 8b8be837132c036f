"""Records of a measurement on their way into a part: chunks gathered, joined and cut by lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hpcd.array_types import I64, U16, U32, U64
from hpcd.distinct import begins_run
from hpcd.measurement.codec import RecordChunk, new_columns

# Records handled at once: enough that numpy's fixed costs vanish, little enough that all their
# columns stay in a core's cache (eight times as many took a tenth longer).
SLICE_RECORDS = 1 << 16


def slices(start: I64) -> Iterator[tuple[int, int]]:
    """Ranges of rows with about a slice's records each."""
    low, lines = 0, len(start) - 1
    while low < lines:
        high = int(np.searchsorted(start, start[low] + SLICE_RECORDS))
        high = min(max(high, low + 1), lines)
        yield low, high
        low = high


@dataclass(frozen=True, slots=True)
class Batch:
    """Records in the columns they were decoded into.

    ``row`` ``int64[k]`` ascends; row ``i`` has the stretches ``first[i]:first[i + 1]``
    (``int64[k + 1]``), in the order they came; each is ``begin[s]:end[s]`` (``int64``) of the
    columns. ``start`` ``int64[k + 1]`` is how many records the rows before have, ``chunks`` the
    number of chunks that all are of.
    """

    row: I64
    start: I64
    first: I64
    begin: I64
    end: I64
    columns: tuple[U64, U32, U16, U64]
    chunks: int

    @property
    def node(self) -> U32:
        """The nodes of all records, in the order they came."""
        return self.columns[1]

    def joined(self, low: int, high: int) -> RecordChunk:
        """Rows ``low`` to ``high`` as a chunk of their own, whose lines they are."""
        chosen = range(int(self.first[low]), int(self.first[high]))
        spans = [slice(int(self.begin[s]), int(self.end[s])) for s in chosen]
        return RecordChunk(
            self.row[low:high].astype(np.uint32),
            self.start[low : high + 1] - self.start[low],
            *(np.concatenate([column[span] for span in spans]) for column in self.columns),
        )


class RecordColumns:
    """Reusable columns that consecutive chunks are decoded into: new memory would have to be
    zeroed by the kernel each time."""

    def __init__(self, records: int) -> None:
        """With room for ``records`` records; more is made where it is needed."""
        self._columns = new_columns(records)
        self._used = 0
        self._rows: list[I64] = []
        self._counts: list[I64] = []
        self._begins: list[I64] = []

    def __len__(self) -> int:
        return self._used

    def room(self, records: int) -> tuple[U64, U32, U16, U64]:
        """Columns behind the used ones, for ``records`` more."""
        needed = self._used + records
        if needed > len(self._columns[0]):
            kept, self._columns = self._cut(0, self._used), new_columns(needed + needed // 4)
            time, node, event, value = self._cut(0, self._used)
            time[:], node[:], event[:], value[:] = kept
        return self._cut(self._used, needed)

    def _cut(self, begin: int, end: int) -> tuple[U64, U32, U16, U64]:
        time, node, event, value = self._columns
        return time[begin:end], node[begin:end], event[begin:end], value[begin:end]

    def keep(self, chunk: RecordChunk, rows: I64) -> None:
        """Take the columns that ``chunk`` was decoded into as used; ``rows`` are its lines."""
        self._rows.append(rows)
        self._counts.append(np.diff(chunk.start))
        self._begins.append(chunk.start[:-1] + self._used)
        self._used += len(chunk)

    def batch(self) -> Batch:
        """All that is kept, by row; it holds until the columns are emptied."""
        row, count = np.concatenate(self._rows), np.concatenate(self._counts)
        order = np.argsort(row, kind="stable")
        row, count, begin = row[order], count[order], np.concatenate(self._begins)[order]
        first = np.flatnonzero(begins_run(row))
        return Batch(
            row[first], np.append((np.cumsum(count) - count)[first], int(count.sum())),
            np.append(first, len(row)), begin, begin + count, self._cut(0, self._used),
            len(self._rows),
        )  # fmt: skip

    def empty(self) -> None:
        """Nothing is kept."""
        self._used = 0
        self._rows.clear()
        self._counts.clear()
        self._begins.clear()
