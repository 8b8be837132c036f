"""Definitions of options, kept with the fields of the dataclasses that hold their values.

From its definition come an option of the command line, a field of a request to the service and its
check, what a measurement says of its recording, the manual, and docs/recording-options.md. Few
imports: options are read before the recorder is imported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar, cast

from hpcd.errors import UsageError

# Bounds of what a request may have: the service looks some of it up, and keeps the rest in memory.
_MOST, _LONGEST = 64, 4096

_Holder = TypeVar("_Holder")


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Values of an option, and what makes others of them."""

    argument: dict[str, Any]
    """Arguments of ``add_argument``; there is no default in the parsed ones."""
    json: str
    """Values of a request, in words."""
    is_json: Callable[[Any], bool]
    """Whether a value of a request has this type."""
    given: Callable[[Any], Any] = _same
    """From an argument of the command line."""
    received: Callable[[Any], Any] = _same
    """From a value of a request."""
    sent: Callable[[Any], Any] = _same
    """To a value of a request."""
    shown: Callable[[Any], Any] | None = None
    """To JSON that shows how something was recorded; by default as ``sent``."""
    bounds: Callable[[Any], str] = lambda value: ""
    """The bounds in words; "" if the value lies within them."""


def flag(value: bool = True) -> Kind:
    """True or false; the option on the command line means ``value``."""
    return Kind(
        argument={"action": "store_true"},
        json="true or false",
        is_json=lambda json: isinstance(json, bool),
        given=lambda argument: value,
    )


def share(text: str) -> float:
    """A share such as ``1%`` or ``0.01``."""
    number = text.removesuffix("%")
    return float(number) / (100 if number != text else 1)


def number(
    metavar: str, low: int, high: int, unit: str, *, above: bool = False, whole: bool = False,
    scale: float = 1, parse: Callable[[str], float] = float,
) -> Kind:  # fmt: skip
    """A number from ``low``, or ``above`` it, to ``high``; a value is a number times ``scale``.
    Bounds and arguments are numbers before scaling; shares are arguments of their own form."""

    def given(argument: float) -> float:
        value = argument if parse is share else argument * scale
        # Neither infinity nor what is no number can be rounded, and both are out of bounds.
        return round(value) if whole and math.isfinite(value) else value

    def bounds(value: Any) -> str:
        least = low * scale
        if value is None or (least <= value <= high * scale and not (above and value == least)):
            return ""
        between = f"above {low} and at most" if above else f"between {low} and"
        return f"{between} {high:,} {unit}".rstrip()

    return Kind(
        argument={"type": parse, "metavar": metavar},
        json=f"a {'whole ' if whole else ''}number",
        is_json=lambda json: type(json) is int or (type(json) is float and not whole),
        given=given,
        bounds=bounds,
    )


def one_of(*choices: str) -> Kind:
    """One of ``choices``."""
    return Kind(argument={"choices": choices}, json="a text", is_json=choices.__contains__)


def numbers() -> Kind:
    """Whole numbers, each counted once: the option may be repeated."""
    return Kind(
        argument={"action": "append", "type": int},
        json="at most 1,024 whole numbers",
        is_json=lambda json: _is_list(json, 1024, lambda part: type(part) is int),
        given=lambda argument: tuple(dict.fromkeys(argument)),
        received=lambda json: tuple(dict.fromkeys(json)),
    )


def texts(
    metavar: str, convert: Callable[[str], Any] = str, read: Callable[[str], Any] | None = None
) -> Kind:
    """Texts, made values by ``convert``, in requests by ``read``; the option may be repeated."""
    return Kind(
        argument={"action": "append", "metavar": metavar},
        json=f"at most {_MOST} texts",
        is_json=lambda json: _is_list(json, _MOST, _is_short),
        given=lambda argument: tuple(map(convert, argument)),
        received=lambda json: tuple(map(read or convert, json)),
        sent=lambda value: list(map(str, value)),
    )


def files(metavar: str, read: Callable[[str], str]) -> Kind:
    """Names of files with their contents, which is ``read`` with the rights of this process; a
    request has both, and a measurement shows the names."""
    return Kind(
        argument={"action": "append", "metavar": metavar},
        json=f"at most {_MOST} pairs of a name and a text",
        is_json=lambda json: _is_list(json, _MOST, _is_file),
        given=lambda argument: tuple((name, read(name)) for name in argument),
        received=lambda json: tuple(map(tuple, json)),
        shown=lambda value: [name for name, _ in value],
    )


def _is_list(json: Any, most: int, right: Callable[[Any], bool]) -> bool:
    return isinstance(json, list) and len(json) <= most and all(map(right, json))


def _is_short(part: Any) -> bool:
    return isinstance(part, str) and len(part) <= _LONGEST


def _is_file(part: Any) -> bool:
    pair = isinstance(part, list) and len(part) == 2
    return pair and _is_short(part[0]) and isinstance(part[1], str)


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its ``flags``, the shortest first, and the ``verbs`` of the command line that
    have it. Requests and measurements have it as ``key``; unless it is ``served``, the service
    refuses it. ``path`` leads from the object that holds all options to its value."""

    flags: Sequence[str]
    kind: Kind
    help: str
    verbs: Collection[str]
    served: bool = True
    key: str = ""
    path: str = ""
    default: Any = None

    @property
    def flag(self) -> str:
        """Its longest name."""
        return self.flags[-1]

    def words(self, arguments: object) -> list[str]:
        """Return the words of a command line that ``arguments`` were parsed from."""
        argument = self._argument(arguments)
        values = argument if isinstance(argument, list) else [argument]
        words = [f"{self.flag}={value}" for value in values]
        return [self.flag] if argument is True else words if argument is not None else []

    def parsed(self, arguments: object) -> Any:
        """Return its value by the parsed ``arguments`` of a verb, which may not have it."""
        argument = self._argument(arguments)
        return self.default if argument is None else self.kind.given(argument)

    def _argument(self, arguments: object) -> Any:
        argument = getattr(arguments, self.flag.strip("-").replace("-", "_"), None)
        return None if argument is False else argument

    def requested(self, request: Mapping[str, Any]) -> Any:
        """Return its value by a request. Raises :class:`UsageError`."""
        value = request.get(self.key)
        if value is None:
            return self.default
        if not self.served:
            raise UsageError(
                f"the hpcd service does not take {self.flag}; record as root without it"
            )
        if not self.kind.is_json(value):
            raise UsageError(f"{self.key} must be {self.kind.json}")
        return self.kind.received(value)


def option(default: Any, flags: str, kind: Kind, verbs: str, help: str, **more: Any) -> Any:
    """Return a field of a dataclass that is an :class:`Option`; without ``key`` its key is the
    field's name. ``flags`` and ``verbs`` are separated by spaces."""
    definition = Option(flags.split(), kind, help, verbs.split(), **more)
    return field(default=default, metadata={"option": definition})


def parts_of(holder: type) -> dict[str, type]:
    """Return the dataclasses of further options in a dataclass: by its fields, their ``part``."""
    return {
        entry.name: entry.metadata["part"] for entry in fields(holder) if "part" in entry.metadata
    }


@cache
def options_of(holder: type) -> tuple[Option, ...]:
    """Return the options of a dataclass and its parts, in order."""
    options = []
    for entry in fields(holder):
        definition = entry.metadata.get("option")
        if definition:
            assert entry.default is not MISSING
            key = definition.key or entry.name
            options.append(replace(definition, path=entry.name, key=key, default=entry.default))
        for inner in options_of(entry.metadata["part"]) if "part" in entry.metadata else ():
            options.append(replace(inner, path=f"{entry.name}.{inner.path}"))
    return tuple(options)


def build(holder: type[_Holder], value_of: Callable[[Option], Any], **others: Any) -> _Holder:
    """Return a ``holder`` of options with the values that ``value_of`` gives, and with ``others``.

    Raises :class:`UsageError` for values out of bounds.
    """
    values = {
        definition.path: value_of(definition)
        for definition in options_of(cast("Any", holder))
        if "." not in definition.path
    }
    for name, inner in parts_of(holder).items():
        if name not in others:
            values[name] = build(inner, value_of)
    return holder(**values, **others)


def requested(
    holder: type[_Holder], request: Mapping[str, Any], known: Collection[str], **others: Any
) -> _Holder:
    """Return a ``holder`` with the options of ``request``, and with ``others``.

    Raises :class:`UsageError` for options out of bounds, those that the service does not take, and
    fields that are neither options nor ``known``.
    """
    keys = {definition.key for definition in options_of(cast("Any", holder))}
    for key in request:
        if key not in keys and key not in known:
            raise UsageError(f"unknown field {key[:_LONGEST]}")
    return build(holder, lambda definition: definition.requested(request), **others)


def request_of(holder: Any) -> dict[str, object]:
    """Return the fields of a request for the options of ``holder`` that have not their default."""
    return {
        definition.key: definition.kind.sent(value)
        for definition, value in _values(holder)
        if value != definition.default
    }


def shown(holder: Any) -> dict[str, object]:
    """Return the options of ``holder`` as JSON, for readers of the measurement."""
    return {
        definition.key: (definition.kind.shown or definition.kind.sent)(value)
        for definition, value in _values(holder)
    }


def check(holder: Any) -> None:
    """Raise :class:`UsageError` for an option that is out of bounds."""
    for definition, value in _values(holder):
        if bounds := definition.kind.bounds(value):
            raise UsageError(f"{definition.flag} must be {bounds}")


def _values(holder: Any) -> list[tuple[Option, Any]]:
    options = options_of(holder.__class__)
    return [(definition, attrgetter(definition.path)(holder)) for definition in options]
