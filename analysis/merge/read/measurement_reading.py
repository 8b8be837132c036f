"""The first stage of a merge: every measurement becomes part of a part of the database.

Large ones are read by several workers, short ones many by one. The next measurements are read
ahead from the disk. A part of an earlier attempt is used as it is, and so is a measurement
of the database that is extended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from pathlib import Path

from hpcd.analysis.database import directory as layout
from hpcd.analysis.merge.read.ingest import (
    Ingested,
    IngestTask,
    MeasurementSource,
    ingest,
    join_shares,
    progress_of,
)
from hpcd.analysis.merge.read.prefetch import Prefetch, Stretch
from hpcd.analysis.merge.read.shares import Share, divide
from hpcd.analysis.merge.tasks.executors import Progress, run_all, runs
from hpcd.analysis.merge.unite.earlier_database import EarlierDatabase
from hpcd.analysis.trace.part import Part
from hpcd.analysis.trace.part_contents import (
    MeasurementContents,
    PartContents,
    read_contents,
    windows_of,
)
from hpcd.errors import FormatError, HpcdError
from hpcd.measurement.segments import identify_measurement

# Measurements of fewer bytes share a part with others, up to a limit of bytes and of measurements:
# short ones need not each be a file. A worker has all files of a batch open.
_SHORT_BYTES = 2 << 20
_BATCH_BYTES = 16 << 20
_MOST_MEMBERS = 256
# Batches that short measurements are put into at least, so that there is work for many workers.
_FEWEST_BATCHES = 16
_SHOW_SECONDS = 0.25
# Bound on errors shown when no input is a measurement.
_SHOW_ERRORS = 8


@dataclass(slots=True)
class ReadMeasurements:
    """Measurements that are in ``parts``, in an order that depends on the measurements only.

    ``earlier`` is the database that is extended; ``refused``, ``damaged`` and ``notes`` are as
    :class:`~hpcd.analysis.merge.stages.MergeResult` has them.
    """

    contents: list[MeasurementContents] = field(default_factory=list)
    parts: list[PartContents] = field(default_factory=list)
    earlier: EarlierDatabase | None = None
    refused: list[tuple[str, str]] = field(default_factory=list)
    damaged: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Input:
    """Input ``number``: a measurement, its id (None if unknown) and its bytes."""

    number: int
    path: Path
    id: int | None
    size: int

    @property
    def source(self) -> MeasurementSource:
        return MeasurementSource(self.path, self.size)


@dataclass(slots=True)
class _Answers:
    """The outcomes of reading inputs: parts, and by the inputs' numbers why others are in none."""

    parts: list[PartContents] = field(default_factory=list)
    refused: dict[int, HpcdError] = field(default_factory=dict)

    def take(self, inputs: Sequence[_Input], answer: Ingested) -> None:
        self.parts += answer.parts
        for number, error in answer.refused.items():
            self.refused[inputs[number].number] = error


def read_measurements(
    paths: Sequence[Path], folder: Path, old: Path | None, executor: Executor,
    progress: Progress, *, memory: int, local: bool,
) -> ReadMeasurements:  # fmt: skip
    """Make the parts of ``paths`` in ``folder``, and list the parts of the database ``old``.

    ``local``: the workers run on this machine, so reading ahead fills their page cache. Raises
    :class:`FormatError` when no input is a measurement, and a single input's own error.
    """
    result = ReadMeasurements()
    earlier: dict[int, MeasurementContents] = {}
    if old is not None:
        result.parts = _parts_of(old, executor)
        result.earlier = EarlierDatabase(old, result.parts)
        earlier = {contents.id: contents for contents in result.earlier.measurements}
    answers = _Answers()
    inputs = []
    for one in _distinct(
        [_Input(number, path, *identify_measurement(path)) for number, path in enumerate(paths)],
        answers,
    ):
        known = earlier.get(one.id) if one.id is not None else None
        if known is not None and known.size == one.size:
            result.notes.append(f"{one.path}: already in the database")
        else:
            inputs.append(one)
    _ingest_all(inputs, folder, answers, executor, progress, memory, local)
    result.parts += answers.parts
    result.contents = _united(answers.parts, earlier, result.refused)
    result.refused += [(str(paths[n]), str(error)) for n, error in sorted(answers.refused.items())]
    errors = list(answers.refused.values())
    if not result.contents:
        if len(errors) == 1:
            raise errors[0]
        raise FormatError(
            f"none of {len(paths)} inputs is a measurement: "
            + "; ".join(str(error) for error in errors[:_SHOW_ERRORS])
            + f"; and {len(errors) - _SHOW_ERRORS} more" * (len(errors) > _SHOW_ERRORS)
        )
    for contents in result.contents:
        result.damaged += [(str(contents.path), what) for what in contents.damage]
        if not contents.closed:
            result.notes.append(f"{contents.path}: not closed, merged as far as it goes")
        origin = contents.options.get("imported")
        if isinstance(origin, dict) and origin.get("times") == "synthetic":
            result.notes.append(f"{contents.path}: imported, its times are synthetic")
    return result


def _distinct(inputs: Sequence[_Input], answers: _Answers) -> list[_Input]:
    """Return distinct inputs: of copies of a measurement the longest; the others are refused."""
    kept: dict[int, _Input] = {}
    for one in sorted(inputs, key=lambda one: (-one.size, one.path.name, one.number)):
        if one.id is not None and kept.setdefault(one.id, one) is not one:
            other = kept[one.id].path
            error = FormatError(f"{one.path}: the same measurement as {other}")
            answers.refused[one.number] = error
    return [one for one in inputs if one.number not in answers.refused]


def _units(inputs: Sequence[_Input]) -> list[list[_Input]]:
    """Return the inputs of each task: a long one, or several short ones; the grouping depends
    on the measurements only."""
    short = [one for one in inputs if one.id is not None and one.size < _SHORT_BYTES]
    short.sort(key=lambda one: one.id or 0)
    alone = [[one] for one in inputs if one.id is None or one.size >= _SHORT_BYTES]
    sizes = [one.size for one in short]
    most = min(_BATCH_BYTES, sum(sizes) // _FEWEST_BATCHES)
    batches = [[short[at] for at in run] for run in runs(sizes, most, _MOST_MEMBERS)]
    # The biggest first, so that no worker is left with it at the end.
    return sorted(alone, key=lambda unit: -unit[0].size) + batches


def _ingest_all(
    inputs: Sequence[_Input], folder: Path, answers: _Answers, executor: Executor,
    progress: Progress, memory: int, local: bool,
) -> None:  # fmt: skip
    units: list[list[_Input]] = []
    tasks: list[IngestTask] = []
    for unit in _units(inputs):
        sources = tuple(one.source for one in unit)
        divided: list[Share | None] = [*divide(unit[0].size)] if len(unit) == 1 else []
        for share in divided or [None]:
            units.append(unit)
            tasks.append(IngestTask(sources, folder, memory, share))
    ahead = Prefetch(_stretches(tasks) if local else ())
    ahead.keep_up(0)
    total = max(sum(one.size for one in inputs), 1)
    done = 0
    show = _shower(progress, total, lambda: done, lambda: progress_of(folder))
    shares: dict[int, list[IngestTask]] = {}
    settled: set[int] = set()
    for at, future in run_all(executor, ingest, tasks, show):
        task, unit, answer = tasks[at], units[at], future.result()
        done += task.bytes
        number = unit[0].number
        if answer.share is not None:
            shares.setdefault(number, []).append(task)
        elif task.share is None or number not in settled:
            # One share that cannot be read is enough, as is a part that is there.
            settled.add(number)
            answers.take(unit, answer)
        ahead.keep_up(done)
        show()
    by_number = {one.number: one for one in inputs}
    whole = sorted(shares.keys() - settled)
    joined = run_all(executor, join_shares, [shares[number] for number in whole], show)
    for at, future in joined:
        answers.take([by_number[whole[at]]], future.result())
    progress("read", total, total)


def _stretches(tasks: Sequence[IngestTask]) -> Iterator[Stretch]:
    for task in tasks:
        for source in task.sources:
            share = task.share
            begin, end = (share.begin, share.end) if share else (0, source.size)
            yield Stretch(source.path, begin, end)


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


def _parts_of(database: Path, executor: Executor) -> list[PartContents]:
    """Return the contents of all parts of a database. Raises :class:`FormatError`."""
    # A database of another version cannot be extended: its content would be lost.
    manifest = layout.read_manifest(database)
    places = sorted((database / "trace").glob("*.part"))
    if [path.name for path in places] != list(
        map(layout.part_name, range(int(manifest.get("parts", 0))))
    ):
        raise FormatError(f"{database}: parts of measurements are missing")
    parts: list[PartContents | None] = [None] * len(places)
    for number, future in run_all(executor, _read_part, places):
        parts[number] = future.result()
    return [part for part in parts if part is not None]


def _read_part(place: Path) -> PartContents:
    part = read_contents(Part(place), kept=True)
    measurements = tuple(contents.by_column() for contents in part.measurements)
    return replace(part, measurements=measurements)


def _united(
    parts: Sequence[PartContents], earlier: dict[int, MeasurementContents],
    refused: list[tuple[str, str]],
) -> list[MeasurementContents]:  # fmt: skip
    """Return every measurement once, in order, with its present contents if it has grown."""
    new: dict[int, MeasurementContents] = {}
    read = [contents for part in parts for contents in part.measurements]
    for contents in (read[at] for at in _ranked(read)):
        if contents.id in new:
            # Its id was unknown before it was read.
            why = f"{contents.path}: the same measurement as {new[contents.id].path}"
            refused.append((str(contents.path), why))
            continue
        new[contents.id] = contents
    every = list((earlier | new).values())
    return [every[at] for at in _ranked(every)]


def _ranked(measurements: Sequence[MeasurementContents]) -> list[int]:
    """Return the numbers of ``measurements`` in an order that depends on the measurements only."""
    begin = windows_of(measurements)[:, 0].tolist()
    keys = [
        (contents.host.hostname, contents.host.boot_id, opened, contents.id, contents.path.name)
        for contents, opened in zip(measurements, begin, strict=True)
    ]
    return sorted(range(len(keys)), key=keys.__getitem__)
