"""Text that others chose, made harmless for a terminal.

Names of processes, files, threads and jobs are chosen by whoever is recorded. On a terminal they
could move the cursor, set its title or pass for lines of hpcd's own; in rich's markup they could
style what follows, or fail to parse. Every such text goes through here before it is printed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text


def harmless(text: object) -> str:
    """``text`` with what is not printable (control characters, line ends, characters that change
    the direction of writing) as escapes such as ``\\x1b``."""
    text = str(text)
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def spreadsheet_cell(value: object) -> object:
    """A value for a CSV file: text that a spreadsheet would take for a formula is marked as text,
    and is harmless."""
    if not isinstance(value, str):
        return value
    return harmless(f"'{value}" if value.lstrip().startswith(("=", "+", "-", "@")) else value)


def cell(text: object, style: str = "") -> Text:
    """``text`` for rich, harmless and without markup."""
    from rich.text import Text

    return Text(harmless(text), style=style)
