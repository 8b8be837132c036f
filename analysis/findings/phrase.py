"""Phrases: the parts of a sentence, which hold call paths as names and cut them to fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hpcd.analysis.profile.row_text import CALLS, shorten

# Of a name this much tells it from others.
_LEAST_NAME = 12
# No sentence has room for more names.
_MOST_NAMES = 32


class Phrase(NamedTuple):
    """A part of a sentence: ``words``, then a call path, outermost procedure first: ``names`` of
    the program and ``callee``, what they call in a library; both may be empty.

    ``rank`` 0 is part of every sentence, 1 of those in which one name of each call path has room
    beside it, 2 and higher of those that have room for two; the highest are left out first. Where
    the last of ``names`` is ``said`` before, it does not stand alone.
    """

    words: str
    names: tuple[str, ...] = ()
    callee: str = ""
    rank: int = 0
    said: bool = False

    @property
    def path(self) -> tuple[str, ...]:
        """All names of the call path."""
        return (*self.names, self.callee) if self.callee else self.names

    def text(self, most: int) -> str:
        """Return the phrase with its ``most`` innermost names, of one alone the program's, or the
        library's if that is said; empty if there is none."""
        path = self.path
        if most == 1 and path:
            name = self.callee if self.said or not self.names else self.names[-1]
            return self.words + name if name else ""
        left = max(len(path) - most, 0)
        return self.words + (f"(+{left}) " if left else "") + CALLS.join(path[left:])


NO_PHRASE = Phrase("")


def fit_phrases(phrases: Sequence[Phrase], room: int) -> list[str]:
    """Return the texts of ``phrases``, of ``room`` characters or fewer together where words alone
    have that room: with shorter call paths, without those of a rank, with shorter names, without
    call paths, in this order. Those left out are empty. What room is left has the callers of those
    that are kept, the last one's first: it tells who was waited for."""
    for rank, most in _steps(phrases):
        texts = [phrase.text(most) if phrase.rank <= rank else "" for phrase in phrases]
        left = room - sum(map(len, texts))
        if left < 0:
            continue
        for at in reversed(range(len(phrases))):
            for more in range(most + 1, len(phrases[at].path) + 1 if texts[at] else 0):
                longer = phrases[at].text(more)
                if len(longer) - len(texts[at]) > left:
                    break
                left += len(texts[at]) - len(longer)
                texts[at] = longer
        return texts
    kept = [phrase if phrase.rank == 0 else NO_PHRASE for phrase in phrases]
    while any(phrase.path for phrase in kept):
        named = sum(bool(phrase.path) for phrase in kept)
        width = (room - sum(len(phrase.words) for phrase in kept)) // named
        texts = [
            phrase.words + shorten(name, max(width, _LEAST_NAME)) if name or not phrase.path else ""
            for phrase in kept
            for name in (phrase.text(1)[len(phrase.words) :],)
        ]
        if sum(map(len, texts)) <= room:
            return texts
        # The amounts are worth more than the first path; the last path is the one waited for.
        kept[next(at for at, phrase in enumerate(kept) if phrase.path)] = NO_PHRASE
    return [phrase.words for phrase in kept]


def _steps(phrases: Sequence[Phrase]) -> Iterator[tuple[int, int]]:
    """Yield the highest rank that is kept and the most names of a path, the longest text first."""
    longest = max((len(phrase.path) for phrase in phrases), default=0)
    highest = max((phrase.rank for phrase in phrases), default=0)
    for rank in range(max(highest, 1), 0, -1):
        for most in range(min(max(longest, 2), _MOST_NAMES), 1, -1):
            yield rank, most
    yield 1, 1
    yield 0, 1
