"""Operations on files of OTF2 traces, as ``otf2-print`` shows them: recorded calls.

An operation begins and completes, on one location and with one number. It is a call of the function
in the attribute ``function``, which hpcd's exports have, else of ``read``, ``write`` or ``flush``;
in the call path of the attribute ``calling context``, else the location's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hpcd.analysis.calls.totals import UNKNOWN
from hpcd.errors import FormatError
from hpcd.interchange.fitted_names import readable
from hpcd.interchange.input.recording_builder import RecordingBuilder
from hpcd.interchange.otf2.otf2_conventions import NAME, CallAttributes, read_attributes
from hpcd.model.calls import CallValue, Group, ValueKind

# Files whose names have line ends in them are not known.
_NAME = NAME + rb" <\d+>"
_TO_FILE = rb'"[^\n]{0,16384}?" <(\d{1,10})>'
_FILE = re.compile(
    rb"^IO_(REGULAR_FILE|DIRECTORY) +(\d{1,10})  Name: " + _NAME + rb", Scope: ", re.MULTILINE
)
_PROPERTY = re.compile(
    rb"^IO_FILE_PROPERTY +File: " + _TO_FILE + rb', Name: "(File system|Mount point)" <\d+>, '
    rb"Type: STRING, Value: " + _NAME + rb"$",
    re.MULTILINE,
)
_HANDLE = re.compile(
    rb"^IO_HANDLE +(\d{1,10})  Name: " + _NAME + rb", File: (?:UNDEFINED|" + _TO_FILE + rb"), "
    rb"I/O Paradigm: ",
    re.MULTILINE,
)
_BEGIN = re.compile(
    rb'" <(\d{1,10})>, Mode: (READ|WRITE|FLUSH), Operation Flags: (?:NONE|\{[^{}]{0,80}\}), '
    rb"Bytes Request: (\d{1,20}), Matching Id: (\d{1,20})$"
)
_COMPLETE = re.compile(rb'" <(\d{1,10})>, Bytes Result: (\d{1,20}), Matching Id: (\d{1,20})$')
_KEYS = {"File system": "file_system", "Mount point": "mount"}
_NAMES = {"READ": "read", "WRITE": "write", "FLUSH": "flush"}
_BYTES = {"READ": "read", "WRITE": "written", "FLUSH": "bytes"}
_UNDEFINED = (1 << 64) - 1
_MAX_OPEN, _MAX_FUNCTIONS = 1 << 20, 4096


@dataclass(slots=True)
class _Operation:
    """An operation that has begun."""

    begin_ns: int
    node: int
    mode: str
    requested: int
    attributes: CallAttributes


class Otf2Operations:
    """Turns operations into calls of ``builder``; ``nodes`` are the nodes of calling contexts.

    After :meth:`begin` the next line of text may contain attributes: :meth:`go_on`.
    """

    def __init__(self, builder: RecordingBuilder, nodes: dict[int, int]) -> None:
        self._builder = builder
        self._nodes = nodes
        self._objects: dict[int, int] = {}
        self._functions: dict[tuple[str, str], int] = {}
        self._names: set[str] = set()
        self._open: dict[tuple[int, int, int], _Operation] = {}
        self._last: _Operation | None = None

    def define(self, text: bytes) -> None:
        """Add the definitions of files and handles."""
        details: dict[int, dict[str, str]] = {}
        for number, key, value in _PROPERTY.findall(text):
            details.setdefault(int(number), {})[_KEYS[key.decode()]] = readable(value)
        files: dict[int, int] = {}
        for kind, number, name in _FILE.findall(text):
            files[int(number)] = self._builder.called_object(
                "directory" if kind == b"DIRECTORY" else "file", readable(name),
                details.get(int(number), {}),
            )  # fmt: skip
        for number, name, file in _HANDLE.findall(text):
            if file:
                called = files.get(int(file), 0)
            elif (own := readable(name)) == UNKNOWN:
                called = 0
            else:
                called = self._builder.called_object("handle", own, {})
            self._objects[int(number)] = called

    def begin(self, line: int, time_ns: int, text: bytes, node: int) -> bool:
        """Begin an operation at ``node``; returns whether its handle is known."""
        match = _BEGIN.search(text)
        if match is None or int(match[1]) not in self._objects:
            return False
        if len(self._open) >= _MAX_OPEN:
            raise self._builder.damaged("operations that do not end")
        requested = 0 if int(match[3]) == _UNDEFINED else int(match[3])
        mode = match[2].decode()
        self._last = _Operation(time_ns, node, mode, requested, CallAttributes())
        self._open[line, int(match[1]), int(match[4])] = self._last
        return True

    def go_on(self, text: bytes) -> None:
        """Read a further line of an event."""
        operation, self._last = self._last, None
        if operation is not None and b"ADDITIONAL ATTRIBUTES: " in text:
            operation.attributes = read_attributes(text)

    def complete(self, line: int, time_ns: int, text: bytes) -> bool:
        """Complete an operation; returns whether its begin is known."""
        self._last = None
        match = _COMPLETE.search(text)
        begun = self._open.pop((line, int(match[1]), int(match[3])), None) if match else None
        if match is None or begun is None:
            return False
        moved, attributes = int(match[2]), begun.attributes
        self._builder.add_call(
            line, begun.begin_ns, time_ns - begun.begin_ns,
            self._nodes.get(attributes.context, begun.node),
            self._function(attributes.function or _NAMES[begun.mode], begun.mode),
            attributes.calls,
            (self._objects[int(match[1])], 0 if moved == _UNDEFINED else moved, 0,
             begun.requested),
        )  # fmt: skip
        return True

    def _function(self, name: str, mode: str) -> int:
        number = self._functions.get((name, mode))
        if number is None:
            if len(self._functions) >= _MAX_FUNCTIONS:
                raise FormatError(f"{self._builder.source}: more than {_MAX_FUNCTIONS:,} functions")
            # A call that moves bytes between two files is two operations.
            own = name if name not in self._names else f"{name} ({_NAMES[mode]})"
            self._names.add(own)
            values = (
                CallValue("file", ValueKind.OBJECT),
                CallValue(_BYTES[mode], ValueKind.BYTES, "B"),
                CallValue("error", ValueKind.ERROR),
                CallValue("asked", ValueKind.BYTES, "B"),
            )
            number = self._builder.called_function(own, Group.IO, values)
            self._functions[name, mode] = number
        return number
