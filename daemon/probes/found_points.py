"""Places for probes that the decoder has found in a file, checked, as the file may be crafted."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hpcd.daemon.probe_places.debug_prototypes import DeclaredType, Prototype
from hpcd.daemon.probe_places.probe_points import MOST_POINTS
from hpcd.daemon.probe_places.return_instructions import MOST_RETURNS
from hpcd.daemon.probe_places.value_program import MOST_ARGUMENTS
from hpcd.daemon.probes.probe_spec import ALLOCATOR, ProbeSpec
from hpcd.daemon.unwind.decoder_process import Decoder
from hpcd.errors import FormatError

_MOST_TEXT = 4096
_OFFSETS = 1 << 47


@dataclass(frozen=True, slots=True)
class FoundPoint:
    """A function or static tracepoint that probe number ``query`` names; offsets are in the file.

    ``why`` it cannot be probed, "" when it can; ``exits`` why its return instructions are not all
    there is of its returns, ``recursive`` whether it calls itself.
    """

    query: int
    name: str
    offset: int
    returns: tuple[int, ...]
    exits: str
    recursive: bool
    why: str
    semaphore: int
    operands: str
    start: int = 0
    """Of a function: an instruction that nothing matters before, and that traps at less cost."""
    inlined: str = ""
    """Words on calls of a function that were inlined, which do not come to it; "" if none were."""
    prototype: Prototype | None = None
    """Its prototype in debug information, if requested and present."""


@dataclass(frozen=True, slots=True)
class FoundPoints:
    """All places found in a file; ``symbols`` is its number of named functions, ``near`` similar
    names for probes without places."""

    points: tuple[FoundPoint, ...]
    symbols: int
    thrown: bool
    near: dict[int, str]


def find_points(decoder: Decoder, fd: int, path: str, specs: list[ProbeSpec]) -> FoundPoints:
    """Return the places of the probes of ``specs`` in the file open at ``fd``.

    Raises :class:`FormatError`.
    """
    request = [
        {
            "function": spec.function,
            "provider": spec.provider,
            "near": not spec.optional,
            "debug": spec.by_debug_info,
            "allocator": spec.library == ALLOCATOR,
        }
        for spec in specs
    ]
    reply = decoder.probe_points(fd, path, json.dumps(request).encode())
    try:
        content = json.loads(reply)
        rows = content["points"]
        if len(rows) > MOST_POINTS:
            raise ValueError("too many")
        return FoundPoints(
            tuple(_point(row, len(specs)) for row in rows),
            _number(content["symbols"]),
            bool(content["thrown"]),
            {int(number): str(text)[:200] for number, text in content["near"].items()},
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise FormatError(f"{path}: its functions do not match the request") from None


def _point(row: dict[str, Any], queries: int) -> FoundPoint:
    query = _number(row["query"])
    returns = [_number(offset) for offset in row.get("returns", [])]
    if query >= queries or len(returns) > MOST_RETURNS:
        raise ValueError("out of bounds")
    return FoundPoint(
        query,
        _text(row["name"]),
        _number(row.get("offset", 0)),
        tuple(returns),
        _text(row.get("exits", "")),
        row.get("recursive") is True,
        _text(row.get("why", "")),
        _number(row.get("semaphore", 0)),
        _text(row.get("operands", "")),
        _number(row.get("start", 0)),
        _text(row.get("inlined", "")),
        _prototype(row) if "parameters" in row else None,
    )


def _prototype(row: dict[str, Any]) -> Prototype:
    parameters = row["parameters"]
    if len(parameters) > MOST_ARGUMENTS:
        parameters = parameters[:MOST_ARGUMENTS]
    return Prototype(
        [(_text(name)[:64], _declared(kind)) for name, kind in parameters], _declared(row["result"])
    )


def _declared(pair: object) -> DeclaredType:
    if not isinstance(pair, list) or len(pair) != 2:
        raise ValueError("no type")
    return DeclaredType(_text(pair[0]), _number(pair[1]))


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value < _OFFSETS:
        raise ValueError("no number of a file")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value[:_MOST_TEXT]
