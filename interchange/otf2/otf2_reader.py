"""OTF2 traces (Score-P and others), read by ``otf2-print``.

Each location enters and leaves regions. Between two such events its call path is constant: an
interval, so that times and sums are exact. Calling-context samples, which sampling tools
write, are in ``otf2_samples``, operations on files in ``otf2_operations``, messages and collective
operations in ``otf2_traffic``. Definitions and events are read from the text that otf2-print of
OTF2 2 and 3 writes; only the library knows the archive's format.
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
from hpcd.interchange.fitted_names import readable
from hpcd.interchange.input.imported_tree import NO_MODULE
from hpcd.interchange.input.input_file import blocks
from hpcd.interchange.input.recording_builder import RecordingBuilder
from hpcd.interchange.input.tool_process import tool_output
from hpcd.interchange.otf2.otf2_operations import Otf2Operations
from hpcd.interchange.otf2.otf2_samples import FLAGS, NAME, Otf2Samples
from hpcd.interchange.otf2.otf2_traffic import EVENT as TRAFFIC
from hpcd.interchange.otf2.otf2_traffic import (
    Otf2Communicators,
    Otf2Traffic,
    communicating_locations,
)

_MAGIC = b"\x03BOTF2"
_MAX_DEFINITIONS = 256 << 20
_MAX_NESTING = 1 << 16
_CLOCK = re.compile(
    rb"^CLOCK_PROPERTIES +Ticks per Seconds: (\d{1,19}), Global Offset: (\d{1,20}), "
    rb"Length: \d+(?:, Date: ([^\n]{1,80}))?",
    re.MULTILINE,
)
_GROUP = re.compile(rb"^LOCATION_GROUP +(\d{1,10}) +Name: " + NAME + rb", Type: ", FLAGS)
_LOCATION = re.compile(
    rb"^LOCATION +(\d{1,19}) +Name: " + NAME + rb", Type: \S+, # Events: \d+, Group: "
    rb'".{0,131072}?" <(\d{1,10})>$',
    FLAGS,
)
_REGION = re.compile(
    rb"^REGION +(\d{1,10}) +Name: " + NAME + rb" \(Aka\. .{0,131200}?, Role: [A-Z0-9_]+, "
    rb"Paradigm: [^\n]{1,300}?, File: (?:UNDEFINED|" + NAME + rb"), Begin: ",
    FLAGS,
)
_RANK = re.compile(rb"(?:MPI )?Rank (\d{1,8})$", re.IGNORECASE)
# hpcd's exports name processes so: with name and number.
_OWN_RANK = re.compile(rb"rank (\d{1,8}) (.+) \d+$", re.DOTALL)
_EVENT = re.compile(rb"(ENTER|LEAVE|CALLING_CONTEXT_SAMPLE) +(\d{1,19}) +(\d{1,20})  ")
_OPERATION = re.compile(rb"IO_OPERATION_(BEGIN|COMPLETE) +(\d{1,19}) +(\d{1,20})  ")
_REGION_END = re.compile(rb'" <(\d{1,10})>$')
_DATE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d{1,9}))? ([+-]\d{4})")


def anchor_file(path: Path) -> Path | None:
    """Return the anchor file of an archive, ``path`` or in the directory ``path``; else None."""
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
        self._event: int | None = None
        self._samples = Otf2Samples(builder)
        self._operations = Otf2Operations(builder, self._samples.nodes)
        self._communicators = Otf2Communicators(builder)
        self._traffic = Otf2Traffic(builder, self._samples.nodes, self._communicators)
        self._names: dict[int, str] = {}
        self._ticks, self._offset = 1_000_000_000, 0
        self._frames: dict[int, int] = {}
        self._lines: dict[bytes, int] = {}
        self._stacks: dict[int, list[int]] = {}
        self._since: dict[int, int] = {}
        self._pending: tuple[int, int] | None = None

    def read(self, anchor: Path) -> int | None:
        """Add the archive's records; returns when it was time 0 (ns since 1970), if it says so.

        Raises FormatError, PlatformError.
        """
        with _otf2_print(anchor, "-G") as output:
            definitions = output.read(_MAX_DEFINITIONS)
        began_ns = self._define(definitions)
        with _otf2_print(anchor) as output:
            self._read_events(blocks(output.read, str(anchor)))
        self._samples.close()
        self._traffic.close()
        for line, since in self._since.items():
            self._builder.threads.extend(line, since, since)
        return began_ns or None

    # --- definitions ---

    def _define(self, text: bytes) -> int:
        """Add the definitions; returns when the trace began (ns since 1970), 0 if unknown."""
        builder = self._builder
        clock = _CLOCK.search(text)
        if clock is None or not int(clock[1]):
            raise FormatError(f"{builder.source}: otf2-print says nothing of its clock")
        self._ticks, self._offset = int(clock[1]), int(clock[2])
        groups = {int(number): name for number, name in _GROUP.findall(text)}
        ranks: dict[int, int] = {}
        for number, name in groups.items():
            if match := _RANK.search(name):
                ranks[number] = int(match[1])
            elif match := _OWN_RANK.match(name):
                ranks[number], groups[number] = int(match[1]), match[2]
        locations = _LOCATION.findall(text)
        if not ranks:
            ranks = _ranks_by_place(text, {int(at): int(group) for at, _, group in locations})
        if ranks:
            builder.threads.rank_job = builder.threads.default_name
            builder.threads.size = builder.threads.size or max(ranks.values()) + 1
        for place, (location, name, group) in enumerate(locations):
            number = int(group)
            thread, name = _thread(place + len(groups), name, number, ranks.get(number))
            line = self._lines[location] = builder.threads.line(number, thread, name)
            self._stacks[line] = []
            builder.threads.name_process(number, groups.get(number, name))
            if number in ranks:
                builder.threads.set_rank(number, ranks[number])
        for number, name, file in _REGION.findall(text):
            module = builder.tree.module(file or NO_MODULE)
            self._frames[int(number)] = builder.tree.frame(module, name)
            if name.startswith(b"MPI_"):
                self._names[int(number)] = readable(name)
        self._samples.define(text, self._frames)
        self._operations.define(text)
        self._communicators.define(
            text,
            {int(at): ranks[int(group)] for at, _, group in locations if int(group) in ranks},
        )
        return _nanoseconds((clock[3] or b"").decode("ascii", "replace"))

    # --- events ---

    def _read_events(self, texts: Iterable[bytes]) -> None:
        for text in texts:
            for line in text.split(b"\n"):
                event = _EVENT.match(line)
                if event:
                    self._samples.finish()
                    self._change(event, line)
                elif self._pending:
                    # The region's name has line ends in it.
                    if end := _REGION_END.search(line):
                        self._enter(*self._pending, int(end[1]))
                elif not self._samples.unfinished and (event := TRAFFIC.match(line)):
                    self._samples.finish()
                    self._communicate(event, line)
                elif not self._samples.unfinished and (operation := _OPERATION.match(line)):
                    self._samples.finish()
                    self._operate(operation, line)
                else:
                    self._samples.go_on(line)
                    self._operations.go_on(line)
                    self._traffic.go_on(line)

    def _change(self, event: re.Match[bytes], text: bytes) -> None:
        line = self._lines.get(event[2])
        if line is None:
            raise self._builder.damaged("an event of no location")
        self._pending = None
        time_ns = self._nanoseconds(event[3])
        stack = self._stacks[line]
        since = self._since.get(line, time_ns)
        if time_ns < since:
            raise self._builder.damaged("times run backwards")
        if stack and time_ns > since:
            self._add_interval(line, since, stack[-1], time_ns - since)
        self._since[line] = time_ns
        if event[1] == b"CALLING_CONTEXT_SAMPLE":
            self._traffic.finish()
            self._samples.begin(line, time_ns, text)
            return
        if event[1] == b"LEAVE":
            if stack:
                stack.pop()
                self._traffic.leave(line, time_ns)
            return
        end = _REGION_END.search(text)
        if end:
            self._enter(line, len(stack), int(end[1]))
        else:
            self._pending = line, len(stack)

    def _nanoseconds(self, ticks: bytes) -> int:
        return (int(ticks) - self._offset) * 1_000_000_000 // self._ticks

    def _operate(self, operation: re.Match[bytes], text: bytes) -> None:
        """Begin or complete an operation on a file."""
        line = self._lines.get(operation[2])
        if line is None:
            raise self._builder.damaged("an event of no location")
        time_ns = self._nanoseconds(operation[3])
        if operation[1] == b"COMPLETE":
            if not self._operations.complete(line, time_ns, text):
                self._builder.left_out["operations on files"] += 1
            return
        stack = self._stacks[line]
        self._operations.begin(line, time_ns, text, stack[-1] if stack else 0)

    def _communicate(self, event: re.Match[bytes], text: bytes) -> None:
        """Begin a message, a collective operation or a one-sided transfer."""
        line = self._lines.get(event[2])
        if line is None:
            raise self._builder.damaged("an event of no location")
        stack = self._stacks[line]
        node = stack[-1] if stack else 0
        self._traffic.begin(event, line, self._nanoseconds(event[3]), text, node)

    def _add_interval(self, line: int, begin_ns: int, node: int, length_ns: int) -> None:
        if self._event is None:
            self._event = self._builder.event("region", "s", 1e-9, "time", interval=True)
        self._builder.add(line, begin_ns, node, self._event, length_ns)

    def _enter(self, line: int, depth: int, region: int) -> None:
        self._pending = None
        stack = self._stacks[line]
        if depth != len(stack) or depth >= _MAX_NESTING or region not in self._frames:
            raise self._builder.damaged(f"region {region} is not defined")
        stack.append(self._builder.tree.child(stack[-1] if stack else 0, self._frames[region]))
        self._traffic.enter(line, self._since[line], self._names.get(region, ""))
        self._builder.taken += 1


def _ranks_by_place(text: bytes, groups: dict[int, int]) -> dict[int, int]:
    """Return the rank of each location group by the order of the locations that communicate.

    ``groups`` are the groups of locations. Empty if a group has several locations that communicate.
    """
    places = communicating_locations(text)
    ranks = {groups[location]: at for at, location in enumerate(places) if location in groups}
    return ranks if len(ranks) == len(places) else {}


def _thread(place: int, name: bytes, process: int, rank: int | None) -> tuple[int, bytes]:
    """Return number and name of a location's thread. hpcd's exports have the rank before names of
    threads, and nothing behind it for the main thread."""
    if rank is None:
        return place, name
    before, apart, behind = name.partition(" · ".encode())
    if before != b"rank %d" % rank:
        return place, name
    return (place, behind) if apart else (process, name)


def _nanoseconds(date: str) -> int:
    """Return ns since 1970 of a date as otf2-print writes it, 0 of others."""
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
