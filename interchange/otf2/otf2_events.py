"""Events of locations of an OTF2 archive that represent recorded calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

import _otf2
import numpy as np

from hpcd.array_types import I64, Mask
from hpcd.interchange.otf2 import otf2_conventions as conventions
from hpcd.rows import join_rows, take_rows

UNDEFINED_32 = 0xFFFFFFFF

CALL_ATTRIBUTES = (
    (conventions.CONTEXT, "call path of the call", _otf2.TYPE_CALLING_CONTEXT),
    (conventions.FUNCTION, "the function called", _otf2.TYPE_STRING),
    (conventions.CALLS, "how many calls it stands for, where not one", _otf2.TYPE_UINT64),
    (
        conventions.DURATION,
        "how long the call took that the event begins or ends, ns",
        _otf2.TYPE_UINT64,
    ),
)
"""Attributes of calls' events: name, description, type. They follow the attributes of samples."""


class CallEventKind(IntEnum):
    """Events of calls. Arguments are in the order of OTF2's writer functions."""

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


_MAX_ARGUMENTS = 6


@dataclass(frozen=True)
class CallEvents:
    """Events, one entry each, in any order.

    All are int64[n]: ``line``; ``time`` in ns since the origin; ``turn``, the order of events of
    one moment; ``kind``; ``node`` of the call path; ``function``, a string's number; ``calls``, the
    number of calls that it represents; ``duration`` of the call in ns, 0 if it is not exported.
    ``argument`` is int64[n, 6].
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
        return take_rows(self, which)

    @staticmethod
    def of_kind(
        kind: CallEventKind,
        line: I64,
        time: I64,
        turn: I64,
        node: I64,
        function: I64,
        arguments: Sequence[I64 | int] = (),
        calls: I64 | int = 1,
        duration: I64 | int = 0,
    ) -> CallEvents:
        """Return events of one kind; ``arguments`` are columns, or a single value for all."""
        argument = np.zeros((len(time), _MAX_ARGUMENTS), np.int64)
        for at, column in enumerate(arguments):
            argument[:, at] = column
        return CallEvents(
            line, time, turn, np.full(len(time), kind, np.int64), node, function,
            np.broadcast_to(np.asarray(calls, np.int64), len(time)),
            np.broadcast_to(np.asarray(duration, np.int64), len(time)), argument,
        )  # fmt: skip

    @staticmethod
    def join(parts: Sequence[CallEvents]) -> CallEvents:
        """Return all events of ``parts``, by line, time and turn."""
        none = np.zeros(0, np.int64)
        empty = CallEvents.of_kind(CallEventKind.IO_BEGIN, none, none, none, none, none)
        whole = join_rows([empty, *parts])
        return whole[np.lexsort((whole.turn, whole.time, whole.line))]


class CallStream:
    """Events of one trace line in order of time, consumed up to increasing times."""

    def __init__(self, pieces: Iterable[CallEvents]) -> None:
        """``pieces`` follow one another."""
        self._pieces = iter(pieces)
        self._left: CallEvents | None = None

    def until(self, time: int | None) -> Iterator[CallEvents]:
        """Yield the events left up to ``time`` (None: all), piece by piece."""
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


def weave(pieces: Iterable[CallEvents], others: CallEvents) -> Iterator[CallEvents]:
    """Yield ``pieces``, which follow one another, with ``others`` (of the same line, in order)
    between their events."""
    done = 0
    for piece in pieces:
        if not len(piece):
            continue
        upto = int(np.searchsorted(others.time, piece.time[-1], "right"))
        yield CallEvents.join([piece, others[done:upto]]) if upto > done else piece
        done = upto
    yield others[done:]
