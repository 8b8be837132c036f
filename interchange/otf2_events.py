"""What recorded calls are in an OTF2 archive: events of locations, and strings they refer to."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import _otf2
import numpy as np

from hpcd.array_types import I64, Mask

UNDEFINED_32 = 0xFFFFFFFF

CALL_ATTRIBUTES = (
    ("calling context", "call path of the call", _otf2.TYPE_CALLING_CONTEXT),
    ("function", "the function called", _otf2.TYPE_STRING),
    ("calls", "how many calls it stands for, where not one", _otf2.TYPE_UINT64),
    ("duration", "how long the call took that the event begins or ends, ns", _otf2.TYPE_UINT64),
)
"""Attributes of calls' events: name, description, type. They follow those of samples."""


class EventKind(IntEnum):
    """Events of calls. Arguments are those of OTF2's writer, in its order."""

    MPI_SEND = 0
    MPI_ISEND = 1
    MPI_ISEND_COMPLETE = 2
    MPI_RECEIVE = 3
    MPI_IRECEIVE_REQUEST = 4
    MPI_IRECEIVE = 5
    MPI_COLLECTIVE_BEGIN = 6
    MPI_COLLECTIVE_END = 7
    COLLECTIVE_REQUEST = 8
    COLLECTIVE_COMPLETE = 9
    IO_BEGIN = 10
    IO_COMPLETE = 11
    IO_CREATE = 12
    IO_DESTROY = 13
    WINDOW_CREATE = 14
    PUT = 15
    GET = 16
    TRANSFER_COMPLETE = 17


_U8, _U32, _U64 = ctypes.c_uint8, ctypes.c_uint32, ctypes.c_uint64
# The library's function of each kind, and the types of its arguments after time and attributes.
_WRITERS = {
    EventKind.MPI_SEND: ("MpiSend", (_U32, _U32, _U32, _U64)),
    EventKind.MPI_ISEND: ("MpiIsend", (_U32, _U32, _U32, _U64, _U64)),
    EventKind.MPI_ISEND_COMPLETE: ("MpiIsendComplete", (_U64,)),
    EventKind.MPI_RECEIVE: ("MpiRecv", (_U32, _U32, _U32, _U64)),
    EventKind.MPI_IRECEIVE_REQUEST: ("MpiIrecvRequest", (_U64,)),
    EventKind.MPI_IRECEIVE: ("MpiIrecv", (_U32, _U32, _U32, _U64, _U64)),
    EventKind.MPI_COLLECTIVE_BEGIN: ("MpiCollectiveBegin", ()),
    EventKind.MPI_COLLECTIVE_END: ("MpiCollectiveEnd", (_U8, _U32, _U32, _U64, _U64)),
    EventKind.COLLECTIVE_REQUEST: ("NonBlockingCollectiveRequest", (_U64,)),
    EventKind.COLLECTIVE_COMPLETE: (
        "NonBlockingCollectiveComplete", (_U8, _U32, _U32, _U64, _U64, _U64),
    ),
    EventKind.IO_BEGIN: ("IoOperationBegin", (_U32, _U8, _U32, _U64, _U64)),
    EventKind.IO_COMPLETE: ("IoOperationComplete", (_U32, _U64, _U64)),
    EventKind.IO_CREATE: ("IoCreateHandle", (_U32, _U8, _U32, _U32)),
    EventKind.IO_DESTROY: ("IoDestroyHandle", (_U32,)),
    EventKind.WINDOW_CREATE: ("RmaWinCreate", (_U32,)),
    EventKind.PUT: ("RmaPut", (_U32, _U32, _U64, _U64)),
    EventKind.GET: ("RmaGet", (_U32, _U32, _U64, _U64)),
    EventKind.TRANSFER_COMPLETE: ("RmaOpCompleteBlocking", (_U32, _U64)),
}  # fmt: skip
_MOST_ARGUMENTS = 6


class Strings:
    """The archive's strings by number; 0 is the empty one."""

    def __init__(self) -> None:
        self.number: dict[str, int] = {"": 0}

    def __getitem__(self, text: str) -> int:
        return self.number.setdefault(text, len(self.number))


@dataclass(frozen=True)
class CallEvents:
    """Events, one entry each, in any order.

    All ``int64[n]``: ``line``; ``time`` in ns since the origin; ``turn``, which puts those of one
    moment in order; ``kind``; ``node`` of the call path; ``function`` a string's number; ``calls``
    how many it stands for; ``duration`` of the call in ns where that is told. ``argument``
    ``int64[n, 6]``.
    """

    line: I64
    time: I64
    turn: I64
    kind: I64
    node: I64
    function: I64
    calls: I64
    duration: I64
    argument: I64

    def __len__(self) -> int:
        return len(self.time)

    def __getitem__(self, which: slice | I64 | Mask) -> CallEvents:
        columns = (self.line, self.time, self.turn, self.kind, self.node, self.function,
                   self.calls, self.duration, self.argument)  # fmt: skip
        return CallEvents(*(column[which] for column in columns))

    @staticmethod
    def made(
        kind: EventKind,
        line: I64,
        time: I64,
        turn: I64,
        node: I64,
        function: I64,
        arguments: Sequence[I64 | int] = (),
        calls: I64 | int = 1,
        duration: I64 | int = 0,
    ) -> CallEvents:
        """Events of one kind; ``arguments`` are columns, or one value for all."""
        argument = np.zeros((len(time), _MOST_ARGUMENTS), np.int64)
        for at, column in enumerate(arguments):
            argument[:, at] = column
        return CallEvents(
            line, time, turn, np.full(len(time), kind, np.int64), node, function,
            np.broadcast_to(np.asarray(calls, np.int64), len(time)),
            np.broadcast_to(np.asarray(duration, np.int64), len(time)), argument,
        )  # fmt: skip

    @staticmethod
    def joined(parts: Sequence[CallEvents]) -> CallEvents:
        """All events of ``parts``, by line, time and turn."""
        none = np.zeros(0, np.int64)
        empty = CallEvents.made(EventKind.IO_BEGIN, none, none, none, none, none)
        parts = [empty, *parts]
        whole = CallEvents(
            *(
                np.concatenate([getattr(part, name) for part in parts])
                for name in CallEvents.__dataclass_fields__
            )
        )
        return whole[np.lexsort((whole.turn, whole.time, whole.line))]


class CallStream:
    """Events of one trace line in order of time, taken as time goes on."""

    def __init__(self, pieces: Iterable[CallEvents]) -> None:
        """``pieces`` follow one another."""
        self._pieces = iter(pieces)
        self._left: CallEvents | None = None

    def until(self, time: int | None) -> Iterator[CallEvents]:
        """What is left up to ``time`` (None: all), piece by piece."""
        while self._left is not None or self._next():
            assert self._left is not None
            events = self._left
            at = len(events) if time is None else int(np.searchsorted(events.time, time, "right"))
            self._left = events[at:] if at < len(events) else None
            if at:
                yield events[:at]
            if self._left is not None:
                return

    def _next(self) -> bool:
        self._left = next(self._pieces, None)
        return self._left is not None


def woven(pieces: Iterable[CallEvents], others: CallEvents) -> Iterator[CallEvents]:
    """``pieces``, which follow one another, with ``others`` (of the same line, in order) between
    their events."""
    done = 0
    for piece in pieces:
        if not len(piece):
            continue
        upto = int(np.searchsorted(others.time, piece.time[-1], "right"))
        yield CallEvents.joined([piece, others[done:upto]]) if upto > done else piece
        done = upto
    yield others[done:]


class CallEventWriter:
    """Writes events of calls; ``first`` is the number of the first of :data:`CALL_ATTRIBUTES`."""

    def __init__(self, attributes: Any, first: int) -> None:
        library = _otf2.Config.conf.lib
        self._attributes = attributes
        self._first = first
        self._write = {
            int(kind): (self._function(f"OTF2_EvtWriter_{name}", (_U64, *types)), len(types))
            for kind, (name, types) in _WRITERS.items()
        }
        self._add_context, self._add_function, self._add_number = (
            getattr(library, f"OTF2_AttributeList_Add{name}")
            for name in ("CallingContextRef", "StringRef", "Uint64")
        )
        for function, value in ((self._add_context, _U32), (self._add_function, _U32),
                                (self._add_number, _U64)):  # fmt: skip
            function.argtypes = [ctypes.c_void_p, _U32, value]
            function.restype = _otf2.ErrorCode
            function.errcheck = _otf2.ErrorCodes.HandleErrorCode

    @staticmethod
    def _function(name: str, types: Sequence[Any]) -> Any:
        # The bindings set these at every call.
        function = getattr(_otf2.Config.conf.lib, name)
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, *types]
        function.restype = _otf2.ErrorCode
        function.errcheck = _otf2.ErrorCodes.HandleErrorCode
        return function

    def write(self, writer: Any, events: CallEvents, context: I64) -> None:
        """Write ``events`` in their order; ``context`` ``int64[n]``: of each its call path."""
        first, attributes = self._first, self._attributes
        columns = (events.kind.tolist(), events.time.tolist(), context.tolist(),
                   events.function.tolist(), events.calls.tolist(), events.duration.tolist(),
                   events.argument.tolist())  # fmt: skip
        for kind, time, place, name, calls, duration, arguments in zip(*columns, strict=True):
            # The list is emptied by each event it is written with.
            self._add_context(attributes, first, place)
            self._add_function(attributes, first + 1, name)
            if calls != 1:
                self._add_number(attributes, first + 2, calls)
            if duration:
                self._add_number(attributes, first + 3, duration)
            function, count = self._write[kind]
            function(writer, attributes, time, *arguments[:count])
