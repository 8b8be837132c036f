"""Second pass of a merge: records go to their place in the database under their new names.

Runs in a worker, one measurement at a time, and writes straight into the database's columns: the
first pass said where each line's records begin.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hpcd.analysis.columns import ColumnWriter, storage_error
from hpcd.analysis.intervals import Intervals
from hpcd.analysis.modules import translate
from hpcd.analysis.scan import load_tree
from hpcd.analysis.sparse import CellSum
from hpcd.analysis.union import locate
from hpcd.errors import FormatError
from hpcd.measurement.codec import RecordChunk
from hpcd.measurement.reader import open_measurement

U16 = npt.NDArray[np.uint16]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]

# Records handled at once: enough that numpy's fixed costs vanish, little enough that a batch stays
# near the cache (a million took half as long again) and memory is bounded however long the
# recording was.
BATCH_RECORDS = 1 << 18


@dataclass(frozen=True, slots=True)
class RelabelTask:
    """What to do with one measurement.

    ``lines`` ``uint32[k]`` ascending are its trace lines, ``line_ids`` ``uint32[k]`` their numbers
    in the database and ``rows`` ``int64[k + 1]``, at ``[:-1]``, their first record there, with
    room for ``counts`` ``int64[k]``. ``offset_ns`` turns its times into database times;
    ``event_map`` ``uint16[...]`` its events into the database's. ``cells`` is where the sums go.
    """

    path: Path
    tree: Path
    module_map: U32
    canonical: Path
    chunks: int
    lines: U32
    line_ids: U32
    rows: I64
    counts: I64
    offset_ns: int
    event_map: U16
    trace: Path
    has_event: bool
    has_value: bool
    cells: Path


def relabel(task: RelabelTask) -> int:
    """Do ``task``; returns the records written. Raises :class:`StorageError`."""
    node_map = locate(load_tree(task.canonical), translate(load_tree(task.tree), task.module_map))
    with ExitStack() as stack, open_measurement(task.path) as measurement:
        output = _Output(task, stack, Intervals(measurement.events.values()))
        for batch in _batches(islice(measurement.record_chunks(), task.chunks)):
            output.put(_join(batch), node_map)
        if output.written != int(task.counts.sum()):
            raise _changed(task.path)
        output.sort_unsorted()
    sums = output.sums.result()
    try:
        with task.cells.open("xb") as file:
            np.savez(
                file,
                line=sums.line,
                node=sums.node,
                event=sums.event,
                records=sums.records,
                value=sums.value,
            )
    except OSError as error:
        raise storage_error(task.cells, error) from None
    return output.written


def _changed(path: Path) -> FormatError:
    return FormatError(f"{path}: changed while it was being merged")


class _Output:
    """The database's columns, and how far each line of one measurement is written."""

    def __init__(self, task: RelabelTask, stack: ExitStack, intervals: Intervals) -> None:
        self._task = task
        self._intervals = intervals
        self._next = task.rows.copy()
        self._end = task.rows + task.counts
        self._last_ns = np.full(len(task.lines), np.iinfo(np.int64).min)
        self._unsorted: set[int] = set()
        self._columns = {
            name: stack.enter_context(ColumnWriter(task.trace / f"{name}.npy"))
            for name, wanted in (
                ("time", True),
                ("node", True),
                ("event", task.has_event),
                ("value", task.has_value),
            )
            if wanted
        }
        self.sums = CellSum()
        self.written = 0

    def put(self, part: RecordChunk, node_map: U32) -> None:
        """Write records sorted by line, then time."""
        task = self._task
        self._count(part, node_map)
        part = self._intervals.expand(part)
        at = np.searchsorted(task.lines, part.line)
        time = part.time_ns.view(np.int64) + task.offset_ns
        node = node_map[part.node]
        columns: dict[str, npt.NDArray[Any]] = {"time": time, "node": node}
        if task.has_event:
            columns["event"] = task.event_map[part.event]
        if task.has_value:
            columns["value"] = part.value
        self._check_order(at, part.start, time)
        room = self._end[at] - self._next[at]
        if bool((np.diff(part.start) > room).any()):
            raise _changed(task.path)
        rows = self._next[at].tolist()
        bounds = part.start.tolist()
        for name, column in self._columns.items():
            values = columns[name]
            for row, begin, end in zip(rows, bounds[:-1], bounds[1:], strict=True):
                column.write(row, values[begin:end])
        self._next[at] += np.diff(part.start)
        self.written += len(part)

    def _count(self, part: RecordChunk, node_map: U32) -> None:
        task = self._task
        at = np.searchsorted(task.lines, part.line)
        event = task.event_map[part.event] if task.has_event else None
        value = part.value if task.has_value else None
        self.sums.add(task.line_ids[at], part.start, node_map[part.node], event, value)

    def _check_order(self, at: npt.NDArray[np.intp], start: I64, time: I64) -> None:
        """Remember lines whose records do not come in time order."""
        steps_back = np.flatnonzero(time[1:] < time[:-1]) + 1
        inside = steps_back[~np.isin(steps_back, start)]
        self._unsorted.update(at[np.searchsorted(start, inside, side="right") - 1].tolist())
        self._unsorted.update(at[time[start[:-1]] < self._last_ns[at]].tolist())
        self._last_ns[at] = np.maximum(self._last_ns[at], time[start[1:] - 1])

    def sort_unsorted(self) -> None:
        """Binary search needs time order: sort the lines that lack it, one at a time."""
        for line in sorted(self._unsorted):
            row, count = int(self._task.rows[line]), int(self._task.counts[line])
            order = np.argsort(self._columns["time"].read(row, count), kind="stable")
            for column in self._columns.values():
                column.write(row, column.read(row, count)[order])


def _batches(chunks: Iterator[RecordChunk]) -> Iterator[list[RecordChunk]]:
    batch: list[RecordChunk] = []
    records = 0
    for part in chunks:
        if not len(part):
            continue
        batch.append(part)
        records += len(part)
        if records >= BATCH_RECORDS:
            yield batch
            batch, records = [], 0
    if batch:
        yield batch


def _join(parts: list[RecordChunk]) -> RecordChunk:
    """One chunk from many: lines once each, their records in the order they came."""
    if len(parts) == 1:
        return parts[0]
    line = np.concatenate([part.line for part in parts])
    count = np.concatenate([np.diff(part.start) for part in parts])
    begin = np.cumsum(count) - count
    order = np.argsort(line, kind="stable")
    line, count, begin = line[order], count[order], begin[order]
    to = np.cumsum(count) - count
    gather = np.repeat(begin - to, count) + np.arange(int(count.sum()))
    first = np.flatnonzero(np.concatenate(([True], line[1:] != line[:-1])))
    return RecordChunk(
        line[first],
        np.append(to[first], len(gather)),
        np.concatenate([part.time_ns for part in parts])[gather],
        np.concatenate([part.node for part in parts])[gather],
        np.concatenate([part.event for part in parts])[gather],
        np.concatenate([part.value for part in parts])[gather],
    )
