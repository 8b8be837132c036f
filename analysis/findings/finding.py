"""A finding: an amount, what it is a share of, its place, and the sentence that says so."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from hpcd.analysis.findings.places import Place
from hpcd.analysis.profile.row_text import CALLS
from hpcd.wording import percent, quantity

LEAST_SHARE = 0.05
"""Less is no news."""
_LONGEST = 120
"""A sentence is not longer if its call paths can be shorter: it is read at a glance."""
_PATH = re.compile(r"(?:^|(?<= ))(?:in|by) ")
_SECOND = re.compile(r"^; \d+ % in [^;]*")
_LEFT_OUT = re.compile(r"\(\+(\d+)\) ")


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
        before = f"{self.subject} {quantity(self.value, self.unit)}{share}"
        place, more = f", {self.place}" if self.place else "", self.more
        room = _LONGEST - len(before) - 1
        place = _shorten_path(place, room - len(more))
        if len(place) + len(more) > room and self.kind != "hot":
            more = _SECOND.sub("", more)
        return f"{before}{place}{_shorten_path(more, room - len(place))}."

    def as_json(self) -> dict[str, Any]:
        """Its fields for the page, amounts in ``unit``."""
        return {**vars(self), "text": self.text}


def _shorten_path(words: str, width: int) -> str:
    """Return ``words``, which end in a call path or not, with less of its outermost frames if they
    are longer than ``width``; two are left, as the innermost one may be a library's."""
    begins = [match.end() for match in _PATH.finditer(words)]
    if not begins:
        return words
    head, path = words[: begins[-1]], words[begins[-1] :]
    names = path.split(CALLS)
    counted = _LEFT_OUT.match(names[0])
    left = int(counted[1]) if counted else 0
    names[0] = names[0][counted.end() :] if counted else names[0]
    while len(names) > 2 and len(words) > width:
        del names[0]
        left += 1
        words = f"{head}(+{left}) {CALLS.join(names)}"
    return words


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
