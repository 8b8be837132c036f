"""OTF2 traces (Score-P and others), read by ``otf2-print``.

Each location enters and leaves regions. Between two such events it is in one call path: an
interval, so that times are exact, as are the sums. Definitions and events are taken from the text
that otf2-print of OTF2 2 and 3 writes; the archive's format is the library's own affair.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from hpcd.errors import FormatError, PlatformError
from hpcd.measurement.foreign.input_file import blocks
from hpcd.measurement.foreign.recording_builder import NO_MODULE, RecordingBuilder
from hpcd.measurement.foreign.tool_process import tool_output

_MAGIC = b"\x03BOTF2"
_MAX_DEFINITIONS = 256 << 20
_MAX_NESTING = 1 << 16
_NAME = rb'"(.{0,131072}?)" <\d+>'
_FLAGS = re.MULTILINE | re.DOTALL
_CLOCK = re.compile(
    rb"^CLOCK_PROPERTIES +Ticks per Seconds: (\d{1,19}), Global Offset: (\d{1,20}), "
    rb"Length: \d+(?:, Date: ([^\n]{1,80}))?",
    re.MULTILINE,
)
_GROUP = re.compile(rb"^LOCATION_GROUP +(\d{1,10}) +Name: " + _NAME + rb", Type: ", _FLAGS)
_LOCATION = re.compile(
    rb"^LOCATION +(\d{1,19}) +Name: " + _NAME + rb", Type: \S+, # Events: \d+, Group: "
    rb'".{0,131072}?" <(\d{1,10})>$',
    _FLAGS,
)
_REGION = re.compile(
    rb"^REGION +(\d{1,10}) +Name: " + _NAME + rb" \(Aka\. .{0,131200}?, Role: [A-Z0-9_]+, "
    rb"Paradigm: [^\n]{1,300}?, File: (?:UNDEFINED|" + _NAME + rb"), Begin: ",
    _FLAGS,
)
_RANK = re.compile(rb"(?:MPI )?Rank (\d{1,8})$", re.IGNORECASE)
_EVENT = re.compile(rb"(ENTER|LEAVE) +(\d{1,19}) +(\d{1,20})  ")
_REGION_END = re.compile(rb'" <(\d{1,10})>$')
_DATE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d{1,9}))? ([+-]\d{4})")


def anchor_file(path: Path) -> Path | None:
    """The anchor file of an OTF2 archive: ``path``, or in the directory ``path``; else None."""
    anchor = path / "traces.otf2" if path.is_dir() else path
    try:
        with anchor.open("rb") as file:
            return anchor if file.read(len(_MAGIC)) == _MAGIC else None
    except OSError:
        return None


class Otf2Reader:
    """Turns an OTF2 archive into records of ``builder``."""

    def __init__(self, builder: RecordingBuilder) -> None:
        self._builder = builder
        self._event = builder.event("region", "s", 1e-9, "time", interval=True)
        self._ticks, self._offset = 1_000_000_000, 0
        self._frames: dict[int, int] = {}
        self._lines: dict[bytes, int] = {}
        self._stacks: dict[int, list[int]] = {}
        self._since: dict[int, int] = {}
        self._pending: tuple[int, int] | None = None

    def read(self, anchor: Path) -> int | None:
        """Take in the archive; returns when its last event was (ns since 1970), if it says so.

        Raises :class:`FormatError`, :class:`PlatformError`.
        """
        with _otf2_print(anchor, "-G") as output:
            definitions = output.read(_MAX_DEFINITIONS)
        began_ns = self._define(definitions)
        with _otf2_print(anchor) as output:
            self._read_events(blocks(output.read, str(anchor)))
        end_ns = max(self._since.values(), default=0)
        for line, since in self._since.items():
            self._builder.alive(line, since, since)
        return began_ns + end_ns if began_ns else None

    # --- definitions ---

    def _define(self, text: bytes) -> int:
        """Take in the definitions; returns when the trace began (ns since 1970), 0 if unknown."""
        builder = self._builder
        clock = _CLOCK.search(text)
        if clock is None or not int(clock[1]):
            raise FormatError(f"{builder.source}: otf2-print says nothing of its clock")
        self._ticks, self._offset = int(clock[1]), int(clock[2])
        groups = {int(number): name for number, name in _GROUP.findall(text)}
        ranks = {
            number: int(match[1])
            for number, name in groups.items() if (match := _RANK.search(name))
        }  # fmt: skip
        if ranks:
            builder.job = builder.job or builder.default_name
            builder.size = builder.size or max(ranks.values()) + 1
        for place, (location, name, group) in enumerate(_LOCATION.findall(text)):
            number = int(group)
            line = self._lines[location] = builder.line(number, place, name)
            self._stacks[line] = []
            builder.name_process(number, groups.get(number, name))
            if number in ranks:
                builder.set_rank(number, ranks[number])
        for number, name, file in _REGION.findall(text):
            module = builder.module(file or NO_MODULE)
            self._frames[int(number)] = builder.frame(module, name)
        return _nanoseconds((clock[3] or b"").decode("ascii", "replace"))

    # --- events ---

    def _read_events(self, texts: Iterable[bytes]) -> None:
        for text in texts:
            for line in text.split(b"\n"):
                event = _EVENT.match(line)
                if event:
                    self._change(event, line)
                elif self._pending and (end := _REGION_END.search(line)):
                    # The region's name has line ends in it.
                    self._enter(*self._pending, int(end[1]))

    def _change(self, event: re.Match[bytes], text: bytes) -> None:
        line = self._lines.get(event[2])
        if line is None:
            raise FormatError(f"{self._builder.source}: damaged: an event of no location")
        self._pending = None
        time_ns = (int(event[3]) - self._offset) * 1_000_000_000 // self._ticks
        stack = self._stacks[line]
        since = self._since.get(line, time_ns)
        if time_ns < since:
            raise FormatError(f"{self._builder.source}: damaged: times run backwards")
        if stack and time_ns > since:
            self._builder.add(line, since, stack[-1], self._event, time_ns - since)
        self._since[line] = time_ns
        if event[1] == b"LEAVE":
            if stack:
                stack.pop()
            return
        end = _REGION_END.search(text)
        if end:
            self._enter(line, len(stack), int(end[1]))
        else:
            self._pending = line, len(stack)

    def _enter(self, line: int, depth: int, region: int) -> None:
        self._pending = None
        stack = self._stacks[line]
        if depth != len(stack) or depth >= _MAX_NESTING or region not in self._frames:
            raise FormatError(f"{self._builder.source}: damaged: region {region} is not defined")
        stack.append(self._builder.child(stack[-1] if stack else 0, self._frames[region]))
        self._builder.taken += 1


def _nanoseconds(date: str) -> int:
    """Nanoseconds since 1970 of a date as otf2-print writes it, 0 of others."""
    match = _DATE.match(date)
    if match is None:
        return 0
    try:
        second = datetime.strptime(f"{match[1]} {match[3]}", "%Y-%m-%d %H:%M:%S %z").timestamp()
    except ValueError:
        return 0
    return int(second) * 1_000_000_000 + int((match[2] or "0").ljust(9, "0"))


def _otf2_print(anchor: Path, *options: str) -> AbstractContextManager[BinaryIO]:
    tool = shutil.which("otf2-print")
    if tool is None:
        raise PlatformError("reading OTF2 needs otf2-print (Debian's otf2-tools)")
    command = [tool, *options, str(anchor.absolute())]
    return tool_output(anchor, command, "otf2-print", ("dac_read_search",))
