"""A finding: an amount, what it is a share of, its place, and the sentence that says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hpcd.analysis.findings.places import Place
from hpcd.wording import percent, quantity

LEAST_SHARE = 0.05
"""Less is no news."""


@dataclass(frozen=True)
class Finding:
    """A finding, in a sentence (``text``).

    ``kind`` is hot, system, locks, communication, sleep, blocked, runnable, imbalance, children,
    processes, io, messages, memory, or outside: other programs had the CPUs. ``subject`` takes
    ``value`` ``unit``, which is ``share`` (0 to 1) of ``whole``, at ``place``, a call path or
    empty; ``more`` is what else is to be said. ``procedure`` is the display name of the one it is
    about, or empty; ``line`` the trace line it is about, or None; ``rule`` the name of its rule.
    """

    kind: str
    subject: str
    value: float
    unit: str
    share: float
    whole: str
    place: str = ""
    more: str = ""
    procedure: str = ""
    line: int | None = None
    rule: str = ""

    @property
    def text(self) -> str:
        """The sentence."""
        share = f", {percent(self.share, 0)} of {self.whole}" if self.whole else ""
        place = f", {self.place}" if self.place else ""
        return f"{self.subject} {quantity(self.value, self.unit)}{share}{place}{self.more}."

    def as_json(self) -> dict[str, Any]:
        """Its fields for the page, amounts in ``unit``."""
        return {**vars(self), "text": self.text}


def most_of(paths: list[Place], seconds: float) -> tuple[str, str]:
    """Return the costliest of ``paths`` in words, and one more that matters with shares."""
    shares = [(place, place.seconds / seconds) for place in paths[:2] if place.words]
    if not shares:
        return "", ""
    if shares[0][1] >= 0.9:
        return f"in {shares[0][0].words}", ""
    first, *more = [f"{percent(share, 0)} in {place.words}" for place, share in shares
                    if share >= LEAST_SHARE] or [""]  # fmt: skip
    return first, "".join(f"; {text}" for text in more)
