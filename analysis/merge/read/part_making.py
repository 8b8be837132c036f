"""Making a part: the records of a batch of measurements are read, blocks and tables written."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import IO

import numpy as np

from hpcd.analysis.arrays.column_files import storage_error
from hpcd.analysis.database.directory import block_checksums
from hpcd.analysis.merge.read.heap_sums import heap_sums
from hpcd.analysis.merge.read.measurement_batch import BatchMember, MeasurementBatch
from hpcd.analysis.merge.read.measurement_contents import symbols_of, texts_of
from hpcd.analysis.merge.read.part_output import PartOutput
from hpcd.analysis.merge.read.record_batches import Batch
from hpcd.analysis.merge.read.shares import LoadedShare
from hpcd.analysis.merge.unite.scratch import save_scratch
from hpcd.analysis.trace import blocks
from hpcd.analysis.trace.intervals import Intervals
from hpcd.analysis.trace.overview import OverviewBuilder, OverviewEntries, OverviewSource
from hpcd.analysis.trace.part_contents import (
    MeasurementContents,
    PartContents,
    pack_calls,
    pack_contents,
    pack_measurement,
    recorded_spans,
)
from hpcd.analysis.trace.part_writer import PartWriter
from hpcd.analysis.trace.short_waits import ShortWaits
from hpcd.array_types import U32
from hpcd.measurement.call_codec import decode_calls
from hpcd.measurement.codec import MONOTONIC_LIMIT, TIME_UNIT_NS

# Records gathered at least, so that a line has many in a batch.
_BATCH_RECORDS = 1 << 18
# Bytes of a record while its batch is gathered: decoded, joined, with copies between.
_RECORD_BYTES = 100
_SHOW_BATCHES = 8
# Records of a line to gather before they are cut into blocks, if memory allows: few are short then.
_GATHER = blocks.BLOCK_RECORDS * 4


class PartMaking:
    """The part ``place`` under way, of the measurements of a batch."""

    def __init__(self, batch: MeasurementBatch, place: Path, memory: int) -> None:
        """Use about ``memory`` bytes for records that are gathered."""
        self._batch, self._place, self._memory = batch, place, memory
        # In no folder of its own: to make and remove one takes as long as a short measurement.
        self._unfinished = place.with_name(f"part-{place.stem}")

    def make(self, shares: Sequence[LoadedShare]) -> PartContents | list[BatchMember]:
        """Make the part; or return the measurements that cannot be in it, none where lines were met
        that no measurement announced. Raises :class:`StorageError`."""
        try:
            answer = self._read(shares)
            if isinstance(answer, PartContents):
                # Now it is in memory.
                answer = replace(answer, checksums=block_checksums(self._unfinished).crc32)
                self._unfinished.rename(self._place)
            return answer
        except OSError as error:
            raise storage_error(self._place, error) from None
        finally:
            for path in (self._unfinished, progress_path(self._unfinished)):
                path.unlink(missing_ok=True)

    def _read(self, shares: Sequence[LoadedShare]) -> PartContents | list[BatchMember]:
        batch = self._batch
        with (
            tempfile.TemporaryFile(dir=self._place.parent) as spool,
            PartWriter(self._unfinished) as part,
        ):
            if shares:
                output = new_output(batch, shares[0].order, part, spool)
                stretches = _join(batch, shares, output, part)
            else:
                records = batch.records(batch_records(batch, self._memory))
                first = list(islice(records, 1))
                order = batch.node_order(first[0] if first else None)
                output = new_output(batch, order, part, spool)
                stretches = []
                put_records(chain(first, records), output, batch, progress_path(self._unfinished))
                if any(member.unknown for member in batch.members):
                    return []
            output.sort_unsorted()
            strange = [member for member in batch.members if not _is_in_range(member, output)]
            if strange:
                return strange
            overviews = OverviewSource([*stretches, output.overview.finish()])
            return self._finish(output, part, overviews)

    def _finish(
        self, output: PartOutput, part: PartWriter, overviews: OverviewSource
    ) -> PartContents:
        members = self._batch.members
        for member in members:
            for cells in heap_sums(member, self._batch.events, output.number):
                output.sums.add_sums(cells)
        sums = output.sums.result()
        events = self._batch.events_with(np.flatnonzero(np.bincount(sums.event)).tolist())
        measurements, identities = [], []
        calls: dict[str, bytes] = {}
        for number, member in enumerate(members):
            contents = _finished(member, number, output, self._place)
            measurements.append(contents.by_column())
            identities.append(pack_measurement(contents, texts_of(member.measurement, contents)))
            if contents.call_chunks:
                nodes = output.number if member.node is None else output.number[member.node]
                calls |= pack_calls(number, nodes, member.calls)
        clock_pairs = [contents.clock_pairs for contents in measurements]
        archive = pack_contents(identities, clock_pairs, events) | calls
        source = np.concatenate([member.lines for member in members])
        short = ShortWaits.joined(output.short_waits)
        part.finish(source, output.counts, output.first, output.last, overviews, short, archive)
        # Before the part is where it is looked for.
        save_scratch(
            self._place, self._batch.tree, output.order, sums,
            [member.modules for member in members],
            [symbols_of(member.measurement) if member.contents.symbols else []
             for member in members],
            [member.contents.symbols for member in members],
        )  # fmt: skip
        return PartContents(self._place, tuple(measurements), tuple(events))


def _finished(
    member: BatchMember, number: int, output: PartOutput, place: Path
) -> MeasurementContents:
    """The contents of measurement ``number`` of the part ``place``, whole."""
    rows = member.rows
    lines, counts = member.lines.astype(np.uint32), output.counts[rows]
    first, last = recorded_spans(
        lines, counts, output.first[rows] * TIME_UNIT_NS, output.last[rows] * TIME_UNIT_NS,
        map(decode_calls, member.calls),
    )  # fmt: skip
    return replace(
        member.contents, damage=tuple(member.measurement.damage), lines=lines, counts=counts,
        first_ns=first, last_ns=last, part=place, number=number,
        first_row=rows.start,
    )  # fmt: skip


def _is_in_range(member: BatchMember, output: PartOutput) -> bool:
    """Whether all times of a measurement's records can be."""
    rows = member.rows
    first, last = output.first[rows] * TIME_UNIT_NS, output.last[rows] * TIME_UNIT_NS
    return not len(first) or 0 <= int(first.min()) <= int(last.max()) < MONOTONIC_LIMIT


def _join(
    batch: MeasurementBatch, shares: Sequence[LoadedShare], output: PartOutput, part: PartWriter
) -> list[OverviewEntries]:
    """Put the shares of a measurement into its part; the entries of their overviews."""
    (member,) = batch.members
    stretches = [share.add_to(output, part, member.lines) for share in shares]
    for share in shares:
        member.measurement.add_damage(share.damage)
    if output.unsorted:
        stretches = [stretch.without(sorted(output.unsorted)) for stretch in stretches]
    return stretches


def new_output(
    batch: MeasurementBatch, order: U32, part: PartWriter, spool: IO[bytes]
) -> PartOutput:
    """Return the output into which the records of ``batch`` are put."""
    overview = OverviewBuilder(batch.rows, spool, len(batch.tree))
    user, intervals = batch.user_nodes(), Intervals(batch.events)
    return PartOutput(batch.rows, user, order, part, overview, intervals)


def put_records(
    batches: Iterable[Batch], output: PartOutput, batch: MeasurementBatch, shown: Path
) -> None:
    """Put records into ``output``; ``shown`` says how far that is."""
    for number, records in enumerate(batches, start=1):
        output.put(records)
        if number % _SHOW_BATCHES == 0:
            with contextlib.suppress(OSError):
                shown.write_text(str(batch.bytes_read))


def progress_path(unfinished: Path) -> Path:
    """Return the path of the file in which a task says how far it has read."""
    return unfinished.with_suffix(".read")


def batch_records(batch: MeasurementBatch, memory: int) -> int:
    """Return the number of records of ``batch`` to gather at a time, in about ``memory`` bytes."""
    if len(batch.members) > 1:
        # The records of a short measurement's line follow one another as they are.
        return _BATCH_RECORDS
    limit = max(memory // _RECORD_BYTES, _BATCH_RECORDS)
    return min(max(batch.rows * _GATHER, _BATCH_RECORDS), limit)
