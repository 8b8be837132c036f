"""First stage of a merge: a measurement, read once, becomes a part of the database.

Runs in a worker, one measurement at a time. Memory is bounded however long the recording was:
records are handled in batches, gathered line by line, and leave as blocks.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import IO

import numpy as np

from hpcd.analysis.arrays.column_files import storage_error
from hpcd.analysis.arrays.freed_memory import keep_freed_memory
from hpcd.analysis.database.directory import block_checksums
from hpcd.analysis.merge.measurement_contents import (
    MONOTONIC_LIMIT,
    checked_clock,
    contents_of,
    symbols_of,
    texts_of,
    with_calls,
)
from hpcd.analysis.merge.part_output import PartOutput, UnknownLinesError
from hpcd.analysis.merge.record_batches import Batch, RecordColumns
from hpcd.analysis.merge.shared_companions import CompanionWriter
from hpcd.analysis.merge.shares import LoadedShare, ReadShare, Share, lines_of
from hpcd.analysis.merge.short_measurements import (
    BATCH_RECORDS,
    ShortMeasurement,
    make_parts,
    read_short,
)
from hpcd.analysis.trace import blocks
from hpcd.analysis.trace.intervals import Intervals
from hpcd.analysis.trace.overview import OverviewBuilder, OverviewEntries, OverviewSource
from hpcd.analysis.trace.part import Part
from hpcd.analysis.trace.part_contents import (
    PartContents,
    pack_contents,
    read_contents,
    write_companion,
)
from hpcd.analysis.trace.part_writer import PartWriter
from hpcd.analysis.trace.shared_companion import Measured, Member
from hpcd.array_types import I64, U32
from hpcd.errors import FormatError, HpcdError, NotFoundError
from hpcd.measurement.codec import TIME_UNIT_NS
from hpcd.measurement.reader import Measurement, open_measurement
from hpcd.model.cct_union import DEPTH_LIMIT

# Records gathered at least, so that a line has many in a batch.
_BATCH_RECORDS = 1 << 18
# What a record costs while its batch is gathered, in bytes: decoded, joined, copies between.
_RECORD_BYTES = 100
_SHOW_BATCHES = 8
# Records of a line to gather before they are cut into blocks, if memory allows: few are short then.
_GATHER = blocks.BLOCK_RECORDS * 4

# Chunks behind the first batch that are looked at before nodes are numbered, until they have so
# many records.
_MORE_CHUNKS = 16
_MORE_RECORDS = 1 << 16
# The same where a measurement is divided.
_SHARED_RECORDS = 1 << 18


@dataclass(frozen=True, slots=True)
class IngestTask:
    """Read the measurement ``path`` into the directory ``parts``, using about ``memory`` bytes.

    ``existing`` is where a database has parts already.
    """

    path: Path
    parts: Path
    existing: Path | None
    memory: int
    share: Share | None = None
    """What of the measurement to read; all of it where it is None."""
    members: Mapping[Measured, Member] = field(default_factory=dict)
    """Where the companion of the part is that a killed merge made, if it is shared."""
    new: bool = False
    """No killed merge made anything of it."""

    @property
    def name(self) -> str:
        """The name of this task's files, from its path: two inputs may be the same measurement."""
        return hashlib.blake2b(os.fsencode(self.path), digest_size=8).hexdigest()


def part_name(measurement: int) -> str:
    """File name of the part of a measurement."""
    return f"{measurement & (1 << 64) - 1:016x}.part"


def ingest(task: IngestTask) -> PartContents:
    """Make the part of a measurement, unless it is there already.

    Raises :class:`FormatError` or :class:`NotFoundError` when it is no measurement, or says what
    cannot be: what gets past here is in range. Raises :class:`StorageError`.
    """
    answer = ingest_several([task])[0]
    if isinstance(answer, HpcdError):
        raise answer
    assert isinstance(answer, PartContents)  # there is no share to be read
    return answer


def ingest_several(tasks: Sequence[IngestTask]) -> list[PartContents | ReadShare | HpcdError]:
    """Make the parts of several measurements; where :func:`ingest` would raise :class:`FormatError`
    or :class:`NotFoundError` for one, that error stands in place of its part.

    Short measurements are made parts together; of one of which a share is read
    :func:`join_shares` makes the part. Raises :class:`StorageError`.
    """
    answers: dict[int, PartContents | ReadShare | HpcdError] = {}
    waiting: dict[tuple[object, ...], list[tuple[int, ShortMeasurement]]] = {}
    held: dict[tuple[object, ...], int] = {}

    keep_freed_memory()
    # Of one alone it would be no more than its own.
    shared = CompanionWriter(tasks[0].parts) if len(tasks) > 1 else None

    def make(kind: tuple[object, ...]) -> None:
        numbers, measurements = zip(*waiting.pop(kind), strict=True)
        answers.update(zip(numbers, make_parts(measurements, shared), strict=True))

    for number, task in enumerate(tasks):
        try:
            answer = _ingest(task)
        except (FormatError, NotFoundError) as error:
            answers[number] = error
            continue
        if not isinstance(answer, ShortMeasurement):
            answers[number] = answer
            continue
        kind = answer.kind
        waiting.setdefault(kind, []).append((number, answer))
        held[kind] = held.get(kind, 0) + len(answer.records)
        if held[kind] >= BATCH_RECORDS:
            make(kind)
            held[kind] = 0
    for kind in list(waiting):
        make(kind)
    if shared is not None:
        shared.save()
    return [
        answer.by_column() if isinstance(answer, PartContents) else answer
        for answer in (answers[number] for number in range(len(tasks)))
    ]


def join_shares(tasks: Sequence[IngestTask]) -> PartContents | HpcdError:
    """Make the part of a measurement, each share of which one of ``tasks`` has read; or why there
    is none. Raises :class:`StorageError`."""
    by_number = sorted(tasks, key=lambda task: task.share.number if task.share else 0)
    try:
        answer = _ingest(by_number[0], [_read_share(task) for task in by_number])
    except (FormatError, NotFoundError) as error:
        return error
    assert isinstance(answer, PartContents)
    return answer.by_column()


def _read_share(task: IngestTask) -> ReadShare:
    share = task.share
    assert share is not None
    # Of a measurement that has grown since a merge was killed it is another one.
    return ReadShare(task.parts / f"share-{task.name}-{share.size}-{share.number}")


def _ingest(
    task: IngestTask, shares: Sequence[ReadShare] = ()
) -> PartContents | ShortMeasurement | ReadShare:
    """The part of a measurement, or all of a short one, or a share of a long one; with ``shares``
    the part of these."""
    whole = task.share.size if task.share else None
    with open_measurement(task.path, whole, texts=True) as measurement:
        if measurement.id is None:
            raise FormatError(f"{task.path}: nothing readable")
        size = task.share.size if task.share else measurement.size
        name = task.name
        place = task.parts / f"{name}.part"
        existing_parts = [] if task.new else [place]
        if task.existing:
            existing_parts.append(task.existing / part_name(measurement.id))
        for old in existing_parts:
            member = task.members.get((measurement.id, size)) if old == place else None
            existing = _already(old, measurement.id, size, member, united=old != place)
            if existing is not None:
                return replace(existing, path=task.path)
        measurement.cct.validate(str(task.path))
        tree = measurement.cct
        if len(tree) > DEPTH_LIMIT and int(tree.depth().max()) >= DEPTH_LIMIT:
            raise FormatError(
                f"{task.path}: calling context tree is deeper than {DEPTH_LIMIT} frames"
            )
        clock_pairs = checked_clock(measurement, task.path)
        # In no folder of its own: to make and remove one takes as long as a short measurement.
        unfinished = task.parts / f"part-{name}"
        if task.share is None:
            short = read_short(
                measurement, task.path, size, clock_pairs, place, unfinished, new=task.new
            )
            if short is not None:
                return short
        elif not shares:
            return _ingest_share(measurement, task)
        loaded = [share.load() for share in shares]
        lines = set(measurement.threads) | lines_of(loaded)
        while True:
            unfinished.unlink(missing_ok=True)
            try:
                contents = _read(
                    measurement, task, lines, clock_pairs, size, unfinished, place, loaded
                )
                for share in shares:
                    share.remove()
                # Now it is in memory.
                checksums = block_checksums(unfinished).crc32
                unfinished.rename(place)
                return replace(contents, part=place, checksums=checksums)
            except UnknownLinesError as unknown:
                lines |= unknown.lines
            except OSError as error:
                raise storage_error(place, error) from None
            finally:
                for path in (unfinished, _shown(unfinished)):
                    path.unlink(missing_ok=True)


def _shown(unfinished: Path) -> Path:
    """Return the path of the file in which a task says how far it has read."""
    return unfinished.with_suffix(".read")


def progress_of(parts: Path) -> int:
    """Bytes of their measurements that tasks under way have read, which make ``parts``."""
    total = 0
    # Names alone: there may be tens of thousands of parts beside them.
    for name in os.listdir(parts):  # noqa: PTH208
        if name.startswith("part-") and name.endswith(".read"):
            with contextlib.suppress(OSError, ValueError):
                total += int((parts / name).read_text())
    return total


def _already(
    place: Path, measurement: int, size: int, member: Member | None, *, united: bool
) -> PartContents | None:
    """The part that was made of the same measurement when it was as long; it is in a database
    (``united``), or it has a companion, its own or ``member`` of one."""
    if not place.exists():
        return None
    try:
        contents = read_contents(Part(place), member)
        if contents.united and not united:
            return None
    except FormatError:
        return None
    return contents if (contents.id, contents.size) == (measurement, size) else None


def _ingest_share(measurement: Measurement, task: IngestTask) -> ReadShare:
    """Read a share of ``measurement``, unless that was done."""
    share, read = task.share, _read_share(task)
    assert share is not None
    if read.tables.exists():
        return read
    keep_freed_memory()
    known = len(measurement.damage)
    lines = set(measurement.threads)
    chunks = measurement.chunks_between(share.begin, share.end)
    shown = task.parts / f"part-{task.name}-{share.number}.read"
    while True:
        try:
            with read.entries.open("w+b") as spool, PartWriter(read.blocks) as part:
                order = _shared_order(measurement)
                source = np.array(sorted(lines), np.int64)
                output = _output(measurement, source, order, part, spool)
                target = _batch_records(task, len(source))
                records = _gathered(measurement, target, *chunks)
                _put_records(records, output, measurement, shown)
                output.overview.spill()
                read.save(source, order, output, part, measurement.damage[known:])
            return read
        except UnknownLinesError as unknown:
            lines |= unknown.lines
        except OSError as error:
            raise storage_error(read.stem, error) from None
        finally:
            shown.unlink(missing_ok=True)


def _output(
    measurement: Measurement, source: I64, order: U32, part: PartWriter, spool: IO[bytes]
) -> PartOutput:
    """Return the output into which records of ``measurement`` are put."""
    nodes = len(measurement.cct)
    overview = OverviewBuilder(len(source), spool, nodes)
    intervals = Intervals(measurement.events.values())
    return PartOutput(source, nodes, order, part, overview, intervals)


def _put_records(
    batches: Iterable[tuple[Batch, int]], output: PartOutput,
    measurement: Measurement, shown: Path,
) -> None:  # fmt: skip
    """Put records of ``measurement`` into ``output``; ``shown`` says how far that is."""
    for number, (records, _) in enumerate(batches, start=1):
        output.put(records)
        if number % _SHOW_BATCHES == 0:
            with contextlib.suppress(OSError):
                shown.write_text(str(measurement.bytes_read))


def _batch_records(task: IngestTask, lines: int) -> int:
    limit = max(task.memory // _RECORD_BYTES, _BATCH_RECORDS)
    return min(max(lines * _GATHER, _BATCH_RECORDS), limit)


def _read(
    measurement: Measurement, task: IngestTask, lines: set[int], clock_pairs: I64, size: int,
    part_path: Path, place: Path, shares: Sequence[LoadedShare],
) -> PartContents:  # fmt: skip
    keep_freed_memory()
    path = task.path
    source = np.array(sorted(lines), np.int64)
    with tempfile.TemporaryFile(dir=task.parts) as spool, PartWriter(part_path) as part:
        entries: list[OverviewEntries] = []
        if shares:
            order = shares[0].order
            output = _output(measurement, source, order, part, spool)
            entries += [share.add_to(output, part, source) for share in shares]
            for share in shares:
                measurement.add_damage(share.damage)
            if output.unsorted:
                entries = [stretch.without(sorted(output.unsorted)) for stretch in entries]
        else:
            records = _gathered(measurement, _batch_records(task, len(source)))
            first = list(islice(records, 1))
            order = np.zeros(0, np.uint32)
            for batch, chunks in first:
                order = _node_order(measurement, batch.node, chunks)
            output = _output(measurement, source, order, part, spool)
            _put_records(chain(first, records), output, measurement, _shown(part_path))
        output.sort_unsorted()
        first_ns, last_ns = output.first * TIME_UNIT_NS, output.last * TIME_UNIT_NS
        if len(source) and not 0 <= int(first_ns.min()) <= int(last_ns.max()) < MONOTONIC_LIMIT:
            raise FormatError(f"{path}: record times are out of range")
        cells = output.sums.result()
        contents = contents_of(measurement, path, size, clock_pairs)
        contents = replace(
            contents, part=part_path, lines=source.astype(np.uint32), counts=output.counts,
            first_ns=first_ns, last_ns=last_ns,
            events_used=frozenset(np.unique(cells.event).tolist()),
        )  # fmt: skip
        contents, calls = with_calls(contents, measurement)
        archive = pack_contents(contents, order, calls, texts_of(measurement, contents))
        overviews = OverviewSource([*entries, output.overview.finish()])
        part.finish(source, output.counts, output.first, output.last, overviews, archive)
        # Before the part is where it is looked for.
        symbols = symbols_of(measurement)
        write_companion(place, measurement.cct, order, cells, contents.symbols, symbols)
    return contents


def _gathered(
    measurement: Measurement, target: int, first: int = 0, last: int | None = None
) -> Iterator[tuple[Batch, int]]:
    """Batches of about ``target`` records, each to be used up before the next one is asked for; and
    how many chunks there are in it."""
    columns = RecordColumns(target)
    for chunk in measurement.record_chunks(first, columns.room, last):
        if len(chunk):
            columns.keep(chunk)
        if len(columns) >= target:
            yield columns.batch(), columns.chunks
            columns.empty()
    if len(columns):
        yield columns.batch(), columns.chunks


def _node_order(
    measurement: Measurement, node: U32, chunks: int, enough: int = _MORE_RECORDS
) -> U32:
    """The nodes that a part numbers first, those of the most records before others.

    Their numbers then have low bytes that are alike and high ones that are 0, which saves a tenth
    of what a part's blocks take, and their sums lie close together. ``node`` are those of the first
    ``chunks``; of the others some are looked at, until they have ``enough`` records.
    """
    counts = np.bincount(node, minlength=len(measurement.cct))
    looked = 0
    for chunk in measurement.some_chunks(chunks, _MORE_CHUNKS, RecordColumns(0).room):
        counts += np.bincount(chunk.node, minlength=len(counts))
        looked += len(chunk)
        if looked > enough:
            break
    seen = np.flatnonzero(counts)
    return seen[np.argsort(-counts[seen], kind="stable")].astype(np.uint32)


def _shared_order(measurement: Measurement) -> U32:
    """Return the nodes that a part numbers first, for a share: whichever it is, the same chunks are
    looked at."""
    return _node_order(measurement, np.zeros(0, np.uint32), 0, _SHARED_RECORDS)
