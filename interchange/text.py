"""Names as other formats can hold them.

Names of procedures, threads and files are chosen by whoever is recorded: they may have line ends,
control characters, what was no UTF-8, and any length. Nothing is cut; what a format cannot hold is
written as an escape such as ``\\n`` or ``\\x1b``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable


def utf8(text: str) -> str:
    """``text`` that UTF-8 can hold: what was no character as ``\\udc80``."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def one_line(text: str, forbidden: str = "") -> str:
    """``text`` without control characters, line ends, and the characters of ``forbidden``: as
    escapes. Empty names become ``[unnamed]``."""
    text = utf8(text)
    if not text:
        return "[unnamed]"
    if text.isprintable() and not any(letter in text for letter in forbidden):
        return text
    return "".join(
        letter if letter.isprintable() and letter not in forbidden else _escape(letter)
        for letter in text
    )


def _escape(letter: str) -> str:
    if letter.isprintable():
        return f"\\x{ord(letter):02x}"
    return letter.encode("unicode_escape").decode()


def as_json(value: object) -> str:
    """``value`` as compact JSON in ASCII."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def json_names(names: Iterable[str]) -> list[str]:
    """``names`` as JSON strings."""
    return [json.dumps(utf8(name)) for name in names]
