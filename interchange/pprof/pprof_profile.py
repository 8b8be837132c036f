"""pprof profiles (https://github.com/google/pprof), written and read.

An export has a sample for each calling context on each trace line, with a value for each metric
(times in ns), and the thread as labels. An inlined call is a location of its own, without an
address. Profiles of Go's runtime, gperftools and many others have values of several kinds by call
path; they have no times.
"""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

import numpy as np

from hpcd.analysis.trace.trace_lines import Line
from hpcd.errors import FormatError
from hpcd.interchange.input.imported_tree import NO_MODULE
from hpcd.interchange.input.recording_builder import RecordingBuilder
from hpcd.interchange.input.synthetic_clock import SyntheticClock
from hpcd.interchange.numbering import Numbering
from hpcd.interchange.output.context_table import ContextTable, Detail, path_maker
from hpcd.interchange.output.export_selection import ExportSelection, whole_numbers
from hpcd.interchange.pprof.pprof_message import (
    DecodedProfile,
    PprofWriter,
    decode_profile,
    decode_sample,
    encode_stack,
)

MAX_BYTES = 512 << 20
# Call paths cached as bytes, since many threads have the same paths. Some MB.
_STACKS_KEPT = 10_000
# Far more than are kept of a call path, with all calls inlined at its locations.
_MOST_FRAMES = 1 << 20
_LINES_KEPT = 1 << 18
# Samples that are compared with one another at once: some 30 MB.
_MOST_DISTINCT, _MOST_COUNTED_BYTES = 1 << 16, 16 << 20

# --- export ---

_NANOSECONDS = "nanoseconds"


def write(selection: ExportSelection, raw: BinaryIO, _: Path) -> None:
    """Write ``selection`` to the file ``raw``."""
    table = selection.contexts(Detail.PLACE)
    # The name says whose it is.
    with gzip.GzipFile("hpcd.pb", "wb", 6, raw, 0) as file:
        profile = PprofWriter(file.write)
        for name, unit in zip(selection.names, selection.units, strict=True):
            profile.add_sample_type(name, _unit(unit))
        begin, end = selection.span
        profile.set_time(selection.db.origin_ns + begin, end - begin)
        profile.set_period(*_period(selection))
        profile.set_default_type(selection.names[selection.main_row])
        _write_code(selection, table, profile)
        scale = np.array([1e9 if unit == "s" else 1.0 for unit in selection.units])[:, None]
        path = path_maker(table)
        # The location of a frame is its number and 1.
        stack = lru_cache(_STACKS_KEPT)(
            lambda context: encode_stack([frame + 1 for frame in path(context)])
        )
        for line in selection.iterate_lines():
            costs = selection.line_costs(line.number, table)
            values = whole_numbers(costs.cost * scale).T.tolist()
            labels = profile.encode_labels(_labels_of(line))
            for context, value in zip(costs.context.tolist(), values, strict=True):
                if any(value):
                    profile.add_sample(stack(context), value, labels)
        profile.finish()


def _period(selection: ExportSelection) -> tuple[str, str, int]:
    """Return name, unit and amount of the period between two samples: CPU time
    as requested; else 1 of the main metric."""
    if "cpu_time" in selection.names:
        rows = selection.db.rows(
            "SELECT max(frequency) FROM event WHERE metric = 'cpu_time' AND frequency > 0"
        )
        if frequency := next(iter(rows))[0]:
            return "cpu_time", _NANOSECONDS, round(1e9 / frequency)
    return selection.names[selection.main_row], _unit(selection.units[selection.main_row]), 1


def _unit(unit: str) -> str:
    return _NANOSECONDS if unit == "s" else unit or "count"


def _labels_of(line: Line) -> list[tuple[str, str | int]]:
    rank = "" if line.rank is None else str(line.rank)
    return [("thread", line.label), ("comm", line.process), ("host", line.host), ("rank", rank),
            ("pid", line.pid), ("tid", line.tid)]  # fmt: skip


def _write_code(selection: ExportSelection, table: ContextTable, profile: PprofWriter) -> None:
    """Write load modules, and a location and a function for each frame."""
    for module in selection.db.modules:
        profile.add_mapping(module.id, module.path, module.build_id, lines=True)
    frames, procedures = table.frames, selection.db.procedures
    functions: Numbering[tuple[str, int, bool]] = Numbering(first=1)
    columns = zip(
        frames.name, frames.module.tolist(), frames.address.tolist(), frames.file,
        frames.line.tolist(), frames.procedure.tolist(), frames.inlined.tolist(), strict=True,
    )  # fmt: skip
    for number, (name, module, address, file, line, procedure, inlined) in enumerate(columns, 1):
        key = (name, module, True) if inlined else ("", procedure, False)
        if key not in functions:
            source = file if inlined else procedures.file[procedure]
            begin = 0 if inlined else int(procedures.line[procedure])
            profile.add_function(functions[key], name, source, begin)
        place = None if inlined else (module, address)
        profile.add_location(number, functions[key], line, place)


# --- import ---

_TIMES = {
    "nanoseconds": 1e-9, "microseconds": 1e-6, "milliseconds": 1e-3, "seconds": 1.0,
    "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0,
}  # fmt: skip
# Labels of various tools that identify a thread.
_LABELS = {
    b"pid": "pid", b"process_id": "pid", b"process id": "pid",
    b"tid": "tid", b"thread_id": "tid", b"thread id": "tid",
    b"thread": "thread", b"thread_name": "thread", b"thread name": "thread",
    b"comm": "process", b"process_name": "process", b"rank": "rank",
}  # fmt: skip


class PprofReader:
    """Turns a profile into records of ``builder``; with ``lines`` a function's lines are
    procedures of their own."""

    def __init__(self, builder: RecordingBuilder, *, lines: bool) -> None:
        self._builder = builder
        self._with_lines = lines
        self._frames: dict[int, list[int]] = {}
        self._lines: dict[tuple[bytes, ...], int] = {}
        self._profile = DecodedProfile(memoryview(b""))

    def read(self, data: bytes | bytearray) -> int | None:
        """Add the profile's samples; returns when it ended (ns since 1970), if it says so.

        Raises FormatError.
        """
        try:
            self._profile = profile = decode_profile(memoryview(data))
            self._add_samples(profile)
        except FormatError as error:
            if str(error).startswith(self._builder.source):
                raise
            raise FormatError(f"{self._builder.source}: damaged profile: {error}") from None
        end = profile.time_ns + profile.duration_ns
        return end if profile.time_ns > 0 and 0 < end < 1 << 62 else None

    def _add_samples(self, profile: DecodedProfile) -> None:
        kinds = [
            (profile.string(kind).decode(errors="replace"),
             profile.string(unit).decode(errors="replace"))
            for kind, unit in profile.kinds
        ]  # fmt: skip
        if not kinds:
            raise FormatError("it has no values")
        builder = self._builder
        events = [_event(builder, name, unit) for name, unit in kinds]
        scales = [_TIMES.get(unit, 0.0) for _, unit in kinds]
        default = profile.string(profile.default_kind).decode(errors="replace")
        names = [name for name, _ in kinds]
        timed = [place for place, scale in enumerate(scales) if scale]
        primary = names.index(default) if default in names else (timed or [len(names) - 1])[0]
        clock = SyntheticClock(builder, len(events), primary)
        counts = next((place for place, (_, unit) in enumerate(kinds) if unit == "count"), None)
        for sample, count in _distinct(profile):
            path, values, labels = decode_sample(memoryview(sample))
            if len(values) != len(events):
                raise FormatError("a sample has not one value of each kind")
            negative = sum(value < 0 for value in values)
            if negative:
                builder.dropped["negative values"] += negative * count
            values = [max(value, 0) * count for value in values]
            if not any(values):
                continue
            node = builder.tree.node(self._call_path(path))
            clock.add(self._line(labels), node, tuple(values))
            builder.taken += count if counts is None else values[counts]
        clock.finish(events, max(scales[primary] * 1e9, 1) if scales[primary] else 1e6)

    def _call_path(self, path: list[int]) -> list[int]:
        """Return the frames of a call path of locations, innermost first; outermost first."""
        frames: list[int] = []
        for place in reversed(path):
            frames += self._location(place)
            if len(frames) > _MOST_FRAMES:
                raise FormatError(f"a call path of more than {_MOST_FRAMES:,} frames")
        return frames

    def _line(self, labels: tuple[bytes, ...]) -> int:
        """Return the trace line of samples with these labels: a thread's, if they name it."""
        line = self._lines.get(labels)
        if line is not None:
            return line
        builder = self._builder
        known = self._profile.labels(labels, _LABELS)
        pid, tid, rank = (_number(known.get(key, b"")) for key in ("pid", "tid", "rank"))
        process = known.get("process", b"")
        name = known.get("thread") or process or (builder.threads.default_name if not tid else "")
        if len(self._lines) >= _LINES_KEPT:
            # Labels say more than the thread.
            self._lines.clear()
        line = self._lines[labels] = builder.threads.line(pid or 0, tid or 0, name)
        if process:
            builder.threads.name_process(pid or 0, process)
        if rank is not None:
            builder.threads.rank_job = builder.threads.default_name
            builder.threads.set_rank(pid or 0, rank)
        return line

    def _location(self, number: int) -> list[int]:
        """Return the frames of a location, outermost first: calls inlined there are several."""
        frames = self._frames.get(number)
        if frames is None:
            frames = self._frames[number] = self._new_frames(number)
        return frames

    def _new_frames(self, number: int) -> list[int]:
        profile, builder = self._profile, self._builder
        if number not in profile.locations:
            raise FormatError(f"a sample is at unknown location {number}")
        mapping, lines = profile.locations[number]
        path = profile.string(profile.mappings[mapping]) if mapping in profile.mappings else b""
        frames = []
        for function, line in reversed(lines):
            name, file = profile.functions.get(function, (0, 0))
            text, source = profile.string(name), profile.string(file)
            module = builder.tree.module(path or source or NO_MODULE)
            if text and self._with_lines and line:
                text += b":%d" % line
            frames.append(builder.tree.frame(module, text))
        if not frames and path:
            module_name = path.rpartition(b"/")[2].strip(b"[]")
            frames.append(builder.tree.frame(builder.tree.module(path), b"[%s]" % module_name))
        return frames or [builder.tree.unknown()]


def _distinct(profile: DecodedProfile) -> Iterator[tuple[bytes, int]]:
    """Yield samples and how often each is there: some encoders write them one by one."""
    counts: Counter[bytes] = Counter()
    size = 0
    for number in range(len(profile.samples)):
        sample = bytes(profile.samples[number])
        counts[sample] += 1
        size += len(sample)
        if len(counts) >= _MOST_DISTINCT or size > _MOST_COUNTED_BYTES:
            yield from counts.items()
            counts.clear()
            size = 0
    yield from counts.items()


def _event(builder: RecordingBuilder, name: str, unit: str) -> int:
    if unit in _TIMES:
        # "time" is a thread's elapsed time.
        plain = "time" if name == "wall" else f"{name}_time"
        metric = name if name.endswith("time") else plain
        return builder.event(f"{name}/{unit}", "s", _TIMES[unit], metric)
    # "records" is a metric of every database.
    metric = "record_count" if name == "records" else name or "count"
    return builder.event(f"{name}/{unit}", "" if unit == "count" else unit, 1.0, metric)


def _number(text: bytes) -> int | None:
    return int(text) if text.isdigit() and len(text) < 10 else None
