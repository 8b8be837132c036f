"""First stage of a merge: measurements, read once, become parts of the database.

Runs in a worker, a batch of measurements at a time. Memory is bounded however long a recording was:
records are handled some hundred thousand at a time, and leave as blocks.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import IO

import numpy as np

from hpcd.analysis.arrays.column_files import storage_error
from hpcd.analysis.arrays.freed_memory import keep_freed_memory
from hpcd.analysis.database.directory import block_checksums
from hpcd.analysis.merge.measurement_batch import BatchMember, MeasurementBatch
from hpcd.analysis.merge.measurement_contents import MONOTONIC_LIMIT, symbols_of, texts_of
from hpcd.analysis.merge.part_output import PartOutput
from hpcd.analysis.merge.record_batches import Batch
from hpcd.analysis.merge.scratch import Scratch, save_scratch, scratch_path
from hpcd.analysis.merge.shares import LoadedShare, ReadShare, Share, lines_of
from hpcd.analysis.trace import blocks
from hpcd.analysis.trace.intervals import Intervals
from hpcd.analysis.trace.overview import OverviewBuilder, OverviewEntries, OverviewSource
from hpcd.analysis.trace.part import Part
from hpcd.analysis.trace.part_contents import (
    MeasurementContents,
    PartContents,
    pack_calls,
    pack_contents,
    pack_measurement,
    read_contents,
)
from hpcd.analysis.trace.part_writer import PartWriter
from hpcd.array_types import U32
from hpcd.errors import FormatError, HpcdError, NotFoundError
from hpcd.measurement.codec import TIME_UNIT_NS

# Records gathered at least, so that a line has many in a batch.
_BATCH_RECORDS = 1 << 18
# What a record costs while its batch is gathered, in bytes: decoded, joined, copies between.
_RECORD_BYTES = 100
_SHOW_BATCHES = 8
# Records of a line to gather before they are cut into blocks, if memory allows: few are short then.
_GATHER = blocks.BLOCK_RECORDS * 4


@dataclass(frozen=True, slots=True)
class Source:
    """A measurement to read: the input ``path``, of which there were ``size`` bytes; 0 of one that
    cannot be read."""

    path: Path
    size: int


@dataclass(frozen=True, slots=True)
class IngestTask:
    """Read the measurements ``sources`` into the directory ``parts``, using about ``memory`` bytes;
    of one alone a ``share``, if it is divided."""

    sources: tuple[Source, ...]
    parts: Path
    memory: int
    share: Share | None = None

    @property
    def bytes(self) -> int:
        """Stored bytes to read."""
        return self.share.bytes if self.share else sum(source.size for source in self.sources)

    def share_stem(self) -> Path:
        """The path of the share's files, without their suffix."""
        share, (source,) = self.share, self.sources
        assert share is not None
        name = hashlib.blake2b(os.fsencode(source.path), digest_size=8).hexdigest()
        # Of a measurement that has grown since a merge was killed it is another one.
        return self.parts / f"share-{name}-{share.size}-{share.number}"


@dataclass(slots=True)
class Ingested:
    """The parts that were made of a task's measurements, and why others are in none, by their
    number; or the share that was read."""

    parts: list[PartContents] = field(default_factory=list)
    refused: dict[int, HpcdError] = field(default_factory=dict)
    share: ReadShare | None = None


def ingest(task: IngestTask) -> Ingested:
    """Make the parts of measurements, unless they are there already: one of those that are closed,
    and one of each other, which may have more the next time. Raises :class:`StorageError`."""
    answer = Ingested()
    keep_freed_memory()
    members: dict[int, BatchMember] = {}
    with contextlib.ExitStack() as stack:
        for number, source in enumerate(task.sources):
            try:
                # The calls of a measurement that is divided are for who joins its shares.
                member = BatchMember.open(
                    source.path, source.size or None, calls=task.share is None
                )
            except (FormatError, NotFoundError) as error:
                answer.refused[number] = error
                continue
            stack.callback(member.measurement.close)
            members[number] = member
        if task.share is not None:
            _ingest_share(task, members, answer)
            return answer
        closed = [number for number, member in members.items() if member.contents.closed]
        others = [[number] for number in members if number not in closed]
        for group in [closed, *others]:
            _make_part(task, {number: members[number] for number in group}, answer)
    return answer


def join_shares(tasks: Sequence[IngestTask]) -> Ingested:
    """Make the part of a measurement, each share of which one of ``tasks`` has read. Raises
    :class:`StorageError`."""
    by_number = sorted(tasks, key=lambda task: task.share.number if task.share else 0)
    task, answer = by_number[0], Ingested()
    keep_freed_memory()
    try:
        member = BatchMember.open(task.sources[0].path, task.sources[0].size)
    except (FormatError, NotFoundError) as error:
        answer.refused[0] = error
        return answer
    with contextlib.closing(member.measurement):
        shares = [ReadShare(task.share_stem()) for task in by_number]
        try:
            loaded = [share.load() for share in shares]
        except FormatError as error:
            answer.refused[0] = error
            return answer
        _make_part(task, {0: member}, answer, loaded)
        for share in shares:
            share.remove()
    return answer


def part_path(folder: Path, members: Iterable[MeasurementContents]) -> Path:
    """Return the path of the part of ``members`` in ``folder``: a merge that goes on finds it."""
    name = hashlib.blake2b(digest_size=8)
    for contents in members:
        name.update(b"%x %x %s\0" % (contents.id, contents.size, os.fsencode(contents.path)))
    return folder / f"{name.hexdigest()}.part"


def progress_of(parts: Path) -> int:
    """Bytes of their measurements that tasks under way have read, which make ``parts``."""
    total = 0
    # Names alone: there may be many parts beside them.
    for name in os.listdir(parts):  # noqa: PTH208
        if name.endswith(".read"):
            with contextlib.suppress(OSError, ValueError):
                total += int((parts / name).read_text())
    return total


def _make_part(
    task: IngestTask, members: dict[int, BatchMember], answer: Ingested,
    shares: Sequence[LoadedShare] = (),
) -> None:  # fmt: skip
    """Make the part of ``members``, of a measurement alone of its ``shares``; or take the one that
    is there."""
    if shares:
        (member,) = members.values()
        member.unknown |= lines_of(shares) - set(member.lines.tolist())
    while members:
        for member in members.values():
            member.add_unknown_lines()
        place = part_path(task.parts, (member.contents for member in members.values()))
        existing = _existing(place, list(members.values()))
        if existing is not None:
            answer.parts.append(existing)
            return
        try:
            batch = MeasurementBatch(list(members.values()))
        except FormatError as error:
            _make_single_parts(task, members, answer, error)
            return
        outcome = _Making(task, batch, place).make(shares)
        if isinstance(outcome, PartContents):
            answer.parts.append(outcome)
            return
        for number in [number for number, member in members.items() if member in outcome]:
            path = members.pop(number).contents.path
            answer.refused[number] = FormatError(f"{path}: record times are out of range")


def _make_single_parts(
    task: IngestTask, members: dict[int, BatchMember], answer: Ingested, error: FormatError
) -> None:
    """Make a part of each of ``members``, as they do not fit into one: ``error`` says why."""
    if len(members) == 1:
        answer.refused |= dict.fromkeys(members, error)
        return
    for number, member in members.items():
        _make_part(task, {number: member}, answer)


def _existing(place: Path, members: Sequence[BatchMember]) -> PartContents | None:
    """The part ``place``, if a merge that was killed has made it of ``members``."""
    if not (place.exists() and scratch_path(place).exists()):
        return None
    try:
        part, named = read_contents(Part(place)), Scratch(place).named()
    except FormatError:
        return None
    if len(named) != len(part.measurements) or len(named) != len(members):
        return None
    measurements = tuple(
        replace(contents, path=member.contents.path, symbols=symbols).by_column()
        for contents, member, symbols in zip(part.measurements, members, named, strict=True)
    )
    return replace(part, measurements=measurements)


class _Making:
    """The part ``place`` under way, of the measurements of a batch."""

    def __init__(self, task: IngestTask, batch: MeasurementBatch, place: Path) -> None:
        self._task, self._batch, self._place = task, batch, place
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
            for path in (self._unfinished, _shown(self._unfinished)):
                path.unlink(missing_ok=True)

    def _read(self, shares: Sequence[LoadedShare]) -> PartContents | list[BatchMember]:
        batch = self._batch
        with (
            tempfile.TemporaryFile(dir=self._task.parts) as spool,
            PartWriter(self._unfinished) as part,
        ):
            if shares:
                output = _output(batch, shares[0].order, part, spool)
                stretches = _join(batch, shares, output, part)
            else:
                records = batch.records(_batch_records(self._task, batch.rows))
                first = list(islice(records, 1))
                order = batch.node_order(first[0] if first else None)
                output = _output(batch, order, part, spool)
                stretches = []
                _put_records(chain(first, records), output, batch, _shown(self._unfinished))
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
        part.finish(source, output.counts, output.first, output.last, overviews, archive)
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
    rows = slice(member.first_row, member.first_row + len(member.lines))
    return replace(
        member.contents, damage=tuple(member.measurement.damage),
        lines=member.lines.astype(np.uint32), counts=output.counts[rows],
        first_ns=output.first[rows] * TIME_UNIT_NS, last_ns=output.last[rows] * TIME_UNIT_NS,
        part=place, number=number, first_row=rows.start,
    )  # fmt: skip


def _is_in_range(member: BatchMember, output: PartOutput) -> bool:
    """Whether all times of a measurement's records can be."""
    rows = slice(member.first_row, member.first_row + len(member.lines))
    first, last = output.first[rows] * TIME_UNIT_NS, output.last[rows] * TIME_UNIT_NS
    return not len(first) or 0 <= int(first.min()) <= int(last.max()) < MONOTONIC_LIMIT


def _ingest_share(task: IngestTask, members: dict[int, BatchMember], answer: Ingested) -> None:
    """Read a share of a measurement, unless that was done or its part is there."""
    share = task.share
    if share is None or not members:
        return
    (member,) = members.values()
    existing = _existing(part_path(task.parts, [member.contents]), [member])
    if existing is not None:
        answer.parts.append(existing)
        return
    read = answer.share = ReadShare(task.share_stem())
    if read.tables.exists():
        return
    measurement = member.measurement
    known = len(measurement.damage)
    chunks = measurement.chunks_between(share.begin, share.end)
    shown = _shown(read.stem)
    try:
        while True:
            member.add_unknown_lines()
            batch = MeasurementBatch([member])
            with read.entries.open("w+b") as spool, PartWriter(read.blocks) as part:
                output = _output(batch, batch.shared_order(), part, spool)
                records = batch.records(_batch_records(task, batch.rows), *chunks)
                _put_records(records, output, batch, shown)
                if member.unknown:
                    continue
                output.overview.spill()
                read.save(member.lines, output, part, measurement.damage[known:])
            return
    except OSError as error:
        raise storage_error(read.stem, error) from None
    finally:
        shown.unlink(missing_ok=True)


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


def _output(batch: MeasurementBatch, order: U32, part: PartWriter, spool: IO[bytes]) -> PartOutput:
    """Return the output into which the records of ``batch`` are put."""
    nodes = len(batch.tree)
    overview = OverviewBuilder(batch.rows, spool, nodes)
    return PartOutput(batch.rows, nodes, order, part, overview, Intervals(batch.events))


def _put_records(
    batches: Iterable[Batch], output: PartOutput, batch: MeasurementBatch, shown: Path
) -> None:
    """Put records into ``output``; ``shown`` says how far that is."""
    for number, records in enumerate(batches, start=1):
        output.put(records)
        if number % _SHOW_BATCHES == 0:
            with contextlib.suppress(OSError):
                shown.write_text(str(batch.bytes_read))


def _shown(unfinished: Path) -> Path:
    """Return the path of the file in which a task says how far it has read."""
    return unfinished.with_suffix(".read")


def _batch_records(task: IngestTask, rows: int) -> int:
    limit = max(task.memory // _RECORD_BYTES, _BATCH_RECORDS)
    if len(task.sources) > 1:
        # The records of a short measurement's line follow one another as they are.
        return min(_BATCH_RECORDS, limit)
    return min(max(rows * _GATHER, _BATCH_RECORDS), limit)
