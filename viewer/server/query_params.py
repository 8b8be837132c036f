"""The parameters of a request, checked: a client may send anything."""

from __future__ import annotations

from starlette.datastructures import QueryParams

from hpcd.errors import UsageError
from hpcd.viewer.server.selection import Choice

_LONGEST = 400  # characters of a text
_LONGEST_MOVED = 30_000  # thousands of rows
_DIGITS = 24


class QueryParameters:
    """The query of a request. Every method raises :class:`UsageError` for invalid values."""

    def __init__(self, query: QueryParams) -> None:
        self._query = query

    def has(self, name: str) -> bool:
        """Return whether the query has a parameter ``name``."""
        return name in self._query

    def whole(self, name: str, least: int, most: int) -> int:
        """A whole number."""
        return _whole(name, self._query.get(name, ""), least, most)

    def wholes(self, name: str, least: int, most: int, count: int) -> tuple[int, ...]:
        """At most ``count`` whole numbers, given one by one."""
        return tuple(_whole(name, text, least, most) for text in self.texts(name, count))

    def spans(self, name: str, count: int) -> tuple[tuple[int, int], ...]:
        """At most ``count`` spans of time, each as begin:end, ns."""
        spans = []
        for text in self.texts(name, count):
            low, _, high = text.partition(":")
            span = _whole(name, low, 0, 1 << 62), _whole(name, high, 0, 1 << 62)
            if span[0] >= span[1]:
                raise UsageError(f"a {name} ends after it begins")
            spans.append(span)
        return tuple(spans)

    def text(self, name: str, default: str = "", longest: int = _LONGEST) -> str:
        """A short text."""
        return _text(name, self._query.get(name, default), longest)

    def texts(self, name: str, count: int) -> tuple[str, ...]:
        """At most ``count`` short texts, given one by one."""
        texts = self._query.getlist(name)
        if len(texts) > count:
            raise UsageError(f"{name} may be given {count} times")
        return tuple(_text(name, text) for text in texts)

    def numbers(self, name: str, longest: int = _LONGEST) -> list[int]:
        """A few whole numbers between commas, or none."""
        text = self.text(name, longest=longest)
        parts = text.split(",") if text else []
        if not all(part.isascii() and part.isdigit() and len(part) < _DIGITS for part in parts):
            raise UsageError(f"{name} must be whole numbers between commas")
        return [int(part) for part in parts]

    def choice(self) -> Choice:
        """Return the choice of lines and their order."""
        return Choice(
            self.text("filter"), self.text("sort") or "rank", self.text("group"),
            self.has("fold"), self.has("unfolded"), tuple(self.numbers("rows")),
            tuple(self.numbers("moved", _LONGEST_MOVED)), tuple(self.numbers("partners")),
        )  # fmt: skip

    def interval(self) -> tuple[int, int]:
        """From t0 to t1, ns."""
        t0, t1 = (self.whole(name, -(1 << 62), 1 << 62) for name in ("t0", "t1"))
        if t1 <= t0:
            raise UsageError("an interval ends after it begins")
        return t0, t1

    def rows(self, count: int) -> tuple[int, int]:
        """From l0 to l1, places in an order of ``count`` lines."""
        l0, l1 = (self.whole(name, 0, count) for name in ("l0", "l1"))
        if l1 <= l0:
            raise UsageError("no trace lines are requested")
        return l0, l1


def _whole(name: str, text: str, least: int, most: int) -> int:
    try:
        value = int(text) if len(text) < _DIGITS and text.isascii() else None
    except ValueError:
        value = None
    if value is None or not least <= value <= most:
        raise UsageError(f"{name} must be a whole number from {least} to {most}")
    return value


def _text(name: str, text: str, longest: int = _LONGEST) -> str:
    if len(text) > longest or "\0" in text:
        raise UsageError(f"{name} must be a text of at most {longest} characters")
    return text
