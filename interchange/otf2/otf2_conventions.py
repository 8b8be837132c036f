"""Conventions of hpcd's OTF2 archives, shared by exports and imports.

Events of recorded calls have attributes; the name of a communicator's group has facts that its list
of members lacks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hpcd.interchange.fitted_names import readable

CONTEXT, FUNCTION, CALLS, DURATION = "calling context", "function", "calls", "duration"
"""Names of the attributes of events."""

TEXT = rb'"[^\n]{0,131072}?"'
"""A text in the output of otf2-print."""
NAME = rb'"([^\n]{0,16384}?)"'
"""A text that is kept."""


def _attribute(name: str, kind: bytes, value: bytes) -> re.Pattern[bytes]:
    return re.compile(rb'\("' + name.encode() + rb'" <\d+>; ' + kind + b"; " + value + rb"\)")


_CONTEXT = _attribute(CONTEXT, b"CALLING_CONTEXT", TEXT + rb" <(\d{1,10})>")
_FUNCTION = _attribute(FUNCTION, b"STRING", NAME + rb" <\d+>")
_CALLS = _attribute(CALLS, b"UINT64", rb"(\d{1,9})")
_DURATION = _attribute(DURATION, b"UINT64", rb"(\d{1,19})")


@dataclass(slots=True)
class CallAttributes:
    """Attributes of an event: ``context`` is the archive's calling context, -1 for none;
    ``duration_ns`` None; ``function`` empty."""

    context: int = -1
    function: str = ""
    calls: int = 1
    duration_ns: int | None = None


def read_attributes(text: bytes) -> CallAttributes:
    """Return the attributes in a line of otf2-print."""
    attributes = CallAttributes()
    if context := _CONTEXT.search(text):
        attributes.context = int(context[1])
    if function := _FUNCTION.search(text):
        attributes.function = readable(function[1])
    if calls := _CALLS.search(text):
        attributes.calls = int(calls[1])
    if duration := _DURATION.search(text):
        attributes.duration_ns = int(duration[1])
    return attributes


_OF_TWO = re.compile(r"two groups: (\d{1,8}) and (\d{1,8})")
_GRID = re.compile(r"grid: (\d{1,8}(?: x \d{1,8})*), wraps: ([01](?: [01])*)")
_UNORDERED = "in an unknown order"


def name_two_groups(members: int, remote: int) -> str:
    """Return the name of a group of two groups of ``members`` and ``remote`` ranks."""
    return f"two groups: {members} and {remote}"


def name_grid(dims: Sequence[int], periods: Sequence[int]) -> str:
    """Return the name of the group of a Cartesian communicator."""
    wraps = " ".join(str(int(bool(period))) for period in periods)
    return f"grid: {' x '.join(map(str, dims))}, wraps: {wraps}"


def name_plain(*, ordered: bool) -> str:
    """Return the name of any other group."""
    return "" if ordered else _UNORDERED


def describe_group(name: str, members: list[int]) -> dict[str, object]:
    """Return the details of a communicator from the name of its group."""
    if (two := _OF_TWO.fullmatch(name)) and int(two[1]) + int(two[2]) == len(members):
        return {"members": members[: int(two[1])], "remote": members[int(two[1]) :]}
    details: dict[str, object] = {"members": members}
    if grid := _GRID.fullmatch(name):
        details["dims"] = [int(size) for size in grid[1].split(" x ")]
        details["periods"] = [int(period) for period in grid[2].split()]
    if name == _UNORDERED:
        details["ordered"] = False
    return details
