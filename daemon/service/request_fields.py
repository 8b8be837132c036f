"""Fields of requests: each is checked, and :class:`UsageError` raised in one line."""

from __future__ import annotations

from typing import Any

from hpcd.errors import UsageError

_LONGEST = 4096
_MOST_TEXTS = 64


def whole(request: dict[str, Any], name: str, default: int | None = None) -> int:
    """A whole number from 0 to 2^40."""
    value = request.get(name, default)
    if type(value) is not int or not 0 <= value < 1 << 40:
        raise UsageError(f"{name} must be a whole number")
    return value


def number(request: dict[str, Any], name: str) -> float | None:
    """A number above 0; None if absent."""
    value = request.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise UsageError(f"{name} must be a number above 0")
    return float(value)


def truth(request: dict[str, Any], name: str, default: bool) -> bool:
    """True or false."""
    value = request.get(name, default)
    if not isinstance(value, bool):
        raise UsageError(f"{name} must be true or false")
    return value


def option(request: dict[str, Any], name: str, default: object) -> Any:
    """The option ``name`` of a recording, of the kind that its ``default`` has; None is that of a
    number that may be absent."""
    if isinstance(default, bool):
        return truth(request, name, default)
    return whole(request, name, default) if isinstance(default, int) else number(request, name)


def texts(request: dict[str, Any], name: str) -> list[str]:
    """Return the texts of a field, at most 64 of at most 4,096 characters."""
    value = request.get(name, [])
    if not isinstance(value, list) or not all(
        isinstance(text, str) and len(text) < _LONGEST for text in value
    ):
        raise UsageError(f"{name} must be texts")
    if len(value) > _MOST_TEXTS:
        raise UsageError(f"{name}: more than {_MOST_TEXTS}")
    return value


def pairs(request: dict[str, Any], name: str) -> tuple[tuple[str, str], ...]:
    """Return the pairs of a name and a text of any length of a field, at most 64."""
    value = request.get(name, [])
    if not isinstance(value, list) or not all(
        isinstance(pair, list)
        and len(pair) == 2
        and all(isinstance(part, str) for part in pair)
        and len(pair[0]) < _LONGEST
        for pair in value
    ):
        raise UsageError(f"{name} must be names with texts")
    if len(value) > _MOST_TEXTS:
        raise UsageError(f"{name}: more than {_MOST_TEXTS}")
    return tuple((key, text) for key, text in value)
