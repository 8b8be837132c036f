"""Calling-context samples of OTF2 traces, as ``otf2-print`` shows them.

A sample is taken by an interrupt generator in a calling context. Its weight is the attribute that
hpcd's exports have, named as the metric; without it the generator's period. A generator of
hpcd's waits has a period of one nanosecond: its samples are intervals that begin at their times.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from hpcd.interchange.fitted_names import readable
from hpcd.interchange.input.recording_builder import RecordingBuilder

NAME = rb'"(.{0,131072}?)" <\d+>'
FLAGS = re.MULTILINE | re.DOTALL
_MAX_NESTING = 1 << 16
_CONTEXT = re.compile(rb"^CALLING_CONTEXT +(\d{1,10})  Region: ", re.MULTILINE)
_NEXT = re.compile(rb"\n(?=[A-Z][A-Z_]{2,40} +\d{1,20}  )|\Z")
_PARENT = re.compile(rb'(?:UNDEFINED|".{0,131200}?" <(\d{1,10})>)$', FLAGS)
_ATTRIBUTE = re.compile(
    rb"^ATTRIBUTE +(\d{1,10})  Name: " + NAME + rb", Description: " + NAME + rb", Type: UINT64$",
    FLAGS,
)
_GENERATOR = re.compile(
    rb"^INTERRUPT_GENERATOR +(\d{1,10})  Name: " + NAME + rb", Mode: (TIME|COUNT), "
    rb"Base: (DECIMAL|BINARY), Exponent: (-?\d{1,2}), Period: (\d{1,19})$",
    FLAGS,
)
_REFERENCE = re.compile(rb'" <(\d{1,10})>$')
_UNWOUND = re.compile(rb'" <(\d{1,10})>, Unwind Distance: (?:UNDEFINED|\d{1,10})$')
_VALUE = re.compile(rb'" <(\d{1,10})>; UINT64; (\d{1,20})\)')
# Built into every database, so no metric of an event's.
_COUNTED = "records"
_NONE = -1


class _Attribute(NamedTuple):
    name: str
    unit: str


class _Generator(NamedTuple):
    """An interrupt generator: ``period`` is ns if ``timed``, else a count."""

    name: str
    timed: bool
    period: int


class _Sample(NamedTuple):
    line: int
    time_ns: int
    node: int
    generator: int


class Otf2Samples:
    """Turns samples into records of ``builder``.

    An event's text may have several lines: :meth:`begin` has the first, :meth:`go_on` the others,
    and :meth:`finish` must be called before any other event.
    """

    def __init__(self, builder: RecordingBuilder) -> None:
        self._builder = builder
        self.nodes: dict[int, int] = {}
        """The nodes of calling contexts."""
        self._attributes: dict[int, _Attribute] = {}
        self._generators: dict[int, _Generator] = {}
        self._events: dict[tuple[int, int], tuple[int, bool]] = {}
        self._names: set[str] = set()
        self._begun: tuple[int, int] | None = None
        self._sample: _Sample | None = None
        self._ends: dict[int, int] = {}

    def define(self, text: bytes, frames: dict[int, int]) -> None:
        """Add the definitions; ``frames`` are the frames of regions."""
        for number, name, unit in _ATTRIBUTE.findall(text):
            self._attributes[int(number)] = _Attribute(readable(name), readable(unit))
        for number, name, mode, base, exponent, period in _GENERATOR.findall(text):
            power, timed = int(exponent), mode == b"TIME"
            power += 9 if timed and base == b"DECIMAL" else 0
            factor = (10.0 if base == b"DECIMAL" else 2.0) ** power
            factor *= 1e9 if timed and base == b"BINARY" else 1
            weight = max(round(int(period) * factor), 1)
            self._generators[int(number)] = _Generator(readable(name), timed, weight)
        depths: dict[int, int] = {}
        for match in _CONTEXT.finditer(text):
            number = int(match[1])
            following = _NEXT.search(text, match.end())
            region, parent = _place(
                text[match.end() : following.start() if following else len(text)]
            )
            frame = frames.get(region)
            if frame is None or number in depths or (parent != _NONE and parent not in depths):
                raise self._builder.damaged(f"calling context {number} is out of place")
            depth = depths[number] = depths.get(parent, 0) + 1
            if depth > _MAX_NESTING:
                raise self._builder.damaged(f"calling contexts {depth:,} deep")
            self.nodes[number] = self._builder.tree.child(self.nodes.get(parent, 0), frame)

    @property
    def unfinished(self) -> bool:
        """Whether the present sample has more lines for certain."""
        return self._begun is not None

    def begin(self, line: int, time_ns: int, text: bytes) -> None:
        """Begin a sample on trace line ``line``."""
        self._begun = line, time_ns
        self.go_on(text)

    def go_on(self, text: bytes) -> None:
        """Read another line, which may belong to the present sample."""
        if self._begun:
            if end := _sample_end(text):
                node = self.nodes.get(end[0])
                if node is None or end[1] not in (_NONE, *self._generators):
                    raise self._builder.damaged("a sample with undefined context or generator")
                self._sample = _Sample(*self._begun, node, end[1])
                self._begun = None
        elif (
            self._sample
            and (value := _VALUE.search(text))
            and (attribute := int(value[1])) in self._attributes
        ):
            self._add(self._sample, attribute, int(value[2]))
            self._sample = None

    def finish(self) -> None:
        """Add the present sample, which has no more lines."""
        if self._begun:
            raise self._builder.damaged("a sample that does not end")
        if self._sample:
            self._add(self._sample, _NONE, 1)
            self._sample = None

    def close(self) -> None:
        """End all samples, and note the times of trace lines."""
        self.finish()
        for line, end_ns in self._ends.items():
            self._builder.threads.extend(line, end_ns, end_ns)

    def _add(self, sample: _Sample, attribute: int, value: int) -> None:
        key = sample.generator, attribute
        event = self._events.get(key)
        if event is None:
            event = self._events[key] = self._event(*key)
        number, interval = event
        if attribute == _NONE and sample.generator != _NONE:
            value = self._generators[sample.generator].period
        self._builder.add(sample.line, sample.time_ns, sample.node, number, value)
        self._builder.taken += 1
        if interval:
            end_ns = sample.time_ns + value
            self._ends[sample.line] = max(self._ends.get(sample.line, 0), end_ns)

    def _event(self, generator: int, attribute: int) -> tuple[int, bool]:
        """Return the event of a generator's samples with an attribute; whether it has intervals."""
        builder = self._builder
        source = self._generators.get(generator, _Generator("sample", False, 1))
        name = source.name
        if attribute == _NONE:
            if source.timed:
                return builder.event(self._new(name), "s", 1e-9, "cpu_time"), False
            metric = name if generator != _NONE else ""
            return builder.event(self._new(name), "", 1.0, metric), False
        metric, unit = self._attributes[attribute]
        name = self._new(name, metric)
        if metric == _COUNTED:
            return builder.event(name, "", 1.0, ""), False
        if unit != "ns":
            return builder.event(name, unit, 1.0, metric), False
        interval = source.timed and source.period == 1
        return builder.event(name, "s", 1e-9, metric, interval=interval), interval

    def _new(self, name: str, metric: str = "") -> str:
        """Return ``name``, with ``metric`` or marks behind it if another event has it."""
        wanted = name
        if name in self._names:
            wanted = f"{name} {metric}".rstrip()
        while wanted in self._names:
            wanted += "'"
        self._names.add(wanted)
        return wanted


def _place(text: bytes) -> tuple[int, int]:
    """Return region and parent of a calling context, after "Region: "; -1 for none."""
    # Names may contain anything; a search from the end passes only the name of the source location.
    at = len(text)
    for _ in range(64):
        at = text.rfind(b", Parent: ", 0, at)
        parent = _PARENT.match(text, at + 10) if at >= 0 else None
        if parent:
            place = text.rfind(b", Source code location: ", 0, at)
            region = _REFERENCE.search(text, max(place - 16, 0), max(place, 0))
            if region:
                return int(region[1]), int(parent[1]) if parent[1] else _NONE
    return _NONE, _NONE


def _sample_end(text: bytes) -> tuple[int, int] | None:
    """Return calling context and generator (-1: none) of a line that ends a sample, else None."""
    at = text.rfind(b", Interrupt Generator: ")
    context = _UNWOUND.search(text, max(at - 64, 0), at) if at >= 0 else None
    if context is None:
        return None
    if text.endswith(b": UNDEFINED"):
        return int(context[1]), _NONE
    generator = _REFERENCE.search(text, max(len(text) - 16, at))
    return (int(context[1]), int(generator[1])) if generator else None
