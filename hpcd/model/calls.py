"""Recorded functions, values of their calls, and objects that the values refer to.

A *call* is one execution of a *recorded function*: a system call, or a function that is probed. It
has up to :data:`MAX_VALUES` values, 64 bits each, whose meaning the function declares.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

MAX_VALUES = 6
"""Values of a call at most."""


class Group(StrEnum):
    """The purpose that a function is recorded for."""

    IO = "io"
    MPI = "mpi"
    MEMORY = "memory"
    HEAP = "heap"
    PROBE = "probe"
    WAIT = "wait"
    """Waits: :mod:`hpcd.model.waits`. They are not listed as calls."""
    INTERFERENCE = "interference"
    """Waits for a CPU by interferer: :mod:`hpcd.model.waits`. They are not listed either."""


class ValueKind(StrEnum):
    """The kind of a call's value, which decides how it is shown."""

    BYTES = "bytes"
    """An amount: unsigned, worth adding up."""
    COUNT = "count"
    """The same, of other things."""
    TIME = "time"
    """An amount of nanoseconds."""
    ERROR = "error"
    """An errno; 0: there was none."""
    SIGNED = "signed"
    """A number in two's complement that is not to be added up: a rank, a tag, a position."""
    NUMBER = "number"
    """The same without a sign."""
    ADDRESS = "address"
    FLOAT = "float"
    """The bits of a double."""
    OBJECT = "object"
    """The id of a :class:`CalledObject`; 0: of none, or not known."""
    LINE = "line"
    """A trace line of the same measurement, counted from 1; 0: none."""
    NODE = "node"
    """A CCT node of the same measurement; 0: none, or not known."""
    HANDLE = "handle"
    """A number that identifies an object within its process only."""

    @property
    def summable(self) -> bool:
        """Whether sums of such values mean anything."""
        return self in (ValueKind.BYTES, ValueKind.COUNT, ValueKind.TIME)


@dataclass(frozen=True, slots=True)
class CallValue:
    """The declaration of one value of a function's calls."""

    name: str
    kind: ValueKind
    unit: str = ""


@dataclass(frozen=True, slots=True)
class CalledFunction:
    """A recorded function. ``library`` is the path of its load module, or empty: a system call."""

    id: int
    name: str
    library: str
    group: str
    values: tuple[CallValue, ...] = ()

    @property
    def is_called(self) -> bool:
        """Whether it is a function indeed: waits are held in the same form."""
        return self.group not in (Group.WAIT, Group.INTERFERENCE)

    @property
    def is_part(self) -> bool:
        """Whether its calls are further records of another's, as ``MPI_Sendrecv/receive`` is."""
        return self.group == Group.MPI and "/" in self.name

    def value(self, name: str) -> int | None:
        """The number of the value called ``name``."""
        return next((n for n, value in enumerate(self.values) if value.name == name), None)


@dataclass(frozen=True, slots=True)
class CalledObject:
    """An object that values of kind ``object`` refer to: a file, a socket, a communicator.

    ``id`` is unique in its measurement, from 1. ``kind`` is its type, ``name`` its name for users
    (a path, both ends of a connection), ``details`` further facts, as plain JSON values.
    """

    id: int
    kind: str
    name: str
    details: dict[str, object] = field(default_factory=dict)


def read_function(row: dict[str, Any]) -> CalledFunction:
    """Read a function from its fields (:func:`dataclasses.asdict`) in JSON.

    Raises :class:`TypeError`, :class:`ValueError` or :class:`KeyError`. Kinds of values that only
    a later version knows are numbers here.
    """
    values = []
    for value in row.get("values", []):
        kind = value["kind"]
        known = ValueKind(kind) if kind in set(ValueKind) else ValueKind.NUMBER
        values.append(CallValue(_text(value["name"]), known, _text(value.get("unit", ""))))
    if len(values) > MAX_VALUES:
        raise ValueError(f"{len(values)} values of a function")
    return CalledFunction(
        _integer(row["id"]),
        _text(row["name"]),
        _text(row["library"]),
        _text(row["group"]),
        tuple(values),
    )


def object_row(called: CalledObject) -> dict[str, object]:
    """``called`` as plain JSON values."""
    return {
        "id": called.id,
        "kind": called.kind,
        "name": called.name,
        "details": called.details,
    }


def read_object(row: dict[str, object]) -> CalledObject:
    """The inverse of :func:`object_row`, raising as :func:`read_function`."""
    details = row.get("details", {})
    if not isinstance(details, dict):
        raise TypeError("details is not an object")
    return CalledObject(_integer(row["id"]), _text(row["kind"]), _text(row["name"]), dict(details))


def _integer(value: object) -> int:
    if type(value) is not int:
        raise TypeError("an id is not a number")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a name is not text")
    return value
