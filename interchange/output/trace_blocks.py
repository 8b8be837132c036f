"""Records of a database's trace lines, block by block, with their costs in each metric."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.database.metrics import RECORDS
from hpcd.analysis.trace.records import Records
from hpcd.array_types import F64, I64, U16, U32, Mask
from hpcd.model.identity import SECONDS

# As metrics are made of events.
# Blocks of a line read at once: 65,536 records, some 10 MB with all that is made of them.
_BLOCKS_AT_ONCE = 64
# By a scale that no recorder writes an interval may be longer than time can say.
_LONGEST_NS = 1 << 62


@dataclass(frozen=True)
class Events:
    """The events of a database by number, ``n`` entries each.

    ``metric`` int64[n] is the metric that records add to, other than samples, -1 if none;
    ``weight`` float64[n] that metric's amount per unit of a record's value; ``duration_ns``
    float64[n] the duration of an interval per unit of its value, 0 for events that are moments.
    """

    name: list[str]
    metric: I64
    weight: F64
    duration_ns: F64

    @property
    def interval(self) -> Mask:
        """bool[n]: events whose records last."""
        return self.duration_ns > 0


def read_events(db: Database) -> Events:
    """Return the events of ``db``."""
    rows = db.rows("SELECT id, name, unit, scale, metric, interval FROM event ORDER BY id")
    count = max((int(row[0]) for row in rows), default=0) + 1
    names = [""] * count
    metric = np.full(count, -1, np.int64)
    weight, duration = np.zeros(count), np.zeros(count)
    known = {
        pair: number
        for number, pair in enumerate(zip(db.metrics.names, db.metrics.units, strict=True))
    }
    for number, name, unit, scale, of_metric, interval in rows:
        names[number] = str(name)
        seconds = SECONDS.get(unit)
        if interval and seconds is not None:
            duration[number] = scale * seconds * 1e9
        if not of_metric or of_metric == RECORDS:
            continue
        unit = unit if seconds is None else "s"
        metric[number] = known.get(
            (of_metric, unit), known.get((f"{of_metric} ({unit})", unit), -1)
        )
        weight[number] = scale * (1.0 if seconds is None else seconds)
    return Events(names, metric, weight, duration)


@dataclass(frozen=True)
class TraceBlock:
    """Records of one trace line in time order, cut to the selected windows of time.

    ``time`` int64[n] is ns since the origin; ``node`` uint32[n] the CCT node, 0 if the record's
    does not match the filter; ``event`` uint16[n]; ``duration`` int64[n] the ns that an interval
    lasts, 0 for moments; ``end`` bool[n] marks entries that only end an interval; ``cost``
    float64[metrics, n] is in the order of the selection's metrics.
    """

    time: I64
    node: U32
    event: U16
    duration: I64
    end: Mask
    cost: F64

    def __len__(self) -> int:
        return len(self.time)

    @property
    def recorded(self) -> Mask:
        """bool[n]: the records that match the filter, without ends of intervals."""
        matching: Mask = ~self.end & ((self.node != 0) | np.asarray(self.cost.any(axis=0)))
        return matching


class TraceReader:
    """Reads trace lines of ``db`` in blocks of some ten thousand records.

    ``metrics`` are the rows of costs; ``matching`` bool[nodes] the nodes that match a filter, None
    if all do; ``windows`` are cut to, if there are any.
    """

    def __init__(
        self,
        db: Database,
        metrics: Sequence[int],
        windows: Sequence[tuple[int, int]],
        matching: Mask | None,
    ) -> None:
        self.events = read_events(db)
        """The events that records have."""
        self._db = db
        self._metrics = metrics
        self._windows: Sequence[tuple[int | None, int | None]] = windows or [(None, None)]
        self._matching = matching

    def read(self, line: int, report: Callable[[int], None]) -> Iterator[TraceBlock]:
        """Yield the records of trace line ``line``; ``report`` gets the number read so far."""
        for begin, end in self._windows:
            for records in self._read_window(line, begin, end, report):
                block = self._block(records, begin, end)
                if len(block):
                    yield block

    def _read_window(
        self, line: int, begin: int | None, end: int | None, report: Callable[[int], None]
    ) -> Iterator[Records]:
        """Yield records from the last before ``begin``, which may last into the window, to
        ``end``."""
        trace = self._db.trace
        starts = trace.block_times(line)
        first = 0 if begin is None else max(int(np.searchsorted(starts, begin)) - 1, 0)
        last = len(starts) if end is None else int(np.searchsorted(starts, end))
        cuts = [*range(first, last, _BLOCKS_AT_ONCE), last]
        part = trace.part_of(line) if len(starts) else None
        read = 0
        for low, high in pairwise(cuts):
            # Blocks that begin at the same moment are not divided by time.
            low_time = int(starts[low]) if low > first or begin is not None else None
            high_time = int(starts[high]) if high < last else end
            records = self._db.records(line, low_time, high_time)
            read += len(records)
            yield records
            report(read)
            if part is not None:
                part.file.release()

    def _block(self, records: Records, begin: int | None, end: int | None) -> TraceBlock:
        """Return ``records`` with their costs; costs of intervals are cut to the window."""
        time, node, event = records.time, records.node, records.event
        value = records.value.astype(np.float64)
        length = self.events.duration_ns[event]
        lasting = length > 0
        length = length * value
        is_end = lasting & (value == 0)
        counted = np.where(is_end, 0.0, 1.0)
        if begin is not None and end is not None:
            inside = np.minimum(time + length, end) - np.maximum(time, begin)
            share = np.divide(inside, length, out=np.ones(len(time)), where=length > 0)
            share[(length == 0) & (time < begin)] = 0
            share = np.clip(share, 0, 1)
            kept = (share > 0) & (time < end)
            time, node, event = np.maximum(time[kept], begin), node[kept], event[kept]
            value, counted = value[kept] * share[kept], counted[kept] * share[kept]
            length, is_end = length[kept] * share[kept], is_end[kept]
        if self._matching is not None:
            matching = self._matching[node]
            node = np.where(matching, node, np.uint32(0))
            value, counted = value * matching, counted * matching
        metric = self.events.metric[event]
        weighed = value * self.events.weight[event]
        cost = np.empty((len(self._metrics), len(time)))
        for row, number in zip(cost, self._metrics, strict=True):
            is_records = self._db.metrics.names[number] == RECORDS
            row[:] = counted if is_records else np.where(metric == number, weighed, 0.0)
        length_ns = np.minimum(np.round(length), _LONGEST_NS).astype(np.int64)
        return TraceBlock(time, node, event, length_ns, is_end, cost)
