"""First stage of a merge: a measurement, read once, becomes a part of the database.

Runs in a worker, one measurement at a time. Memory is bounded however long the recording was:
records are handled in batches, gathered line by line, and leave as blocks.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from hpcd.analysis.arrays.column_files import storage_error
from hpcd.analysis.arrays.sparse_sums import CellSum
from hpcd.analysis.trace import blocks, compiled
from hpcd.analysis.trace.intervals import Intervals
from hpcd.analysis.trace.overview import OverviewBuilder
from hpcd.analysis.trace.part import Part
from hpcd.analysis.trace.part_contents import (
    PartContents,
    pack_contents,
    read_contents,
    whole_order,
)
from hpcd.analysis.trace.part_writer import PartWriter
from hpcd.array_types import I64, U16, U32, U64
from hpcd.errors import FormatError, HpcdError
from hpcd.measurement.call_codec import Calls, encode_calls
from hpcd.measurement.codec import TIME_UNIT_NS, RecordChunk
from hpcd.measurement.reader import Measurement, measurement_size, open_measurement
from hpcd.model.cct_union import DEPTH_LIMIT
from hpcd.model.identity import Event, Host, Module, Process, Thread

# Records gathered at least, so that a line has many in a batch.
_BATCH_RECORDS = 1 << 18
# Records handled at once: enough that numpy's fixed costs vanish, little enough that all their
# columns stay in a core's cache (eight times as many took a tenth longer).
_SLICE_RECORDS = 1 << 15
# What a record costs while its batch is gathered, in bytes: decoded, joined, copies between.
_RECORD_BYTES = 100
_SHOW_BATCHES = 8
# Records of a line to gather before they are cut into blocks, if memory allows: few are short then.
_GATHER = blocks.BLOCK_RECORDS * 4

# Chunks behind the first batch that are looked at before nodes are numbered, until they have so
# many records.
_MORE_CHUNKS = 16
_MORE_RECORDS = 1 << 16

# 36 years of uptime, and the year 2116: sums and differences of two stay within 64 bits.
_MONOTONIC_LIMIT = 1 << 60
_REALTIME_LIMIT = 1 << 62
_RANK_LIMIT = (1 << 31) - 1

# The fields of each kind of row that are numbers.
_NUMBERS = {
    kind.__name__: [
        field.name for field in fields(kind) if str(field.type).startswith(("int", "float"))
    ]
    for kind in (Host, Event, Process, Thread, Module)
}

_Column = TypeVar("_Column", U16, U32, U64)
_Row = TypeVar("_Row", Host, Event, Process, Thread, Module)


@dataclass(frozen=True, slots=True)
class IngestTask:
    """Read the measurement ``path`` into the directory ``parts``, using about ``memory`` bytes.

    ``existing`` is where a database has parts already; ``compiled`` whether numba is worth loading.
    """

    path: Path
    parts: Path
    existing: Path | None
    memory: int
    compiled: bool = False

    @property
    def name(self) -> str:
        """What files of this task are called: two inputs may be the same measurement."""
        return hashlib.blake2b(os.fsencode(self.path), digest_size=8).hexdigest()


def part_name(measurement: int) -> str:
    """File name of the part of a measurement."""
    return f"{measurement & (1 << 64) - 1:016x}.part"


def ingest(task: IngestTask) -> PartContents:
    """Make the part of a measurement, unless it is there already.

    Raises :class:`FormatError` or :class:`NotFoundError` when it is no measurement, or says what
    cannot be: what gets past here is in range. Raises :class:`StorageError`.
    """
    with open_measurement(task.path) as measurement:
        if measurement.id is None:
            raise FormatError(f"{task.path}: nothing readable")
        size = measurement_size(task.path)
        place = task.parts / f"{task.name}.part"
        for old in [place, *([task.existing / part_name(measurement.id)] if task.existing else [])]:
            existing = _already(old, measurement.id, size)
            if existing is not None:
                return replace(existing, path=task.path)
        measurement.cct.validate(str(task.path))
        if int(measurement.cct.depth().max()) >= DEPTH_LIMIT:
            raise FormatError(
                f"{task.path}: calling context tree is deeper than {DEPTH_LIMIT} frames"
            )
        clock_pairs = _checked_clock(measurement, task.path)
        lines = set(measurement.threads)
        # In no folder of its own: to make and remove one takes as long as a short measurement.
        unfinished = task.parts / f"part-{task.name}"
        while True:
            unfinished.unlink(missing_ok=True)
            try:
                contents = _read(measurement, task, lines, clock_pairs, size, unfinished)
                unfinished.rename(place)
                return replace(contents, part=place)
            except _UnknownLinesError as unknown:
                lines |= unknown.lines
            except OSError as error:
                raise storage_error(place, error) from None
            finally:
                for path in (unfinished, _shown(unfinished)):
                    path.unlink(missing_ok=True)


def _shown(unfinished: Path) -> Path:
    """Where a task says how far it has read."""
    return unfinished.with_suffix(".read")


def progress_of(parts: Path) -> int:
    """Bytes of their measurements that tasks under way have read, which make ``parts``."""
    total = 0
    for place in parts.glob("part-*.read"):
        with contextlib.suppress(OSError, ValueError):
            total += int(place.read_text())
    return total


def _already(place: Path, measurement: int, size: int) -> PartContents | None:
    """The part that was made of the same measurement when it was as long."""
    if not place.exists():
        return None
    try:
        contents = read_contents(Part(place))
    except FormatError:
        return None
    return contents if (contents.id, contents.size) == (measurement, size) else None


class _UnknownLinesError(HpcdError):
    """Records of lines whose announcement was lost: rare, and then all is read again."""

    def __init__(self, lines: set[int]) -> None:
        super().__init__("unknown lines")
        self.lines = lines


def _read(
    measurement: Measurement, task: IngestTask, lines: set[int], clock_pairs: I64, size: int,
    part_path: Path,
) -> PartContents:  # fmt: skip
    path = task.path
    source = np.array(sorted(lines), np.int64)
    intervals = Intervals(measurement.events.values())
    with tempfile.TemporaryFile(dir=task.parts) as spool, PartWriter(part_path) as part:
        kernels = compiled.kernels() if task.compiled else None
        overview = OverviewBuilder(len(source), spool, kernels)
        limit = max(task.memory // _RECORD_BYTES, _BATCH_RECORDS)
        batch = min(max(len(source) * _GATHER, _BATCH_RECORDS), limit)
        output: _Output | None = None
        for number, parts in enumerate(_batches(measurement.record_chunks(), batch), start=1):
            if output is None:
                order = _node_order(measurement, parts)
                output = _Output(source, len(measurement.cct), order, part, overview, kernels,
                                 measurement.records_expected)  # fmt: skip
            output.put(_join(parts), intervals)
            if number % _SHOW_BATCHES == 0:
                with contextlib.suppress(OSError):
                    _shown(part_path).write_text(str(measurement.bytes_read))
        if output is None:
            order = np.zeros(0, np.uint32)
            output = _Output(source, len(measurement.cct), order, part, overview, kernels, 0)
        output.sort_unsorted()
        first_ns, last_ns = output.first * TIME_UNIT_NS, output.last * TIME_UNIT_NS
        if len(source) and not 0 <= int(first_ns.min()) <= int(last_ns.max()) < _MONOTONIC_LIMIT:
            raise FormatError(f"{path}: record times are out of range")
        cells = output.sums.result()
        contents = PartContents(
            path=path,
            part=part_path,
            size=size,
            id=measurement.id or 0,
            host=_bounded(measurement.host),
            options=measurement.options,
            events={n: _bounded(e) for n, e in measurement.events.items() if n < 1 << 16},
            processes={n: _bounded(p) for n, p in measurement.processes.items()},
            threads={n: _bounded(t) for n, t in measurement.threads.items()},
            modules={n: _bounded(m) for n, m in measurement.modules.items()},
            symbols=frozenset(module for module, rows in measurement.symbols.items() if rows),
            clock_pairs=clock_pairs,
            summary=_summary_with_losses(measurement),
            closed=measurement.closed,
            damage=tuple(measurement.damage),
            nodes=len(measurement.cct),
            lines=source.astype(np.uint32),
            counts=output.counts,
            first_ns=first_ns,
            last_ns=last_ns,
            events_used=frozenset(np.unique(cells.event).tolist()),
        )
        calls = []
        for chunk in measurement.call_chunks():
            _check_call_times(path, chunk)
            calls.append(encode_calls(chunk))
            contents = replace(contents, calls=contents.calls + len(chunk))
        if measurement.has_calls:
            contents = replace(
                contents,
                functions=dict(measurement.functions),
                objects=dict(measurement.objects),
                call_chunks=len(calls),
                damage=tuple(measurement.damage),
            )
        symbols = {module: measurement.symbols[module] for module in contents.symbols}
        archive = pack_contents(contents, measurement.cct, order, cells, symbols, calls)
        part.finish(source, output.counts, output.first, output.last,
                    output.overview.finish(), archive)  # fmt: skip
    return contents


def _node_order(measurement: Measurement, batch: list[RecordChunk]) -> U32:
    """The nodes that a part numbers first, those of the most records before others.

    Their numbers then have low bytes that are alike and high ones that are 0, which saves a tenth
    of what a part's blocks take, and their sums lie close together. ``batch`` are the first chunks;
    of the others some are looked at.
    """
    counts = np.zeros(len(measurement.cct), np.int64)
    looked, enough = 0, sum(map(len, batch)) + _MORE_RECORDS
    for chunk in chain(batch, measurement.some_chunks(len(batch), _MORE_CHUNKS)):
        counts += np.bincount(chunk.node, minlength=len(counts))
        looked += len(chunk)
        if looked > enough:
            break
    seen = np.flatnonzero(counts)
    return seen[np.argsort(-counts[seen], kind="stable")].astype(np.uint32)


class _Output:
    """A part under way: its blocks, overviews and sums, and how far each line is written."""

    def __init__(
        self, source: I64, nodes: int, order: U32, part: PartWriter, overview: OverviewBuilder,
        kernels: Any, expected: int,
    ) -> None:  # fmt: skip
        self._source = source
        whole = whole_order(order, nodes)
        # The part's number of each node.
        self._number = np.empty(nodes, np.uint32)
        self._number[whole] = np.arange(nodes, dtype=np.uint32)
        self._kernels = kernels
        self._part = part
        self.overview = overview
        self.counts = np.zeros(len(source), np.int64)
        self.first = np.zeros(len(source), np.int64)
        self.last = np.zeros(len(source), np.int64)
        self._unsorted: set[int] = set()
        self.sums = CellSum(len(source), nodes, kernels=kernels, expected=expected)

    def put(self, batch: RecordChunk, intervals: Intervals) -> None:
        """Write records sorted by line, then time."""
        rows = np.searchsorted(self._source, batch.line)
        announced = self._source[np.minimum(rows, len(self._source) - 1)] == batch.line
        if not announced.all():
            raise _UnknownLinesError(set(batch.line[~announced].tolist()))
        batch = replace(batch, node=self._number[batch.node])
        for low, high in _slices(batch.start):
            part = _lines(batch, low, high)
            self._count(rows[low:high], part)
            if self._kernels is not None:
                start, time, node, event, value, plain = self._kernels.expand(
                    part.start, part.time_ns, part.node, part.event, part.value,
                    intervals.length_ns,
                )  # fmt: skip
                self._write(rows[low:high], start, time, node,
                            None if plain else event, None if plain else value)  # fmt: skip
                continue
            part = intervals.expand(part)
            time = (part.time_ns // np.uint64(TIME_UNIT_NS)).view(np.int64)
            plain = _all(part.event, 0) and _all(part.value, 1)
            self._write(rows[low:high], part.start, time, part.node,
                        None if plain else part.event, None if plain else part.value)  # fmt: skip

    def sort_unsorted(self) -> None:
        """Lines whose records did not come in time order are written again."""
        rows = sorted(self._unsorted)
        self._unsorted.clear()
        for row in rows:
            time, node, event, value = self._part.take_back(row)
            self.overview.forget(row)
            self.counts[row] = 0
            order = np.argsort(time, kind="stable")
            self._write(np.array([row]), np.array([0, len(time)]), time[order], node[order],
                        None if event is None else event[order],
                        None if value is None else value[order])  # fmt: skip

    def _count(self, rows: I64, part: RecordChunk) -> None:
        self.sums.add(
            rows.astype(np.uint32),
            part.start,
            part.node,
            None if self._kernels is None and _all(part.event, 0) else part.event,
            None if self._kernels is None and _all(part.value, 1) else part.value,
        )

    def _write(
        self, rows: I64, start: I64, time: I64, node: U32, event: U16 | None, value: U64 | None
    ) -> None:
        begin, end = start[:-1], start[1:] - 1
        back = np.flatnonzero(time[1:] < time[:-1]) + 1
        inside = back[~np.isin(back, begin)]
        unsorted = rows[np.searchsorted(start, inside, side="right") - 1].tolist()
        fresh = self.counts[rows] == 0
        unsorted += rows[~fresh & (time[begin] < self.last[rows])].tolist()
        self._unsorted.update(unsorted)
        self.first[rows] = np.where(fresh, time[begin], np.minimum(self.first[rows], time[begin]))
        self.last[rows] = np.where(fresh, time[end], np.maximum(self.last[rows], time[end]))
        self.counts[rows] += np.diff(start)
        cuts = blocks.cut(start, time)
        frames = blocks.encode(cuts, time, node, event, value, self._kernels)
        first = cuts[:-1]
        line = rows[np.searchsorted(start, first, side="right") - 1]
        self._part.add(line, time[first], node[first], np.diff(cuts), frames)
        if inside.size or self._unsorted.intersection(rows.tolist()):
            # Their overviews are made when they are in order.
            keep = [k for k, row in enumerate(rows.tolist()) if row not in self._unsorted]
            for k in keep:
                span = slice(int(start[k]), int(start[k + 1]))
                self.overview.add(rows[k : k + 1], np.array([0, span.stop - span.start]),
                                  time[span], node[span])  # fmt: skip
        else:
            self.overview.add(rows, start, time, node)


def _all(values: npt.NDArray[np.unsignedinteger], wanted: int) -> bool:
    if not len(values) or int(values[0]) != wanted:
        return not len(values)
    return values.strides == (0,) or bool((values == wanted).all())


def _slices(start: I64) -> Iterator[tuple[int, int]]:
    """Ranges of lines with about a batch's records each."""
    low, lines = 0, len(start) - 1
    while low < lines:
        high = int(np.searchsorted(start, start[low] + _SLICE_RECORDS))
        high = min(max(high, low + 1), lines)
        yield low, high
        low = high


def _lines(batch: RecordChunk, low: int, high: int) -> RecordChunk:
    """Lines ``low`` to ``high`` of a batch."""
    span = slice(int(batch.start[low]), int(batch.start[high]))
    return RecordChunk(
        batch.line[low:high],
        batch.start[low : high + 1] - span.start,
        batch.time_ns[span],
        batch.node[span],
        batch.event[span],
        batch.value[span],
    )


def _batches(chunks: Iterator[RecordChunk], target: int) -> Iterator[list[RecordChunk]]:
    batch: list[RecordChunk] = []
    records = 0
    for part in chunks:
        if not len(part):
            continue
        batch.append(part)
        records += len(part)
        if records >= target:
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
    """One column of many, stretch by stretch; what is constant in all stays so."""
    if all(len(c) and c.strides == (0,) and c[0] == columns[0][0] for c in columns):
        return np.broadcast_to(columns[0][0], sum(end - begin for _, begin, end in stretches))
    return np.concatenate([columns[owner][begin:end] for owner, begin, end in stretches])


# --- what a measurement says of itself ---


def _check_call_times(path: Path, calls: Calls) -> None:
    if len(calls) and not (
        int(calls.time.max()) < _MONOTONIC_LIMIT and int(calls.duration.max()) < _MONOTONIC_LIMIT
    ):
        raise FormatError(f"{path}: times of calls are out of range")


def _checked_clock(measurement: Measurement, path: Path) -> I64:
    try:
        pairs = measurement.clock_pairs
    except OverflowError:
        pairs = np.full((1, 2), -1)
    if len(pairs) and not (
        int(pairs.min()) >= 0
        and int(pairs[:, 0].max()) < _MONOTONIC_LIMIT
        and int(pairs[:, 1].max()) < _REALTIME_LIMIT
    ):
        raise FormatError(f"{path}: clock readings are out of range")
    return pairs


def _summary_with_losses(measurement: Measurement) -> dict[str, Any] | None:
    """The last summary, and in which stretches of time samples were dropped."""
    if measurement.summary is None or not measurement.losses:
        return measurement.summary
    return {**measurement.summary, "losses": measurement.losses}


def _bounded(row: _Row) -> _Row:
    """``row`` with its numbers cut to what columns and SQLite hold; JSON knows no bounds."""
    changes: dict[str, Any] = {}
    for name in _NUMBERS[type(row).__name__]:
        value = getattr(row, name)
        limit = _RANK_LIMIT if name in ("rank", "size") else _MONOTONIC_LIMIT
        if isinstance(value, int) and not -limit < value < limit:
            changes[name] = max(-limit, min(value, limit))
        elif isinstance(value, float) and not math.isfinite(value):
            changes[name] = 0.0
    return replace(row, **changes) if changes else row
