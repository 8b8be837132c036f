"""Many short measurements made parts at once: numpy's fixed costs are those of all together.

A build of thousands of processes, or a day of a node in segments, is thousands of measurements with
some records each. What is done with records takes a hundred calls of numpy, 10 µs each however few
records there are: here their columns are joined, lines and nodes counted on from one measurement to
the next, and cut apart again where a part begins. The parts are the same to the byte as those made
one by one.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hpcd.analysis.arrays.bounds import bounds_of
from hpcd.analysis.arrays.column_files import storage_error
from hpcd.analysis.arrays.sparse_sums import Cells, sum_records
from hpcd.analysis.database.directory import checksums_of
from hpcd.analysis.merge.measurement_contents import (
    MONOTONIC_LIMIT,
    contents_of,
    symbols_of,
    texts_of,
    with_calls,
)
from hpcd.analysis.merge.record_batches import all_are, join
from hpcd.analysis.merge.shared_companions import CompanionWriter
from hpcd.analysis.trace import blocks
from hpcd.analysis.trace.companion import companion
from hpcd.analysis.trace.intervals import Intervals
from hpcd.analysis.trace.overview import FEWEST_RECORDS, OverviewBuilder, OverviewSource
from hpcd.analysis.trace.part_batch import PartBatch
from hpcd.analysis.trace.part_contents import (
    PartContents,
    pack_contents,
    write_companion,
)
from hpcd.analysis.trace.part_writer import PartWriter
from hpcd.array_types import I64, U32
from hpcd.errors import FormatError
from hpcd.kernels.library import kernels
from hpcd.measurement.codec import TIME_UNIT_NS, RecordChunk
from hpcd.measurement.reader import Measurement
from hpcd.model.cct import CCT

# Records of a measurement that is short, and of short ones that are gathered: no more than are
# handled at once anyway.
_MOST_RECORDS = BATCH_RECORDS = 1 << 15


@dataclass(frozen=True, slots=True)
class ShortMeasurement:
    """A measurement that was read whole; ``records.line`` are rows of ``contents.lines``."""

    contents: PartContents
    place: Path
    unfinished: Path
    new: bool
    tree: CCT
    records: RecordChunk
    symbols: list[bytes]
    calls: list[bytes]
    intervals: Intervals
    texts: dict[str, bytes]

    @property
    def kind(self) -> tuple[object, ...]:
        """Measurements with the same are made parts together."""
        plain = all_are(self.records.event, 0) and all_are(self.records.value, 1)
        return self.intervals.key, plain


def read_short(
    measurement: Measurement, path: Path, size: int, clock_pairs: I64, place: Path,
    unfinished: Path, *, new: bool = False,
) -> ShortMeasurement | None:  # fmt: skip
    """All of ``measurement``, if it is short and nothing about it is unusual; else None.

    ``place`` is where its part will be, ``unfinished`` where it is written; with ``new`` nothing is
    there. Raises :class:`FormatError`.
    """
    if measurement.records_expected > 2 * _MOST_RECORDS:
        return None
    chunks = [chunk for chunk in measurement.record_chunks() if len(chunk)]
    if not chunks or sum(map(len, chunks)) > _MOST_RECORDS:
        return None
    records = join(chunks)
    source = np.array(sorted(measurement.threads), np.int64)
    rows = np.searchsorted(source, records.line)
    known = bool((source[np.minimum(rows, len(source) - 1)] == records.line).all())
    if not known or bool((np.diff(rows) < 1).any()):
        return None
    if len(chunks) > 1:
        back = np.flatnonzero(records.time_ns[1:] < records.time_ns[:-1]) + 1
        if not np.isin(back, records.start).all():
            return None
    contents = contents_of(measurement, path, size, clock_pairs, place, source.astype(np.uint32))
    contents, calls = with_calls(contents, measurement)
    return ShortMeasurement(
        contents,
        place,
        unfinished,
        new,
        measurement.cct,
        replace(records, line=rows.astype(np.uint32)),
        symbols_of(measurement),
        calls,
        Intervals(measurement.events.values()),
        texts_of(measurement, contents),
    )


def make_parts(
    measurements: Sequence[ShortMeasurement], shared: CompanionWriter | None = None
) -> list[PartContents | FormatError]:
    """Write the parts of measurements of one kind; what each has, or why there is none.

    ``shared`` takes what would be in companions. Raises :class:`StorageError`.
    """
    return _Batch(measurements).write(shared)


class _Batch:
    """The records of several measurements in one table, and where those of each begin."""

    def __init__(self, measurements: Sequence[ShortMeasurement]) -> None:
        self._measurements = measurements
        records = [measurement.records for measurement in measurements]
        self._row = bounds_of([len(measurement.contents.lines) for measurement in measurements])
        self._line = bounds_of([len(part.line) for part in records])
        self._nodes = bounds_of([len(measurement.tree) for measurement in measurements])
        start = [
            part.start[:-1] + at
            for part, at in zip(records, bounds_of(list(map(len, records))).tolist(), strict=False)
        ]
        self._records = RecordChunk(
            _moved([part.line for part in records], self._row).astype(np.uint32),
            np.append(np.concatenate(start), sum(map(len, records))),
            np.concatenate([part.time_ns for part in records]),
            self._numbered(_moved([part.node for part in records], self._nodes)),
            np.concatenate([part.event for part in records]),
            np.concatenate([part.value for part in records]),
        )

    def _numbered(self, node: I64) -> U32:
        """The parts' numbers of nodes: those of most records first (see ``_node_order``)."""
        count, parts = len(node), len(self._measurements)
        keys, spare, seen = (np.empty(count, np.int64) for _ in range(3))
        bounds, number = np.empty(parts + 1, np.int64), np.empty(count, np.uint32)
        counts = np.zeros(int(self._nodes[-1]), np.uint32)
        if not kernels.number_nodes(
            node, count, self._nodes, parts, counts, keys, spare, seen, bounds, number
        ):
            raise IndexError("records of nodes that do not exist")
        self._seen, self._seen_bounds = seen[: int(bounds[-1])], bounds
        return number

    def write(self, shared: CompanionWriter | None) -> list[PartContents | FormatError]:
        cells, cell_bounds = self._cells()
        start, time, node, event, value = self._measurements[0].intervals.expand(self._records)
        rows = self._records.line
        counts, first, last = (np.zeros(int(self._row[-1]), np.int64) for _ in range(3))
        counts[rows] = np.diff(start)
        first[rows], last[rows] = time[start[:-1]], time[start[1:] - 1]
        overview = self._overview(start, time, node)
        cuts = blocks.cut(start, time)
        begins = start[self._line[:-1]]
        encoded = blocks.encode(cuts, time, node, event, value, begins)
        owners = rows[np.searchsorted(start, cuts[:-1], side="right") - 1].astype(np.int64)
        base, base_node, records = time[cuts[:-1]], node[cuts[:-1]], np.diff(cuts)
        block = np.append(np.searchsorted(cuts[:-1], begins), len(cuts) - 1)
        source = np.concatenate([measurement.contents.lines for measurement in self._measurements])
        batch = PartBatch(
            (source.astype(np.int64), counts, first, last), self._row,
            (owners, base, base_node, records), block, encoded,
        )  # fmt: skip
        long = np.diff(np.searchsorted(overview.long_lines(0, len(counts)), self._row)) > 0
        # Mostly all are within bounds, which is seen at once.
        unsure = not (
            int(first.min()) >= 0 and bool((first <= last).all())
            and int(last.max()) * TIME_UNIT_NS < MONOTONIC_LIMIT
        )  # fmt: skip
        answers: list[PartContents | FormatError] = []
        for number, measurement in enumerate(self._measurements):
            mine = slice(int(self._row[number]), int(self._row[number + 1]))
            first_ns, last_ns = first[mine] * TIME_UNIT_NS, last[mine] * TIME_UNIT_NS
            path = measurement.contents.path
            if unsure and not 0 <= int(first_ns.min()) <= int(last_ns.max()) < MONOTONIC_LIMIT:
                answers.append(FormatError(f"{path}: record times are out of range"))
                continue
            own = slice(int(cell_bounds[number]), int(cell_bounds[number + 1]))
            sums = Cells(cells.line[own] - np.uint32(mine.start), cells.node[own], cells.event[own],
                         cells.records[own], cells.value[own])  # fmt: skip
            a, b = int(self._seen_bounds[number]), int(self._seen_bounds[number + 1])
            order = (self._seen[a:b] - self._nodes[number]).astype(np.uint32)
            # Calls name nodes by the measurement's numbers, whatever has records.
            alone = not measurement.contents.call_chunks
            if alone:
                order = np.concatenate((order, _bare(measurement.tree, order)))
            member = None
            if shared is not None and alone:
                member = shared.add(measurement.contents, measurement.tree, order, sums,
                                    measurement.symbols)  # fmt: skip
            used = frozenset(np.flatnonzero(np.bincount(sums.event)).tolist())
            archive = pack_contents(
                measurement.contents, order, measurement.calls, measurement.texts, used
            )
            content: bytes | memoryview | None = None
            if not long[number]:
                content = batch.content(number, archive)
            if content is None:
                chosen = slice(int(block[number]), int(block[number + 1]))
                buffer = io.BytesIO()
                part = PartWriter(measurement.place, buffer)
                part.add(
                    owners[chosen] - mine.start, base[chosen], base_node[chosen], records[chosen],
                    _some(encoded, chosen),
                )  # fmt: skip
                part.finish(
                    measurement.contents.lines.astype(np.int64), counts[mine], first[mine],
                    last[mine], overview, archive, mine.start,
                )  # fmt: skip
                content = buffer.getbuffer()
            contents = replace(
                measurement.contents, counts=counts[mine], first_ns=first_ns, last_ns=last_ns,
                events_used=used, member=member, checksums=checksums_of(memoryview(content)),
            )  # fmt: skip
            try:
                if member is not None:
                    # A part counts when it has a companion: this one has none until it and all
                    # others are whole.
                    if not measurement.new:
                        companion(measurement.place).unlink(missing_ok=True)
                    measurement.place.write_bytes(content)
                else:
                    # Before the part is where it is looked for.
                    write_companion(
                        measurement.place, measurement.tree, order, sums, contents.symbols,
                        measurement.symbols, alone=alone,
                    )  # fmt: skip
                    measurement.unfinished.write_bytes(content)
                    measurement.unfinished.rename(measurement.place)
            except OSError as error:
                raise storage_error(measurement.place, error) from None
            answers.append(contents)
        return answers

    def _cells(self) -> tuple[Cells, I64]:
        """The sums of all lines, and where those of each measurement begin."""
        part = self._records
        nodes = int(np.diff(self._nodes).max())
        cells, first = sum_records(part.line, part.start, part.node, part.event, part.value, nodes)
        return cells, first[self._line]

    def _overview(self, start: I64, time: I64, node: U32) -> OverviewSource:
        """The overviews of lines that are long enough for one."""
        builder = OverviewBuilder(int(self._row[-1]), None)
        for line in np.flatnonzero(np.diff(start) >= FEWEST_RECORDS).tolist():
            mine = slice(int(start[line]), int(start[line + 1]))
            builder.add(self._records.line[line : line + 1].astype(np.int64),
                        np.array([0, mine.stop - mine.start]), time[mine], node[mine])  # fmt: skip
        return OverviewSource([builder.finish()])


def _bare(tree: CCT, seen: U32) -> U32:
    """The nodes that have neither records nor children: all others but the nodes ``seen`` are
    callers of these or those."""
    nodes = len(tree)
    bare = np.empty(nodes, np.uint32)
    count = kernels.bare_nodes(
        np.ascontiguousarray(tree.parent), nodes, seen, len(seen), np.ones(nodes, np.uint8), bare
    )
    if count < 0:
        raise IndexError("a calling context tree of nodes that do not exist")
    return bare[:count]


def _some(encoded: blocks.Encoded, chosen: slice) -> blocks.Encoded:
    """The blocks ``chosen``, and their frames, which are of no others."""
    frame, code_frame = encoded.frame[chosen], encoded.code_frame[chosen]
    places = slice(int(frame[0]), int(frame[-1]) + 1)
    data, content = encoded.data[places], [encoded.content[places]]
    if int(code_frame[0]) >= 0:
        codes = slice(int(code_frame[0]), int(code_frame[-1]) + 1)
        code_frame = code_frame - codes.start + len(data)
        data, content = data + encoded.data[codes], [*content, encoded.content[codes]]
    return blocks.Encoded(
        data, np.concatenate(content), frame - places.start, encoded.at[chosen], code_frame,
        encoded.code_at[chosen], encoded.least[chosen], encoded.width[chosen],
    )  # fmt: skip


def _moved(columns: Sequence[Any], bounds: I64) -> I64:
    """Return ``columns`` joined, ``int64[n]``: to each the number in ``bounds`` is added at which
    its table begins."""
    return np.concatenate(
        [column + at for column, at in zip(columns, bounds[:-1].tolist(), strict=True)]
    ).astype(np.int64)
