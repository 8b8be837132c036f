"""Texts of a row: names cut to a width."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise

from hpcd.analysis.symbols.short_names import short_names

CALLS = " > "
"""Stands between the frames of a call path that begins with the outermost one."""
CALLED_BY = " < "
"""Stands between the frames of a call path that begins with the innermost one."""
_LOOP = "loop at "


def shorten(name: str, width: int) -> str:
    """``name`` in at most ``width`` characters, cut in the middle: both ends tell most."""
    if len(name) <= width:
        return name
    if width < 2:
        return name[:width]
    tail = (width - 1) * 2 // 5
    return f"{name[: width - 1 - tail]}…{name[len(name) - tail :]}"


def shorten_apart(names: Sequence[str], width: int) -> list[str]:
    """Return ``names`` as :func:`shorten` cuts them, call paths, innermost first, without their
    outermost frames; those that it would make alike begin where they differ."""
    short = [
        f"{name[: width - 1]}…" if CALLED_BY in name and len(name) > width else shorten(name, width)
        for name in names
    ]
    alike: dict[str, list[int]] = {}
    for place, text in enumerate(short):
        alike.setdefault(text, []).append(place)
    for places in alike.values():
        members = [names[place] for place in places]
        if len(set(members)) > 1:
            columns = enumerate(zip(*members, strict=False))
            same = next((at for at, letters in columns if len(set(letters)) > 1), 0)
            for place, name in zip(places, members, strict=True):
                # A few letters before tell what it is the rest of.
                rest = name[max(same - width // 4, 0) :]
                short[place] = f"…{rest}" if len(rest) < width else f"…{rest[: width - 2]}…"
    return short


def path_text(names: Sequence[str], width: int) -> str:
    """The names of a call path, shortened, as :func:`run_name` has them."""
    return run_name(short_names(names), width)


def name_runs(names: Iterable[str]) -> list[str]:
    """Return ``names``; a name that follows itself once, with its number of repetitions."""
    counted = ((name, len(list(repeats))) for name, repeats in groupby(names))
    return [name if count == 1 else f"{name} x{count}" for name, count in counted]


def run_name(names: Sequence[str], width: int) -> str:
    """The names of a run of frames, outermost first, in at most ``width`` characters.

    A procedure that follows itself is named once, with how often. Where there is no room for all,
    the innermost ones are named and the others counted; loops around a loop are left out.
    """
    words = name_runs(names)
    counts = [len(list(repeats)) for _, repeats in groupby(names)]
    whole = CALLS.join(words)
    if len(whole) <= width:
        return whole
    inner = [
        name
        for name, within in pairwise([*names, ""])
        if not (name.startswith(_LOOP) and within.startswith(_LOOP))
    ]
    if len(inner) < len(names):
        return run_name(inner, width)
    text = shorten(words.pop(), width)
    left = sum(counts[:-1])
    for word, count in zip(reversed(words), reversed(counts[:-1]), strict=True):
        rest = f"(+{left - count}) " if left > count else ""
        if len(rest) + len(word) + len(CALLS) + len(text) > width:
            break
        text = word + CALLS + text
        left -= count
    before = f"(+{left}) " if left else ""
    return before + text if len(before) + len(text) <= width else text


def fit(lines: str, room: int, name_room: int) -> str:
    """Tree lines cut on the left: the innermost levels tell neighbours apart."""
    keep = max(room - name_room, 1)
    return lines if len(lines) <= keep else "…" + lines[len(lines) - keep + 1 :]


def joined(parts: Iterable[str], size: int = 1 << 16) -> Iterator[str]:
    """``parts`` in pieces of about ``size`` characters: fewer, larger writes."""
    pending: list[str] = []
    length = 0
    for part in parts:
        pending.append(part)
        length += len(part)
        if length >= size:
            yield "".join(pending)
            pending, length = [], 0
    yield "".join(pending)
