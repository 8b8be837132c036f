"""Records of a measurement on their way into a part: chunks gathered, joined and cut by lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from hpcd.array_types import I64, U16, U32, U64
from hpcd.measurement.codec import RecordChunk, new_columns

# Records handled at once: enough that numpy's fixed costs vanish, little enough that all their
# columns stay in a core's cache (eight times as many took a tenth longer).
SLICE_RECORDS = 1 << 16

_Column = TypeVar("_Column", U16, U32, U64)


def all_are(values: npt.NDArray[np.unsignedinteger], wanted: int) -> bool:
    """Whether there is no value but ``wanted``."""
    return bool((values == wanted).all())


def slices(start: I64) -> Iterator[tuple[int, int]]:
    """Ranges of lines with about a batch's records each."""
    low, lines = 0, len(start) - 1
    while low < lines:
        high = int(np.searchsorted(start, start[low] + SLICE_RECORDS))
        high = min(max(high, low + 1), lines)
        yield low, high
        low = high


def join(parts: list[RecordChunk]) -> RecordChunk:
    """Return one chunk made of many: each line once, its records in the order they came."""
    if len(parts) == 1:
        return parts[0]
    line = np.concatenate([part.line for part in parts])
    count = np.concatenate([np.diff(part.start) for part in parts])
    begin = np.concatenate([part.start[:-1] for part in parts])
    owner = np.repeat(np.arange(len(parts)), [len(part.line) for part in parts])
    order = np.argsort(line, kind="stable")
    line, count = line[order], count[order]
    first = np.flatnonzero(np.concatenate(([True], line[1:] != line[:-1])))
    # Stretches of records are copied as they are: a line has many in each chunk.
    stretches = list(
        zip(owner[order].tolist(), begin[order].tolist(), (begin[order] + count).tolist(),
            strict=True)
    )  # fmt: skip
    return RecordChunk(
        line[first],
        np.append((np.cumsum(count) - count)[first], int(count.sum())),
        _gathered([part.time_ns for part in parts], stretches),
        _gathered([part.node for part in parts], stretches),
        _gathered([part.event for part in parts], stretches),
        _gathered([part.value for part in parts], stretches),
    )


def _gathered(columns: list[_Column], stretches: list[tuple[int, int, int]]) -> _Column:
    """Return one column made of ``stretches`` (number of the column, begin, end) of several
    ``columns``."""
    return np.concatenate([columns[owner][begin:end] for owner, begin, end in stretches])


@dataclass(frozen=True, slots=True)
class Batch:
    """Records in the columns they were decoded into.

    ``line`` ``uint32[k]`` ascends; line ``i`` has the stretches ``first[i]:first[i + 1]``
    (``int64[k + 1]``), in the order they came; each is ``begin[s]:end[s]`` (``int64``) of the
    columns. ``start`` ``int64[k + 1]`` is how many records the lines before have.
    """

    line: U32
    start: I64
    first: I64
    begin: I64
    end: I64
    columns: tuple[U64, U32, U16, U64]

    @property
    def node(self) -> U32:
        """The nodes of all records, in the order they came."""
        return self.columns[1]

    def joined(self, low: int, high: int) -> RecordChunk:
        """Lines ``low`` to ``high`` as a chunk of their own."""
        chosen = range(int(self.first[low]), int(self.first[high]))
        spans = [slice(int(self.begin[s]), int(self.end[s])) for s in chosen]
        return RecordChunk(
            self.line[low:high],
            self.start[low : high + 1] - self.start[low],
            *(np.concatenate([column[span] for span in spans]) for column in self.columns),
        )


class RecordColumns:
    """Columns that chunks are decoded into one after another, and that serve again when they have
    been emptied: memory that the kernel need not fill with zeros each time."""

    def __init__(self, records: int) -> None:
        """With room for so many ``records``; more is made where it is needed."""
        self._columns = new_columns(records)
        self._used = 0
        self._lines: list[U32] = []
        self._counts: list[I64] = []
        self._begins: list[I64] = []

    def __len__(self) -> int:
        return self._used

    @property
    def chunks(self) -> int:
        """Chunks that are kept."""
        return len(self._lines)

    def room(self, records: int) -> tuple[U64, U32, U16, U64]:
        """Columns behind those in use for so many ``records``."""
        needed = self._used + records
        if needed > len(self._columns[0]):
            kept, self._columns = self._cut(0, self._used), new_columns(needed + needed // 4)
            time, node, event, value = self._cut(0, self._used)
            time[:], node[:], event[:], value[:] = kept
        return self._cut(self._used, needed)

    def _cut(self, begin: int, end: int) -> tuple[U64, U32, U16, U64]:
        time, node, event, value = self._columns
        return time[begin:end], node[begin:end], event[begin:end], value[begin:end]

    def keep(self, chunk: RecordChunk) -> None:
        """Take the columns that ``chunk`` was decoded into as used."""
        self._lines.append(chunk.line)
        self._counts.append(np.diff(chunk.start))
        self._begins.append(chunk.start[:-1] + self._used)
        self._used += len(chunk)

    def batch(self) -> Batch:
        """All that is kept, by line; it holds until the columns are emptied."""
        line, count = np.concatenate(self._lines), np.concatenate(self._counts)
        order = np.argsort(line, kind="stable")
        line, count, begin = line[order], count[order], np.concatenate(self._begins)[order]
        first = np.flatnonzero(np.concatenate(([True], line[1:] != line[:-1])))
        return Batch(
            line[first], np.append((np.cumsum(count) - count)[first], int(count.sum())),
            np.append(first, len(line)), begin, begin + count, self._cut(0, self._used),
        )  # fmt: skip

    def empty(self) -> None:
        """Nothing is kept."""
        self._used = 0
        self._lines.clear()
        self._counts.clear()
        self._begins.clear()
