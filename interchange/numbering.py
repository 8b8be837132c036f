"""Tables of distinct things that formats refer to by number: strings, functions, stacks."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)


class Numbering(dict[Key, int]):
    """Numbers keys in the order in which they are first looked up.

    >>> strings = Numbering([""])
    >>> strings["main"], strings["solve"], strings["main"]
    (1, 2, 1)
    >>> list(strings)
    ['', 'main', 'solve']
    """

    def __init__(self, keys: Iterable[Key] = (), *, first: int = 0) -> None:
        """Number ``keys`` in their order; ``first`` is the number of the first key."""
        super().__init__()
        self._first = first
        for key in keys:
            self[key]

    def __missing__(self, key: Key) -> int:
        number = self[key] = self._first + len(self)
        return number
