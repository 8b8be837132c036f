"""Messages, collective operations and one-sided transfers of OTF2 traces, as ``otf2-print`` shows
them: recorded calls of MPI.

Events are the begin of a send, the end of a receive, the begin and end of a collective operation.
The duration of their call is the attribute ``duration``, which hpcd's exports have; else the
duration of the location's region. Its function is the attribute ``function``, else that region,
else it follows from the kind of event. A communicator is an object of the calls, with ranks of the
job, as in the definitions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from hpcd.interchange.fitted_names import readable
from hpcd.interchange.input.recording_builder import RecordingBuilder
from hpcd.interchange.otf2.otf2_conventions import TEXT, describe_group, read_attributes
from hpcd.model.calls import CallValue, Group, ValueKind
from hpcd.model.mpi_functions import COLLECTIVES, CREATIONS, Role
from hpcd.model.mpi_records import IMPORTED, MISSING, roles_by_record

EVENT = re.compile(
    rb"(MPI_(?:I?SEND|ISEND_COMPLETE|I?RECV|IRECV_REQUEST|COLLECTIVE_(?:BEGIN|END))"
    rb"|NON_BLOCKING_COLLECTIVE_(?:REQUEST|COMPLETE)|RMA_(?:PUT|GET)) +(\d{1,19}) +(\d{1,20})  "
)
"""The first line of an event: its kind, location and time."""

_LOCATIONS = re.compile(
    rb"^GROUP +\d{1,10}  Name: " + TEXT + rb" <\d+>, Type: COMM_LOCATIONS, Paradigm: [^\n]*?, "
    rb"Flags: [^\n]*?, \d+ Members?: ([^\n]*)$",
    re.MULTILINE,
)
_GROUP = re.compile(
    rb'^GROUP +(\d{1,10})  Name: "([^\n]{0,200}?)" <\d+>, Type: COMM_GROUP, Paradigm: [^\n]*?, '
    rb"Flags: [^\n]*?, \d+ Members?: ([^\n]*)$",
    re.MULTILINE,
)
_LOCATION = re.compile(TEXT + rb" <(\d{1,19})>")
_MEMBER = re.compile(rb"(?:^|, )(\d{1,10}) \(" + TEXT + rb" <\d{1,19}>\)")
_COMM = re.compile(
    rb'^COMM +(\d{1,10})  Name: "([^\n]{0,16384}?)" <\d+>, Group: ' + TEXT + rb" <(\d{1,10})>, "
    rb"Parent: (?:UNDEFINED|" + TEXT + rb" <(\d{1,10})>)",
    re.MULTILINE,
)
_WINDOW = re.compile(
    rb"^RMA_WIN +(\d{1,10})  Name: " + TEXT + rb" <\d+>, Communicator: " + TEXT
    + rb" <(\d{1,10})>",
    re.MULTILINE,
)  # fmt: skip
_PEER = re.compile(rb"(?:Receiver|Sender|Remote): (\d{1,10}) ")
_COMMUNICATOR = re.compile(rb"Communicator: " + TEXT + rb" <(\d{1,10})>")
_OF_WINDOW = re.compile(rb"Window: " + TEXT + rb" <(\d{1,10})>")
_TAG = re.compile(rb", Tag: (\d{1,10})")
_BYTES = re.compile(rb", (?:Length|Bytes): (\d{1,20})")
_BOTH = re.compile(rb", Sent: (\d{1,20}), Received: (\d{1,20})")
_ROOT = re.compile(rb", Root: (SELF|THIS_GROUP|NONE|\d{1,10})")
_OPERATION = re.compile(rb"Operation: ([A-Z_]{1,60}), ")
_REQUEST = re.compile(rb"Request: (\d{1,20})$")

_DEFAULT = {
    b"MPI_SEND": "MPI_Send", b"MPI_ISEND": "MPI_Isend", b"MPI_RECV": "MPI_Recv",
    b"MPI_IRECV_REQUEST": "MPI_Irecv", b"RMA_PUT": "MPI_Put", b"RMA_GET": "MPI_Get",
    b"MPI_ISEND_COMPLETE": "MPI_Wait", b"MPI_IRECV": "MPI_Wait",
    b"NON_BLOCKING_COLLECTIVE_COMPLETE": "MPI_Wait",
}  # fmt: skip
_ROLES = {
    b"MPI_SEND": Role.SEND, b"MPI_ISEND": Role.SEND, b"MPI_RECV": Role.RECEIVE,
    b"MPI_IRECV_REQUEST": Role.RECEIVE_POST, b"RMA_PUT": Role.PUT, b"RMA_GET": Role.GET,
    b"MPI_ISEND_COMPLETE": Role.COMPLETE, b"MPI_IRECV": Role.COMPLETE,
    b"NON_BLOCKING_COLLECTIVE_COMPLETE": Role.COMPLETE,
}  # fmt: skip
# Events at the end of their call.
_AT_END = (b"MPI_ISEND_COMPLETE", b"MPI_RECV", b"MPI_IRECV", b"MPI_COLLECTIVE_END",
           b"NON_BLOCKING_COLLECTIVE_COMPLETE")  # fmt: skip
_MESSAGE = (
    CallValue("communicator", ValueKind.OBJECT, IMPORTED.name),
    CallValue("peer", ValueKind.SIGNED),
    CallValue("tag", ValueKind.SIGNED),
    CallValue("bytes", ValueKind.BYTES, "B"),
    CallValue("request", ValueKind.SIGNED),
    CallValue("role", ValueKind.NUMBER),
)
_COLLECTIVE = (_MESSAGE[0], CallValue("root", ValueKind.SIGNED), *_MESSAGE[3:])
_COLLECTIVE_ROLES = frozenset(map(int, COLLECTIVES))
_WITHOUT_BYTES = frozenset(map(int, (*CREATIONS, Role.BARRIER, Role.NEW_WINDOW)))
_CREATES = "CREATE_HANDLE"
_MAX_OPEN, _MAX_FUNCTIONS, _MAX_MEMBERS = 1 << 20, 4096, 1 << 22
_MASK = (1 << 64) - 1
_LEFT_OUT = {b"MPI_SEND": "messages", b"MPI_ISEND": "messages",
             b"MPI_COLLECTIVE_END": "collective operations",
             b"NON_BLOCKING_COLLECTIVE_COMPLETE": "collective operations",
             b"RMA_PUT": "one-sided transfers", b"RMA_GET": "one-sided transfers"}  # fmt: skip


@dataclass(slots=True)
class _Call:
    """A call that is not written yet: its length may still be missing (None), or the message that a
    receive gets (not ``complete``). ``values`` are by name."""

    line: int
    begin_ns: int
    node: int
    function: str
    values: dict[str, int]
    length_ns: int | None = None
    complete: bool = True


@dataclass(slots=True)
class _Region:
    """A region that a location is in: the time it was entered, the MPI function it is (empty:
    none), and the calls in it."""

    since_ns: int
    function: str
    calls: list[_Call] = field(default_factory=list)


@dataclass(slots=True)
class _Event:
    kind: bytes
    line: int
    time_ns: int
    text: bytes
    node: int
    attributes: bytes = b""


class Otf2Communicators:
    """The communicators and windows of an archive as objects of ``builder``.

    ``communicators`` and ``windows`` are objects by number; both are empty where the members of
    communicators are not known.
    """

    def __init__(self, builder: RecordingBuilder) -> None:
        self._builder = builder
        self.communicators: dict[int, int] = {}
        self.windows: dict[int, int] = {}

    def define(self, text: bytes, ranks: dict[int, int]) -> None:
        """Add the definitions; ``ranks`` are the ranks of locations.

        If several locations have one rank, as in a trace of several jobs, ranks stay unknown.
        """
        rank_of = [ranks.get(location, -1) for location in communicating_locations(text)]
        if -1 in rank_of or len(set(rank_of)) < len(rank_of):
            return
        groups = self._groups(text, rank_of)
        place_of: dict[int, int] = {}
        for number, name, group, parent in _COMM.findall(text):
            if int(group) not in groups:
                continue
            details = describe_group(*groups[int(group)])
            if parent and int(parent) in place_of:
                details["parent"] = place_of[int(parent)]
            place_of[int(number)] = len(place_of)
            self.communicators[int(number)] = self._builder.called_object(
                "communicator", readable(name), details
            )
        for number, communicator in _WINDOW.findall(text):
            self.windows[int(number)] = self.communicators.get(int(communicator), 0)

    def _groups(self, text: bytes, rank_of: list[int]) -> dict[int, tuple[str, list[int]]]:
        """Return name and ranks of each group; ``rank_of`` are the ranks of its members."""
        groups: dict[int, tuple[str, list[int]]] = {}
        total = 0
        for number, name, members in _GROUP.findall(text):
            places = [int(place) for place in _MEMBER.findall(members)]
            total += len(places)
            if total > _MAX_MEMBERS:
                raise self._builder.damaged(f"groups of more than {_MAX_MEMBERS:,} ranks")
            if all(place < len(rank_of) for place in places):
                groups[int(number)] = readable(name), [rank_of[place] for place in places]
        return groups

    def of_event(self, text: bytes) -> int | None:
        """Return the communicator that an event names, itself or by its window."""
        if window := _OF_WINDOW.search(text):
            return self.windows.get(int(window[1]), 0)
        if communicator := _COMMUNICATOR.search(text):
            return self.communicators.get(int(communicator[1]), 0)
        return None


class Otf2Traffic:
    """Turns MPI events into calls of ``builder``; ``nodes`` are the nodes of calling contexts.

    After :meth:`begin` the next line of text may contain attributes: :meth:`go_on`; call
    :meth:`finish` before any other line.
    """

    def __init__(
        self, builder: RecordingBuilder, nodes: dict[int, int], communicators: Otf2Communicators
    ) -> None:
        self._builder = builder
        self._nodes = nodes
        self._roles = roles_by_record()
        self._communicators = communicators
        self._functions: dict[tuple[str, bool], int] = {}
        self._regions: dict[int, list[_Region]] = {}
        self._event: _Event | None = None
        self._posted: dict[tuple[int, int], _Call] = {}
        self._begun: dict[int, _Call] = {}

    def begin(
        self, event: re.Match[bytes], line: int, time_ns: int, text: bytes, node: int
    ) -> None:
        """Begin an event on trace line ``line``, which is at ``node``."""
        self.finish()
        self._event = _Event(event[1], line, time_ns, text, node)

    def go_on(self, text: bytes) -> None:
        """Read a further line of an event."""
        if self._event and b"ADDITIONAL ATTRIBUTES: " in text:
            self._event.attributes = text
            self.finish()

    def finish(self) -> None:
        """Process the last event, which has no more lines."""
        if not self._event:
            return
        event, self._event = self._event, None
        if not self._communicators.communicators:
            if event.kind in _LEFT_OUT:
                self._builder.left_out[_LEFT_OUT[event.kind]] += 1
            return
        self._take(event)

    def enter(self, line: int, time_ns: int, region: str) -> None:
        """Enter a region."""
        self.finish()
        function = region if region.startswith("MPI_") else ""
        self._regions.setdefault(line, []).append(_Region(time_ns, function))

    def leave(self, line: int, time_ns: int) -> None:
        """Leave the innermost region."""
        self.finish()
        regions = self._regions.get(line)
        if regions:
            self._end(regions.pop(), time_ns)

    def close(self) -> None:
        """Write the calls that have not ended."""
        self.finish()
        for regions in self._regions.values():
            for region in reversed(regions):
                self._end(region, region.since_ns)
        for call in self._posted.values():
            call.complete = True
            self._write(call)

    def _end(self, region: _Region, time_ns: int) -> None:
        for call in region.calls:
            call.begin_ns, call.length_ns = region.since_ns, time_ns - region.since_ns
            self._write(call)

    def _take(self, event: _Event) -> None:
        attributes = read_attributes(event.attributes)
        regions = self._regions.get(event.line, [])
        region = regions[-1] if regions else None
        name = attributes.function or (region.function if region else "")
        node = self._nodes.get(attributes.context, event.node)
        call = _Call(event.line, event.time_ns, node, name or _DEFAULT.get(event.kind, ""), {})
        if event.kind == b"MPI_COLLECTIVE_BEGIN":
            self._begun[event.line] = call
            return
        if event.kind == b"MPI_COLLECTIVE_END" and event.line in self._begun:
            begun = self._begun.pop(event.line)
            call.begin_ns, call.length_ns = begun.begin_ns, event.time_ns - begun.begin_ns
        elif attributes.duration_ns is not None:
            call.length_ns = attributes.duration_ns
            if event.kind in _AT_END:
                call.begin_ns = max(event.time_ns - call.length_ns, 0)
        elif region:
            region.calls.append(call)
        else:
            call.length_ns = 0
        self._fill(event, call)
        self._write(call)

    def _fill(self, event: _Event, call: _Call) -> None:
        """Set the values of the call, or of the call that began its request."""
        kind, text, values = event.kind, event.text, call.values
        request = _REQUEST.search(text)
        if request:
            values["request"] = int(request[1]) & (_MASK >> 1)
        key = event.line, values.get("request", 0)
        if len(self._posted) > _MAX_OPEN:
            raise self._builder.damaged("requests that do not end")
        if kind == b"NON_BLOCKING_COLLECTIVE_REQUEST":
            call.complete = False
            self._posted[key] = call
            return
        if kind == b"NON_BLOCKING_COLLECTIVE_COMPLETE" and (begun := self._posted.pop(key, None)):
            self._fill_collective(text, begun)
            begun.complete = True
            self._write(begun)
        elif kind == b"MPI_COLLECTIVE_END":
            self._fill_collective(text, call)
            return
        values["role"] = int(_ROLES.get(kind, Role.OTHER))
        if kind == b"MPI_IRECV_REQUEST":
            call.complete = False
            self._posted[key] = call
            return
        if kind == b"MPI_IRECV":
            if begun := self._posted.pop(key, None):
                self._fill_envelope(text, begun.values)
                begun.complete = True
                self._write(begun)
            return
        if kind in (b"MPI_SEND", b"MPI_ISEND", b"MPI_RECV", b"RMA_PUT", b"RMA_GET"):
            self._fill_envelope(text, values)

    def _fill_envelope(self, text: bytes, values: dict[str, int]) -> None:
        for name, pattern in (("peer", _PEER), ("tag", _TAG), ("bytes", _BYTES)):
            if match := pattern.search(text):
                values[name] = int(match[1])
        if (communicator := self._communicators.of_event(text)) is not None:
            values["communicator"] = communicator

    def _fill_collective(self, text: bytes, call: _Call) -> None:
        values = call.values
        operation, root = _OPERATION.search(text), _ROOT.search(text)
        plain = operation[1].decode() if operation else ""
        name = "Comm_create" if plain.startswith(_CREATES) else plain.capitalize()
        call.function = call.function or f"MPI_{name}"
        role = int(self._roles.get(call.function, Role.OTHER))
        if role not in _COLLECTIVE_ROLES:
            role = int(self._roles.get(f"MPI_{name}", Role.OTHER))
        # Other tools count more among collective operations.
        values["role"] = role if role in _COLLECTIVE_ROLES else int(Role.OTHER)
        if root and root[1] != b"NONE":
            own = {b"SELF": IMPORTED.root, b"THIS_GROUP": IMPORTED.proc_null}
            values["root"] = own[root[1]] if root[1] in own else int(root[1])
        if both := _BOTH.search(text):
            passed = int(both[1]) + int(both[2])
            # Operations that pass nothing have no bytes.
            if passed or role not in _WITHOUT_BYTES:
                values["bytes"] = passed
        if (communicator := self._communicators.of_event(text)) is not None:
            values["communicator"] = communicator

    def _write(self, call: _Call) -> None:
        """Add the call if all of it is known."""
        if call.length_ns is None or not call.complete:
            return
        collective = call.values.get("role") in _COLLECTIVE_ROLES
        kinds = _COLLECTIVE if collective else _MESSAGE
        values = tuple(
            call.values.get(value.name, 0 if value.name == "communicator" else MISSING) & _MASK
            for value in kinds
        )
        function = self._function(call.function or "MPI_Wait", collective=collective)
        self._builder.add_call(
            call.line, call.begin_ns, call.length_ns, call.node, function, 1, values
        )

    def _function(self, name: str, *, collective: bool) -> int:
        number = self._functions.get((name, collective))
        if number is None:
            if len(self._functions) >= _MAX_FUNCTIONS:
                raise self._builder.damaged(f"more than {_MAX_FUNCTIONS:,} functions")
            values = _COLLECTIVE if collective else _MESSAGE
            number = self._builder.called_function(name, Group.MPI, values)
            self._functions[name, collective] = number
        return number


def communicating_locations(text: bytes) -> list[int]:
    """Return the locations that groups of communicators name, in order."""
    listed = _LOCATIONS.search(text)
    return [int(location) for location in _LOCATION.findall(listed[1])] if listed else []
