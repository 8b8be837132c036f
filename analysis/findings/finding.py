"""A finding: an amount, what it is a share of, its place, and the sentence that says so."""

from __future__ import annotations

from dataclasses import dataclass

from hpcd.analysis.findings.phrase import NO_PHRASE, Phrase, fit_phrases
from hpcd.analysis.findings.places import Place
from hpcd.analysis.profile.row_text import shorten
from hpcd.wording import percent, quantity

LEAST_SHARE = 0.05
"""Less is no news."""
# Of a share below this the first digit is behind the point.
_FEW = 0.01
LONGEST = 120
"""No sentence has more characters: it is read at a glance."""


@dataclass(frozen=True)
class Finding:
    """A finding, in a sentence (``text``).

    ``kind`` is hot, system, locks, communication, sleep, network, blocked, runnable, imbalance,
    children, processes, io, messages, memory, or outside: other programs had the CPUs. ``subject``
    takes ``value`` ``unit``, which is ``share`` (0 to 1) of ``whole``, at ``place``, a call path or
    empty; ``more`` is what else is to be said, with the signs before it. ``procedure`` is the
    display name of the one it is about, or empty; ``line`` the trace line it is about, or None;
    ``rule`` the name of its rule.
    """

    kind: str
    subject: str
    value: float
    unit: str
    share: float
    whole: str
    place: Phrase = NO_PHRASE
    more: tuple[Phrase, ...] = ()
    procedure: str = ""
    line: int | None = None
    rule: str = ""

    @property
    def text(self) -> str:
        """The sentence."""
        before, place, *more = self._parts
        return shorten("".join((before, f", {place}" if place else "", *more)), LONGEST - 1) + "."

    def as_json(self) -> dict[str, object]:
        """Its fields, amounts in ``unit``: ``place`` and ``more`` as the sentence has them,
        ``path`` the whole call path."""
        _, place, *more = self._parts
        words = {"place": place, "more": "".join(more), "text": self.text}
        return {**vars(self), **words, "path": self.place.path}

    @property
    def _parts(self) -> list[str]:
        share = (
            f", {percent(self.share, int(self.share < _FEW))} of {self.whole}" if self.whole else ""
        )
        before = f"{self.subject} {quantity(self.value, self.unit)}{share}"
        # A comma before the place, and the full stop.
        return [before, *fit_phrases((self.place, *self.more), LONGEST - len(before) - 3)]


def most_of(paths: list[Place], seconds: float) -> tuple[Phrase, tuple[Phrase, ...]]:
    """Return the costliest of ``paths`` in words, and one more that matters with shares."""
    shares = [(place, place.seconds / seconds) for place in paths[:2] if place.path]
    if not shares:
        return NO_PHRASE, ()
    if shares[0][1] >= 0.9:
        return shares[0][0].phrase("in "), ()
    first, *more = [
        place.phrase(f"{percent(share, 0)} in ", rank)
        for (place, share), rank in zip(shares, (0, 2), strict=False)
        if share >= LEAST_SHARE
    ] or [NO_PHRASE]
    return first, tuple(phrase._replace(words=f"; {phrase.words}") for phrase in more)
