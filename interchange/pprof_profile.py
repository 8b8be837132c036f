"""pprof: profiles of Go's runtime, gperftools, and many others.

Format: profile.proto of github.com/google/pprof, a Protocol Buffers message, mostly in gzip. Values
are summed by call path, of several kinds at a time (samples, CPU time, bytes); there are no times.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice

from hpcd.errors import FormatError
from hpcd.interchange.recording_builder import NO_MODULE, RecordingBuilder
from hpcd.interchange.synthetic_clock import SyntheticClock
from hpcd.interchange.wire_format import fields, numbers, signed

MAX_BYTES = 1 << 30
_MAX_KINDS = 64
# Fields of the message that are numbers; encoders write them in any order.
_NUMBERS = (7, 8, 9, 10, 12, 14)
_FIRST_FIELDS = 16
_TIMES = {
    "nanoseconds": 1e-9, "microseconds": 1e-6, "milliseconds": 1e-3, "seconds": 1.0,
    "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0,
}  # fmt: skip
# What labels of various tools say of a thread.
_LABELS = {
    b"pid": "pid", b"process_id": "pid", b"process id": "pid",
    b"tid": "tid", b"thread_id": "tid", b"thread id": "tid",
    b"thread": "thread", b"thread_name": "thread", b"thread name": "thread",
    b"comm": "process", b"process_name": "process", b"rank": "rank",
}  # fmt: skip
_Line = tuple[int, int]


@dataclass
class _Profile:
    """A decoded profile: ids to indices of strings."""

    kinds: list[tuple[int, int]] = field(default_factory=list)
    samples: list[memoryview] = field(default_factory=list)
    mappings: dict[int, int] = field(default_factory=dict)
    locations: dict[int, tuple[int, int, list[_Line]]] = field(default_factory=dict)
    functions: dict[int, tuple[int, int]] = field(default_factory=dict)
    strings: list[bytes] = field(default_factory=list)
    time_ns: int = 0
    duration_ns: int = 0
    default_kind: int = 0

    def string(self, number: int) -> bytes:
        if not 0 <= number < len(self.strings):
            raise FormatError(f"string {number} of {len(self.strings)}")
        return self.strings[number]


def looks_like_pprof(head: bytes) -> bool:
    """Whether a kind of values, (type, unit), is among the first fields."""
    try:
        for number, value in islice(fields(memoryview(head)), _FIRST_FIELDS):
            if isinstance(value, int) != (number in _NUMBERS):
                return False
            if number == 1 and not isinstance(value, int):
                kind = dict(fields(value))
                return 0 < len(kind) <= 2 and {1, 2} >= kind.keys()
    except FormatError:
        pass
    return False


class PprofReader:
    """Turns a profile into records of ``builder``; with ``lines`` a function's lines are
    procedures of their own."""

    def __init__(self, builder: RecordingBuilder, *, lines: bool = False) -> None:
        self._builder = builder
        self._with_lines = lines
        self._frames: dict[int, list[int]] = {}
        self._lines: dict[tuple[bytes, ...], int] = {}
        self._profile = _Profile()

    def read(self, data: bytes) -> int | None:
        """Take in the profile; returns when it ended (ns since 1970), if it says so.

        Raises :class:`FormatError`.
        """
        try:
            self._profile = profile = _decode(memoryview(data))
            self._write(profile)
        except FormatError as error:
            if str(error).startswith(self._builder.source):
                raise
            raise FormatError(f"{self._builder.source}: damaged profile: {error}") from None
        end = profile.time_ns + profile.duration_ns
        return end if profile.time_ns > 0 and 0 < end < 1 << 62 else None

    def _write(self, profile: _Profile) -> None:
        names = [
            (profile.string(kind).decode(errors="replace"),
             profile.string(unit).decode(errors="replace"))
            for kind, unit in profile.kinds
        ]  # fmt: skip
        if not names:
            raise FormatError("it has no values")
        builder = self._builder
        events, scales = [], []
        for name, unit in names:
            events.append(_event(builder, name, unit))
            scales.append(_TIMES.get(unit, 0.0))
        default = profile.string(profile.default_kind).decode(errors="replace")
        kinds = [name for name, _ in names]
        timed = [place for place, scale in enumerate(scales) if scale]
        primary = kinds.index(default) if default in kinds else (timed or [len(kinds) - 1])[0]
        clock = SyntheticClock(builder, events, primary)
        counts = next((place for place, (_, unit) in enumerate(names) if unit == "count"), None)
        for sample in profile.samples:
            path, values, labels = _sample(sample)
            if len(values) != len(events):
                raise FormatError("a sample has not one value of each kind")
            negative = sum(value < 0 for value in values)
            if negative:
                builder.dropped["negative values"] += negative
            values = [max(value, 0) for value in values]
            if not any(values):
                continue
            frames = [frame for place in reversed(path) for frame in self._location(place)]
            clock.add(self._line(labels), builder.node(frames), tuple(values))
            builder.taken += 1 if counts is None else values[counts]
        clock.finish(max(round(scales[primary] * 1e9), 1) if scales[primary] else 1_000_000)

    def _line(self, labels: tuple[bytes, ...]) -> int:
        """The trace line of what has these labels: of one thread, if they name it."""
        line = self._lines.get(labels)
        if line is not None:
            return line
        profile, builder = self._profile, self._builder
        known: dict[str, bytes] = {}
        for label in labels:
            fields_of = dict(fields(memoryview(label)))
            meaning = _LABELS.get(profile.string(_int(fields_of, 1)))
            if meaning:
                text = profile.string(_int(fields_of, 2))
                known[meaning] = text or b"%d" % signed(_int(fields_of, 3))
        pid, tid, rank = (_number(known.get(key, b"")) for key in ("pid", "tid", "rank"))
        process = known.get("process", b"")
        name = known.get("thread") or process or builder.default_name
        line = self._lines[labels] = builder.line(pid or 0, tid or 0, name)
        if process:
            builder.name_process(pid or 0, process)
        if rank is not None:
            builder.job = builder.job or builder.default_name
            builder.set_rank(pid or 0, rank)
        return line

    def _location(self, number: int) -> list[int]:
        """Frames of a location, the outermost first: calls inlined there are several."""
        frames = self._frames.get(number)
        if frames is None:
            frames = self._frames[number] = self._new_frames(number)
        return frames

    def _new_frames(self, number: int) -> list[int]:
        profile, builder = self._profile, self._builder
        if number not in profile.locations:
            raise FormatError(f"a sample is at location {number}, which there is not")
        mapping, _, lines = profile.locations[number]
        path = profile.string(profile.mappings[mapping]) if mapping in profile.mappings else b""
        frames = []
        for function, line in reversed(lines):
            name, file = profile.functions.get(function, (0, 0))
            text, source = profile.string(name), profile.string(file)
            module = builder.module(path or source or NO_MODULE)
            if text and self._with_lines and line:
                text += b":%d" % line
            frames.append(builder.frame(module, text))
        if not frames and path:
            module_name = path.rpartition(b"/")[2].strip(b"[]")
            frames.append(builder.frame(builder.module(path), b"[%s]" % module_name))
        return frames or [builder.unknown()]


def _event(builder: RecordingBuilder, name: str, unit: str) -> int:
    if unit in _TIMES:
        # "time" is what a thread lived.
        plain = "time" if name == "wall" else f"{name}_time"
        metric = name if name.endswith("time") else plain
        return builder.event(f"{name}/{unit}", "s", _TIMES[unit], metric)
    # "samples" is the number of records.
    metric = "sample_count" if name == "samples" else name or "count"
    return builder.event(f"{name}/{unit}", "" if unit == "count" else unit, 1.0, metric)


# --- decoding: numbers are those of the fields in profile.proto ---


def _decode(data: memoryview) -> _Profile:
    profile = _Profile()
    for number, value in fields(data):
        if isinstance(value, int):
            if number == 9:
                profile.time_ns = signed(value)
            elif number == 10:
                profile.duration_ns = max(signed(value), 0)
            elif number == 14:
                profile.default_kind = value
        elif number == 1:
            kind = dict(fields(value))
            profile.kinds.append((_int(kind, 1), _int(kind, 2)))
            if len(profile.kinds) > _MAX_KINDS:
                raise FormatError(f"more than {_MAX_KINDS} kinds of values")
        elif number == 2:
            profile.samples.append(value)
        elif number == 3:
            mapping = dict(fields(value))
            profile.mappings[_int(mapping, 1)] = _int(mapping, 5)
        elif number == 4:
            _add_location(profile, value)
        elif number == 5:
            function = dict(fields(value))
            profile.functions[_int(function, 1)] = (
                _int(function, 2) or _int(function, 3), _int(function, 4),
            )  # fmt: skip
        elif number == 6:
            profile.strings.append(bytes(value))
    if not profile.strings:
        raise FormatError("it has no strings")
    return profile


def _add_location(profile: _Profile, data: memoryview) -> None:
    number = mapping = address = 0
    lines: list[_Line] = []
    for place, value in fields(data):
        if isinstance(value, int):
            if place == 1:
                number = value
            elif place == 2:
                mapping = value
            elif place == 3:
                address = value
        elif place == 4:
            line = dict(fields(value))
            lines.append((_int(line, 1), _int(line, 2)))
    profile.locations[number] = mapping, address, lines


def _sample(data: memoryview) -> tuple[list[int], list[int], tuple[bytes, ...]]:
    """(locations, the innermost first; values; labels)."""
    path: list[int] = []
    values: list[int] = []
    labels: list[bytes] = []
    for number, value in fields(data):
        if number == 1:
            path += numbers(value)
        elif number == 2:
            values += [signed(one) for one in numbers(value)]
        elif number == 3 and not isinstance(value, int):
            labels.append(bytes(value))
    return path, values, tuple(labels)


def _number(text: bytes) -> int | None:
    return int(text) if text.isdigit() and len(text) < 10 else None


def _int(message: dict[int, int | memoryview], number: int) -> int:
    value = message.get(number, 0)
    return value if isinstance(value, int) else 0
