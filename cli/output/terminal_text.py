"""Text that others chose, made harmless for a terminal.

Names of processes, files, threads and jobs are chosen by whoever is recorded. On a terminal they
could move the cursor, set its title or pass for lines of hpcd's own; in rich's markup they could
style what follows, or fail to parse. Every such text goes through here before it is printed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hpcd.wording import harmless

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

__all__ = ["cell", "harmless", "spreadsheet_cell", "wide_console"]

# Where there is no terminal to fit: enough to see what a command is.
_PIPE_WIDTH = 160


def wide_console() -> Console:
    """Standard output for rich's tables, as wide as the terminal or $COLUMNS; wide in a pipe."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(highlight=False, width=_PIPE_WIDTH)
    return console


def spreadsheet_cell(value: object) -> object:
    """A value for a CSV file: text that a spreadsheet would take for a formula is marked as text,
    and is harmless."""
    if not isinstance(value, str):
        return value
    return harmless(f"'{value}" if value.lstrip().startswith(("=", "+", "-", "@")) else value)


def cell(text: object) -> Text:
    """``text`` for rich, harmless and without markup."""
    from rich.text import Text

    return Text(harmless(text))
