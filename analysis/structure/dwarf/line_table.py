"""From addresses of a module to procedures, files, lines and inlined calls.

A *place* is a source line within one instance of a function: a function inlined at three calls has
three instances besides its own, and each has places of its own. A place inside an inlined
function knows the place of the call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hpcd.analysis.structure.array_records import Strings, within
from hpcd.array_types import I32, I64, U32, U64
from hpcd.errors import FormatError

NO_ENTRY = (1 << 64) - 1
# Eigen nests inlined calls 40 deep. Deeper nests are cut off at the outer end.
MAX_DEPTH = 256


def value_at(start: U64, value: I32, addresses: U64) -> I32:
    """``int32[n]``: ``value`` of the last ``start`` up to each address, -1 without one."""
    if not len(start):
        return np.full(len(addresses), -1, np.int32)
    row = np.searchsorted(start, addresses, side="right") - 1
    values: I32 = np.where(row >= 0, value[row], np.int32(-1))
    return values


def depths(parent: I32) -> I64:
    """Return ``int64[n]``, the number of ancestors of each, given each one's parent, -1 for none.

    O(n · log greatest depth).
    """
    depth = (parent >= 0).astype(np.int64)
    above = parent
    while bool((above >= 0).any()):
        inside = np.flatnonzero(above >= 0)
        at = above[inside]
        further = depth[at]
        depth[inside] += further
        above = above.copy()
        above[inside] = above[at]
    return depth


class Call(NamedTuple):
    """A procedure on a chain of inlined calls, and the line in it that calls the next."""

    procedure: str
    file: str
    line: int


@dataclass(frozen=True)
class SourceLineTable:
    """The line table of a module.

    ``start`` ``uint64[r]``, ascending: addresses where another place begins; ``at`` ``int32[r]``
    that place, -1 where nothing is known. Places, ``[p]``: ``caller`` ``int32`` the place of the
    call it was inlined at (always a smaller number), -1 outside inlined functions; ``function``
    ``int32``; ``file`` ``int32``, -1 unknown; ``line`` ``uint32``, 0 unknown. Functions, ``[f]``:
    ``entry`` ``uint64``, all ones for functions that are always inlined; ``names`` demangled,
    ``linkage`` as the linker knows them.
    """

    start: U64
    at: I32
    caller: I32
    function: I32
    file: I32
    line: U32
    entry: U64
    names: Strings
    linkage: Strings
    files: Strings

    def __post_init__(self) -> None:
        """Raise :class:`FormatError` for a table whose numbers do not fit together."""
        places = np.arange(len(self.caller))
        functions = len(self.entry)
        if not (
            len(self.start) == len(self.at)
            and len(self.caller) == len(self.function) == len(self.file) == len(self.line)
            and len(self.names) == len(self.linkage) == functions
            and within(self.at, -1, len(places))
            and within(self.function, 0, functions)
            and within(self.file, -1, len(self.files))
            and bool(((self.caller >= -1) & (self.caller < np.maximum(places, 0))).all())
            and bool((self.start[1:] > self.start[:-1]).all())
        ):
            raise FormatError("source line table: numbers that do not fit together")

    def place_of(self, addresses: U64) -> I32:
        """``int32[n]``: the innermost place of each address, -1 where none is known."""
        return value_at(self.start, self.at, addresses)

    def chain(self, address: int) -> list[Call]:
        """The calls at ``address``, innermost first; empty where nothing is known."""
        place = int(self.place_of(np.array([address], np.uint64))[0])
        calls: list[Call] = []
        while place >= 0 and len(calls) < MAX_DEPTH:
            file = int(self.file[place])
            calls.append(
                Call(
                    self.names[int(self.function[place])],
                    self.files[file] if file >= 0 else "",
                    int(self.line[place]),
                )
            )
            place = int(self.caller[place])
        return calls

    @staticmethod
    def empty() -> SourceLineTable:
        """The table of a module without debug information."""
        none = np.zeros(0, np.int32)
        nothing = Strings.of([])
        return SourceLineTable(
            np.zeros(0, np.uint64), none, none, none, none, np.zeros(0, np.uint32),
            np.zeros(0, np.uint64), nothing, nothing, nothing,
        )  # fmt: skip
