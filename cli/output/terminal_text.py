"""Text that others chose, made harmless for a terminal.

Names of processes, files, threads and jobs are chosen by whoever is recorded. On a terminal they
could move the cursor, set its title or pass for lines of hpcd's own; in rich's markup they could
style what follows, or fail to parse. Every such text goes through here before it is printed.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from hpcd.cli.output.standard_streams import styled
from hpcd.wording import harmless

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

__all__ = ["cell", "console", "harmless", "plain_table", "say", "spreadsheet_cell", "wide_console"]

# Where there is no terminal to fit: enough to see what a command is.
_PIPE_WIDTH = 160


def say(line: str) -> None:
    """Print a line for people to standard error, at once."""
    print(harmless(line), file=sys.stderr, flush=True)


def console(*, stderr: bool = False, **options: Any) -> Console:
    """Standard output or standard error for rich, with rich's ``options``."""
    from rich.console import Console

    return Console(file=styled(sys.stderr if stderr else sys.stdout), highlight=False, **options)


def wide_console() -> Console:
    """Standard output for rich's tables, as wide as the terminal or $COLUMNS; wide in a pipe."""
    out = console()
    if not out.is_terminal and "COLUMNS" not in os.environ:
        out = console(width=_PIPE_WIDTH)
    return out


def plain_table(*numbers: str) -> Table:
    """A table without lines, whose first columns, of these headings, are numbers."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


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
