"""pprof's message, written and read: profile.proto of github.com/google/pprof.

Values of several kinds (samples, CPU time, bytes) by call path. Samples refer to locations,
locations to mappings (load modules) and functions, and all of them to a table of strings.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from hpcd.errors import FormatError
from hpcd.interchange.numbering import Numbering
from hpcd.interchange.protobuf import (
    fields,
    integer,
    integers,
    integers_by_field,
    message,
    packed,
    placed_fields,
    signed,
    text,
)


class _Profile:
    SAMPLE_TYPE, SAMPLE, MAPPING, LOCATION, FUNCTION, STRING = range(1, 7)
    DROP_FRAMES, KEEP_FRAMES, TIME, DURATION, PERIOD_TYPE, PERIOD = range(7, 13)
    DEFAULT_SAMPLE_TYPE = 14
    INTEGERS = (DROP_FRAMES, KEEP_FRAMES, TIME, DURATION, PERIOD, DEFAULT_SAMPLE_TYPE)


class _ValueType:
    TYPE, UNIT = 1, 2


class _Sample:
    LOCATION, VALUE, LABEL = 1, 2, 3


class _Label:
    KEY, STRING, NUMBER = 1, 2, 3


class _Mapping:
    ID, LIMIT, FILE, BUILD_ID, HAS_FUNCTIONS = 1, 3, 5, 6, 7
    HAS_FILES, HAS_LINES, HAS_INLINED = 8, 9, 10


class _Location:
    ID, MAPPING, ADDRESS, LINE = 1, 2, 3, 4


class _Line:
    FUNCTION, LINE = 1, 2


class _Function:
    ID, NAME, SYSTEM_NAME, FILE, START_LINE = 1, 2, 3, 4, 5


# The size of a mapping: addresses are relative to a load module.
_LIMIT = 1 << 40
_MAX_KINDS = 64
# Encoders write fields in any order; values come early.
_FIRST_FIELDS = 16
# A field takes two bytes of a file, which may be compressed a thousandfold, and objects of Python
# some hundred bytes: with these limits memory stays at some hundred MB.
_MOST_SAMPLES = 1 << 24
_MOST_STRINGS = 1 << 24
_MOST_ENTRIES = 1 << 20
"""Mappings, functions, locations and their lines, together."""
_MOST_SAMPLE_BYTES = 4 << 20
_MOST_STRING_BYTES = 32 << 20


class PprofWriter:
    """Writes a profile, field by field, to ``write``; :meth:`finish` writes its strings."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._strings = Numbering([""])

    def add_sample_type(self, name: str, unit: str) -> None:
        """Add a kind of values; samples have one value of each, in this order."""
        self._write(self._value_type(_Profile.SAMPLE_TYPE, name, unit))

    def set_time(self, begin_ns: int, duration_ns: int) -> None:
        """Set the time of the profile, ns since 1970."""
        self._write(integer(_Profile.TIME, begin_ns))
        self._write(integer(_Profile.DURATION, duration_ns))

    def set_period(self, name: str, unit: str, period: int) -> None:
        """Set the period between two samples."""
        self._write(self._value_type(_Profile.PERIOD_TYPE, name, unit))
        self._write(integer(_Profile.PERIOD, period))

    def set_default_type(self, name: str) -> None:
        """Set the kind of values that is shown first."""
        self._write(integer(_Profile.DEFAULT_SAMPLE_TYPE, self._strings[name]))

    def add_mapping(self, number: int, path: str, build_id: str, *, lines: bool) -> None:
        """Add a load module; with ``lines`` source lines and inlined calls are known."""
        parts = [
            integer(_Mapping.ID, number),
            integer(_Mapping.LIMIT, _LIMIT),
            integer(_Mapping.FILE, self._strings[path]),
            integer(_Mapping.BUILD_ID, self._strings[build_id]),
            integer(_Mapping.HAS_FUNCTIONS, 1),
        ]
        if lines:
            flags = _Mapping.HAS_FILES, _Mapping.HAS_LINES, _Mapping.HAS_INLINED
            parts += [integer(flag, 1) for flag in flags]
        self._write(message(_Profile.MAPPING, *parts))

    def add_function(self, number: int, name: str, file: str = "", line: int = 0) -> None:
        """Add a function that begins at ``line`` of ``file``; empty and 0 if unknown."""
        # Of two equal names pprof takes out all between < and >, as for C++: <module>, <locals>.
        system = "" if name.startswith("<") or ".<" in name else name
        self._write(
            message(
                _Profile.FUNCTION,
                integer(_Function.ID, number),
                integer(_Function.NAME, self._strings[name]),
                integer(_Function.SYSTEM_NAME, self._strings[system]),
                integer(_Function.FILE, self._strings[file]),
                integer(_Function.START_LINE, line),
            )
        )

    def add_location(
        self, number: int, function: int, line: int = 0, place: tuple[int, int] | None = None
    ) -> None:
        """Add a location in a function; ``place`` is a mapping and the address in it, if known."""
        where = b"" if place is None else (
            integer(_Location.MAPPING, place[0]) + integer(_Location.ADDRESS, place[1])
        )  # fmt: skip
        entry = message(
            _Location.LINE, integer(_Line.FUNCTION, function), integer(_Line.LINE, line)
        )
        self._write(message(_Profile.LOCATION, integer(_Location.ID, number), where, entry))

    def encode_labels(self, labels: Iterable[tuple[str, str | int]]) -> bytes:
        """Return labels for :meth:`add_sample`; texts that are empty are left out."""
        return b"".join(
            message(
                _Sample.LABEL,
                integer(_Label.KEY, self._strings[key]),
                integer(_Label.NUMBER, value)
                if isinstance(value, int)
                else integer(_Label.STRING, self._strings[value]),
            )
            for key, value in labels
            if value != ""
        )

    def add_sample(self, stack: bytes, values: Sequence[int], labels: bytes) -> None:
        """Add a sample; ``stack`` as from :func:`encode_stack`."""
        self._write(message(_Profile.SAMPLE, stack, packed(_Sample.VALUE, values), labels))

    def finish(self) -> None:
        """Write the table of strings."""
        for value in self._strings:
            self._write(text(_Profile.STRING, value))

    def _value_type(self, number: int, name: str, unit: str) -> bytes:
        return message(
            number,
            integer(_ValueType.TYPE, self._strings[name]),
            integer(_ValueType.UNIT, self._strings[unit]),
        )


def encode_stack(locations: Iterable[int]) -> bytes:
    """Return the call path of a sample, innermost location first."""
    return packed(_Sample.LOCATION, locations)


class Location(NamedTuple):
    """A location: its mapping (0: none), and (function, line) of each call, inlined ones first."""

    mapping: int
    lines: list[tuple[int, int]]


class _Stretches:
    """Stretches of ``data``, at most that number, each of two numbers in place of an object."""

    def __init__(self, data: memoryview, most: int, name: str) -> None:
        self._data, self._most, self._name = data, most, name
        self._ends = array("Q")
        self._sizes = array("Q")

    def __len__(self) -> int:
        return len(self._ends)

    def append(self, end: int, size: int) -> None:
        """Add the ``size`` bytes before ``end``. Raises FormatError."""
        if len(self._ends) >= self._most:
            raise FormatError(f"more than {self._most:,} {self._name}")
        self._ends.append(end)
        self._sizes.append(size)

    def __getitem__(self, number: int) -> memoryview:
        end = self._ends[number]
        return self._data[end - self._sizes[number] : end]


@dataclass
class DecodedProfile:
    """A profile of ``data`` whose strings are numbers; samples are decoded one by one.

    ``kinds`` are (type, unit), ``mappings`` files by id, ``functions`` (name, file) by id.
    """

    data: memoryview
    kinds: list[tuple[int, int]] = field(default_factory=list)
    mappings: dict[int, int] = field(default_factory=dict)
    locations: dict[int, Location] = field(default_factory=dict)
    functions: dict[int, tuple[int, int]] = field(default_factory=dict)
    time_ns: int = 0
    duration_ns: int = 0
    default_kind: int = 0

    def __post_init__(self) -> None:
        self.samples = _Stretches(self.data, _MOST_SAMPLES, "samples")
        self.strings = _Stretches(self.data, _MOST_STRINGS, "strings")
        self._entries = 0

    def count_entry(self) -> None:
        """Count a mapping, function, location or line. Raises FormatError for too many."""
        self._entries += 1
        if self._entries > _MOST_ENTRIES:
            raise FormatError(f"more than {_MOST_ENTRIES:,} functions, locations and lines")

    def string(self, number: int) -> bytes:
        """Return a string. Raises FormatError for an unknown number, or a string longer
        than any name."""
        if not 0 <= number < len(self.strings):
            raise FormatError(f"string {number} of {len(self.strings)}")
        value = self.strings[number]
        if len(value) > _MOST_STRING_BYTES:
            raise FormatError(f"a string of more than {_MOST_STRING_BYTES >> 20} MiB")
        return bytes(value)

    def labels(self, labels: Iterable[bytes], meanings: Mapping[bytes, str]) -> dict[str, bytes]:
        """Return values by ``meanings`` of the keys that have one; numbers as text.

        Raises FormatError.
        """
        known = {}
        for label in labels:
            values = integers_by_field(memoryview(label))
            if meaning := meanings.get(self.string(values.get(_Label.KEY, 0))):
                value = self.string(values.get(_Label.STRING, 0))
                known[meaning] = value or b"%d" % signed(values.get(_Label.NUMBER, 0))
        return known


def decode_profile(data: memoryview) -> DecodedProfile:
    """Decode a profile. Raises FormatError."""
    profile = DecodedProfile(data)
    for number, value, end in placed_fields(data):
        if isinstance(value, int):
            if number == _Profile.TIME:
                profile.time_ns = signed(value)
            elif number == _Profile.DURATION:
                profile.duration_ns = max(signed(value), 0)
            elif number == _Profile.DEFAULT_SAMPLE_TYPE:
                profile.default_kind = value
        elif number == _Profile.SAMPLE:
            profile.samples.append(end, len(value))
        elif number == _Profile.STRING:
            profile.strings.append(end, len(value))
        elif number == _Profile.LOCATION:
            _add_location(profile, value)
        elif number in (_Profile.SAMPLE_TYPE, _Profile.MAPPING, _Profile.FUNCTION):
            _add_entry(profile, number, integers_by_field(value))
    if not len(profile.strings):
        raise FormatError("it has no strings")
    return profile


def _add_entry(profile: DecodedProfile, number: int, entry: dict[int, int]) -> None:
    """Add a kind of values, a mapping or a function."""
    if number == _Profile.SAMPLE_TYPE:
        profile.kinds.append((entry.get(_ValueType.TYPE, 0), entry.get(_ValueType.UNIT, 0)))
        if len(profile.kinds) > _MAX_KINDS:
            raise FormatError(f"more than {_MAX_KINDS} kinds of values")
        return
    profile.count_entry()
    if number == _Profile.MAPPING:
        profile.mappings[entry.get(_Mapping.ID, 0)] = entry.get(_Mapping.FILE, 0)
    else:
        name = entry.get(_Function.NAME, 0) or entry.get(_Function.SYSTEM_NAME, 0)
        profile.functions[entry.get(_Function.ID, 0)] = name, entry.get(_Function.FILE, 0)


def _add_location(profile: DecodedProfile, data: memoryview) -> None:
    number = mapping = 0
    lines: list[tuple[int, int]] = []
    profile.count_entry()
    for place, value in fields(data):
        if isinstance(value, int):
            if place == _Location.ID:
                number = value
            elif place == _Location.MAPPING:
                mapping = value
        elif place == _Location.LINE:
            profile.count_entry()
            line = integers_by_field(value)
            lines.append((line.get(_Line.FUNCTION, 0), line.get(_Line.LINE, 0)))
    profile.locations[number] = Location(mapping, lines)


def decode_sample(data: memoryview) -> tuple[list[int], list[int], tuple[bytes, ...]]:
    """Return (locations, innermost first; values; labels, still encoded) of a sample.

    Raises FormatError.
    """
    if len(data) > _MOST_SAMPLE_BYTES:
        raise FormatError(f"a sample of more than {_MOST_SAMPLE_BYTES >> 20} MiB")
    path: list[int] = []
    values: list[int] = []
    labels: list[bytes] = []
    for number, value in fields(data):
        if number == _Sample.LOCATION:
            path += integers(value)
        elif number == _Sample.VALUE:
            values += map(signed, integers(value))
        elif number == _Sample.LABEL and not isinstance(value, int):
            labels.append(bytes(value))
    return path, values, tuple(labels)


def looks_like_gperftools(head: bytes) -> bool:
    """Whether this is gperftools' own CPU profile, of a machine of any word and byte order: it
    begins with the words 0, 3 (the length of the header behind), 0, the period in us, 0
    (cpuprofile-fileformat.html of gperftools)."""
    for order in "<>":
        for word in "IQ":
            layout = struct.Struct(f"{order}5{word}")
            if len(head) >= layout.size:
                zero, length, version, period, padding = layout.unpack_from(head)
                if (zero, length, version, padding) == (0, 3, 0, 0) and period:
                    return True
    return False


def looks_like_pprof(head: bytes) -> bool:
    """Whether a kind of values is among the first fields."""
    try:
        for number, value in islice(fields(memoryview(head)), _FIRST_FIELDS):
            if isinstance(value, int) != (number in _Profile.INTEGERS):
                return False
            if number == _Profile.SAMPLE_TYPE and not isinstance(value, int):
                kind = dict(islice(fields(value), 3))
                return 0 < len(kind) <= 2 and {_ValueType.TYPE, _ValueType.UNIT} >= kind.keys()
    except FormatError:
        pass
    return False
