"""First stage of a merge: measurements, read once, become parts of the database.

Runs in a worker, a batch of measurements at a time. Memory is bounded however long a recording was:
records are handled some hundred thousand at a time, and leave as blocks.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hpcd.analysis.arrays.column_files import storage_error
from hpcd.analysis.arrays.freed_memory import keep_freed_memory
from hpcd.analysis.merge.read.measurement_batch import BatchMember, MeasurementBatch
from hpcd.analysis.merge.read.part_making import (
    PartMaking,
    batch_records,
    new_output,
    progress_path,
    put_records,
)
from hpcd.analysis.merge.read.shares import LoadedShare, ReadShare, Share, lines_of
from hpcd.analysis.merge.unite.scratch import Scratch, scratch_path
from hpcd.analysis.trace.part import Part
from hpcd.analysis.trace.part_contents import MeasurementContents, PartContents, read_contents
from hpcd.analysis.trace.part_writer import PartWriter
from hpcd.errors import FormatError, HpcdError, NotFoundError


@dataclass(frozen=True, slots=True)
class MeasurementSource:
    """A measurement to read: the input ``path`` and its ``size`` in bytes when it was listed; 0 if
    it cannot be read."""

    path: Path
    size: int


@dataclass(frozen=True, slots=True)
class IngestTask:
    """Read the measurements ``sources`` into the directory ``parts``, using about ``memory`` bytes;
    of one alone a ``share``, if it is divided."""

    sources: tuple[MeasurementSource, ...]
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
    """Make the missing parts: one part of all closed measurements, and a part for each open one,
    which may have grown by the next merge. Raises :class:`StorageError`."""
    answer = Ingested()
    keep_freed_memory()
    members: dict[int, BatchMember] = {}
    with contextlib.ExitStack() as stack:
        for number, source in enumerate(task.sources):
            try:
                # A divided measurement's calls are read when its shares are joined.
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
        closed = {number: one for number, one in members.items() if one.contents.closed}
        _make_part(task, closed, answer)
        for number, member in members.items():
            if not member.contents.closed:
                _make_part(task, {number: member}, answer)
    return answer


def join_shares(tasks: Sequence[IngestTask]) -> Ingested:
    """Make the part of a measurement from its shares, each read by one of ``tasks``. Raises
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
    """Return the path of the part of ``members`` in ``folder``: a resumed merge finds it there."""
    name = hashlib.blake2b(digest_size=8)
    for contents in members:
        name.update(b"%x %x %s\0" % (contents.id, contents.size, os.fsencode(contents.path)))
    return folder / f"{name.hexdigest()}.part"


def progress_of(parts: Path) -> int:
    """Bytes of their measurements that tasks under way have read, which make ``parts``."""
    total = 0
    # os.listdir instead of Path.iterdir: the folder may contain many parts.
    for name in os.listdir(parts):  # noqa: PTH208
        if name.endswith(".read"):
            with contextlib.suppress(OSError, ValueError):
                total += int((parts / name).read_text())
    return total


def _make_part(
    task: IngestTask, members: dict[int, BatchMember], answer: Ingested,
    shares: Sequence[LoadedShare] = (),
) -> None:  # fmt: skip
    """Make the part of ``members`` (of a single measurement, from its ``shares`` if there are any),
    or use the existing one."""
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
        outcome = PartMaking(batch, place, task.memory).make(shares)
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
    shown = progress_path(read.stem)
    try:
        while True:
            member.add_unknown_lines()
            batch = MeasurementBatch([member])
            with read.entries.open("w+b") as spool, PartWriter(read.blocks) as part:
                output = new_output(batch, batch.shared_order(), part, spool)
                records = batch.records(batch_records(batch, task.memory), *chunks)
                put_records(records, output, batch, shown)
                if member.unknown:
                    continue
                output.overview.spill()
                read.save(member.lines, output, part, measurement.damage[known:])
            return
    except OSError as error:
        raise storage_error(read.stem, error) from None
    finally:
        shown.unlink(missing_ok=True)
