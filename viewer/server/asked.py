"""What a request asks for, checked: everything that arrives here may be made up."""

from __future__ import annotations

from collections.abc import Mapping

from hpcd.errors import UsageError
from hpcd.viewer.server.selection import Choice

_LONGEST = 400  # characters of a text
_DIGITS = 24


class Asked:
    """The query of a request. Every method raises :class:`UsageError` for what makes no sense."""

    def __init__(self, query: Mapping[str, str]) -> None:
        self._query = query

    def has(self, name: str) -> bool:
        """Whether it is there at all."""
        return name in self._query

    def whole(self, name: str, least: int, most: int) -> int:
        """A whole number."""
        text = self._query.get(name, "")
        try:
            value = int(text) if len(text) < _DIGITS and text.isascii() else None
        except ValueError:
            value = None
        if value is None or not least <= value <= most:
            raise UsageError(f"{name} must be a whole number from {least} to {most}")
        return value

    def text(self, name: str, default: str = "") -> str:
        """A short text."""
        text = self._query.get(name, default)
        if len(text) > _LONGEST or "\0" in text:
            raise UsageError(f"{name} must be a text of at most {_LONGEST} characters")
        return text

    def choice(self) -> Choice:
        """Which lines, in which order."""
        return Choice(self.text("filter"), self.text("sort") or "rank", self.text("group"))

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
            raise UsageError("no trace lines are asked for")
        return l0, l1
