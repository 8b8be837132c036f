"""The first stage of a merge: every measurement becomes a part of the database.

Large ones are read by several workers, short ones many by one. What is to be read next is read
ahead from the disk. A part that an earlier attempt has made, or that is in the database that is
added to, is taken as it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from pathlib import Path

from hpcd.analysis.database import directory as layout
from hpcd.analysis.merge.earlier_database import EarlierDatabase
from hpcd.analysis.merge.executors import Progress, run_all, size_of, together
from hpcd.analysis.merge.ingest import IngestTask, ingest_several, join_shares, progress_of
from hpcd.analysis.merge.prefetch import Prefetch, Stretch
from hpcd.analysis.merge.shares import ReadShare, Share, divide
from hpcd.analysis.trace.part import Part
from hpcd.analysis.trace.part_contents import PartContents, read_contents, windows_of
from hpcd.analysis.trace.shared_companion import members_in
from hpcd.errors import FormatError, HpcdError

# Measurements that one task reads, in bytes: short ones are read together.
_READ_BYTES = 8 << 20
_SHOW_SECONDS = 0.25
# Of inputs that are no measurements, where none is one.
_SHOW_ERRORS = 8


@dataclass(slots=True)
class ReadMeasurements:
    """Measurements whose parts were made, in an order that depends on the measurements alone.

    ``earlier`` is the database that is added to; ``refused``, ``damaged`` and ``notes`` are as
    :class:`~hpcd.analysis.merge.stages.MergeResult` has them.
    """

    contents: list[PartContents] = field(default_factory=list)
    earlier: EarlierDatabase | None = None
    refused: list[tuple[str, str]] = field(default_factory=list)
    damaged: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Answers:
    """The outcomes of reading inputs, by their numbers: measurements, and why others are none."""

    ingested: list[tuple[int, PartContents]] = field(default_factory=list)
    refused: list[tuple[int, str]] = field(default_factory=list)
    errors: list[HpcdError] = field(default_factory=list)

    def take(self, number: int, answer: PartContents | HpcdError) -> None:
        if isinstance(answer, HpcdError):
            self.refused.append((number, str(answer)))
            self.errors.append(answer)
        else:
            self.ingested.append((number, answer))


def read_measurements(
    paths: Sequence[Path], folder: Path, old: Path | None, executor: Executor,
    progress: Progress, *, memory: int, local: bool,
) -> ReadMeasurements:  # fmt: skip
    """Make the parts of ``paths`` in ``folder``, and find those of the database ``old``.

    ``local``: the workers read from this machine's memory what is read ahead here. Raises
    :class:`FormatError` when none is a measurement, and the error of the only one.
    """
    result = ReadMeasurements()
    earlier: list[PartContents] = []
    if old is not None:
        earlier = _parts_of(old, executor)
        result.earlier = EarlierDatabase(old, earlier)
    answers = _ingest_all(paths, folder, old and old / "trace", executor, progress, memory, local)
    result.contents = _distinct(answers, {part.id: part for part in earlier}, result.notes)
    result.refused = [(str(paths[number]), why) for number, why in sorted(answers.refused)]
    if not result.contents:
        if len(answers.errors) == 1:
            raise answers.errors[0]
        raise FormatError(
            f"none of {len(paths)} inputs is a measurement: "
            + "; ".join(str(error) for error in answers.errors[:_SHOW_ERRORS])
            + (f"; and {len(answers.errors) - _SHOW_ERRORS} more"
               * (len(answers.errors) > _SHOW_ERRORS))
        )  # fmt: skip
    for contents in result.contents:
        result.damaged += [(str(contents.path), what) for what in contents.damage]
        if not contents.closed:
            result.notes.append(f"{contents.path}: not closed, merged as far as it goes")
        origin = contents.options.get("imported")
        if isinstance(origin, dict) and origin.get("times") == "synthetic":
            result.notes.append(f"{contents.path}: imported, its times are synthetic")
    return result


def _ingest_all(
    paths: Sequence[Path], folder: Path, existing: Path | None, executor: Executor,
    progress: Progress, memory: int, local: bool,
) -> _Answers:  # fmt: skip
    sizes = [size_of(path) for path in paths]
    # What a worker reads by itself: a measurement, or a share of one.
    units = [
        (number, share) for number, size in enumerate(sizes) for share in divide(size) or (None,)
    ]
    unit_sizes = [share.bytes if share else sizes[number] for number, share in units]
    groups = together(unit_sizes, _READ_BYTES)
    members = members_in(folder)
    new = not any(folder.iterdir())
    tasks = [
        [
            IngestTask(paths[number], folder, existing, memory, share, new=new)
            for number, share in (units[at] for at in group)
        ]
        for group in groups
    ]
    if members:
        tasks = [
            [replace(task, members=members.get(f"{task.name}.part", {})) for task in group]
            for group in tasks
        ]
    ahead = Prefetch(
        _stretch(paths[number], share, sizes[number])
        for group in groups
        for number, share in (units[at] for at in group)
        if local
    )
    ahead.keep_up(0)
    done = 0
    # Of short ones the next task ends soon, and looking for what workers say of theirs among tens
    # of thousands of parts takes longer than reading some.
    long = max(unit_sizes, default=0) > _READ_BYTES
    show = _shower(
        progress, max(sum(sizes), 1), lambda: done, lambda: progress_of(folder) if long else 0
    )
    answers = _Answers()
    joined: dict[int, list[IngestTask]] = {}
    settled: set[int] = set()
    for at, future in run_all(executor, ingest_several, tasks, show):
        for task, unit, answer in zip(tasks[at], groups[at], future.result(), strict=True):
            number = units[unit][0]
            done += unit_sizes[unit]
            if isinstance(answer, ReadShare):
                joined.setdefault(number, []).append(task)
            elif number not in settled:
                # One share that cannot be read is enough, as is a part that is there.
                settled.add(number)
                answers.take(number, answer)
        ahead.keep_up(done)
        show()
    whole = sorted(joined.keys() - settled)
    for at, part_future in run_all(
        executor, join_shares, [joined[number] for number in whole], show
    ):
        answers.take(whole[at], part_future.result())
    progress("read", max(sum(sizes), 1), max(sum(sizes), 1))
    return answers


def _shower(
    progress: Progress, total: int, done: Callable[[], int], under_way: Callable[[], int]
) -> Callable[[], None]:
    """Return a function that shows, now and then, how far reading is."""
    shown = 0.0

    def show() -> None:
        nonlocal shown
        if time.monotonic() - shown > _SHOW_SECONDS:
            progress("read", min(done() + under_way(), total), total)
            shown = time.monotonic()

    return show


def _stretch(path: Path, share: Share | None, size: int) -> Stretch:
    return Stretch(path, share.begin, share.end) if share else Stretch(path, 0, size)


def _parts_of(database: Path, executor: Executor) -> list[PartContents]:
    """Return the contents of all parts of a database. Raises :class:`FormatError`."""
    # One of another version cannot be added to: what is in it would be lost.
    manifest = layout.read_manifest(database)
    places = sorted((database / "trace").glob("*.part"))
    if len(places) != manifest.get("measurements"):
        raise FormatError(f"{database}: parts of measurements are missing")
    answers = run_all(executor, _read_part, places)
    return [future.result() for _, future in answers]


def _read_part(place: Path) -> PartContents:
    return read_contents(Part(place)).by_column()


def _distinct(
    answers: _Answers, earlier: dict[int, PartContents], notes: list[str]
) -> list[PartContents]:
    """Return every measurement once, in order; of one that has grown, its present contents."""
    new: dict[int, PartContents] = {}
    ingested = answers.ingested
    for number, contents in (ingested[at] for at in _ranked([part for _, part in ingested])):
        if contents.id in new:
            why = f"{contents.path}: the same measurement as {new[contents.id].path}"
            answers.refused.append((number, why))
            continue
        if contents.id in earlier and earlier[contents.id].part == contents.part:
            notes.append(f"{contents.path}: already in the database")
        new[contents.id] = contents
    if not earlier:  # they are in order
        return list(new.values())
    every = list((earlier | new).values())
    return [every[at] for at in _ranked(every)]


def _ranked(measurements: Sequence[PartContents]) -> list[int]:
    """Return the numbers of ``measurements`` in an order that depends on the measurements alone."""
    begin = windows_of(measurements)[:, 0].tolist()
    keys = [
        (contents.host.hostname, contents.host.boot_id, opened, contents.id, contents.path.name)
        for contents, opened in zip(measurements, begin, strict=True)
    ]
    return sorted(range(len(keys)), key=keys.__getitem__)
