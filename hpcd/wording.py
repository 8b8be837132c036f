"""Numbers of things in words, and texts that others chose made harmless."""

from __future__ import annotations


def counted(number: int, one: str, many: str = "") -> str:
    """``number`` with its noun: "1 trace line", "2,000 trace lines"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def rounded(value: float, digits: int = 2) -> str:
    """``value`` with ``digits`` significant digits, and all of its whole part: "0.31", "1,480"."""
    return f"{value:.{digits}g}" if abs(value) < 10**digits - 0.5 else f"{value:,.0f}"


def harmless(text: object) -> str:
    """Return ``text`` with unprintable characters (control characters, line ends, changes of the
    direction of writing) as escapes such as ``\\x1b``."""
    text = str(text)
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
